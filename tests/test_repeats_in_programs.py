"""A program that another one repeats until a condition holds: an operation of that, with a program for a body."""

from __future__ import annotations

import gc
import weakref
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
    assert "which reads u, rounds and writes change, u, rounds, at most 50 times in every replay" in told
    assert "halved until change < 1.0: a program, repeated in one call from Python" in told
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

    message = "kept is temporary, and has no values behind program halved, which runs by itself; make the field"
    with pytest.raises(KernelError, match=message) as error:
        ml.program(reads_behind).run()
    assert "\n" not in str(error.value)

    inside = ml.program(lambda: (copy(world.cells, kept, world.v), world.halved())[0])

    def reads_inside() -> None:
        copy(world.cells, world.u, kept)
        inside.repeat(until=world.change < 1.0, at_most=5)

    with pytest.raises(KernelError, match=r"runs by itself, .* no values of the temporary field kept, which it reads"):
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


ASKS: list[Callable[[Any], Any]] = [
    bool, int, float, range, abs, lambda n: n < 3, lambda n: n == 3, lambda n: n != 3, lambda n: 1 + n, lambda n: n % 2,
    lambda n: -n, lambda n: n in [3], lambda n: n.bit_length,
]  # fmt: skip


@pytest.mark.parametrize("use", ASKS)
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


def test_loops_that_are_shown_are_those_that_run() -> None:
    """Of a program with parameters, too: a schedule that is given to one of them counts, and times are kept."""
    ml.use("cpu", threads=1)
    cells, faces = ml.Set(30, "cells"), ml.Set(29, "faces")
    sides = ml.Map(faces, cells, np.stack([np.arange(29), np.arange(1, 30)], 1), "sides")
    u, change = cells.field("u", data=np.arange(30.0)), ml.Global(0.0, "change")

    @ml.kernel
    def even(u: ml.Inc, change: ml.Max):
        u[0] += 1.0
        u[1] -= 1.0
        change[...] = 1.0

    sweep = ml.program(lambda u, change: even(faces, u[sides], change))
    outer = ml.program(lambda: sweep.repeat(u, change, until=change > 2.0, at_most=3) and None)
    with pytest.raises(ProgramError, match="known at every replay"):
        outer.run()
    outer = ml.program(lambda: (sweep.repeat(u, change, until=change > 2.0, at_most=3), None)[1])
    (loop,) = outer.loops
    loop.reschedule("color")
    outer.run(2)
    assert outer.loops == (loop,) and loop.schedule.strategy == "color"
    assert "even over faces" in outer.explain() and "color" in outer.explain()
    assert u.numpy()[0] == 6.0 and u.numpy()[-1] == 29.0 - 6.0


def test_an_explain_of_a_function_that_is_called_is_its_own_affair() -> None:
    ml.use("numpy")

    class Called:
        explain = "text"

        def __call__(self) -> None:
            return

    world = World()
    outer = ml.program(lambda: (world.halved(), ml.call(Called(), reads=(), writes=()))[0])
    assert "a call from Python" in outer.explain()


@pytest.mark.parametrize("back_end", ("numpy", "cpu"))
def test_what_it_sets_before_it_looks_at_it_needs_no_checkpoint(back_end: str) -> None:
    """As of the same program run three times."""
    ml.use(back_end)
    world = World()
    work = world.cells.field("work", data=7.0)

    def halved() -> None:
        copy(world.cells, world.u, work)
        world.halved()
        copy(world.cells, work, world.v)

    inner = ml.program(halved)
    outer = ml.program(lambda: (grow(world.cells, world.u), inner.repeat(until=world.change < 1.0, at_most=50))[0])
    graph = outer.dataflow
    (repeat,) = (one for one in outer.operations if one.domain.is_call)
    assert {one.name for one in repeat.reads} == {"u", "rounds"}
    assert {one.name for one in repeat.written} == {"u", "rounds", "change", "work", "v"}
    assert not graph.is_read_first(work) and not graph.is_read_first(world.change) and graph.is_read_first(world.u)
    done = ml.march(outer, steps=3, checkpoint=(world.u, world.rounds), progress=False)
    assert done.steps == 3 and np.array_equal(world.u.numpy(), world.by_hand(3)[0])


def test_a_field_that_it_sets_in_part_is_read() -> None:
    ml.use("numpy")
    world = World()
    grid = ml.Grid((6, 5), ghosts=1)
    f, g = grid.field("f", data=1.0), grid.field("g", data=2.0)

    def halved() -> None:
        world.halved()
        copy(grid.box((0, 0), (3, 5)), f, g)

    inner = ml.program(halved)
    outer = ml.program(lambda: (g.fill(3.0), inner.repeat(until=world.change < 1.0, at_most=9))[0])
    (repeat,) = (one for one in outer.operations if one.domain.is_call)
    assert g in repeat.reads and f in repeat.reads
    outer.run(1)
    assert g.numpy()[3:].min() == 3.0 and g.numpy()[:3].max() == 1.0, "the fill is not left out"


def test_a_program_keeps_none_of_the_arguments_that_it_repeats_another_one_with() -> None:
    ml.use("numpy")
    world = World()
    half = ml.program(lambda u, change: step_back(world.cells, u, change, world.rounds))
    outer = ml.program(lambda u: (half.repeat(u, world.change, until=world.change > 0.0, at_most=2), None)[1])
    given = world.cells.field("given", data=1.0)
    outer.run(1, given)
    gone = weakref.ref(given)
    del given
    gc.collect()
    assert gone() is None


def test_what_is_not_finite_is_told_of_the_program_that_is_repeated() -> None:
    ml.use("numpy")
    world = World()

    @ml.kernel
    def root(u: ml.ReadWrite):
        u[...] = np.sqrt(u - 1.5)

    inner = ml.program(lambda: (world.halved(), root(world.cells, world.u))[0])

    def step() -> None:
        inner.repeat(until=world.change < 0.1, at_most=3)
        copy(world.cells, world.u, world.v)

    with pytest.raises(MeshloomError, match=r"u is NaN .* after loop <lambda> until change < 0\.1"):
        ml.march(ml.program(step), steps=4, progress=False)
