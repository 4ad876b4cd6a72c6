"""What the command tells about ranks of MPI: which cases run on them, how they are started, which MPI there is."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from meshloom.catalogue import find
from meshloom.cli import launcher
from tests.cli.harness import Command, files_below

OWN = """
from meshloom.solvers.advection.line import Pulse

class Mine(Pulse):
    name, title, not_on_ranks = "own_pulse", "a pulse that does not know", ""
"""


def test_cases_that_take_one_process_are_marked(meshloom: Command) -> None:
    said = {line.split()[0]: line.endswith("; one process") for line in meshloom("cases").out.splitlines()}
    told = {one["case"]: one for one in meshloom("cases", "--json").json}
    assert said == {name: not one["ranks"] for name, one in told.items()}
    assert {name: one["not_on_ranks"] for name, one in told.items()} == {name: find(name).not_on_ranks for name in told}
    assert said["cavity2d"] and said["advection1d"] and not said["airfoil"] and not said["lulesh"]


@pytest.mark.parametrize("case", ["advection1d", "taylor_green_inc", "own_pulse.py"])
def test_partition_says_what_does_not_run(meshloom: Command, tmp_path: Path, case: str) -> None:
    (tmp_path / "own_pulse.py").write_text(OWN)
    size = "mesh.cells=[8,8]" if case == "taylor_green_inc" else "mesh.points=16"
    said = meshloom("partition", case, "-n", "2", "--set", size).out.splitlines()[1]
    why = find(case).not_on_ranks if case != "own_pulse.py" else ""
    begins = f"  case '{case}', {why}, does not" if why else "  case 'own_pulse' does not"
    assert said.startswith(f"{begins} run on several ranks yet") and "this is how it would be cut" in said
    assert why or ("loop " in said and "grids are cut along axis x" in said)
    found = meshloom("partition", case, "-n", "2", "--set", size, "--json").json
    assert found["refused"] and found["refused"] in said
    runs = meshloom("partition", "airfoil", "-n", "2", "--set", "mesh.i=8", "--set", "mesh.j=12", "--json").json
    assert runs["refused"] == ""


def test_what_a_case_says_of_ranks_is_text(meshloom: Command, tmp_path: Path) -> None:
    (tmp_path / "own_pulse.py").write_text(OWN.replace('""', "True"))
    meshloom("show", "own_pulse.py").refused(2, "class Mine has not_on_ranks = True; it must be text")


@pytest.mark.parametrize(("words", "typed"), [
    (("airfoil", "--ranks", "4"), "-n 4 meshloom run airfoil"),
    (("airfoil", "--ranks=4", "--quiet"), "-n 4 meshloom run airfoil --quiet"),
    (("airfoil", "-n", "4", "--set", "mesh.i=8"), "-n 4 meshloom run airfoil --set mesh.i=8"),
    (("-n4", "airfoil"), "-n 4 meshloom run airfoil"),
    (("airfoil", "-np", "3"), "-n 3 meshloom run airfoil"),
    (("airfoil", "--set", "run.ranks=2"), "-n 2 meshloom run airfoil"),
    (("airfoil", "--set=run.ranks=2", "--out", "a b"), "-n 2 meshloom run airfoil --out 'a b'"),
    (("airfoil", "--ranks"), "-n N meshloom run airfoil"),
])  # fmt: skip
def test_ranks_are_asked_of_a_launcher(meshloom: Command, tmp_path: Path, words: tuple[str, ...], typed: str) -> None:
    result = meshloom("run", *words)
    result.refused(2, "ranks are started by a launcher of MPI: mpirun ")
    assert result.err.rstrip("\n").endswith(f"mpirun {typed}") and files_below(tmp_path) == {}


def test_other_options_are_refused_as_ever(meshloom: Command) -> None:
    meshloom("run", "airfoil", "--rank", "4").refused(2, "No such option: --rank")
    meshloom("show", "airfoil", "-n", "4").refused(2, "No such option: -n")
    meshloom("run", "airfoil", "--set", "run.rank=4").refused(2, "run.rank")
    assert "mpirun -n 4 meshloom run airfoil" in meshloom("run", "--help").out


def test_info_tells_of_mpi_without_starting_it(meshloom: Command) -> None:
    said = meshloom("info").out
    assert f"\nmpi        mpi4py {metadata.version('mpi4py')}, " in said
    assert " -n 4 meshloom run airfoil\n" in said.partition("\nlauncher   ")[2]
    code = "import sys; from meshloom.cli import launcher; [*launcher.text_lines()]; print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "False\n", done.stderr


def test_what_of_mpi_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    library, started = launcher.text_lines()
    assert "whose MPI does not answer" in library and started.startswith("launcher   none found: pip install '")
    (tmp_path / "mpiexec").touch(0o755)
    assert [*launcher.text_lines()][1] == "launcher   mpiexec -n 4 meshloom run airfoil"

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    (said,) = launcher.text_lines()
    assert said.startswith("mpi        no mpi4py, needed for several ranks: pip install '")


def test_one_line_of_json_for_programs(meshloom: Command) -> None:
    size = ("--set", "mesh.i=6", "--set", "mesh.j=8", "--set", "output.plot=false", "--backend", "numpy")
    found = meshloom("run", "airfoil", *size, "--iterations", "2", "--json", "--set", "run.reproducible=true").json
    assert (found["ranks"], found["reproducible"]) == (1, True)
    page = json.loads(Path("runs/airfoil-001/report.json").read_text())
    assert page["going_on"].startswith("meshloom run --restart ")
