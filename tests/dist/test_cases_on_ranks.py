"""Cases, scripts with files and commands on several ranks: the same files as on one, one voice, one end."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.backend.machine import machine_rows
from meshloom.dist import ending
from meshloom.errors import RunError, UserError
from meshloom.io.files import write_atomically
from meshloom.io.monitors import MonitorLog, SampleLog
from meshloom.io.vtk import Series
from meshloom.process import ranks as of_process
from meshloom.run import facts
from meshloom.run.folder import RunFolder, claim
from meshloom.run.names import restart_command
from meshloom.run.stop import StopRequest
from tests.dist import launch, on_ranks_cases
from tests.dist.launch import ROOT

SMALL = ("--set", "mesh.i=6", "--set", "mesh.j=8", "--set", "output.plot=false", "--backend", "numpy")


def launched(ranks: int | None, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A Python program on so many ranks; None: without a launcher."""
    return launch.launched(ranks, [*words], cwd=cwd)


def ran(ranks: int | None, backend: str, folder: Path, *runs: str) -> dict[str, Any]:
    """What ``on_ranks_cases`` prints."""
    done = launched(ranks, "-m", "tests.dist.on_ranks_cases", backend, str(folder), *runs)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("iteration 12") == sum(run.startswith("march") for run in runs), "one voice"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("ranks") == (ranks or 1)
    return found


