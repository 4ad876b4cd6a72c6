"""What happens at one boundary face: the kernels of each kind of condition, whatever its numbers are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.finite_volume.conditions import BoundaryCondition
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import FlowScheme, reconstructed


class SideKernels(NamedTuple):
    """Of one kind of condition; flux, force and surface take slope, share and eddy as the scheme needs them, the flux
    of a stage that is done again takes which cells are troubled, too."""

    gradient: ml.Kernel
    bounds: ml.Kernel
    flux: ml.Kernel
    flux_again: ml.Kernel
    force: ml.Kernel
    surface: ml.Kernel


@cache
def side_kernels(gas: IdealGas, scheme: FlowScheme, turbulent: bool, condition: type[BoundaryCondition]) -> SideKernels:
    exchange = _exchange(gas, scheme, turbulent, condition)
    again = _exchange(gas, scheme, turbulent, condition, again=True)
    return SideKernels(*_ghosts(gas, condition), _flux(exchange), _flux(again), *_on_walls(exchange))


def _ghosts(gas: IdealGas, condition: type[BoundaryCondition]) -> tuple[ml.Kernel, ml.Kernel]:
    """What the state beyond the face adds to gradients, and to the bounds of limiters."""

    @ml.kernel
    def side_gradient(v: ml.Read, given: ml.Read, area: ml.Read, weights: ml.Read, slope: ml.Inc):
        beyond = condition.ghost(gas, v[0], given, area / np.sqrt(area @ area))
        slope[0] += np.outer(beyond - v[0], weights)

    @ml.kernel
    def side_bounds(v: ml.Read, given: ml.Read, area: ml.Read, low: ml.Min, high: ml.Max):
        beyond = condition.ghost(gas, v[0], given, area / np.sqrt(area @ area))
        low[0] = high[0] = gas.bounded(beyond)

    return side_gradient, side_bounds


Exchange = Callable[[Any, Any, Any, Any, tuple[Any, ...]], tuple[Any, Any]]


def _exchange(
    gas: IdealGas, scheme: FlowScheme, turbulent: bool, condition: type[BoundaryCondition], again: bool = False
) -> Exchange:
    """What goes through a face, as a function of v, given, area, reach and what else the scheme needs."""
    numerical_flux = scheme.numerical_flux()

    def through(v: Any, given: Any, area: Any, reach: Any, more: tuple[Any, ...]) -> tuple[Any, Any]:
        """Convection out of the domain, and the viscous and heat flux in."""
        inside, normal, others = v[0], area / np.sqrt(area @ area), list(more)
        slope = others.pop(0)[0] if scheme.needs_gradients(gas) else None
        at_face = inside
        if scheme.order == 2:
            share = others.pop(0)[0] if scheme.limited else 1.0
            at_face = reconstructed(gas, inside, slope, share, reach)
        if again:
            at_face = np.where(others.pop()[0] > 0.0, inside, at_face)
        f = condition.flux(gas, numerical_flux, at_face, given, area, normal)
        if not gas.viscous:
            return f, np.zeros_like(f)
        eddy = others.pop(0)[0] if turbulent else np.zeros_like(inside[0])
        return f, condition.friction(gas, inside, given, slope, area, normal, reach, eddy)

    return through


def _flux(through: Exchange) -> ml.Kernel:
    @ml.kernel
    def side_flux(v: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, inflow: ml.Inc, *more: ml.Read):
        convection, friction = through(v, given, area, reach, more)
        inflow[0] -= convection - friction

    return side_flux


def _on_walls(through: Exchange) -> tuple[ml.Kernel, ml.Kernel]:
    """The sum of forces, and pressure and skin friction at every face."""

    @ml.kernel
    def wall_force(
        v: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, middle: ml.Read, about: ml.Read, ambient: ml.Read,
        force: ml.Sum, friction_force: ml.Sum, moment: ml.Sum, *more: ml.Read,
    ):  # fmt: skip
        """What the gas does to the wall beyond the pressure ``ambient``, which is taken to be behind it; the moment is
        about a point, in the plane that about the third axis."""
        convection, friction = through(v, given, area, reach, more)
        push, rub = convection[1:-1] - ambient * area, -friction[1:-1]
        arm, total = middle - about, push + rub
        force += push
        friction_force += rub
        if len(arm) == 2:
            moment += arm[0] * total[1] - arm[1] * total[0]
        else:
            moment += np.cross(arm, total)

    @ml.kernel
    def surface(
        v: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, pressure: ml.Write, shear: ml.Write, *more: ml.Read
    ):
        """Pressure, and the vector of skin friction, per area of a wall."""
        convection, friction = through(v, given, area, reach, more)
        size2 = area @ area
        pressure[...] = convection[1:-1] @ area / size2
        shear[...] = -friction[1:-1] / np.sqrt(size2)

    return wall_force, surface
