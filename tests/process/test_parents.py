"""A rank ends with what has started it: here a shell, so MPI is not needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import pytest

import meshloom
from meshloom.process import parents
from meshloom.process.ranks import COMM, LAUNCHERS, SLURM

LONG = 60.0  # seconds in which anything has come
ROOT = Path(meshloom.__file__).parents[1]
RANK = """
import sys, time
from meshloom.process import parents  # whose process is a run of its own (COMM), so that nobody asks MPI
parents.LOOKS = 0.02
parents.end_with_parent(int(sys.argv[1]))
print("now", len(parents.started_by()), flush=True)
time.sleep(float(sys.argv[2]))
print("done", flush=True)
"""
#: What is started: the command itself, or a script around it, or two.
COMMANDS = {"itself": "exec {}", "in a script": "{}; true", "in two": "sh -c '{}; true'; true"}
SAYS = "meshloom: the launcher of this run is gone, and so are its ranks\n"


@contextmanager
def launcher(command: str, told: str, rank: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A shell that starts a rank, tells it which one it is, and waits for it. The rank lasts for some seconds."""
    asked = f'"{sys.executable}" -c "$RANK" {rank} {seconds}'
    own = {name: value for name, value in os.environ.items() if name not in chain(*LAUNCHERS, SLURM)}
    of = dict([*LAUNCHERS, SLURM])[told]
    process = subprocess.Popen(
        ["sh", "-c", f'{told}={rank} {of}=3 sh -c "$COMMAND"; true'], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**own, COMM: "self", "PYTHONPATH": str(ROOT), "RANK": RANK, "COMMAND": COMMANDS[command].format(asked)},
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system tells nothing of other processes")
@pytest.mark.parametrize(("command", "rank", "told", "depth"), [
    ("itself", 0, "PMI_RANK", 1), ("in a script", 1, "OMPI_COMM_WORLD_RANK", 2), ("in two", 0, "PMIX_RANK", 3),
])  # fmt: skip
def test_a_rank_ends_when_what_has_started_it_is_killed(command: str, rank: int, told: str, depth: int) -> None:
    with launcher(command, told, rank, 2 * LONG) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"now {depth}\n"
        process.kill()
        said, _ = process.communicate(timeout=LONG)  # until nobody has the pipe, the rank included
        assert said == (SAYS if rank == 0 else "")


LAUNCHER = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], "1", "2"], env={**os.environ, **dict(zip(sys.argv[2:], "12"))})
"""
STEP = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
sys.stdin.read()
"""


@pytest.mark.parametrize("outer", [("PMI_RANK", "PMI_SIZE"), ("PMIX_RANK", "SLURM_STEP_NUM_TASKS")])
def test_a_script_that_was_a_rank_itself_and_has_started_a_launcher_may_end(outer: tuple[str, str]) -> None:
    """As in a step of a batch system, or a shell in one."""
    rank, size = LAUNCHERS[0]
    own = {name: value for name, value in os.environ.items() if name not in chain(*LAUNCHERS, SLURM)}
    told = dict(zip(outer, ("1", "1"), strict=True)) | {COMM: "self", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", STEP, LAUNCHER, RANK, rank, size], text=True, env=own | told,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as step:  # fmt: skip
        assert step.stdin is not None and step.stdout is not None
        assert step.stdout.readline() == "now 1\n", "it watches the launcher alone"
        step.stdin.close()
        step.wait(LONG)
        assert step.stdout.read() == "done\n"


def test_a_rank_whose_parent_is_there_goes_on() -> None:
    with launcher("in a script", "PMI_RANK", 0, 0.5) as process:
        said, _ = process.communicate(timeout=LONG)
        assert said.splitlines()[1:] == ["done"] and process.returncode == 0


def test_what_cannot_be_read_of_a_process_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(process: int) -> int:
        raise OSError("too many open files")

    assert parents.is_left_by((os.getpid(),)), "this is not its own parent"
    monkeypatch.setattr(parents, "_parent_of", lambda process: 1)
    assert parents.is_left_by((os.getppid(), 2))
    monkeypatch.setattr(parents, "_parent_of", unknown)
    assert not parents.is_left_by((os.getppid(), 2))
