"""Commands that ranks are given wrongly from outside: one line, once, one exit code, and nothing is written or lost."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from tests.attacks.operations import found
from tests.dist.launch import ROOT, SECONDS, command_of, environment_of_ranks, launched

CASE = ("run", "airfoil", "--backend", "numpy", "--quiet", "--set", "output.plot=false", "--set", "mesh.j=3")
RUN = (*CASE, "--set", "mesh.i=4", "--out", "run", "--iterations", "4")
GO_ON = ("run", "--restart", "run", "--iterations", "9", "--quiet")
SETTINGS = r"all ranks must be given the same settings \(MESHLOOM_COMM=self makes each a run of its own\)"


@cache
def finished() -> Path:
    """A folder with a run, another one of another mesh, and partitions that are none."""
    folder = Path(mkdtemp())
    for i, out in ((4, "run"), (5, "other")):
        done = launched(None, ["-m", "meshloom", *CASE, "--set", f"mesh.i={i}", "--out", out, "--iterations", "4"],
                        cwd=folder)  # fmt: skip
        assert done.returncode == 0, done.stderr
    np.save(folder / "short.npy", np.zeros(7, int))
    np.save(folder / "strange.npy", np.full(36, 3))
    (folder / "text.npy").write_text("ranks")
    return folder


def told(folder: Path, first: tuple[str, ...], others: tuple[str, ...] | None = None) -> tuple[int, str]:
    """The exit code and what is said where the first of three ranks gets a command, and the others maybe another."""
    before = found(folder)
    one, *rest = ([command_of(3, ["-m", "meshloom", *first])] if others is None else
                  [command_of(1, ["-m", "meshloom", *first]), command_of(2, ["-m", "meshloom", *others])[1:]])
    done = subprocess.run([*one, *(word for part in rest for word in (":", *part))], capture_output=True, text=True,
                          timeout=SECONDS, env=environment_of_ranks(MESHLOOM_CHECK_RANKS="0"), cwd=folder)  # fmt: skip
    assert found(folder) == before, "nothing is written or lost"
    assert not done.stdout
    return done.returncode, done.stderr


NEW = (*CASE, "--set", "mesh.i=4", "--out", "new", "--set")
#: What a person types, and what is said.
COMMANDS = {
    "partition too short": ((*NEW, "run.partition=short.npy"), r"run\.partition = \S+short\.npy: a partition of 36"
                            r" cells is 36 whole numbers, got int\d+ of shape \(7,\)"),
    "partition of no rank": ((*NEW, "run.partition=strange.npy"), r"run\.partition = \S+strange\.npy: a partition"
                             " among 3 ranks has numbers from 0 to 2, got 3 for cell 0"),
    "partition of text": ((*NEW, "run.partition=text.npy"), r"run\.partition = \S+text\.npy: cannot be read: .*"),
    "no partition": ((*NEW, "run.partition=none.npy"), r"run\.partition = \S+none\.npy: cannot be read: .*"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(finished(), tmp_path / "folder")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_wrong_is_one_line(folder: Path, name: str) -> None:
    words, line = COMMANDS[name]
    code, said = told(folder, words)
    assert code == 2 and re.fullmatch(f"meshloom: {line}\n", said), said


#: What the first rank is given, what the others are, and what is said.
DIFFERENT = {
    "command": (RUN, ("cases",), "the command is 'run' on rank 0, and 'cases' on rank 1"),
    "run": (GO_ON, ("run", "--restart", "other", *GO_ON[3:]),
            "the run to go on with is 'run' on rank 0, and 'other' on rank 1"),
    "run that is not there": (GO_ON, ("run", "--restart", "nowhere", *GO_ON[3:]),
                              "the run to go on with is 'run' on rank 0, and 'nowhere' on rank 1"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENT)
def test_commands_that_differ_are_one_line(folder: Path, name: str) -> None:
    first, others, line = DIFFERENT[name]
    code, said = told(folder, first, others)
    assert code == 2 and re.fullmatch(f"meshloom: {line}: {SETTINGS}\n", said), said


#: Starts three processes as another launcher would, each of which has an MPI of its own.
APART = """
for rank in 0 1 2; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=3 "$@" & started="$started $!"
done
for one in $started; do wait $one || code=$?; done
exit $code
"""


@pytest.mark.slow
def test_a_launcher_of_another_mpi_is_told_once(folder: Path) -> None:
    before = found(folder)
    done = subprocess.run(["sh", "-c", APART, "sh", *command_of(None, ["-m", "meshloom", *RUN])], capture_output=True,
                          text=True, timeout=SECONDS, env=environment_of_ranks(), cwd=folder)  # fmt: skip
    assert (done.returncode, done.stdout, found(folder)) == (2, "", before)
    assert re.fullmatch("meshloom: a launcher has started 3 processes, and mpi4py sees 1 of them: it was made for"
                        " another MPI; start them with that one's mpirun\n", done.stderr), done.stderr  # fmt: skip


@pytest.mark.slow
def test_mpi4py_that_is_missing_is_told_once(folder: Path) -> None:
    """Of the command, that is: no line of a script is named."""
    (folder / "mpi4py.py").write_text("raise ImportError('there is none')\n")
    done = launched(3, ["-m", "meshloom", *RUN], cwd=folder, PYTHONPATH=f"{folder}:{ROOT}")
    assert (done.returncode, done.stdout) == (2, "") and (folder / "run" / "checkpoint.h5").exists()
    assert re.fullmatch(r"meshloom: a launcher has started 3 processes, and mpi4py is not there .* \(there is none\)\n",
                        done.stderr), done.stderr  # fmt: skip


FULL = """
import resource, sys
import meshloom as ml
if ml.world.rank == int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
ml.run_case("airfoil", {"mesh.i": 60, "mesh.j": 120, "run.backend": "numpy", "run.iterations": 4, "output.plot": False,
    "output.every": 4, "output.checkpoint_every": 2, "output.checkpoint_seconds": 0.0}, out="full", progress=False)
"""


@pytest.mark.slow
def test_a_disk_that_is_full_on_one_rank_is_told_once_and_the_checkpoint_stays(folder: Path) -> None:
    """Of the checkpoint that rank writes nothing, but of the fields, which are larger. As on one process it is no
    wrong input."""
    done = launched(3, ["-c", FULL, "1"], cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    line = (r"cannot write full/fields_0000004\.vtu: disk full \(File too large\); the last good checkpoint is"
            r" full/checkpoint\.h5 \(iteration [24]\).*")  # fmt: skip
    assert re.fullmatch(f"meshloom: {line}\n", done.stderr), done.stderr
    left = {one.name for one in (folder / "full").iterdir()}
    assert "checkpoint.h5" in left and not [one for one in left if one.endswith((".tmp", ".vtu"))]
    done = launched(2, ["-m", "meshloom", "finish", "full", "--quiet"], cwd=folder)
    assert (done.returncode, done.stderr) == (0, "") and (folder / "full" / "fields_0000004.vtu").exists()
