"""The discrete operators for velocities that live at faces (F. H. Harlow and J. E. Welch, 1965), and the kernels.

U[a] is the velocity along axis a at the first face of a cell along it. Its own cell reaches from the centre of the cell
before to that of the cell behind the face. What flows into such a cell is half of what flows into either of the two, so
that it has no divergence where they have none; with means of two values convected, convection makes no energy then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import CellGrid, Spacing, along, moved, spacings
from meshloom.solvers.fractional_step.convective_flux import CENTRAL, REACH, FaceRow, face_value
from meshloom.solvers.fractional_step.operators import (
    area,
    divergence,
    least_width,
    row_of_cells,
    slope_at_face,
    volume,
)


def seen(cells: CellGrid, u: ml.Field, reach: int) -> ml.Arg:
    """Velocities at faces as ``staggered_convection`` looks at them: along the axes, and around the corner where what
    flows through the last face of the cell before is asked for."""
    rank = cells.rank
    steps = [along(rank, a, s) for a in range(rank) for s in range(-reach, reach + 1) if s]
    corners = [moved(along(rank, a, -1), along(rank, b, 1)) for a in range(rank) for b in range(rank) if a != b]
    return u[cells.grid.offsets((0,) * rank, *steps, *corners)]


def staggered_convection(u: Any, axes: Sequence[Spacing], a: int, how: str) -> Any:
    """div(U u_a) in the cell around a face along axis a."""
    found: Any = 0.0
    for b, one in enumerate(axes):
        into, out = _through(u, axes, a, b)
        rows = [_row_of_faces(u, one, step, how) if a == b else row_of_cells(u, one, a, step, how) for step in (0, 1)]
        flows = out * face_value(out, rows[1], how) - into * face_value(into, rows[0], how)
        found = found + flows / (one.distance() if a == b else one.width())
    return found


def _through(u: Any, axes: Sequence[Spacing], a: int, b: int) -> tuple[Any, Any]:
    """The velocities along axis b into the cell around a face along axis a, and out of it."""
    rank = len(axes)
    here, before, behind = (along(rank, b, step) for step in (0, -1, 1))
    if a == b:
        return 0.5 * (u[before][a] + u[here][a]), 0.5 * (u[here][a] + u[behind][a])
    back, one = along(rank, a, -1), axes[a]
    pairs = [(u[moved(back, place)][b], u[place][b]) for place in (here, behind)]
    into, out = (0.5 * (x + y) if one.even else _weighted(x, y, one) for x, y in pairs)
    return into, out


def _weighted(before: Any, here: Any, one: Spacing) -> Any:
    """The mean of two neighbouring cells by their widths: what flows through both of them together."""
    return before + one.width() / (one.width(-1) + one.width()) * (here - before)


def _row_of_faces(u: Any, one: Spacing, step: int, how: str) -> FaceRow:
    """The faces along an axis on either side of the centre of the cell before, or with step 1 of the cell."""
    values = [u[along(one.rank, one.axis, s)][one.axis] for s in range(step - REACH[how], step + REACH[how])]
    if how == CENTRAL:
        return FaceRow((None, *values, None), (None, None, None), None)
    widths = [one.width(s) for s in (step - 2, step - 1, step)]
    return FaceRow(tuple(values), tuple(widths), 0.5 * widths[1])


def staggered_laplacian(u: Any, axes: Sequence[Spacing], a: int) -> Any:
    """lap U_a at a face along axis a."""
    found: Any = 0.0
    for b, one in enumerate(axes):
        here, before, behind = (u[along(len(axes), b, step)][a] for step in (0, -1, 1))
        if a == b:
            found = found + ((behind - here) / one.width() - (here - before) / one.width(-1)) / one.distance()
        else:
            found = found + ((behind - here) / one.distance(1) - (here - before) / one.distance()) / one.width()
    return found


# --- kernels ----------------------------------------------------------------------------------------------------------


@cache
def staggered_kernels(even: tuple[bool, ...], how: str) -> SimpleNamespace:
    """All kernels for as many axes, on which cells are of one width or not; ``how`` convection is made discrete."""
    return SimpleNamespace(**_staggered_prediction(even, how), **_staggered_end(even))


def _staggered_prediction(even: tuple[bool, ...], how: str) -> dict[str, ml.Kernel]:
    here = (0,) * len(even)

    def advanced(u: Any, dt: Any, viscosity: Any, widths: Any, force: Any) -> list[Any]:
        axes = spacings(widths, even)
        rates = [
            viscosity * staggered_laplacian(u, axes, a) - staggered_convection(u, axes, a, how)
            for a in range(len(even))
        ]
        rates[0] = rates[0] + force
        return [u[here][a] + dt * rate for a, rate in enumerate(rates)]

    @ml.kernel
    def predict(u: ml.Read, dt: ml.Read, viscosity: ml.Read, force: ml.Read, u_star: ml.Write, *widths: ml.Read):
        u_star[...] = np.stack(advanced(u, dt, viscosity, widths, force))

    @ml.kernel
    def predict_blended(
        u: ml.Read, dt: ml.Read, viscosity: ml.Read, force: ml.Read, u_start: ml.Read, start: ml.Read, now: ml.Read,
        u_star: ml.Write, *widths: ml.Read,
    ):  # fmt: skip
        parts = advanced(u, dt, viscosity, widths, force)
        u_star[...] = np.stack([start * u_start[a] + now * part for a, part in enumerate(parts)])

    @ml.kernel
    def explicit_part(
        u: ml.Read, p: ml.Read, dt: ml.Read, share: ml.Read, viscosity: ml.Read, force: ml.Read,
        convected: ml.ReadWrite, right: ml.Write, guess: ml.Write, *widths: ml.Read,
    ):  # fmt: skip
        """All that is known of a step of ``CrankNicolson``'s."""
        axes, right_hand, now = spacings(widths, even), [], []
        for a, one in enumerate(axes):
            now.append(staggered_convection(u, axes, a, how))
            rate = 0.5 * viscosity * staggered_laplacian(u, axes, a) - slope_at_face(p, one)
            rate = rate - (1.0 + share) * now[a] + share * convected[a] + (force if a == 0 else 0.0)
            right_hand.append(u[here][a] + dt * rate)
        right[...] = np.stack(right_hand)
        convected[...] = np.stack(now)
        guess[...] = u[here]

    return {"predict": predict, "predict_blended": predict_blended, "explicit_part": explicit_part}


