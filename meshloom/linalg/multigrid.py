"""Geometric multigrid for Poisson's equation on the cells of a grid: a cycle of loops, alone or within a Krylov solver.

A cycle smooths on every level on the way down, solves exactly on the last one, and smooths in the same way on the way
up, so that it is a symmetric operator. Errors that smoothing leaves are smooth along the axes whose cells are strongly
linked, the narrow ones, so these are halved and the others wait until cells are about as long as wide. Halving goes
axis by axis, linear interpolation and its transpose; where n is odd (n + 1)/2 even cells take the place of n, so that
no cell at the end is unlike the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.errors import MeshError, ProgramError, instance, whole_number, yes_or_no
from meshloom.exclusion import exclusive
from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.linalg.axis_cells import WINDOW, AxisCells, first_above, first_below
from meshloom.linalg.cell_level import CellLevel, Formula, leading
from meshloom.linalg.in_programs import called_in_programs
from meshloom.linalg.iteration import (
    MOST_ITERATIONS,
    TOLERANCE,
    Iteration,
    Report,
    check_alone,
    check_tolerance,
    counting,
    inner_product,
    numbers,
    steps_of,
)
from meshloom.linalg.krylov import ONE, ConjugateGradients, Solver
from meshloom.linalg.krylov_kernels import BROKEN, add_to, note, set_to, subtract_from
from meshloom.linalg.poisson import InCells, Poisson
from meshloom.linalg.smoothing import LineSmoothing, PointSmoothing, Smoothing
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Map, Set
from meshloom.mesh.grid import Grid
from meshloom.operation.loop import Kernel, kernel
from meshloom.recording import MAKE_BEFORE, refuse_in_program

ALIKE = 1.5  # axes whose cells are at most so much longer than the shortest are halved together
MOST_STEPS = 8  # of smoothing
STRETCHED = 10.0  # the widest cell of an axis over the narrowest from where lines are smoothed
MOST_CYCLES = 200  # unless said


class Multigrid(NoCopy):
    """``multigrid(r, z)`` makes z, close to the solution of A z = r, by one V-cycle of loops: a preconditioner for
    ``ml.linalg.cg(poisson, x, b, preconditioner=multigrid)``. ``multigrid.solve(x, b)`` solves A x = b by itself.

    ``accelerated``: ``solve`` by conjugate gradients with the cycle as their preconditioner; else cycle after cycle.
    ``lines``: smooth along whole lines, axis after axis, and not point by point; unless said where the widths of cells
    along an axis differ by more than STRETCHED. It takes more memory and time, and makes up for it there. Cells that
    are much longer than wide everywhere need none. ``smoothing``: how often it is done before and after each
    correction, point by point 2 steps unless said, along lines once.
    """

    name = "multigrid"

    @exclusive
    def __init__(self, poisson: Poisson, *, accelerated: bool = True, lines: bool | None = None,
                 smoothing: int | None = None):  # fmt: skip
        refuse_in_program("making a multigrid solver", MAKE_BEFORE)
        check_alone("multigrid")
        self.poisson = instance("multigrid: the operator", poisson, Poisson, error=MeshError)
        self.accelerated = yes_or_no("multigrid: accelerated", accelerated, error=MeshError)
        stretched = any(one.stretching > STRETCHED for one in poisson.axes)
        self.lines = stretched if lines is None else yes_or_no("multigrid: lines", lines, error=MeshError)
        steps = (1 if self.lines else 2) if smoothing is None else smoothing
        self.smoothing = whole_number("multigrid: smoothing", steps, 1, MOST_STEPS, error=MeshError)
        self._rungs = _rungs(poisson.level, self.smoothing, lines=self.lines)
        self._exactly = _Exactly(self._rungs[-1].coarse if self._rungs else poisson.level)
        self._cells = InCells(poisson.bridge, poisson.dtype, poisson)
        make = ConjugateGradients if self.accelerated else Cycles
        self._solver = make(poisson.level.apply, preconditioner=self._cycle_for_solver)

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The shape of the cells on each level, the finest first."""
        return (self.poisson.level.shape, *(rung.coarse.shape for rung in self._rungs))

    @exclusive
    def __call__(self, r: Field, z: Field) -> None:
        """One cycle from zero; inside a program this is recorded."""
        self.poisson.check_both(self.name, "; z must be another one", r=r, z=z)
        self.poisson.bridge.through_cells(r, z, self._cycle_of_cells, (self._cells.b, self._cells.x))

    @exclusive
    @called_in_programs
    def solve(self, x: Field, b: Field, *, tol: float = TOLERANCE, at_most: int | None = None) -> Report:
        """Improve x until the norm of b - A x is at most ``tol`` times that of b, in at most so many cycles. Where A is
        singular b counts without what it adds up to, and x has no mean. Inside a program it is called at every
        replay."""
        self.poisson.check_both(self.name, x=x, b=b)
        tol, most = check_tolerance(self.name, tol), MOST_CYCLES if at_most is None else at_most
        most = whole_number("multigrid: at_most", most, 0, MOST_ITERATIONS, error=ProgramError)
        return self._cells.solve(x, b, partial(self._solver.solve, tol=tol, at_most=most))

    def _cycle_for_solver(self, r: Field, z: Field) -> None:
        """The same, r being a solver's own: of a singular operator without what rounding has made it add up to. Once
        only that was left conjugate gradients would take it for an error, and go astray."""
        if self._cells.means is not None:
            self._cells.means.out_of_residual(r)
        self._cycle_of_cells(r, z)

    def _cycle_of_cells(self, r: Field, z: Field) -> None:
        set_to(z.set, self._cycle(0, r), z)

    def _cycle(self, number: int, b: Field) -> Field:
        """The field with what a cycle makes of b on a level, from zero."""
        if number == len(self._rungs):
            return self._exactly(b)
        rung = self._rungs[number]
        x, residual = rung.smoothing.before(b)
        rung.fine.residual(x, b, residual)
        rung.down(residual)
        rung.up(self._cycle(number + 1, rung.coarse_b), x)
        return rung.smoothing.after(x, b)

    def __repr__(self) -> str:
        return f"Multigrid({self.poisson.name}: {', '.join(' x '.join(map(str, one)) for one in self.levels)})"


