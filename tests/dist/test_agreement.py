"""Numbers that ranks take from Python go along with their next sum, whatever they were before. Ranks are threads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist import agreement
from meshloom.dist.world import World
from meshloom.errors import RankError
from tests.dist.simulated import on_threads

NUMBERS = "all ranks must take the same numbers from Python"


@ml.kernel
def scaled(u: ml.ReadWrite, factor: ml.Read):
    u *= factor


@ml.kernel
def added(v: ml.Read, u: ml.ReadWrite):
    u += v


def given_plainly(cells: ml.Set, u: ml.Field) -> Callable[[float], None]:
    return lambda number: scaled(cells, u, number)


def captured(cells: ml.Set, u: ml.Field) -> Callable[[float], None]:
    factor = 1.0

    @ml.kernel
    def further(u: ml.ReadWrite):
        u *= factor

    def run(number: float) -> None:
        nonlocal factor
        factor = number
        further(cells, u)

    return run


def of_a_program(cells: ml.Set, u: ml.Field) -> Callable[[float], None]:
    factor = 1.0

    @ml.program
    def step() -> None:
        scaled(cells, u, factor)

    def run(number: float) -> None:
        nonlocal factor
        factor = number
        step.run(2)

    return run


def of_a_global(cells: ml.Set, u: ml.Field) -> Callable[[float], None]:
    factor = ml.Global(1.0, "factor")

    def run(number: float) -> None:
        factor.value = number
        scaled(cells, u, factor)

    return run


def filled(cells: ml.Set, u: ml.Field) -> Callable[[float], None]:
    v = cells.field("v")

    def run(number: float) -> None:
        v.fill(number)
        added(cells, v, u)

    return run


WAYS = given_plainly, captured, of_a_program, of_a_global, filled


def after(
    numbers: Sequence[Sequence[float]], way: Callable[[ml.Set, ml.Field], Callable[[float], None]]
) -> list[float]:
    """The sum that each rank finds, where loops took these numbers, of each rank."""

    def job(world: World) -> float:
        cells = ml.Set(6, "cells")
        u = cells.field("u", data=np.arange(6.0))
        run = way(cells, u)
        for one in (0.5, 2.0, 4.0):  # all of these are known
            run(one)
        before = float(u.sum())
        for one in numbers[world.rank]:
            run(one)
        return float(u.sum()) - before

    return on_threads(len(numbers), job)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_the_same_passes(way: Callable[..., Callable[[float], None]]) -> None:
    """Also what is there again."""
    assert len(set(after([[2.0, 0.5, 0.5, 2.0, 2.0]] * 2, way))) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("theirs", [[2.0], [2.0, 2.0, 0.5]], ids=["the last", "one before"])
def test_a_number_that_differs_is_told_however_often_it_was_there(
    way: Callable[..., Callable[[float], None]], theirs: list[float]
) -> None:
    mine = [0.5, 0.5, 0.5][: len(theirs)]
    with pytest.raises(RankError, match=f" on rank 0.*{NUMBERS}$"):
        after([mine, mine, theirs], way)


def test_what_is_told_are_the_numbers_of_now_or_that_others_differed() -> None:
    with pytest.raises(RankError, match=f"^factor of loop scaled is 0.5 on rank 0, and 2.0 on rank 1: {NUMBERS}$"):
        after([[0.5], [2.0]], given_plainly)
    line = "loop scaled has run with other numbers, or more or less often, on rank 1 than on rank 0"
    for theirs in ([2.0, 0.5], [0.5]):
        with pytest.raises(RankError, match=f"^{line}: {NUMBERS}$"):
            after([[0.5, 0.5], theirs], given_plainly)


@pytest.mark.parametrize("loops", [1, 20])
def test_loops_of_a_program_cost_one_digest_together(loops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few bytes, each time that it begins, and nothing for each replay."""
    hashed: list[int] = []

    def counting(content: bytes) -> object:
        hashed.append(len(content))
        return hashlib.sha256(content)

    def job(_: World) -> list[int]:
        cells = ml.Set(6, "cells")
        u = cells.field("u", data=np.arange(6.0))
        program = ml.program(lambda: [scaled(cells, u, 2.0) for _ in range(loops)] and None)
        program.run(1)
        u.sum().value  # noqa: B018
        with monkeypatch.context() as patch:
            patch.setattr(agreement, "hashlib", SimpleNamespace(sha256=counting))
            for _ in range(5):
                program.run(3)
            return [*hashed]

    (found,) = on_threads(1, job)
    assert len(found) == 5 and max(found) < 200 + 10 * loops, found
