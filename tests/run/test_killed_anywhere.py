"""A run that is killed at the k-th of its file operations, for every k (one that overwrites, which takes three runs to
judge, for every second), or whose disk is full from the k-th on, for every third."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.forked import forked
from tests.attacks.operations import (
    GO_ON,
    NEW,
    OVERWRITE,
    check_end,
    check_finished,
    check_old_or_new,
    found,
    next_command,
    operations_of_overwriting,
    uninterrupted,
    with_old_run,
    write,
)

pytestmark = pytest.mark.slow
TROUBLE = pytest.mark.parametrize("trouble", ["kill_at", "full_at"])
STEP = {"kill_at": 1, "full_at": 3}
FINISH = ("finish", "run", "--quiet")
ROWS = ("probes.csv", "integrals.csv")  # of iterations that are gone


def everywhere(tmp_path: Path, most: int, attempt: Callable[[Path, int], str], step: int = 1) -> set[str]:
    """``attempt(folder, k)`` for all k from 1 to the number of operations; how they ended."""
    endings = set()
    for at in range(1, most + 1, step):
        (folder := tmp_path / str(at)).mkdir()
        endings.add(attempt(folder, at))
    return endings


@TROUBLE
def test_a_new_run(tmp_path: Path, trouble: str):
    def attempt(folder: Path, at: int) -> str:
        ended = check_end(forked(NEW, folder, **{trouble: at}))
        check_finished(folder, next_command(folder))
        return ended

    endings = everywhere(tmp_path, uninterrupted(NEW)[1], attempt, STEP[trouble])
    assert ("killed" if trouble == "kill_at" else "refused") in endings


@TROUBLE
def test_a_run_that_goes_on(tmp_path: Path, trouble: str):
    """From what a kill in the middle leaves, with fields and rows after the checkpoint."""
    (folder := tmp_path / "middle").mkdir()
    forked(NEW, folder, kill_at=uninterrupted(NEW)[1] * 2 // 3)
    middle = found(folder)
    assert "run/checkpoint.h5" in middle

    def attempt(folder: Path, at: int) -> str:
        write(folder, middle)
        ended = check_end(forked(GO_ON, folder, **{trouble: at}))
        check_finished(folder, GO_ON)
        return ended

    everywhere(tmp_path, uninterrupted(NEW)[1] * 2 // 3, attempt, STEP[trouble])


@TROUBLE
def test_a_run_that_overwrites(tmp_path: Path, trouble: str):
    def attempt(folder: Path, at: int) -> str:
        place, scratch = with_old_run(folder), folder / "scratch"
        scratch.mkdir()
        if check_end(forked(OVERWRITE, place, **{trouble: at})) == "finished":
            return "finished"
        ending = check_old_or_new(place, scratch)
        check_finished(place, OVERWRITE)
        return ending

    endings = everywhere(tmp_path, operations_of_overwriting(), attempt, max(2, STEP[trouble]))
    assert {"old run whole", "new run goes on"} <= endings


def test_a_run_that_overwrites_killed_twice(tmp_path: Path):
    """The second kill comes while what the first has left is put in order."""
    dice = random.Random(0)

    def attempt(folder: Path, at: int) -> str:
        place, scratch = with_old_run(folder), folder / "scratch"
        scratch.mkdir()
        for kill_at in (at, dice.randint(1, 20)):
            forked(OVERWRITE, place, kill_at=kill_at)
        ending = check_old_or_new(place, scratch)
        check_finished(place, OVERWRITE)
        return ending

    everywhere(tmp_path, operations_of_overwriting(), attempt, 3)


@TROUBLE
def test_finishing_again(tmp_path: Path, trouble: str):
    whole = uninterrupted(NEW)[0]
    made_again = [name for name in whole if name.endswith((".png", ".csv")) and not name.endswith(ROWS)]
    left = {name: data for name, data in whole.items() if name not in made_again}

    def attempt(folder: Path, at: int) -> str:
        write(folder, left)
        ended = check_end(forked(FINISH, folder, **{trouble: at}))
        check_finished(folder, FINISH)
        return ended

    (untroubled := tmp_path / "untroubled").mkdir()
    write(untroubled, left)
    operations = forked(FINISH, untroubled).operations
    assert operations > len(made_again) > 0
    endings = everywhere(tmp_path, operations + 1, attempt)
    assert endings == {"killed" if trouble == "kill_at" else "refused", "finished"}
