"""A temporary field has no values after a program has run: reading it is refused alike on every back end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, ProgramError
from meshloom.io.checkpoint import Checkpoint

BACK_ENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]


@ml.kernel
def double(u: ml.Read, flux: ml.Write):
    flux[...] = 2.0 * u


@ml.kernel
def add(flux: ml.Read, out: ml.ReadWrite):
    out[...] = out + flux


@ml.kernel
def accumulate(u: ml.Read, flux: ml.Inc):
    flux += u


class Steps:
    def __init__(self) -> None:
        self.cells = ml.Set(5, "cells")
        self.u, self.out = self.cells.field("u", data=np.arange(5.0)), self.cells.field("out")
        self.flux = self.cells.field("flux", temporary=True)

        @ml.program
        def step() -> None:
            double(self.cells, self.u, self.flux)
            add(self.cells, self.flux, self.out)

        self.step = step


READS: dict[str, Callable[[Steps], Any]] = {
    "numpy": lambda s: s.flux.numpy(),
    "saved": lambda s: s.flux.saved(),
    "rows": lambda s: s.flux.rows(),
    "dlpack": lambda s: np.from_dlpack(s.flux),
    "a loop": lambda s: add(s.cells, s.flux, s.out),
    "a loop that adds to it": lambda s: accumulate(s.cells, s.u, s.flux),
    "kernel.python": lambda s: add.python(s.cells, s.flux, s.out),
    "a checkpoint": lambda s: Checkpoint("", 0, "double", "", "", {"flux": s.flux.saved()}, (), np.zeros((0, 0))),
}
WRITES: dict[str, Callable[[Steps], Any]] = {
    "assign": lambda s: s.flux.assign(2.0 * np.arange(5.0)),
    "a loop": lambda s: double(s.cells, s.u, s.flux),
    "kernel.python": lambda s: double.python(s.cells, s.u, s.flux),
    "fill": lambda s: (s.flux.fill(0.0), s.u.fill(0.0)),
    "a loop of the program": lambda s: s.step.loops[0](),
}


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("read", READS)
def test_reading_it_after_a_run_is_refused(read: str, back_end: str) -> None:
    ml.use(back_end)
    steps = Steps()
    READS[read](steps)  # before, it is a field like any other
    steps.out.fill(0.0)
    steps.step.run(2)
    np.testing.assert_array_equal(steps.out.numpy(), 4.0 * np.arange(5.0))
    with pytest.raises(ProgramError, match="flux is temporary and has no values after program step ran") as caught:
        READS[read](steps)
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(steps.out.numpy(), 4.0 * np.arange(5.0))
    steps.step.run()  # the program itself writes it first
    np.testing.assert_array_equal(steps.out.numpy(), 6.0 * np.arange(5.0))


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("write", WRITES)
def test_writing_all_of_it_makes_it_readable(write: str, back_end: str) -> None:
    ml.use(back_end)
    steps = Steps()
    steps.step.run()
    WRITES[write](steps)
    np.testing.assert_array_equal(steps.flux.numpy(), 2.0 * steps.u.numpy())


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_writing_a_part_of_it_does_not(back_end: str) -> None:
    ml.use(back_end)
    grid = ml.Grid((4, 6), ghosts=1, periodic=True)
    u, flux = grid.field("u", data=np.ones((4, 6))), grid.field("flux", temporary=True)
    step = ml.program(lambda: double(grid, u, flux))
    step.run()
    double(grid.box((0, 0), (2, 6)), u, flux)
    with pytest.raises(ProgramError, match="temporary"):
        flux.numpy()
    double(grid, u, flux)  # all but ghosts
    np.testing.assert_array_equal(grid.shaped(flux), np.full((4, 6), 2.0))


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("fuse", [True, False])
def test_a_program_that_reads_it_first_is_refused_everywhere(back_end: str, fuse: bool) -> None:
    ml.use(back_end)
    steps = Steps()

    @ml.program(fuse=fuse)
    def wrong() -> None:
        add(steps.cells, steps.flux, steps.out)
        double(steps.cells, steps.u, steps.flux)

    with pytest.raises(KernelError, match="field flux is temporary, but a program reads it before it is written"):
        wrong.run()


def test_nothing_is_lost_where_nothing_ran() -> None:
    ml.use("numpy")
    steps = Steps()
    steps.flux.fill(7.0)
    steps.step.run(0)
    assert steps.step.loops
    np.testing.assert_array_equal(steps.flux.numpy(), np.full(5, 7.0))


def test_another_layout_needs_no_values() -> None:
    ml.use("cpu")
    cells = ml.Set(5, "cells")
    u, flux = cells.field("u", 2, data=np.ones((5, 2))), cells.field("flux", 2, temporary=True)
    step = ml.program(lambda: double(cells, u, flux))
    step.run()
    flux.relayout("soa")
    step.run()
    with pytest.raises(ProgramError):
        flux.numpy()


@ml.kernel
def gather(u: ml.Read, into: ml.Inc):
    into[0] += u
    into[1] += 2.0 * u


def own_fields(w: Steps) -> None:
    """A function that makes what it needs on its way."""
    flux, sums = w.u.like("flux"), w.cells.field("sums")
    double(w.cells, w.u, flux)
    gather(w.cells, flux, sums[w.round])
    add(w.cells, sums, w.out)


class Round(Steps):
    def __init__(self) -> None:
        super().__init__()
        self.round = ml.Map(self.cells, self.cells, [[(k + 1) % 5, (k + 2) % 5] for k in range(5)], "round")
        self.made: list[ml.Field] = []


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("fuse", [True, False])
def test_fields_made_inside_a_program_are_its_own(back_end: str, fuse: bool) -> None:
    ml.use(back_end)
    eager, recorded = Round(), Round()
    for _ in range(3):
        own_fields(eager)
    program = ml.program(fuse=fuse)(lambda: own_fields(recorded))
    program.run(3)
    np.testing.assert_array_equal(recorded.out.numpy(), eager.out.numpy())
    made = {f.name: f for f in program.loops[-1].reads if isinstance(f, ml.Field)}
    assert made["sums"].temporary
    with pytest.raises(ProgramError, match="sums is temporary and has no values after program"):
        made["sums"].numpy()


def test_a_field_of_a_program_is_filled_only_where_somebody_sees_it() -> None:
    """``flux`` is written as a whole before it is read, ``sums`` is added to; nobody asks for ``idle``."""
    ml.use("numpy")
    w = Round()

    def body() -> None:
        w.u.like("idle")
        own_fields(w)

    assert [o.name for o in ml.program(body).loops] == ["sums = 0", "double", "gather", "add"]


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_what_an_inner_program_fills_last_is_seen_by_the_outer(back_end: str) -> None:
    ml.use(back_end)
    s = Steps()

    @ml.program
    def inner() -> None:
        s.step()
        s.flux.fill(7.0)

    @ml.program
    def outer() -> None:
        inner()
        double(s.cells, s.flux, s.out)

    outer()
    np.testing.assert_array_equal(s.out.numpy(), np.full(5, 14.0))
    assert [o.name for o in inner.loops] == ["double", "add"]


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_program_that_only_fills_a_temporary_field_leaves_it_without_values(back_end: str) -> None:
    ml.use(back_end)
    s = Steps()
    double(s.cells, s.u, s.flux)
    ml.program(lambda: s.flux.fill(1.0)).run(2)
    with pytest.raises(ProgramError, match="flux is temporary and has no values after program"):
        s.flux.numpy()


def test_a_field_made_inside_may_be_kept() -> None:
    ml.use("cpu")
    w = Round()

    def body() -> None:
        w.made[:] = [w.cells.field("kept", temporary=False)]
        double(w.cells, w.u, w.made[0])

    w.made[:] = [None]
    ml.program(body).run(2)
    np.testing.assert_array_equal(w.made[0].numpy(), 2.0 * w.u.numpy())
    others: list[ml.Field] = []
    with pytest.raises(ProgramError, match="program <lambda> changes what it reads"):  # which of them is it in the end?
        ml.program(lambda: (others.append(w.cells.field("another")), body())[1]).run()


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_ghosts_of_a_field_made_inside_are_zero_at_every_replay(back_end: str) -> None:
    """A loop that writes all points leaves ghosts as they are: the fill before it must stay."""
    ml.use(back_end)
    grid = ml.Grid((4, 6), ghosts=1)
    u, out = grid.field("u", data=np.ones((4, 6))), ml.Global(0.0, "out")

    @ml.kernel
    def beside(flux: ml.Read, out: ml.Sum):
        out += flux[1, 0]

    def body() -> None:
        flux = grid.field("flux")
        double(grid, u, flux)
        out.value = 0.0
        beside(grid, flux[grid.offsets((1, 0))], out)
        ml.fill_ghosts(flux)

    program = ml.program(body)
    program.run(1)
    once = out.value
    program.run(2)
    assert out.value == once


def test_a_program_of_something_without_a_name() -> None:
    ml.use("numpy")
    w = Round()
    assert ml.program(partial(own_fields, w)).name == "own_fields"
    with pytest.raises(ProgramError, match="a program is made of a function that calls kernels, got int"):
        ml.program(3)  # type: ignore[call-overload]


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("given", [False, True])
def test_what_an_inner_program_does_last_is_seen_by_the_one_around_it(back_end: str, given: bool) -> None:
    """Alone nobody would see that fill, nor what the second one reads."""
    ml.use(back_end)
    w = Steps()
    three, reading = ml.program(lambda flux: flux.fill(3.0)), ml.program(lambda flux: add(w.cells, flux, w.out))
    if not given:
        three, reading = ml.program(lambda: w.flux.fill(3.0)), ml.program(lambda: add(w.cells, w.flux, w.out))

    @ml.program
    def outer() -> None:
        arguments = (w.u.like("own"),) if given else ()
        double(w.cells, w.u, *(arguments or (w.flux,)))
        reading(*arguments)
        three(*arguments)
        reading(*arguments)

    outer.run(2)
    np.testing.assert_array_equal(w.out.numpy(), 2.0 * (2.0 * np.arange(5.0) + 3.0))
    with pytest.raises(KernelError, match="field flux is temporary, but a program reads it before it is written"):
        reading.run(1, *((w.flux,) if given else ()))
