"""Commands that are killed at any moment, or whose disk is full, as processes of their own: see ``operations`` for
every single file operation."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import meshloom
from meshloom.run.folder import THE_ONE_OF_BEFORE
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.forked import Ended
from tests.attacks.operations import Files, check_end, check_same, found, write

_ROOT = Path(meshloom.__file__).parents[1]
LIMIT = 1200.0  # seconds for one command: for what waits for ever, not for what a busy machine keeps waiting
COMMON = ("--backend", "cpu", "--threads", "1", "--quiet", "--out", "run", "--set", "output.checkpoint_seconds=0.0")
GO_ON = ("run", "--restart", "run/checkpoint.h5", "--quiet")


def settings(every: int, checkpoint_every: int, plot: bool, *others: str) -> tuple[str, ...]:
    all_of_them = (f"output.every={every}", f"output.checkpoint_every={checkpoint_every}",
                   f"output.plot={str(plot).lower()}", *others)  # fmt: skip
    return tuple(part for one in all_of_them for part in ("--set", one))


def measured(every: int, place: str, integrated: str) -> tuple[str, ...]:
    """A probe, and an integral."""
    return f"output.probe_every={every}", f"probes.near={place}", f'integrals.all="{integrated}"'


CASES: dict[str, tuple[str, ...]] = {
    "airfoil": settings(
        400,
        300,
        False,
        "mesh.i=12",
        "mesh.j=9",
        "run.iterations=3000",
        *measured(50, "[1.5,0.6]", "pressure"),
        'output.surface=["wall"]',
    ),
    "bookleaf_sod": settings(
        10,
        7,
        False,
        "mesh.cells=[20,5]",
        "time.end=4.0",
        *measured(1, "[0.5,0.05]", "density"),
        "lines.along={from=[0.0,0.05],to=[1.0,0.05],points=9}",
    ),
    "vortex_outflow": settings(
        60, 40, False, "mesh.points=[24,24]", "run.iterations=400", *measured(10, "[0.5,0.5]", "density")
    ),
    "lulesh": settings(9, 6, False, "mesh.size=5", "run.iterations=250", *measured(6, "[0.3,0.3,0.3]", "pressure")),
    "tsunami": settings(20, 15, True, "mesh.nx=12", "mesh.ny=8", "time.end=900.0"),
}
_OLD = ("run", "airfoil", "--backend", "numpy", "--quiet",
        *settings(2, 3, False, "mesh.i=6", "mesh.j=4", "run.iterations=7"))  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """A run that nothing happened to: all it leaves, and how long it took."""

    files: Files
    seconds: float
    largest: int  # bytes of its largest file


def command(case: str) -> tuple[str, ...]:
    return ("run", case, *COMMON, *CASES[case])


def started(arguments: tuple[str, ...], folder: Path, room: int | None = None) -> subprocess.Popen[str]:
    """The command as a process; where there is ``room`` for so many bytes in a file, the disk is full behind them."""

    def small_disk() -> None:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
    return subprocess.Popen(
        (sys.executable, "-m", "meshloom", *arguments), cwd=folder, env=surroundings, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=small_disk,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> Ended:
    try:
        text, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Broken("a command goes on for ever") from None
    return Ended(process.returncode, text, 0)


@cache
def uninterrupted(arguments: tuple[str, ...]) -> Whole:
    """What comes after it finds everything compiled."""
    with TemporaryDirectory() as folder:
        begin = time.monotonic()
        end = ended(started(arguments, Path(folder)))
        assert end.code == 0, end.text
        files, seconds = found(Path(folder)), time.monotonic() - begin
    return Whole(files, seconds, max(len(data) for data in files.values() if data is not None))


@cache
def old_run() -> Files:
    """A finished run to be overwritten: of a process of its own, as those that are compared with it. In this one tests
    may have registered back ends, which run.toml would name."""
    return uninterrupted((*_OLD, "--out", "run")).files


def after(seconds: float) -> Callable[[subprocess.Popen[str], Path], None]:
    def wait(process: subprocess.Popen[str], folder: Path) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

    return wait


def after_a_checkpoint(number: int) -> Callable[[subprocess.Popen[str], Path], None]:
    """As soon as the n-th new checkpoint is there."""

    def wait(process: subprocess.Popen[str], folder: Path) -> None:
        seen = {_inode(folder)}
        while process.poll() is None and len(seen) <= number:
            seen.add(_inode(folder))
            time.sleep(0.0005)

    return wait


def _inode(folder: Path) -> tuple[int, int]:
    try:
        found = (folder / "run" / "checkpoint.h5").stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def attacked(dice: random.Random, arguments: tuple[str, ...], folder: Path, whole: Whole) -> str:
    """The command, killed at some moment or on a disk that fills up; how it ended."""
    if dice.random() < 0.2:
        return check_end(ended(started(arguments, folder, room=dice.randint(0, whole.largest))))
    soon = dice.random() < 0.4
    wait = after_a_checkpoint(dice.randint(1, 6)) if soon else after(dice.uniform(0.0, 1.1) * whole.seconds)
    process = started(arguments, folder)
    wait(process, folder)
    process.send_signal(signal.SIGKILL)
    return check_end(ended(process))


def finished(arguments: tuple[str, ...], folder: Path, *, may_say: str = "") -> None:
    """The command runs to its end without a word, or with one that is due."""
    end = ended(started(arguments, folder))
    if end.code != 0 or end.text not in ("", may_say):
        raise Broken(f"meshloom {' '.join(arguments)}: exit code {end.code}: {end.text[-600:]}")


def kill_chain(dice: random.Random, folder: Path) -> str:
    """One to four kills of one run, each of the command that goes on after the last."""
    case = dice.choice([*CASES])
    whole = uninterrupted(command(case))

    def what_next() -> tuple[str, ...]:
        return GO_ON if (folder / "run" / "checkpoint.h5").exists() else command(case)

    for _ in range(dice.randint(1, 4)):
        attacked(dice, what_next(), folder, whole)
    finished(what_next(), folder)
    check_same(found(folder), whole.files)
    return case


def overwrite(dice: random.Random, folder: Path) -> str:
    """A run that overwrites another is killed: what --restart finds is the old run whole, or the new one."""
    case = dice.choice([*CASES])
    whole, old = uninterrupted(command(case)), old_run()
    write(folder, old)
    overwriting = (*command(case), "--overwrite")
    attacked(dice, overwriting, folder, whole)
    finished(GO_ON, folder, may_say=f"meshloom: run: {THE_ONE_OF_BEFORE}\n")
    files = found(folder)
    is_old = files["run/run.toml"] == old["run/run.toml"]
    check_same(files, old if is_old else whole.files)
    finished(overwriting, folder)
    check_same(found(folder), whole.files)
    return "old run whole" if is_old else "new run goes on"


CAMPAIGNS = (
    Campaign("kills", "chains of kills at any moment, and full disks, of runs of five cases, four of them with probes",
             "restarted, every file is that of an uninterrupted run", kill_chain, few=0, many=20),
    Campaign("overwrites", "kills at any moment of runs that overwrite another",
             "the old run is whole, or the new one goes on", overwrite, few=0, many=30),
)  # fmt: skip
