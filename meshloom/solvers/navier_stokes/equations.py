"""The right-hand side of the Navier-Stokes equations on a grid, axis by axis.

One pass over the lines of an axis takes the slopes of velocity and temperature, another one derives the fluxes and adds
what it finds to dq/dt. In the plane that is 6 + 8 = 14 compact derivatives, in space 12 + 15 = 27.

What is derived can be evaluated where it is derived and never be stored (FUSED), which moves the fewest bytes. Or it is
evaluated once for all axes before (STORED), which keeps the passes light.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.errors import MeshError
from meshloom.solvers.navier_stokes.gas import Gas, flux, split_flux, split_products
from meshloom.solvers.navier_stokes.operators import derivative, inner_derivative

DIVERGENCE, SPLIT = "divergence", "split"
FORMS = (DIVERGENCE, SPLIT)
FUSED, STORED = "fused", "stored"


class Equations:
    """Of a gas on a uniform grid; ``form`` says how what is carried is derived, ``passes`` whether fluxes are stored.

    On closed axes the normal derivatives at the ends are left out of dq/dt: ``boundary.py`` adds them. ``method``
    solves the tridiagonal systems of the lines. ``dtype`` is that of all fields.
    """

    def __init__(
        self, grid: ml.Grid, gas: Gas, form: str = DIVERGENCE, *,
        passes: str = FUSED, method: str = "auto", dtype: Any = np.float64,
    ):  # fmt: skip
        if form == SPLIT and (grid.rank != 3 or not all(grid.periodic)):
            raise MeshError(f"grid {grid.name}: the split form of the equations needs three periodic axes")
        self.grid, self.gas, self.form, self.passes, self.method, self.dtype = grid, gas, form, passes, method, dtype
        self._derivatives = [derivative(grid, a) for a in range(grid.rank)]
        self._inner_derivatives = [inner_derivative(grid, a) for a in range(grid.rank)]
        if passes == STORED:
            self._carried = grid.field("carried", grid.rank + 1, dtype=dtype)
            self._fluxes = self._fields("flux", grid.rank + 2)

    def _fields(self, name: str, dim: int) -> tuple[ml.Field, ...]:
        """One for each axis."""
        names = [f"{name}_{letter}" for letter in ml.Grid.axis_names[: self.grid.rank]]
        return tuple(self.grid.field(one, dim, dtype=self.dtype) for one in names)

    def slope_fields(self) -> tuple[ml.Field, ...]:
        """Room for the slopes: for each axis a field of d + 1 components."""
        return self._fields("slope", self.grid.rank + 1)

    def take_slopes(self, q: ml.Field, slopes: Sequence[ml.Field]) -> None:
        """Derivatives of velocity and temperature along every axis."""
        evaluate, source = slope_kernel(self.gas), q
        if self.passes == STORED:
            evaluate(self.grid, q, self._carried)
            source = self._carried
        for axis, operator in enumerate(self._derivatives):
            before = None if self.passes == STORED else evaluate
            self._derive("slope", axis, operator, source, slopes[axis], before=before)

    def rate(self, q: ml.Field, slopes: Sequence[ml.Field], rate: ml.Field) -> None:
        """dq/dt into ``rate``, from q and its slopes."""
        gas, rank, split = self.gas, self.grid.rank, self.form == SPLIT
        if self.passes == STORED:
            fluxes_kernel(gas, rank, split)(self.grid, q, *slopes, *self._fluxes)
        for axis, operator in enumerate(self._inner_derivatives):
            stored, first = self.passes == STORED, axis == 0
            before = None if stored else flux_kernel(gas, axis, rank, split)
            after, reads = divergence_kernel(first), [self._fluxes[axis]] if stored else [q, *slopes]
            self._derive("flux", axis, operator, reads, rate, before=before, after=after, values=rank + 2)
        if split:
            split_kernel(gas)(self.grid, q, *slopes, rate)

    def _derive(self, name: str, axis: int, operator: Any, reads: Any, writes: Any, **kernels: Any) -> None:
        name = f"{name}_{ml.Grid.axis_names[axis]}"
        compact.apply(self.grid, axis, operator, reads, writes, method=self.method, name=name, **kernels)


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
def fluxes_kernel(gas: Gas, rank: int, split: bool) -> ml.Kernel:
    """The fluxes along all axes."""
    flux_of = split_flux if split else flux

    @ml.kernel
    def fluxes_in_plane(q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, flux_x: ml.Write, flux_y: ml.Write):
        flux_x[...] = flux_of(gas, q, (slope_x, slope_y), 0)
        flux_y[...] = flux_of(gas, q, (slope_x, slope_y), 1)

    @ml.kernel
    def fluxes_in_space(
        q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, slope_z: ml.Read,
        flux_x: ml.Write, flux_y: ml.Write, flux_z: ml.Write,
    ):  # fmt: skip
        for axis, found in enumerate((flux_x, flux_y, flux_z)):
            found[...] = flux_of(gas, q, (slope_x, slope_y, slope_z), axis)

    return fluxes_in_plane if rank == 2 else fluxes_in_space


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
def split_kernel(gas: Gas) -> ml.Kernel:
    """The half that the split form does not derive as it stands: products, at one point, when d rho/dt is known."""

    @ml.kernel
    def carry(q: ml.Read, slope_x: ml.Read, slope_y: ml.Read, slope_z: ml.Read, rate: ml.ReadWrite):
        rate[...] = rate + split_products(gas, q, (slope_x, slope_y, slope_z), rate[0])

    return carry