class Cycles(Solver):
    """x + M (b - A x), again and again: the preconditioner M as a method by itself."""

    name = "multigrid"

    def _iteration(self, like_x: Field, most: int) -> Iteration:
        r, z = (like_x.like(name) for name in ("residual", "correction"))
        apply, make_close = self._applied(like_x), self._precondition(like_x)
        if make_close is None:
            raise MeshError("multigrid: cycles are made of a preconditioner, and there is none")
        rr, size, left = numbers(like_x, 3)
        count, history = counting(like_x)

        def look(x: Field, b: Field) -> None:
            apply(x, r)
            subtract_from(x.set, b, r)
            inner_product(r, r, rr)

        def start(x: Field, b: Field) -> None:
            look(x, b)
            inner_product(b, b, size)
            set_to(ONE, rr, left)
            note(history.set, history.set.numbers, count, rr, history)

        def iterate(x: Field, b: Field) -> None:
            make_close(r, z)
            add_to(x.set, z, x)
            look(x, b)
            cycles_left(ONE, rr, left, count)
            note(history.set, history.set.numbers, count, rr, history)

        return Iteration(steps_of(start), steps_of(iterate), left, size, count, history, lambda: None)


# --- between levels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rung:
    """Two levels, and what leads from one to the other: halvings along one axis each. ``between``: what is on the way,
    from the first halving's result to the coarse level's right-hand side."""

    fine: CellLevel
    coarse: CellLevel
    halvings: tuple[_Halving, ...]
    between: tuple[Field, ...]
    smoothing: Smoothing

    @property
    def coarse_b(self) -> Field:
        return self.between[-1]

    def down(self, r: Field) -> None:
        """The right-hand side of the coarse level from the residual of the fine one."""
        for halving, target in zip(self.halvings, self.between, strict=True):
            halving.restrict(r, target)
            r = target

    def up(self, correction: Field, x: Field) -> None:
        """Add the correction of the coarse level to x."""
        for halving, target in zip(self.halvings[:0:-1], self.between[-2::-1], strict=True):
            halving.interpolate(correction, target)
            correction = target
        self.halvings[0].add_interpolated(correction, x)


