"""How what flows into cells changes with their states: the entries of the matrix of an implicit step.

Of the scheme of first order: the numerical flux between the states of two cells, the viscous term by their difference
along the line between them, and the boundary conditions, all of them the scheme's own formulas, differentiated where
they stand (``ml.jacobian``). Gradients and limiters stay out: the matrix links neighbours alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.finite_volume.conditions import BoundaryCondition
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.fluxes import NumericalFlux
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.kernels import FlowScheme, face_friction


@cache
def face_jacobian(gas: IdealGas, scheme: FlowScheme, turbulent: bool) -> ml.Kernel:
    """``entries`` of the matrix: what leaves the first cell of a face comes into the second."""
    flux = scheme.numerical_flux()

    @ml.kernel
    def face_entries(u: ml.Read, area: ml.Read, reach: ml.Read, entries: ml.Inc, *eddy: ml.Read):
        by_eddies = eddy[0] if turbulent else (0.0, 0.0)
        change = ml.jacobian(lambda both: _through_face(gas, flux, both, area, reach, by_eddies), u)
        for side in (0, 1):
            entries[0, side] += change[:, side]
            entries[1, side] -= change[:, side]

    return face_entries


def _through_face(gas: IdealGas, flux: NumericalFlux, u: Any, area: Any, reach: Any, eddy: Any) -> Any:
    """Mass, momentum and energy from the first of two cells to the second, by their states alone."""
    v = [gas.primitives(u[0]), gas.primitives(u[1])]
    f = flux(gas, v[0], v[1], area)
    if not gas.viscous:
        return f
    flat = np.zeros((len(area) + 2, len(area)), dtype=area.dtype)
    return f - face_friction(gas, v[0], v[1], v, (flat, flat), reach, area, eddy)


@cache
def side_jacobian(gas: IdealGas, scheme: FlowScheme, turbulent: bool, condition: type[BoundaryCondition]) -> ml.Kernel:
    """The same at the faces of a boundary with one kind of condition."""
    flux = scheme.numerical_flux()

    @ml.kernel
    def side_entries(u: ml.Read, given: ml.Read, area: ml.Read, reach: ml.Read, entries: ml.Inc, *eddy: ml.Read):
        normal, by_eddies = area / np.sqrt(area @ area), eddy[0][0] if turbulent else 0.0

        def out(state: Any) -> Any:
            v = gas.primitives(state)
            f = condition.flux(gas, flux, v, given, area, normal)
            if not gas.viscous:
                return f
            flat = np.zeros((len(area) + 2, len(area)), dtype=area.dtype)
            return f - condition.friction(gas, v, given, flat, area, normal, reach, by_eddies)

        entries[0, 0] += ml.jacobian(out, u[0])

    return side_entries


def add_jacobian(flow: CompressibleFlow, matrix: ml.Matrix, flux: str) -> None:
    """Minus d inflow / d u of a flow, added to a matrix through its faces; ``flux``: the numerical flux, by name."""
    inside, u, turbulent = flow.at.inside, flow.u, flow.eddy is not None
    scheme = replace(flow.scheme, flux=flux)
    eddy = [flow.eddy] if flow.eddy is not None and flow.gas.viscous else []
    at = inside.cells
    face_jacobian(flow.gas, scheme, turbulent)(
        inside.faces, u[at], inside.area, inside.reach, matrix[at], *(e[at] for e in eddy)
    )
    for side in flow.at.sides:
        at = side.cells
        side_jacobian(flow.gas, scheme, turbulent, type(side.condition))(  # type: ignore[arg-type]
            side.faces, u[at], side.given, side.area, side.reach, matrix[at], *(e[at] for e in eddy)
        )


@ml.kernel
def add_inertia(waves: ml.Read, volume: ml.Read, pace: ml.Read, cfl: ml.Read, rate: ml.Read, entries: ml.Inc):
    """Volume over the step on the diagonal: a step of ``cfl`` times what waves need to cross the cell, which takes the
    share ``pace`` of it, and what a step in time of its own adds, ``rate`` per volume."""
    entries[0, 0] += (0.5 * waves / (pace * cfl) + rate * volume) * np.eye(entries.shape[-1], dtype=waves.dtype)
