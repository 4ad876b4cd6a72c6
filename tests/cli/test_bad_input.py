"""Everything that can be asked for wrongly: one clear line, the right exit code, nothing touched."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.errors import UserError
from tests.cli.harness import Command, Result, files_below
from tests.one_line import one_line_from

SMALL = ("--set", "mesh.i=6", "--set", "mesh.j=4", "--backend", "numpy", "--set", "output.plot=false", "--quiet")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["airfoyl"], ["unknown case 'airfoyl'; did you mean 'airfoil'?"]),
        (["nothing-like-it"], ["unknown case 'nothing-like-it'; allowed: advection1d, airfoil"]),
        ([], ["which case?", "meshloom run airfoil", "see meshloom cases"]),
        (["missing.toml"], ["missing.toml: cannot be read: No such file"]),
        (["airfoil", "--set", "mesh.ii=3"], ["--set mesh.ii=3: unknown key 'mesh.ii'; did you mean 'mesh.i'?"]),
        (["airfoil", "--set", "mach=0.5"], ["did you mean 'flow.mach'?"]),
        (["airfoil", "--set", "mesh.i=two"], ['mesh.i must be a whole number from 3 up to 20000, got "two"']),
        (["airfoil", "--set", "flow.mach=-1"], ["flow.mach must be a number from 0.001 up to 10.0, got -1"]),
        (["airfoil", "--set", "flow.mach"], ["expected key=value"]),
        (["tsunami", "--set", r'gauges."$\alpha$"=[1, 2]'], ["expected key=value", "a backslash is written twice"]),
        (["tsunami", "--set", 'gauges."time, s"=[1, 2]'], ["has a name that chart_gauges.csv uses already"]),
        (["airfoil", "--set", "mesh.order=hilber"], ["one of auto, given", "did you mean 'hilbert'?"]),
        (["airfoil", "--set", "schedule.res_calc=owned"], ["has strategy 'owned'; did you mean 'owner'?"]),
        (["airfoil", "--set", "schedule.res_clac=owner"], ["is no loop of this case; did you mean 'res_calc'?"]),
        (["airfoil", "--set", "schedule.res_calc={blok = 3}"], ["did you mean 'block'?"]),
        (["airfoil", "--set", "schedule.res_calc={block = 0}"], ["block must be a whole number from 1 to 16777216"]),
        (["airfoil", "--set", "schedule.res_calc={block = 'a'}"], ["has block 'a'; it must be a whole number"]),
        (["airfoil", "--set", "schedule.res_calc={layout = 'xyz'}"], ["unknown layout 'xyz'"]),
        (
            ["airfoil", "--set", "schedule.res_calc={strategy = 'color', variant = 'data'}"],
            ["has variant 'data'; allowed: plain, indices"],
        ),
        (["airfoil", "--set", "schedule.res_calc={variant = 'indices'}"], ["has variant 'indices'; allowed: plain"]),
        (["airfoil", "--set", "schedule.res_calc=3"], ["must be a strategy or a table"]),
        (["airfoil", "--set", "output.window=[1, 0, 0, 1]"], ["4 numbers in brackets with xmin < xmax"]),
        (["airfoil", "--precision", "half"], ["--precision half: run.precision must be one of double, single"]),
        (["airfoil", "--iterations", "0"], ["--iterations 0: run.iterations must be a whole number from 1"]),
        (["airfoil", "--iterations", "many"], ['got "many"']),
        (["airfoil", "--threads", "-1"], ["run.threads must be a whole number from 0"]),
        (["airfoil", "--backend", "gpu"], ["--backend gpu: run.backend must be one of auto, "]),
        (["airfoil", "--restart", "none.h5"], ["none.h5: no such checkpoint file"]),
        (["airfoil", "--set", "mesh.file=none.su2"], ["none.su2"]),
    ],
)
def test_wrong_requests(meshloom: Command, tmp_path: Path, arguments: list[str], parts: list[str]):
    meshloom("run", *arguments).refused(2, *parts)
    assert files_below(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[mesh]\ni = 3\n", ['bad.toml: no case is named; put a line such as case = "airfoil" at the top']),
        ('case = "airfoli"\n', ["bad.toml:1: unknown case 'airfoli'; did you mean 'airfoil'?"]),
        ("case = 3\n", ["bad.toml:1: case must be a name"]),
        ('case = "airfoil"\n\n[flow]\nmacht = 1\n', ["bad.toml:4: unknown key 'flow.macht'; did you mean"]),
        ('case = "airfoil"\n[flow]\nmach = "fast"\n', ["bad.toml:3: flow.mach must be a number", 'got "fast"']),
        ('case = "airfoil"\n[flow\n', ["bad.toml:2: not valid TOML"]),
        ('case = "airfoil"\n[schedule]\nres_calc = "owned"\n', ["bad.toml:3: schedule.res_calc has strategy 'owned'"]),
        ('case = "airfoil"\n[mesh]\nfile = "wing.xyz"\n', ["wing.xyz"]),
        *(
            (
                f'case = "airfoil"\n[schedule]\nres_calc = {{strategy = "owner", {entry}}}\n',
                [f"schedule.res_calc {part}"],
            )
            for entry, part in (
                ('registers = "64"', "has registers '64'; it must be a whole number"),
                ("registers = true", "has registers True; it must be a whole number"),
                ("registers = 64.0", "has registers 64.0; it must be a whole number"),
                ("registers = 4", "does not fit: registers must be a whole number from 16 to 255, got 4"),
                ('block = "64"', "has block '64'; it must be a whole number"),
                ("block = 0", "does not fit: block must be a whole number from 1 to 16777216, got 0"),
                ("layout = 8", "has layout 8; it must be a string"),
                ('layout = "x"', "does not fit: unknown layout 'x'"),
                ("order = 1", "has order 1; it must be a string"),
            )
        ),
    ],
)
def test_wrong_files(meshloom: Command, tmp_path: Path, text: str, parts: list[str]):
    (tmp_path / "bad.toml").write_text(text)
    meshloom("run", "bad.toml").refused(2, *parts)
    assert list(files_below(tmp_path)) == ["bad.toml"]


def test_malformed_mesh_file(meshloom: Command, tmp_path: Path):
    (tmp_path / "wing.su2").write_text("NDIME= 2\nNELEM= 5\n9 0 1")
    meshloom("run", "airfoil", "--set", "mesh.file=wing.su2").refused(2, "wing.su2")
    assert list(files_below(tmp_path)) == ["wing.su2"]


def test_a_folder_with_a_run_is_not_taken(meshloom: Command, tmp_path: Path):
    assert meshloom("run", "airfoil", *SMALL, "--iterations", "4", "--out", "mine").code == 0
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    before = files_below(tmp_path)
    refused = meshloom("run", "airfoil", *SMALL, "--iterations", "6", "--out", "mine")
    refused.refused(2, "mine already holds a run", "--overwrite")
    assert files_below(tmp_path) == before
    assert meshloom("run", "airfoil", *SMALL, "--iterations", "6", "--out", "mine", "--overwrite").code == 0
    after = files_below(tmp_path)
    assert after["mine/notes.txt"] == b"keep me" and after["mine/monitors.csv"].count(b"\n") == 7
    assert "mine/fields_0000004.vtu" not in after


def test_overwriting_with_a_wrong_mesh_keeps_the_old_run(meshloom: Command, tmp_path: Path):
    assert meshloom("run", "airfoil", *SMALL, "--iterations", "4", "--out", "mine").code == 0
    before = files_below(tmp_path)
    meshloom("run", "airfoil", "--set", "mesh.file=no.su2", "--out", "mine", "--overwrite").refused(2, "no.su2")
    assert files_below(tmp_path) == before


def test_unwritable_output(meshloom: Command, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    for out in ("file", "file/below", "/proc/meshloom-test"):
        meshloom("run", "airfoil", *SMALL, "--out", out).refused(2, f"cannot write to the output folder {out}", "--out")
    assert list(files_below(tmp_path)) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(meshloom: Command, tmp_path: Path):
    (tmp_path / "locked").mkdir(mode=0o500)
    meshloom("run", "airfoil", *SMALL, "--out", "locked/run").refused(2, "Permission denied")


def test_solution_that_blows_up(meshloom: Command, tmp_path: Path):
    arguments = ["airfoil", *SMALL, "--set", "mesh.i=12", "--set", "mesh.j=9"]
    good = meshloom("run", *arguments, "--iterations", "20", "--out", "run")
    assert good.code == 0, good.err
    kept = (tmp_path / "run" / "checkpoint.h5").read_bytes()
    unstable = ("--iterations", "9000", "--set", "flow.cfl=40", "--quiet")
    broken = meshloom("run", "--restart", "run/checkpoint.h5", *unstable)
    broken.refused(1, " is ", " in cell ", "after loop ", "in iteration ", "run/checkpoint.h5 (iteration 20)",
                   warned="flow.cfl = 40 is longer")  # fmt: skip
    assert (tmp_path / "run" / "checkpoint.h5").read_bytes() == kept
    assert "nan" not in (tmp_path / "run" / "monitors.csv").read_text()
    fresh = meshloom("run", *arguments, *unstable)
    fresh.refused(1, "after loop ", "no checkpoint had been written yet", warned="flow.cfl = 40 is longer")


@pytest.mark.parametrize("order", ["given", "random"])
def test_the_cell_is_named_in_the_users_numbering(meshloom: Command, order: str):
    result = meshloom(
        "run", "airfoil", "--set", "mesh.i=12", "--set", "mesh.j=9", "--backend", "numpy", "--quiet",
        "--set", "flow.cfl=1000", "--iterations", "50", "--set", f"mesh.order={order}", "--set", "output.plot=false",
    )  # fmt: skip
    result.refused(1, " is NaN in cell ", warned="flow.cfl = 1000 is longer")
    cell = int(result.err.split(" in cell ")[1].split()[0])
    x, y = result.err.split(" at (")[1].split(")")[0].split(", ")
    import meshloom as ml

    assert ml.generate.naca0012(12, 9).cells.points[cell] == pytest.approx((float(x), float(y)), rel=1e-3, abs=1e-3)


@pytest.mark.slow
def test_disk_full(meshloom: Command, tmp_path: Path):
    """Checkpoints grow with the history; a limit on the size of files makes a later one fail, as a full disk would."""
    whole = ("run", "airfoil", *SMALL, "--set", "output.vtu=false", "--set", "output.checkpoint_every=20")
    assert meshloom(*whole, "--iterations", "20", "--out", "full").code == 0
    assert meshloom(*whole, "--iterations", "120", "--out", "enough").code == 0
    room = (tmp_path / "full" / "checkpoint.h5").stat().st_size + 50 * 8
    go_on = ("run", "--restart", "full/checkpoint.h5", "--iterations", "120", "--quiet")
    done = subprocess.run(
        (sys.executable, "-m", "meshloom", *go_on), cwd=tmp_path, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )  # fmt: skip
    result = Result(done.returncode, done.stdout, done.stderr)
    result.refused(1, "cannot write full/checkpoint.h5: disk full", "checkpoint is full/checkpoint.h5 (iteration 60)")
    names = {path.name for path in (tmp_path / "full").iterdir()}
    own = {"run.toml", "monitors.csv", "checkpoint.h5", "report.html", "report.json"}
    assert names == own | {"integrals.csv", "chart_cp.csv"}  # of the first part, which came to its end
    assert meshloom(*go_on).code == 0
    assert (tmp_path / "full" / "monitors.csv").read_bytes() == (tmp_path / "enough" / "monitors.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["fly"], "No such command 'fly'; see"),
        (["lists"], "No such command 'lists'; did you mean 'cases'?"),  # not its other name, list
        *((["lst"], "; did you mean 'cases'?"), (["LIST"], "; did you mean 'cases'?")),
        *((["Case"], "; did you mean 'cases'?"), (["airfoil"], "; did you mean 'run airfoil'?")),
        (["runs"], "No such command 'runs'; did you mean 'run'?"),
        (["run", "airfoil", "--fast"], "No such option: --fast"),
        (["run", "airfoil", "--iterations"], "--iterations"),
        (["run", "airfoil", "one", "two"], "one two"),
        (["run", "airfoil", "--quiet=3"], "--quiet"),
        (["show"], "CASE_OR_FILE"),
        (["--fast"], "--fast"),
        (["run", "air\nfoil", "--fa\nst"], "--fa"),
    ],
)
def test_commands_that_are_none(meshloom: Command, arguments: list[str], part: str):
    meshloom(*arguments).refused(2, part, "; see meshloom", "--help")


def test_without_a_command_there_is_help(meshloom: Command):
    result = meshloom()
    assert "meshloom run airfoil" in result.out + result.err and "Traceback" not in result.err
    *_, last = filter(None, map(str.strip, meshloom("--help").out.splitlines()))
    assert last == "Start with: meshloom run airfoil; meshloom cases lists all that can be run."
    assert meshloom("--help").code == 0 == meshloom("run", "--help").code == meshloom("--version").code


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["run", "a" * 300], "unknown case 'aaa"),
        (["run", "a/" * 3000], "unknown case 'a/a"),
        (["run", f"{'a' * 300}.toml"], "cannot be read: File name too long"),
        (["run", ""], "unknown case ''"),
        (["run", "a\0b"], "argument 2, 'a\\x00b', is not text"),
        (["run", "airfoil", "--out", ""], "--out '' names nothing"),
        (["run", "airfoil", "--restart", ""], "--restart '' names nothing"),
        (["run", "airfoil", "--restart", "c" * 300], "no such checkpoint file"),
        (["run", "airfoil", "--out", "o" * 300], "cannot write to the output folder"),
        (["run", "airfoil", "--out", "o\udcff"], "argument 4, 'o\\udcff', is not text"),
        (["run", "airfoil", "--set", "mesh.file=\udcff"], "argument 4"),
        (["run", "airfoil", "--set", 'mesh.file="\\u0000.su2"'], "mesh.file cannot be"),
        (["run", "airfoil", "--set", "mesh.file=~nobody-here/a.su2"], "mesh.file cannot be"),
        (["run", "airfoil", "--set", f"mesh.file={'a' * 300}.su2"], "File name too long"),
        (["run", "airfoil", "--set", f"mesh.i={'9' * 5000}"], "mesh.i must be a whole number"),
        (["run", "airfoil", "--set", f"mesh.i=0x{'f' * 5000}"], "mesh.i must be a whole number"),
        (["run", "airfoil", "--set", f"mesh.i={'[' * 5000}"], "nested more than"),
        (["run", "airfoil", "--set", f"{'a.' * 5000}b=1"], "nested more than"),
        (["run", "airfoil", "--set", f"{'a' * 5000}=1"], "unknown key 'aaa"),
        (["run", "airfoil", "--set", "flow.mach=5e-324"], "numbers are 0, or 1e-100 to 1e+100 in size"),
    ],
)
def test_long_empty_and_unreadable_arguments(meshloom: Command, tmp_path: Path, arguments: list[str], part: str):
    result = meshloom(*arguments)
    result.refused(2, part)
    assert len(result.err) < 1000 and files_below(tmp_path) == {}


def test_the_folder_of_a_request_in_python_is_checked_too(tmp_path: Path):
    from meshloom.run.folder import claim

    for name in ("a\0b", "a\udcff"):
        with one_line_from(UserError, "is not UTF-8 text"):
            claim("airfoil", tmp_path / name)


def test_a_restart_of_another_case_says_so(meshloom: Command, tmp_path: Path):
    assert meshloom("run", "airfoil", *SMALL, "--iterations", "1", "--out", "wing").code == 0
    before = files_below(tmp_path)
    meshloom("run", "volna_lake", "--restart", "wing/checkpoint.h5").refused(
        2, "wing/checkpoint.h5: checkpoint of case 'airfoil', not of 'volna_lake'")  # fmt: skip
    assert files_below(tmp_path) == before


@pytest.mark.slow
def test_names_are_shown_where_the_terminal_has_no_letters_for_them(tmp_path: Path):
    """An ASCII terminal: names are escaped, and the run is not lost for it."""
    settings = ('gauges."ü"=[40e3, 30e3]', "mesh.nx=6", "mesh.ny=4", "output.plot=false", "run.backend=numpy")
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "meshloom", "run", "tsunami", *words, "--iterations", "1"]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=ascii_only, capture_output=True, timeout=120)
    assert done.returncode == 0 and b"\\xfc" in done.stdout, done.stderr


@pytest.mark.parametrize("wish", ["error", pytest.param("ignore", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_what_there_is_to_say_is_said_whatever_python_makes_of_warnings(tmp_path: Path, wish: str):
    """Never an exception, never silence."""
    words = ["--set", "mesh.i=6", "--set", "mesh.j=6", "--set", "output.plot=false", "--iterations", "1", "--quiet"]
    command = [sys.executable, "-m", "meshloom", "run", "airfoil", *words]
    strange = os.environ | {"PYTHONWARNINGS": wish, "MESHLOOM_CACHE": os.devnull}
    strange["MESHLOOM_CXXFLAGS"] = "-O0"  # without a cache everything is compiled, here and nowhere else
    done = subprocess.run(command, cwd=tmp_path, env=strange, capture_output=True, timeout=300, text=True)
    assert done.returncode == 0 and "is not used: /dev/null is not a folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.slow
def test_what_is_said_at_import_is_one_line_too(tmp_path: Path):
    odd = os.environ | {"OMP_NUM_THREADS": "abc"}
    command = [sys.executable, "-m", "meshloom", "cases"]
    done = subprocess.run(command, cwd=tmp_path, env=odd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr.startswith("meshloom: OMP_NUM_THREADS is 'abc'") and done.stderr.count("\n") == 1, done.stderr


def test_a_long_name_moves_its_own_line_alone(meshloom: Command):
    name = "long " * 60
    settings = (f'gauges."{name}"=[40e3, 30e3]', "mesh.nx=6", "mesh.ny=4", "output.plot=false", "run.backend=numpy")
    words = [word for setting in settings for word in ("--set", setting)]
    lines = meshloom("run", "tsunami", *words, "--iterations", "1").out.splitlines()
    assert any(line.startswith(f"  {name}  ") for line in lines)
    assert any(line.startswith(f"  {'iterations':40}  1") for line in lines)
