"""Runs on three ranks that lose one of them, their launcher, or its daemon, at any moment, and go on with another
number of ranks: see ``kills`` for one process. Of cases, most of them on meshes, and of a script on a grid."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.attacks.campaign import Broken, Campaign
from tests.attacks.forked import Ended
from tests.attacks.kills import COMMON, GO_ON, LIMIT, after, after_a_checkpoint, measured, settings
from tests.attacks.operations import Files, check_same, found
from tests.dist.launch import command_of, environment_of_ranks

RANKS, OTHERS = 3, (None, 1, 2, 4)  # on which runs are killed, and on which they go on
VICTIMS = "launcher", "daemon", "rank 0", "rank"
GONE = 10.0  # seconds after which nobody may be left: twice what is promised, machines are busy
_SAME_BITS = ("--set", "run.reproducible=true")
CASES: dict[str, tuple[str, ...]] = {
    "airfoil": settings(40, 15, False, "mesh.i=12", "mesh.j=9", "run.iterations=120",
                        *measured(20, "[1.5,0.6]", "pressure"), 'output.surface=["wall"]'),
    "bookleaf_sod": settings(20, 7, False, "mesh.cells=[20,5]", "run.iterations=50",
                             *measured(5, "[0.5,0.05]", "density")),
    "lulesh": settings(15, 4, False, "mesh.size=4", "run.iterations=30", *measured(6, "[0.3,0.3,0.3]", "pressure")),
    "fv": settings(4, 2, False, "mesh.along=6", "mesh.up=4", "time.method=implicit", "run.iterations=10"),
}  # fmt: skip
SCRIPTS = {"stencil": ("-m", "tests.attacks.stencil")}  # which go on by themselves


def command(run: str) -> tuple[str, ...]:
    """What Python is given to start a case, or a script."""
    return SCRIPTS.get(run) or ("-m", "meshloom", "run", run, *COMMON, *_SAME_BITS, *CASES[run])


def started(arguments: tuple[str, ...], folder: Path, ranks: int | None) -> subprocess.Popen[str]:
    """The command on so many ranks, in a group of processes of its own; None: without a launcher."""
    return subprocess.Popen(
        command_of(ranks, [*arguments]), cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, env=environment_of_ranks(MESHLOOM_CHECK_RANKS="0", MESHLOOM_POISON_HALOS="0"),
    )  # fmt: skip


def ended(process: subprocess.Popen[str], seconds: float = LIMIT) -> Ended:
    """How it ended, and all that it had started with it."""
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Broken(f"ranks are still there after {seconds:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return Ended(process.returncode, text, 0)


@cache
def uninterrupted(run: str) -> tuple[Files, float]:
    """What a run without a launcher leaves, which that on ranks must leave, too; how long it takes on ranks."""
    with TemporaryDirectory() as alone, TemporaryDirectory() as together:
        end = ended(started(command(run), Path(alone), None))
        assert end.code == 0, end.text
        begin = time.monotonic()
        end = ended(started(command(run), Path(together), RANKS))
        assert end.code == 0, end.text
        files, seconds = found(Path(alone)), time.monotonic() - begin
        check_same(found(Path(together)), files)
    return files, seconds


def below(process: int) -> list[int]:
    """The processes that one has started, and these, and so on: the last are ranks."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, rest = stat.parent.name, stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(rest[1]), []).append(int(number))
    met, left = [], sorted(children.get(process, []))
    while left:
        met.append(left[0])
        left = [*left[1:], *sorted(children.get(left[0], []))]
    return met


def is_there(process: int) -> bool:
    """Does it still run? What waits for its parent to take note of its end does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def victims(launcher: int) -> dict[str, int]:
    """What can be killed of a run on ranks: the launcher, its daemon, and the first and the last rank. In the place of
    what has not been started yet stands who is to start it."""
    daemon, *others = below(launcher) or [launcher]
    ranks = [one for one in others if "python" in _program(one)][:RANKS] or [daemon]
    return dict(zip(VICTIMS, (launcher, daemon, ranks[0], ranks[-1]), strict=True))


def _program(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().partition("\0")[0]
    except OSError:
        return ""


def kill(process: subprocess.Popen[str], victim: int) -> Ended:
    """One of the processes of a run is killed; within seconds nobody is left."""
    others = below(process.pid)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    begin = time.monotonic()
    while left := [one for one in others if is_there(one)]:
        if time.monotonic() - begin > GONE:
            programs = [_program(one) for one in left]
            for one in (*left, process.pid):
                os.kill(one, signal.SIGKILL)
            raise Broken(f"after {GONE:g} s are left: {' '.join(programs)}")
        time.sleep(0.01)
    return ended(process, GONE)


def lost(runs: Sequence[str], dice: random.Random, folder: Path) -> str:
    """A run is killed at some moment, and goes on with another number of ranks."""
    run, ranks = dice.choice(runs), dice.choice(OTHERS)
    files, seconds = uninterrupted(run)
    soon = dice.random() < 0.5
    wait = after_a_checkpoint(dice.randint(1, 6)) if soon else after(dice.uniform(0.0, 1.1) * seconds)
    process = started(command(run), folder, RANKS)
    wait(process, folder)
    which, victim = dice.random(), "nobody"
    if process.poll() is None:
        victim = VICTIMS[int(which * len(VICTIMS))]
        end = kill(process, victims(process.pid)[victim])
        if end.code == 0 and not (folder / "run" / "report.json").exists():
            raise Broken(f"exit code 0 where the {victim} was killed: {end.text[-600:]}")
    goes_on = run in CASES and (folder / "run" / "checkpoint.h5").exists()
    again = ("-m", "meshloom", *GO_ON) if goes_on else command(run)
    end = ended(started(again, folder, ranks))
    if end.code != 0 or end.text:
        raise Broken(f"{' '.join(again[1:])} on {ranks or 'no'} ranks: exit code {end.code}: {end.text[-600:]}")
    check_same(found(folder), files)
    return f"{victim} killed, the same on {'one process' if ranks is None else f'{ranks} ranks'}"


_PROMISE = ("all ranks are gone within seconds; restarted on another number of ranks, every file is that of an"
            " uninterrupted run")  # fmt: skip
CAMPAIGNS = (
    Campaign("lost-ranks", "kills of a rank, of the launcher or of its daemon, at any moment of runs on three ranks of"
             " four cases", _PROMISE, partial(lost, [*CASES]), few=0, many=20, least=20),
    Campaign("lost-ranks-grid", "the same of a script on a grid, a stencil program", _PROMISE,
             partial(lost, [*SCRIPTS]), few=0, many=20, least=20),
)  # fmt: skip