def differing(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The files that are not the same, or that only one side has."""
    return [f"{run}/{name}" for run in found | expected for name in found.get(run, {}) | expected.get(run, {})
            if found.get(run, {}).get(name) != expected.get(run, {}).get(name)]  # fmt: skip


def test_files_and_cases_are_the_same_on_ranks(tmp_path: Path) -> None:
    runs = "march", "files", "airfoil"
    with ml.using("numpy", reproducible=True):
        expected = on_ranks_cases.ran("numpy", tmp_path / "alone", *runs)
    assert {"checkpoint.h5", "monitors.csv", "probes.csv", "fields_0000012.vtu"} <= expected["march"].keys()
    assert {"checkpoint.h5", "integrals.csv", "chart_across.csv", "surface_0000012.vtu"} <= expected["airfoil"].keys()
    assert expected["files"].keys() == {"saved.h5", "mesh.vtu", "values"}
    assert "mpi4py.MPI" not in sys.modules, "nobody needs it without a launcher"
    found = differing(ran(2, "numpy", tmp_path / "ranks", *runs), expected)
    # Comments in it may tell of what other tests have done in this process; checkpoint.h5 has the settings, too.
    assert [name for name in found if name != "airfoil/run.toml"] == []


#: A mesh, a stencil program of a script on a grid, nodes that move, and implicit steps.
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "emulated"])
@pytest.mark.parametrize("name", ["airfoil", "stencil", "lulesh", "implicit"])
def test_a_run_goes_on_with_other_numbers_of_ranks(tmp_path: Path, name: str, backend: str) -> None:
    for ranks, last in ((1, 4), (4, 8), (2, 12)):
        found = ran(ranks, backend, tmp_path / "parts", f"{name}:{last}")
    expected = ran(3, backend, tmp_path / "whole", name)
    assert found[name].keys() >= expected[name].keys() - {"values"}
    fields = {one for one in expected[name] if one.startswith("fields_0000012.")}
    assert fields
    for file in ("checkpoint.h5", "monitors.csv", "values", *fields):
        assert found[name][file] == expected[name][file], file


# ----- how ranks end ------------------------------------------------------------------------------------------------
class Ranks:
    """A communicator in which this process is ``rank``, and the others have sent ``others``: (said, code) each, None of
    one that never comes."""

    def __init__(self, rank: int, *others: tuple[str, int] | None, late: float = 0.0):
        self.rank, self.size, self.others, self.late = rank, len(others) + 1, others, late
        self.aborted: list[int] = []

    def Iallgather(self, own: np.ndarray, found: np.ndarray) -> Any:
        rows = [None if one is None else packed(*one) for one in self.others]
        rows.insert(self.rank, own)
        if here := all(row is not None for row in rows):
            found[:] = np.stack([row for row in rows if row is not None])
        ready = time.monotonic() + self.late
        return type("Request", (), {"Test": lambda _: here and time.monotonic() >= ready})()

    def isend(self, value: int, to: int) -> None:
        """The others have no error, and hear nothing."""

    def iprobe(self) -> bool:
        return False

    def Abort(self, code: int) -> None:
        self.aborted.append(code)
        raise SystemExit(code)


def packed(said: str, code: int) -> np.ndarray:
    """What a rank sends, taken from what it would send."""
    seen: list[np.ndarray] = []

    class Alone(Ranks):
        def Iallgather(self, own: np.ndarray, found: np.ndarray) -> Any:
            seen.append(own.copy())
            return super().Iallgather(own, found)

    ending.arrive(Alone(0), said, code, None)
    return seen[0]


@pytest.mark.parametrize(
    ("rank", "own", "others", "expected"),
    [
        (0, ("no such case", 2), [("no such case", 2)] * 2, ("no such case", 2, 0)),
        (1, ("no such case, é", 2), [("no such case, é", 2)] * 2, ("no such case, é", 2, 0)),
        (0, ("", 0), [("", 0), ("disk full", 1)], ("rank 2: disk full", 1, 2)),
        (2, ("x" * 9000, 1), [("", 0), ("", 0)], (f"rank 2: {'x' * 4000}", 1, 2)),
        (0, ("", 130), [("", 130)] * 3, ("", 130, 0)),
        (0, ("", 0), [("", 0)] * 2, ("", 0, 0)),
    ],
)
def test_ranks_that_arrive_end_with_one_line_and_one_code(
    rank: int, own: tuple[str, int], others: list[tuple[str, int] | None], expected: tuple[str, int, int]
) -> None:
    assert ending.arrive(Ranks(rank, *others), *own, None) == expected


def test_a_rank_whose_others_never_come_says_so_and_ends_all(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ending, "SECONDS", 0.01)
    kept = os.dup(2)
    for tell, expected in (
        (None, "meshloom: rank 1: out of memory\n"),
        (lambda: os.write(2, b"why\n"), "meshloom: rank 1:\nwhy\n"),
    ):
        ranks = Ranks(1, ("", 0), None)
        try:
            with pytest.raises(SystemExit):
                ending.arrive(ranks, "out of memory", 1, tell)
        finally:
            os.dup2(kept, 2)
        assert ranks.aborted == [1] and capfd.readouterr().err == expected
    os.close(kept)


def test_a_rank_without_an_error_waits_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "SECONDS", 0.01)
    assert ending.arrive(Ranks(0, ("", 0), late=0.05), "", 0, None) == ("", 0, 0)


class Pair(of_process.OneProcess):
    """Two ranks, of which this process is one: what it gets is what the root would have sent."""

    size = 2

    def __init__(self, rank: int, sent: Any = None):
        self.rank, self.sent = rank, sent

    def broadcast(self, value: Any, what: str = "") -> Any:
        self.sent = value if self.rank == 0 else self.sent
        return self.sent


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pair], Pair]:
    def join(pair: Pair) -> Pair:
        monkeypatch.setattr(of_process, "_found", lambda: pair)
        return pair

    return join


def test_the_root_works_and_the_others_get_what_came_of_it(joined: Callable[[Pair], Pair]) -> None:
    root = joined(Pair(0))
    assert of_process.on_root(lambda: of_process.on_root(lambda: 5) + of_process.ranks().size) == 6
    assert root.sent == (6, None)
    with pytest.raises(RunError, match="disk full"):
        of_process.on_root(lambda: _raise(RunError("disk full")))
    failed = root.sent
    joined(Pair(1, (6, None)))
    assert of_process.on_root(lambda: pytest.fail("others do not work")) == 6
    joined(Pair(1, failed))
    with pytest.raises(RunError, match="disk full"):
        of_process.on_root(lambda: None)
    assert of_process.on_root(lambda: pytest.fail("nor after an error"), told=False) is None


def test_an_error_that_no_other_process_can_raise_is_told_in_its_words(joined: Callable[[Pair], Pair]) -> None:
    class Odd(UserError):
        def __init__(self, one: int, two: int):
            super().__init__(f"{one} and {two}")

    joined(Pair(0))
    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        of_process.on_root(lambda: _raise(Odd(1, 2)))


def _raise(error: Exception) -> None:
    raise error


WRITERS: dict[str, Callable[[Path], object]] = {
    "write_atomically": lambda path: write_atomically(path, b"text"),
    "MonitorLog": lambda path: MonitorLog(path, ("rms",), np.ones((2, 1))).close(),
    "SampleLog": lambda path: SampleLog(path, ("rms",)).open(),
    "Series": lambda path: Series(path).add(0.5, path),
    "save": lambda path: ml.save(path, ml.Global(2.0, "two")),
    "write": lambda path: ml.write(path.with_suffix(".vtu"), ml.generate.box((2, 1), cells="quad")),
    "begin": lambda path: RunFolder(path.parent, replaces=True).begin(),
    "claim": lambda path: claim("airfoil", path),
}
#: What the root has to tell of files that all ranks write; this one has none of their blocks.
TOLD = {"save": [b"content"], "write": Path("next to it")}


@pytest.mark.parametrize("writer", WRITERS)
def test_the_root_alone_writes(tmp_path: Path, joined: Callable[[Pair], Pair], writer: str) -> None:
    (tmp_path / "monitors.csv").write_text("of before\n")
    before = sorted(tmp_path.iterdir())
    joined(Pair(1, (TOLD.get(writer), None)))
    WRITERS[writer](tmp_path / "file")
    assert sorted(tmp_path.iterdir()) == before


AFTER_ERRORS: dict[str, Callable[[Path], object]] = {
    "monitors": lambda path: MonitorLog.__new__(MonitorLog).close(failed=True),
    "samples": lambda path: SampleLog.__new__(SampleLog).close(failed=True),
    "abandon": lambda path: RunFolder(path / "empty", created=True).abandon(),
    "give_back": lambda path: RunFolder(path, replaces=True).give_back(),
}


@pytest.mark.parametrize("what", AFTER_ERRORS)
def test_after_an_error_the_root_alone_works_and_nobody_waits(
    tmp_path: Path, joined: Callable[[Pair], Pair], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for name in ("empty", ".replacing"):
        (tmp_path / name).mkdir()
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Pair, "broadcast", lambda *_: pytest.fail("the others may not be here"))
    joined(Pair(1))
    AFTER_ERRORS[what](tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_the_root_alone_has_the_lock_of_a_folder(tmp_path: Path) -> None:
    folder = claim("airfoil", tmp_path / "run")
    assert folder.lock is not None
    assert pickle.loads(pickle.dumps(folder)) == replace(folder, lock=None)
    folder.release()


@pytest.mark.parametrize("number", [0, signal.SIGTERM])
def test_clocks_signals_and_answers_are_those_of_all(
    joined: Callable[[Pair], Pair], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(Pair, "largest", lambda _, own: max(own, number))
    joined(Pair(1, True))
    with StopRequest() as stop:
        assert bool(stop) == bool(number) and stop.number == number
        assert stop.checkpoint_wanted() == bool(number)


@pytest.mark.parametrize(("ranks", "launcher", "each"), [(1, "", ""), (2, "mpirun -n 2 ", ", on each of 2 ranks")])
def test_what_is_typed_and_where_it_ran_names_the_ranks(
    joined: Callable[[Pair], Pair], monkeypatch: pytest.MonkeyPatch, ranks: int, launcher: str, each: str
) -> None:
    if ranks == 2:
        joined(Pair(0))
    checkpoint = Path("runs/a b/checkpoint.h5")
    assert restart_command(checkpoint) == f"{launcher}meshloom run --restart 'runs/a b/checkpoint.h5'"
    for typed, expected in (["/bin/meshloom", "run"], "meshloom run"), (["heat.py"], "python heat.py"):
        monkeypatch.setattr(sys, "argv", typed)
        assert facts.command() == f"{launcher}{expected}"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert facts.command() == "", "nobody knows what was typed"
    with ml.using("numpy"):
        assert dict(machine_rows(current()))["back end"] == f"numpy{each}"


# ----- commands -----------------------------------------------------------------------------------------------------
def command(ranks: int | None, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return launched(ranks, "-m", "meshloom", *words, cwd=cwd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "airfoyl"), "unknown case 'airfoyl'; did you mean 'airfoil'?"),
        (("run", "airfoil", "--set", "mesh.k=3"), "did you mean"),
        (("run", "--restart", "nowhere"), "nowhere: no such checkpoint file"),
        (("run", "cavity2d"), "case 'cavity2d', whose pressure is solved for by FastPoisson or Multigrid, which need"
         " the whole grid, does not run on 2 ranks yet: cases on meshes do, such as airfoil"),
        (("run", "airfoil", "-n", "4"), "ranks are started by a launcher of MPI: mpirun -n 4 meshloom run airfoil"),
        (("study", "airfoil", "--over", "flow.mach=[0.3,0.4]"), "a study, which starts processes of its own, does not"),
        (("run", "airfoil", "--out", "/proc/nothing"), "cannot write to the output folder /proc/nothing"),
    ],
)
def test_what_is_wrong_is_said_once(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = command(2, *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("meshloom: ") and message in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.name != "runs"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoilt", "words", "message"),
    [
        (lambda data: None, (), "out/checkpoint.h5: no such"),
        (lambda data: data[: len(data) // 2], (), "out/checkpoint.h5: "),
        (lambda data: data[:3000] + bytes([data[3000] ^ 1]) + data[3001:], (), "out/checkpoint.h5: "),
        (lambda data: data, ("--set", "mesh.i=7"), "checkpoint of another mesh"),
        (lambda data: data, ("--set", "run.iterations=2"), ""),
    ],
    ids=["missing", "cut", "damaged", "of another mesh", "beyond the end"],
)
def test_a_wrong_checkpoint_is_told_as_one_process_tells_it(
    tmp_path: Path, spoilt: Callable[[bytes], bytes | None], words: tuple[str, ...], message: str
) -> None:
    assert command(None, "run", "airfoil", *SMALL, "--iterations", "3", "--out", "out", cwd=tmp_path).returncode == 0
    checkpoint = tmp_path / "out" / "checkpoint.h5"
    made = spoilt(checkpoint.read_bytes())
    checkpoint.unlink() if made is None else checkpoint.write_bytes(made)
    before = on_ranks_cases.digests(tmp_path / "out")
    alone, together = (command(ranks, "run", "--restart", "out", *words, cwd=tmp_path) for ranks in (None, 3))
    assert (together.returncode, together.stderr) == (alone.returncode, alone.stderr) and alone.returncode == 2
    assert together.stderr.count("\n") == 1 and message in together.stderr and together.stdout == ""
    assert on_ranks_cases.digests(tmp_path / "out") == before, "nothing is lost"


@pytest.mark.slow
def test_a_command_says_once_what_it_does(tmp_path: Path) -> None:
    done = command(3, "run", "airfoil", *SMALL, "--iterations", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert (found["ranks"], found["threads"], found["reproducible"]) == (3, 1, False)
    page = json.loads((tmp_path / "runs/airfoil-001/report.json").read_text())
    assert page["going_on"].startswith("mpirun -n 3 meshloom run --restart runs/airfoil-001/checkpoint.h5 ")
    assert page["parts"][0]["command"].startswith("mpirun -n 3 meshloom run airfoil --set mesh.i=6 ")
    assert dict(page["machine"])["back end"] == "numpy, on each of 3 ranks"
    assert found["iterations"] == 5 and found["files"]["checkpoint.h5"] == "runs/airfoil-001/checkpoint.h5"
    first, *rest = done.stderr.splitlines()
    assert "3 ranks, bits depend on their number (not with --set run.reproducible=true)" in first
    assert sum("iteration 5/5" in line for line in rest) == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["airfoil-001"]
    folder = tmp_path / "runs" / "airfoil-001"
    files = on_ranks_cases.digests(folder)
    for name in ("fields_0000005.vtu", "monitors.csv", "run.toml"):
        (folder / name).unlink()
    again = command(2, "finish", str(folder), "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert on_ranks_cases.digests(folder) == files, "made again by another number of ranks"


BROKEN = """
import os, sys
import meshloom as ml
import meshloom.run.runner as runner
mesh = ml.generate.box((3, 2), cells="quad")
u = mesh.cells.field("u", data=1.0)
@ml.kernel
def grow(u: ml.ReadWrite):
    u *= 2.0
@ml.program
def step():
    grow(mesh.cells, u)
def stop():
    if ml.world.rank == int(sys.argv[1]) or sys.argv[1] == "-1":
        raise RuntimeError("no more")
    return False
calls = []
ml.use("numpy")
ml.march(step, steps=9, stop=lambda: calls.append(1) or (len(calls) > 3 and stop()), out="out", progress=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "named"), [(-1, ""), (1, "meshloom: rank 1"), (0, "meshloom: rank 0")])
def test_an_error_in_a_script_is_shown_once_and_ends_all(tmp_path: Path, rank: int, named: str) -> None:
    done = launched(2, "-c", BROKEN, str(rank), cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("RuntimeError: no more") == 1, done.stderr
    assert done.stderr.startswith(named)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGUSR1, 0)])