def _staggered_end(even: tuple[bool, ...]) -> dict[str, Any]:
    rank = len(even)
    here = (0,) * rank

    @ml.kernel
    def project_last(
        u_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, u: ml.ReadWrite, change: ml.Max, *widths: ml.Read
    ):
        """U = U* - dt grad p, and how fast the velocity changed in the whole step."""
        axes = spacings(widths, even)
        new = [u_star[a] - now * dt * slope_at_face(p, axes[a]) for a in range(rank)]
        for a in range(rank):
            change[...] = np.abs(new[a] - u[a]) / dt
        u[...] = np.stack(new)

    @ml.kernel
    def add_slope(p: ml.Read, dt: ml.Read, u: ml.ReadWrite, *widths: ml.Read):
        axes = spacings(widths, even)
        u[...] = np.stack([u[a] + dt * slope_at_face(p, axes[a]) for a in range(rank)])

    def power_of(u: Any, viscosity: Any, force: Any, axes: Sequence[Spacing], a: int) -> Any:
        """What viscosity and force do in the cell around a face."""
        rate = viscosity * staggered_laplacian(u, axes, a) + (force if a == 0 else 0.0)
        return u[here][a] * rate * axes[a].distance() * area(axes, a)

    @ml.kernel
    def measure_power(u: ml.Read, viscosity: ml.Read, force: ml.Read, power: ml.Sum, *widths: ml.Read):
        axes = spacings(widths, even)
        power += sum(power_of(u, viscosity, force, axes, a) for a in range(rank))

    @ml.kernel
    def measure(u: ml.Read, centres: ml.Write, energy: ml.Sum, largest: ml.Max, *widths: ml.Read):
        """Velocities at the centre, kinetic energy of the faces' own cells, each a half here, and the largest
        divergence times the least width of its cell."""
        axes = spacings(widths, even)
        pairs = [(u[here][a], u[along(rank, a, 1)][a]) for a in range(rank)]
        centres[...] = np.stack([0.5 * (first + last) for first, last in pairs])
        energy += 0.25 * sum(first * first + last * last for first, last in pairs) * volume(axes)
        largest[...] = np.abs(divergence(u, axes)) * least_width(axes)

    def without(a: int) -> ml.Kernel:
        @ml.kernel
        def without_power(u: ml.Read, viscosity: ml.Read, force: ml.Read, power: ml.Sum, *widths: ml.Read):
            power += -power_of(u, viscosity, force, spacings(widths, even), a)

        return without_power

    return {"project_last": project_last, "add_slope": add_slope, "measure": measure,
            "measure_power": measure_power, "without_power": [without(a) for a in range(rank)]}  # fmt: skip
