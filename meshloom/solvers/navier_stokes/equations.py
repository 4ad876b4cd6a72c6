"""The right-hand side of the Navier-Stokes equations on a grid, axis by axis.

One pass over the lines of an axis takes the slopes of velocity and temperature, another one derives the fluxes. In the
plane that is 6 + 8 = 14 compact derivatives, in space 12 + 15 = 27. A flux is evaluated where it is derived, and its
derivative is added to dq/dt at once: neither is ever stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.solvers.navier_stokes.gas import Gas, flux, split_flux, split_mass, split_slopes
from meshloom.solvers.navier_stokes.operators import derivative, inner_derivative

DIVERGENCE, SPLIT = "divergence", "split"
FORMS = (DIVERGENCE, SPLIT)


@dataclass(frozen=True)
class Pass:
    """What happens along the lines of one axis: before the derivative, and with it."""

    operator: ml.linalg.LineOperator
    before: ml.Kernel
    after: ml.Kernel | None
    values: int  # to derive
    name: str


class Equations:
    """Of a gas on a uniform grid; ``form`` says how what is carried is derived.

    On closed axes the normal derivatives at the ends are left out of dq/dt: ``boundary.py`` adds them. ``method``
    solves the tridiagonal systems of the lines.
    """

    def __init__(self, grid: ml.Grid, gas: Gas, form: str = DIVERGENCE, method: str = "auto"):
        if form == SPLIT and not all(grid.periodic):
            raise MeshError(f"grid {grid.name}: the split form of the equations needs periodic axes")
        self.grid, self.gas, self.form, self.method = grid, gas, form, method
        self._slope_passes = [self._slope_pass(a) for a in range(grid.rank)]
        self._flux_passes = [self._flux_pass(a, first=a == 0) for a in range(grid.rank)]

    def slope_fields(self, dtype: Any) -> tuple[ml.Field, ...]:
        """Room for the slopes: for each axis a field of d + 1 components."""
        rank = self.grid.rank
        return tuple(self.grid.field(f"slope_{ml.Grid.axis_names[a]}", rank + 1, dtype=dtype) for a in range(rank))

    def take_slopes(self, q: ml.Field, slopes: Sequence[ml.Field]) -> None:
        """Derivatives of velocity and temperature along every axis."""
        for axis, one in enumerate(self._slope_passes):
            self._run(axis, one, q, slopes[axis])

    def rate(self, q: ml.Field, slopes: Sequence[ml.Field], rate: ml.Field) -> None:
        """dq/dt into ``rate``, from q and its slopes."""
        for axis, one in enumerate(self._flux_passes):
            reads = [q, *slopes]
            writes = [q, slopes[axis], rate] if self.form == SPLIT else [rate]
            self._run(axis, one, reads, writes)
        if self.form == SPLIT:
            split_mass_kernel(self.gas)(self.grid, q, rate)

    def _run(self, axis: int, one: Pass, reads: Any, writes: Any) -> None:
        ml.linalg.line_loop(
            self.grid, axis, one.operator, reads, writes,
            before=one.before, after=one.after, values=one.values, method=self.method, name=one.name,
        )  # fmt: skip

    def _slope_pass(self, axis: int) -> Pass:
        operator, count = derivative(self.grid, axis), self.grid.rank + 1
        return Pass(operator, slope_kernel(self.gas), None, count, f"slope_{ml.Grid.axis_names[axis]}")

    def _flux_pass(self, axis: int, *, first: bool) -> Pass:
        """``first``: sets dq/dt, the others add to it."""
        split, rank = self.form == SPLIT, self.grid.rank
        before = flux_kernel(self.gas, axis, rank, split)
        after = split_kernel(self.gas, axis, first) if split else divergence_kernel(first)
        return Pass(inner_derivative(self.grid, axis), before, after, rank + 2, f"flux_{ml.Grid.axis_names[axis]}")


# --- kernels: what is derived, and what becomes of it; tracing takes time, so cases of one gas share them ---


@cache
def slope_kernel(gas: Gas) -> ml.Kernel:
    @ml.kernel
    def velocity_and_temperature(q: ml.Read, f: ml.Write):
        state = gas.state(q)
        f[...] = np.stack([*state.velocity, state.temperature])

    return velocity_and_temperature


@cache
def flux_kernel(gas: Gas, axis: int, rank: int, split: bool) -> ml.Kernel:
    """The flux along an axis, of q and its slopes at one point."""
    flux_of = split_flux if split else flux

    @ml.kernel
    def flux_in_plane(q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, f: ml.Write):
        f[...] = flux_of(gas, q, (slope_x, slope_y), axis)

    @ml.kernel
    def flux_in_space(q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, slope_z: ml.Read, f: ml.Write):
        f[...] = flux_of(gas, q, (slope_x, slope_y, slope_z), axis)

    return flux_in_plane if rank == 2 else flux_in_space


@cache
def divergence_kernel(first: bool) -> ml.Kernel:
    """What a place loses through a flux is the flux's derivative."""

    @ml.kernel
    def begin(df: ml.Read, rate: ml.Write):
        rate[...] = -df

    @ml.kernel
    def accumulate(df: ml.Read, rate: ml.Inc):
        rate[...] -= df

    return begin if first else accumulate


@cache
def split_kernel(gas: Gas, axis: int, first: bool) -> ml.Kernel:
    """The same with the slopes of the split form."""

    @ml.kernel
    def begin(df: ml.Read, q: ml.Read, slope: ml.Read, rate: ml.Write):
        rate[...] = -df - split_slopes(gas, q, slope, axis)

    @ml.kernel
    def accumulate(df: ml.Read, q: ml.Read, slope: ml.Read, rate: ml.Inc):
        rate[...] -= df + split_slopes(gas, q, slope, axis)

    return begin if first else accumulate


@cache
def split_mass_kernel(gas: Gas) -> ml.Kernel:
    """What the split form adds when the change of the density is known."""

    @ml.kernel
    def carry(q: ml.Read, rate: ml.ReadWrite):
        rate[...] = rate + split_mass(gas, q, rate[0])

    return carry