def test_a_signal_to_one_rank_is_one_to_all(tmp_path: Path, number: int, code: int) -> None:
    """Rank 1 sends it to itself in the midst of a run, and would take longer chunks than the root."""
    text = f"""
import os, sys
from meshloom.run.pace import Pace
from meshloom.solvers.airfoil import Airfoil
from meshloom.cli.main import main
import meshloom as ml
advance, calls = Airfoil.advance, []
def sending(self, count):
    calls.append(1)
    if len(calls) == 2 and ml.world.rank == 1:
        os.kill(os.getpid(), {int(number)})
    return advance(self, count)
Airfoil.advance = sending
Pace.chunk = lambda self: 1 + 4 * ml.world.rank
sys.argv = ["meshloom", "run", "airfoil", *{SMALL!r}, "--iterations", "40", "--out", "out"]
main()
"""
    done = launched(2, "-c", text, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    if code:
        assert done.stderr.count("meshloom: stopped at iteration") == 1, done.stderr
        assert "go on with: mpirun -n 2 meshloom run --restart" in done.stderr
        assert command(3, "run", "--restart", "out", cwd=tmp_path).returncode == 0
    else:
        assert done.stdout.count("checkpoint of iteration") == 1
    assert "\n40," in (tmp_path / "out" / "monitors.csv").read_text()


@pytest.mark.slow
def test_a_disk_that_is_full_is_told_once(tmp_path: Path) -> None:
    """That of one rank, which writes its part of a file of fields."""
    text = f"""
import errno, os, sys
import meshloom as ml
from meshloom.cli.main import main
before = os.fsync
def fsync(file):
    if ml.world.rank == 1 and "fields" in os.readlink(f"/proc/self/fd/{{file}}"):
        raise OSError(errno.ENOSPC, "No space left on device")
    before(file)
os.fsync = fsync
sys.argv = ["meshloom", "run", "airfoil", *{SMALL!r}, "--set", "mesh.i=150", "--set", "mesh.j=200",
            "--iterations", "4", "--out", "out"]  # several blocks, of which both ranks have some
main()
"""
    done = launched(2, "-c", text, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("meshloom: ") == 1, done.stderr
    assert "fields_0000004.vtu: disk full (No space left on device); the last good checkpoint is" in done.stderr
    assert command(None, "run", "--restart", "out", cwd=tmp_path).returncode == 0
