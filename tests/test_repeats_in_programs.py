"""A program that another one repeats until a condition holds: an operation of that, with a program for a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshloomError, ProgramError
from meshloom.operation.call import functions_of
from meshloom.operation.in_turn import calls_only_ours

BACK_ENDS = ("numpy", "cpu", "emulated")


@ml.kernel
def grow(u: ml.ReadWrite):
    u *= 3.0


@ml.kernel
def step_back(u: ml.ReadWrite, change: ml.Max, rounds: ml.Sum):
    change[...] = 0.5 * np.abs(u)
    u *= 0.5
    rounds += 1.0


@ml.kernel
def copy(u: ml.Read, v: ml.Write):
    v[...] = u


class World:
    """Values that grow threefold in every replay, and are halved until they change by less than a limit."""

    def __init__(self, cells: int = 7) -> None:
        self.cells = ml.Set(cells, "cells")
        self.u, self.v = self.cells.field("u", data=1.0 + np.arange(cells)), self.cells.field("v")
        self.w = self.cells.field("w", data=1.0)
        self.change, self.rounds = ml.Global(0.0, "change"), ml.Global(0.0, "rounds")
        self.limit, self.most = 1.0, 50
        self.inner, self.outer = ml.program(self.halved), ml.program(self.step)

    def halved(self) -> None:
        self.change.value = 0.0
        step_back(self.cells, self.u, self.change, self.rounds)

    def step(self) -> None:
        grow(self.cells, self.u)
        grow(self.cells, self.w)
        self.inner.repeat(until=self.change < self.limit, at_most=self.most)
        copy(self.cells, self.u, self.v)

    def by_hand(self, replays: int) -> tuple[np.ndarray, int]:
        u, rounds = 1.0 + np.arange(len(self.cells)), 0
        for _ in range(replays):
            u, change = 3.0 * u, np.inf
            for _ in range(self.most):
                if change < self.limit:
                    break
                change, u, rounds = np.abs(0.5 * u).max(), 0.5 * u, rounds + 1
        return u, rounds * len(u)


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("replays", [1, 4])
def test_it_repeats_anew_at_every_replay(back_end: str, replays: int) -> None:
    ml.use(back_end)
    world = World()
    world.outer.run(replays)
    u, rounds = world.by_hand(replays)
    assert np.array_equal(world.u.numpy(), u) and np.array_equal(world.v.numpy(), u)
    assert world.rounds.value == rounds > 7 * replays, "and not as often as when it was recorded"


def test_it_ends_after_so_many_times() -> None:
    ml.use("numpy")
    world = World()
    world.limit, world.most = 1e-30, 3
    world.outer.run(2)
    assert world.rounds.value == 2 * 3 * 7


def test_the_graph_knows_what_it_reads_and_writes() -> None:
    ml.use("numpy")
    world = World()
    operations, graph = world.outer.operations, world.outer.dataflow
    assert [one.name for one in operations] == ["grow", "grow", "halved until change < 1.0", "copy"]
    assert {s.name for s in operations[2].writes} == {"change", "u", "rounds"}
    assert graph.may_swap(1, 2) and not graph.may_swap(0, 2) and not graph.may_swap(2, 3)
    assert [one.name for one in world.outer.loops] == ["grow", "grow", "change = 0", "step_back", "copy"]
    told = world.outer.explain()
    assert "reads change, u, rounds and writes change, u, rounds, at most 50 times in every replay" in told
    assert "step_back over cells" in told and calls_only_ours(*functions_of(operations))


@pytest.mark.parametrize("name", ["limit", "most"])
def test_values_of_python_are_followed(name: str) -> None:
    ml.use("numpy")
    world = World()
    world.outer.run(1)
    setattr(world, name, {"limit": 1e-3, "most": 2}[name])
    other = World()
    setattr(other, name, getattr(world, name))
    start = world.u.numpy()
    other.u.assign(start)
    world.outer.run(1)
    other.outer.run(1)
    assert np.array_equal(world.u.numpy(), other.u.numpy())
    assert not np.array_equal(world.u.numpy(), start)


def test_the_same_numbers_are_the_same_recording() -> None:
    """A condition is another object whenever the function runs; the operation is not another one."""
    ml.use("numpy")
    world = World()
    world.outer.run(1)
    first = world.outer.segments
    for limit in (2.0, 1.0):
        world.limit = limit
        world.outer.run(1)
    assert world.outer.segments == first and len(world.outer._tapes) == 2


def test_programs_with_parameters_and_inner_ones_of_inner_ones() -> None:
    ml.use("numpy")
    world = World()

    @ml.program
    def half(u: ml.Field, change: ml.Global) -> None:
        change.value = 0.0
        step_back(world.cells, u, change, world.rounds)

    @ml.program
    def once(u: ml.Field) -> None:
        grow(world.cells, u)
        half.repeat(u, change=world.change, until=world.change < 1.0, at_most=50)

    outer = ml.program(lambda: once.run(2, world.u))
    outer.run(2)
    assert np.array_equal(world.u.numpy(), world.by_hand(4)[0])
    assert sum(one.domain.is_call for one in outer.operations) == 2


def test_fields_that_it_makes_are_its_own() -> None:
    ml.use("numpy")
    world = World()

    def halved() -> None:
        before = world.u.like("before")
        copy(world.cells, world.u, before)
        world.halved()
        copy(world.cells, before, world.v)

    inner = ml.program(halved)

    def step() -> None:
        grow(world.cells, world.u)
        inner.repeat(until=world.change < 1.0, at_most=50)

    outer = ml.program(step)
    outer.run(3)
    assert np.array_equal(world.v.numpy(), 2.0 * world.by_hand(3)[0])
    (repeat,) = (one for one in outer.operations if one.domain.is_call)
    assert {s.name for s in repeat.storages} == {"change", "u", "rounds", "v"}


def test_temporary_fields_end_with_it() -> None:
    ml.use("numpy")
    world = World()
    kept = world.cells.field("kept", temporary=True)

    def halved() -> None:
        world.halved()
        copy(world.cells, world.u, kept)

    inner = ml.program(halved)

    def reads_behind() -> None:
        copy(world.cells, world.w, kept)
        inner.repeat(until=world.change < 1.0, at_most=50)
        copy(world.cells, kept, world.v)

    with pytest.raises(KernelError, match=r"kept is temporary, and has no values behind program halved until") as error:
        ml.program(reads_behind).run()
    assert "\n" not in str(error.value)

    inside = ml.program(lambda: (copy(world.cells, kept, world.v), world.halved())[0])

    def reads_inside() -> None:
        copy(world.cells, world.u, kept)
        inside.repeat(until=world.change < 1.0, at_most=5)

    with pytest.raises(KernelError, match="kept is temporary, but a program reads it before it is written"):
        ml.program(reads_inside).run()


def test_a_function_that_it_calls_may_use_anything() -> None:
    ml.use("numpy")
    world, seen = World(), list[float]()

    def look() -> None:
        seen.append(float(world.u.numpy().max()))

    def halved() -> None:
        world.halved()
        ml.call(look)

    inner = ml.program(halved)
    outer = ml.program(lambda: (grow(world.cells, world.u), inner.repeat(until=world.change < 1.0, at_most=9))[0])
    outer.run(1)
    assert outer.operations[1].domain.everything and seen == [10.5, 5.25, 2.625, 1.3125, 0.65625]


@pytest.mark.parametrize("use", [bool, int, float, range, lambda n: n < 3, lambda n: 1 + n, lambda n: n.bit_length])
def test_how_often_it_was_cannot_be_asked(use: Callable[[Any], Any]) -> None:
    ml.use("numpy")
    world = World()
    with pytest.raises(ProgramError, match="how often halved is repeated is known at every replay"):
        ml.program(lambda: use(world.inner.repeat(until=world.change < 1.0, at_most=5))).run()


WRONG: dict[str, Callable[[World], Any]] = {
    "a condition that it never sets": lambda w: w.inner.repeat(until=ml.Global(0.0, "idle") < 1.0, at_most=5),
    "no condition": lambda w: w.inner.repeat(until=True, at_most=5),  # type: ignore[arg-type]
    "no times": lambda w: w.inner.repeat(until=w.change < 1.0, at_most=0),
    "arguments that it does not take": lambda w: w.inner.repeat(w.u, until=w.change < 1.0, at_most=5),
    "itself": lambda w: w.outer.repeat(until=w.change < 1.0, at_most=5),
}


@pytest.mark.parametrize("what", WRONG)
def test_refused_in_one_line(what: str) -> None:
    ml.use("numpy")
    world = World()
    world.outer = ml.program(lambda: (grow(world.cells, world.u), WRONG[what](world))[0])
    with pytest.raises(MeshloomError) as error:
        world.outer.run()
    assert "\n" not in str(error.value) and np.array_equal(world.u.numpy(), 1.0 + np.arange(7))
