"""Adams and Bashforth's steps for convection, Crank and Nicolson's for viscosity: of second order; viscosity does not
limit their length.

    (1 - nu dt/2 lap) u* = u + dt (-(1 + s) N(u) + s N(u before) + nu/2 lap u - grad p + f),    s = dt / (2 dt before)

with the pressure of the step before, which is taken out again from u* before the new one is solved for: so what holds
at walls holds for u* but for a part of second order. The first step knows no step before: there s = 0.

The equations for u* are solved by a fixed number of sweeps in the program itself, without asking whether it is enough:
Jacobi's iteration, sped up by Chebyshev's polynomials (R. S. Varga, Matrix Iterative Analysis, 1962). What one sweep
leaves of an error is at most r = k / (1 + k), with k = nu dt/2 times the largest sum of a row of lap without its
diagonal, so the number follows from the widths of the cells. Unlike solves along one axis after the other that needs no
splitting, and holds with any sides, widths and number of axes. What is left is measured all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Protocol

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import CellGrid, Spacing, along, spacings
from meshloom.solvers.fractional_step.operators import laplacian
from meshloom.solvers.fractional_step.staggered_operators import staggered_laplacian

LEFT = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-7}  # of an error, after all sweeps
RESIDUAL = "viscous_residual"


class Momentum(Protocol):
    """What a flow does for ``CrankNicolson``, inside a program."""

    cells: CellGrid
    staggered: ClassVar[bool]
    viscosity: float
    u_star: ml.Field
    dt: ml.Global

    def explicit_part(self, theirs: CrankNicolson) -> None:
        """Set ``right`` to the right-hand side, ``convected`` to N(u), and ``guess`` to u."""

    def unknowns(self) -> ml.Field:
        """The velocities u, with their ghosts."""

    def fill_unknowns(self, u: ml.Field) -> None:
        """Ghosts of such velocities."""

    def without_pressure(self, u: ml.Field) -> None:
        """u + dt grad p."""


class CrankNicolson:
    """``advance`` sets ``u_star`` of a flow. ``residual``: by how much at most the sweeps have missed it, about."""

    def __init__(self, flow: Momentum, longest: float):
        """``longest``: the length of a step at most."""
        self.flow, like = flow, flow.u_star.like
        self.convected, self.right, self.guess = like("convected"), like("right_hand_side"), like("guess")
        dtype = flow.cells.dtype
        self.dt_before, self.share = ml.Global(0.0, "dt_before", dtype=dtype), ml.Global(0.0, "share", dtype=dtype)
        self.residual = ml.Global(0.0, RESIDUAL, dtype=dtype)
        self.radius = _radius(0.5 * flow.viscosity * longest, flow.cells)
        self.sweeps = sweeps_needed(self.radius, LEFT[dtype])
        self._clock, self._do = ml.Set(1, "clock_before"), sweep_kernels(flow.cells.even, flow.staggered)

    @property
    def state(self) -> tuple[ml.Field | ml.Global, ...]:
        return self.convected, self.dt_before

    def advance(self) -> None:
        flow, cells = self.flow, self.flow.cells
        remember_step(self._clock, flow.dt, self.dt_before, self.share)
        flow.explicit_part(self)
        known = (self.right, flow.dt, flow.viscosity)
        new, other = flow.u_star, self.guess
        self._do.first_sweep(cells.grid, cells.cross(flow.unknowns()), *known, new, *cells.widths)
        flow.fill_unknowns(new)
        weight = 2.0
        for _ in range(self.sweeps - 1):
            weight = 1.0 / (1.0 - 0.25 * self.radius**2 * weight)
            self._do.sweep(cells.grid, cells.cross(new), *known, weight, other, *cells.widths)
            new, other = other, new
            flow.fill_unknowns(new)
        self._measure(new, other)
        flow.without_pressure(new)

    def _measure(self, found: ml.Field, other: ml.Field) -> None:
        """By what a further sweep would change; what is given at sides is no equation, and does not count."""
        flow, cells = self.flow, self.flow.cells
        known = (self.right, flow.dt, flow.viscosity)
        self._do.first_sweep(cells.grid, cells.cross(found), *known, other, *cells.widths)
        flow.fill_unknowns(other)
        self.residual.value = 0.0
        self._do.measure_residual(cells.grid, found, other, self.residual)


def sweeps_needed(radius: float, left: float) -> int:
    """How many sweeps leave so much of an error; an odd number, so that the last one ends where the first did."""
    rate = radius / (1.0 + math.sqrt(1.0 - radius**2))
    many = 1 if rate == 0.0 else math.ceil(math.log(left / 2.0) / math.log(rate))
    return max(many + 1 - many % 2, 3)


def _radius(factor: float, cells: CellGrid) -> float:
    """k / (1 + k), of velocities at centres and at faces alike. ``factor``: nu dt/2."""
    total = 0.0
    for axis in cells.axes:
        widths = axis.with_ghosts(1)
        distances = 0.5 * (widths[1:] + widths[:-1])
        at_centres = (1.0 / distances[1:] + 1.0 / distances[:-1]) / widths[1:-1]
        at_faces = (1.0 / widths[1:] + 1.0 / widths[:-1]) / distances
        total += max(float(at_centres.max()), float(at_faces.max()))
    return factor * total / (1.0 + factor * total)


@ml.kernel
def remember_step(dt: ml.Read, before: ml.ReadWrite, share: ml.Write):
    """How much of N(u before) is taken away, and for the next step how long this one is."""
    share[...] = np.where(before > 0.0, 0.5 * dt / np.where(before > 0.0, before, 1.0), 0.0)
    before[...] = dt


def _diagonal(axes: Sequence[Spacing], component: int, staggered: bool) -> Any:
    """Minus the diagonal of lap."""
    found: Any = 0.0
    for axis, one in enumerate(axes):
        if staggered and axis == component:
            found = found + (1.0 / one.width() + 1.0 / one.width(-1)) / one.distance()
        else:
            found = found + (1.0 / one.distance(1) + 1.0 / one.distance()) / one.width()
    return found


class SweepKernels:
    """``first_sweep``, ``sweep``, ``measure_residual``."""

    def __init__(self, first_sweep: ml.Kernel, sweep: ml.Kernel, measure_residual: ml.Kernel):
        self.first_sweep, self.sweep, self.measure_residual = first_sweep, sweep, measure_residual


@cache
def sweep_kernels(even: tuple[bool, ...], staggered: bool) -> SweepKernels:
    rank, lap = len(even), staggered_laplacian if staggered else laplacian
    here = along(rank, 0, 0)

    def swept(u: Any, right: Any, factor: Any, widths: Any) -> list[Any]:
        """Jacobi's next."""
        axes = spacings(widths, even)
        left = [right[c] - u[here][c] + factor * lap(u, axes, c) for c in range(rank)]
        return [u[here][c] + left[c] / (1.0 + factor * _diagonal(axes, c, staggered)) for c in range(rank)]

    @ml.kernel
    def first_sweep(
        u: ml.Read, right: ml.Read, dt: ml.Read, viscosity: ml.Read, new: ml.Write, *widths: ml.Read
    ):  # fmt: skip
        new[...] = np.stack(swept(u, right, 0.5 * viscosity * dt, widths))

    @ml.kernel
    def sweep(
        u: ml.Read, right: ml.Read, dt: ml.Read, viscosity: ml.Read, weight: ml.Read, new: ml.ReadWrite,
        *widths: ml.Read,
    ):  # fmt: skip
        """``new`` comes with the velocities before ``u``."""
        parts = swept(u, right, 0.5 * viscosity * dt, widths)
        new[...] = np.stack([new[c] + weight * (part - new[c]) for c, part in enumerate(parts)])

    @ml.kernel
    def measure_residual(u: ml.Read, other: ml.Read, largest: ml.Max):
        for c in range(rank):
            largest[...] = np.abs(other[c] - u[c])

    return SweepKernels(first_sweep, sweep, measure_residual)