class _Halving:
    """Between the cells of one grid and of another, with fewer of them along one axis."""

    def __init__(self, fine: Grid, coarse: Grid, axis: int, cells: AxisCells, dtype: np.dtype):
        n, m, stride, periodic = fine.shape[axis], coarse.shape[axis], fine.strides[axis], cells.periodic
        self.fine, self.coarse = fine, coarse

        def to(source: int, target: int, first: Callable[[Any], Any], slots: int) -> Formula:
            def formula(e: Any) -> list[Any]:
                start, around = first(e // stride % source), e // (stride * source)
                at = (start + k for k in range(slots))
                inside = [(i + 2 * target) % target if periodic else np.clip(i, 0, target - 1) for i in at]
                return [(around * target + i) * stride + e % stride for i in inside]

            return formula

        self._below = leading(coarse, fine, to(m, n, lambda j: first_below(j, n, m), WINDOW), "cells below")
        self._above = leading(fine, coarse, to(n, m, lambda i: first_above(i, n, m), 2), "cells above")
        along_fine, along_coarse = Set(n, "along the axis"), Set(m, "along the coarser axis")
        self._place = leading(fine, along_fine, lambda e: [e // stride % n], "place along the axis")
        self._coarse_place = leading(coarse, along_coarse, lambda e: [e // stride % m], "place along the axis")
        self._up = along_fine.field("interpolation", 2, dtype=dtype, data=cells.interpolation(m))
        self._down = along_coarse.field("restriction", WINDOW, dtype=dtype, data=cells.restriction(m))

    def restrict(self, r: Field, b: Field) -> None:
        _weighted(WINDOW)(self.coarse, self._down[self._coarse_place], r[self._below], b)

    def interpolate(self, x: Field, y: Field) -> None:
        _weighted(2)(self.fine, self._up[self._place], x[self._above], y)

    def add_interpolated(self, x: Field, y: Field) -> None:
        add_weighted(self.fine, self._up[self._place], x[self._above], y)


class _Exactly:
    """x = A^-1 b on few cells, by the inverse, whose rows are a field."""

    def __init__(self, level: CellLevel):
        self.grid, n, dtype = level.grid, prod(level.shape), level.dtype
        self._inverse = self.grid.field("inverse", n, dtype=dtype, data=level.inverse().reshape(*level.shape, n))
        self._all = Map.computed(self.grid, self.grid, lambda e: list(range(n)), "all cells")
        self._x = self.grid.field("exact", dtype=dtype)

    def __call__(self, b: Field) -> Field:
        rows_times(self.grid, self._inverse, b[self._all], self._x)
        return self._x


def _rungs(level: CellLevel, steps: int, *, lines: bool) -> tuple[_Rung, ...]:
    found = []
    while prod(level.shape) > current().target.numbers.solvers.coarsest:
        rung = _rung(level, steps, lines=lines)
        found.append(rung)
        level = rung.coarse
    return tuple(found)


def _rung(level: CellLevel, steps: int, *, lines: bool) -> _Rung:
    dtype, axes, grid = level.dtype, list(level.axes), level.grid
    halvings, between = [], []
    for axis in narrow_axes(axes):
        cells = axes[axis]
        axes[axis] = cells.coarser()
        coarser = Grid([len(one) for one in axes], periodic=True, name="cells")
        halvings.append(_Halving(grid, coarser, axis, cells, dtype))
        between.append(coarser.field("coarser", dtype=dtype))
        grid = coarser
    several = sum(n > 1 for n in level.shape) > 1  # else a line is all there is, and may be singular
    smoothing = LineSmoothing(level, steps) if lines and several else PointSmoothing(level, steps)
    return _Rung(level, CellLevel(axes, dtype, grid), tuple(halvings), tuple(between), smoothing)


def narrow_axes(axes: Sequence[AxisCells]) -> list[int]:
    """The axes whose cells are strongly linked: of those with several cells the narrow ones, by their mean widths."""
    widths = {a: float(np.mean(one.widths)) for a, one in enumerate(axes) if len(one) > 1}
    return [a for a, width in widths.items() if width < ALIKE * min(widths.values())]


# --- kernels ----------------------------------------------------------------------------------------------------------


@cache
def _weighted(slots: int) -> Kernel:
    @kernel
    def weighted(w: Read, x: Read, y: Write):
        y[...] = sum(w[0, k] * x[k] for k in range(slots))

    return weighted


@kernel
def add_weighted(w: Read, x: Read, y: ReadWrite):
    y += w[0, 0] * x[0] + w[0, 1] * x[1]


@kernel
def rows_times(inverse: Read, b: Read, x: Write):
    x[...] = np.sum(inverse * b)


@kernel
def cycles_left(rr: Read, left: Write, count: ReadWrite):
    left[...] = np.where(np.isfinite(rr), rr, BROKEN)
    count += 1
