"""The right-hand side of the Navier-Stokes equations on a grid, axis by axis.

Velocity and temperature are derived along every axis, which gives the slopes; then the fluxes, which gives dq/dt. In
the plane that is 6 + 8 = 14 compact derivatives, in space 12 + 15 = 27.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.compact.operators import operator_of_rows
from meshloom.errors import MeshError
from meshloom.solvers.navier_stokes.gas import Gas, flux, split_flux, split_products

DIVERGENCE, SPLIT = "divergence", "split"
FORMS = (DIVERGENCE, SPLIT)


class DerivedFields(NamedTuple):
    """Fields for what is derived: velocity and temperature, and for each axis the flux along it."""

    carried: ml.Field
    fluxes: tuple[ml.Field, ...]


class Equations:
    """Of a gas on a uniform grid; ``form`` says how the convective flux is derived.

    On closed axes the normal derivatives at the ends are left out of dq/dt: ``boundary.py`` adds them. ``method``
    solves the tridiagonal systems of the lines. ``dtype`` is that of all fields.
    """

    def __init__(
        self, grid: ml.Grid, gas: Gas, form: str = DIVERGENCE, *, method: str = "auto", dtype: Any = np.float64
    ):
        if form == SPLIT and (grid.rank != 3 or not all(grid.periodic)):
            raise MeshError(f"grid {grid.name}: the split form of the equations needs three periodic axes")
        self.grid, self.gas, self.form, self.method, self.dtype = grid, gas, form, method, dtype
        self._derivatives = [compact.operator(compact.LELE6, grid, a) for a in range(grid.rank)]
        self._inner_derivatives = [inner_derivative(grid, a) for a in range(grid.rank)]

    def _fields(self, name: str, dim: int) -> tuple[ml.Field, ...]:
        """One for each axis."""
        names = [f"{name}_{letter}" for letter in ml.Grid.axis_names[: self.grid.rank]]
        return tuple(self.grid.field(one, dim, dtype=self.dtype) for one in names)

    def slope_fields(self) -> tuple[ml.Field, ...]:
        """Fields for the slopes: for each axis one of d + 1 components."""
        return self._fields("slope", self.grid.rank + 1)

    def derived_fields(self) -> DerivedFields:
        """What both of the following can share, where they are called often."""
        carried = self.grid.field("carried", self.grid.rank + 1, dtype=self.dtype)
        return DerivedFields(carried, self._fields("flux", self.grid.rank + 2))

    def take_slopes(self, q: ml.Field, slopes: Sequence[ml.Field], derived: DerivedFields | None = None) -> None:
        """Derivatives of velocity and temperature along every axis."""
        carried = (derived or self.derived_fields()).carried
        slope_kernel(self.gas)(self.grid, q, carried)
        for axis, operator in enumerate(self._derivatives):
            self._derive("slope", axis, operator, carried, slopes[axis])

    def rate(
        self, q: ml.Field, slopes: Sequence[ml.Field], rate: ml.Field, derived: DerivedFields | None = None
    ) -> None:
        """dq/dt into ``rate``, from q and its slopes."""
        gas, rank, split = self.gas, self.grid.rank, self.form == SPLIT
        fluxes = (derived or self.derived_fields()).fluxes
        fluxes_kernel(gas, rank, split)(self.grid, q, *slopes, *fluxes)
        for axis, operator in enumerate(self._inner_derivatives):
            self._derive("flux", axis, operator, fluxes[axis], rate, after=divergence_kernel(axis == 0))
        if split:
            split_kernel(gas)(self.grid, q, *slopes, rate)

    def _derive(self, name: str, axis: int, operator: Any, reads: ml.Field, writes: ml.Field, **kernels: Any) -> None:
        name = f"{name}_{ml.Grid.axis_names[axis]}"
        compact.apply(self.grid, axis, operator, reads, writes, method=self.method, name=name, **kernels)


# --- the derivative of fluxes ---


def inner_derivative(grid: ml.Grid, axis: int, scheme: compact.Scheme = compact.LELE6) -> ml.linalg.LineOperator:
    """d/dx along an axis at every point but the ends of a closed one, where it is zero.

    What a boundary condition says there can then be added by itself. The first row ties the derivative at the end to
    the next one; eliminating it from the second row changes no other value.
    """
    if grid.periodic[axis]:
        return compact.operator(scheme, grid, axis)
    low = _left_to_others(scheme.low)
    first, *high = _left_to_others([row.mirrored(degree=0) for row in scheme.high_rows])
    high = [first, *(row.mirrored(degree=0) for row in high)]
    return operator_of_rows(scheme.interior, low, high, scale=1.0 / grid.spacing[axis])


def _left_to_others(rows: Sequence[compact.Row]) -> list[compact.Row]:
    """End rows, outermost first, reading inwards: the first gives zero, the second no longer asks for it."""
    end, second, *others = rows
    factor = second.left.get(-1, Fraction(0)) / end.left[0]
    left, right = dict(second.left), dict(second.right)
    for row, of_end in ((left, end.left), (right, end.right)):
        for offset, value in of_end.items():  # the end's offset 0 is the second row's -1
            row[offset - 1] = row.get(offset - 1, Fraction(0)) - factor * value
    left.pop(-1, None)
    scale = left[0]
    without = compact.Row.of({o: v / scale for o, v in left.items()}, {o: v / scale for o, v in right.items()})
    return [compact.Row({0: Fraction(1)}, {0: Fraction(0)}), without, *others]


# --- kernels: what is derived, and what becomes of it; tracing takes time, so cases of one gas share them ---


@cache
def slope_kernel(gas: Gas) -> ml.Kernel:
    @ml.kernel
    def velocity_and_temperature(q: ml.Read, f: ml.Write):
        state = gas.state(q)
        f[...] = np.stack([*state.velocity, state.temperature])

    return velocity_and_temperature


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
