"""Runs that are killed, or whose disk is full, at any of their file operations: see ``forked``."""

from __future__ import annotations

import random
import shutil
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from meshloom.run.folder import recover
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.forked import Ended, forked

_MEASURED = ("probes.near=[0.3,0.4]", 'integrals.all="t"', 'integrals.side={of="t",over="xmin"}',
             "lines.across={from=[0.0,0.5],to=[1.0,0.5],points=4}", 'output.surface=["xmax"]',
             "output.probe_every=2")  # fmt: skip
OUT = ("--quiet", "--out", "run", *(part for one in _MEASURED for part in ("--set", one)))
NEW = ("run", "pot", *OUT)
OLD = ("run", "pot", "--set", "pot.end=0.1", "--set", "output.every=2", *OUT)
GO_ON = ("run", "--restart", "run/checkpoint.h5", "--quiet")
OVERWRITE = (*NEW, "--overwrite")

PAGES = ("report.html", "report.json")  # which tell when a run was, and how fast: they are there, and not the same
Files = dict[str, bytes | None]  # None: a folder


def found(folder: Path) -> Files:
    """All there is below a folder."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


@cache
def uninterrupted(command: tuple[str, ...]) -> tuple[Files, int]:
    """What a command leaves that nothing happens to, and the number of its operations."""
    with TemporaryDirectory() as folder:
        place = _place(Path(folder))
        ended = forked(command, place)
        assert ended.code == 0, ended.text
        return found(place), ended.operations


@cache
def operations_of_overwriting() -> int:
    with TemporaryDirectory() as folder:
        ended = forked(OVERWRITE, with_old_run(Path(folder)))
        assert ended.code == 0, ended.text
        return ended.operations


def _place(folder: Path) -> Path:
    place = folder / "here"
    place.mkdir()
    return place


def with_old_run(folder: Path) -> Path:
    """A place that holds another run already."""
    place = _place(folder)
    write(place, uninterrupted(OLD)[0])
    return place


def write(place: Path, files: Files) -> None:
    for name, data in sorted(files.items()):
        if data is None:
            (place / name).mkdir()
        else:
            (place / name).write_bytes(data)


def next_command(place: Path, first: tuple[str, ...] = NEW) -> tuple[str, ...]:
    """What a person types after a kill: go on where there is a checkpoint, else the same again."""
    return GO_ON if (place / "run" / "checkpoint.h5").exists() else first


def check_end(ended: Ended) -> str:
    """How an attack ended: killed, or in one line that names what happened."""
    if ended.killed:
        return "killed"
    if ended.code == 0 and not ended.text:
        return "finished"
    if ended.code not in (1, 2) or ended.text.count("\n") != 1 or not ended.text.startswith("meshloom: "):
        raise Broken(f"exit code {ended.code}: {ended.text[-600:]}")
    return "refused"


def check_finished(place: Path, command: tuple[str, ...]) -> None:
    """The command that nothing happens to finishes, and the run is as if nothing ever had."""
    ended = forked(command, place)
    if ended.code != 0 or ended.text:
        raise Broken(f"meshloom {' '.join(command)}: exit code {ended.code}: {ended.text[-600:]}")
    check_same(found(place), uninterrupted(NEW)[0])


def check_same(files: Files, wanted: Files) -> None:
    for name in sorted({*files, *wanted}):
        if name not in files:
            raise Broken(f"{name} is missing")
        if name not in wanted:
            raise Broken(f"{name} is left over")
        if files[name] != wanted[name] and not name.endswith(PAGES):
            raise Broken(f"{name} is not that of an uninterrupted run")


def check_old_or_new(place: Path, scratch: Path) -> str:
    """After a kill of a run that overwrites: the old run whole, or the new one can go on to its end."""
    copy = _place(scratch)
    write(copy, found(place))
    with warnings.catch_warnings(action="ignore"):  # it says which of the two it is
        recover(copy / "run")
    whole = found(copy)
    old = whole["run/run.toml"] == uninterrupted(OLD)[0]["run/run.toml"]
    if old:
        left = {name: data for name, data in whole.items() if not name.startswith("run/.")}  # half-written files may be
        check_same(left, uninterrupted(OLD)[0])
        check_again(copy)
    else:
        check_finished(copy, GO_ON)
    shutil.rmtree(copy)
    return "old run whole" if old else "new run goes on"


def check_again(place: Path) -> None:
    """The old run can still be gone on with, as far as that goes: it is at its end."""
    ended = forked(GO_ON, place)
    if ended.code != 0 or ended.text:
        raise Broken(f"the old run does not go on: {ended.text[-600:]}")
    check_same(found(place), uninterrupted(OLD)[0])


def attack_fresh(dice: random.Random, folder: Path) -> str:
    """A chain of kills and full disks at random operations, then the end."""
    place, seen = _place(folder), []
    most = uninterrupted(NEW)[1]
    for _ in range(dice.randint(1, 4)):
        at = dice.randint(1, most)
        trouble = {"full_at": at} if dice.random() < 0.3 else {"kill_at": at}
        seen.append(check_end(forked(next_command(place), place, **trouble)))
    check_finished(place, next_command(place))
    return f"same files after {len(seen)}"


def attack_overwriting(dice: random.Random, folder: Path) -> str:
    """One kill or full disk, what it leaves, some more of them, and the same command again."""
    place, scratch = with_old_run(folder), folder / "scratch"
    scratch.mkdir()
    found_there = ""
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(1, operations_of_overwriting())
        trouble = {"full_at": at} if dice.random() < 0.3 else {"kill_at": at}
        ended = check_end(forked(OVERWRITE, place, **trouble))
        if ended == "finished":
            break
        found_there = check_old_or_new(place, scratch)
    check_finished(place, OVERWRITE)
    return found_there or "finished"


CAMPAIGNS = (
    Campaign("operations", "chains of kills and full disks, each at one file operation of a run",
             "restarted, every file is that of an uninterrupted run", attack_fresh, few=2, many=200, seconds=30.0),
    Campaign("overwriting", "kills and full disks at one file operation of a run that overwrites another",
             "the old run is whole, or the new one goes on", attack_overwriting, few=1, many=150, seconds=30.0),
)  # fmt: skip
