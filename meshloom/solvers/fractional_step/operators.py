"""The discrete operators in one cell, and the kernels made of them; one text for two and three axes.

    du/dt + div(U u) = -grad p + nu lap u + f,    div U = 0

``u`` are velocities at the centres of cells, ``U`` those through faces: U[a] is the velocity along axis a through the
first face of a cell along it. The last arguments of every kernel are the widths of cells (``cells.Spacing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import Spacing, along, spacings
from meshloom.solvers.fractional_step.convective_flux import CENTRAL, FaceRow, face_value

FIRST, LAST = 0, 1  # the faces of a cell along an axis: its own, and that of the cell so many steps behind it
_OUTWARDS = {FIRST: -1, LAST: 1}  # the step to the cell beyond a face


def convection(u: Any, faces: Any, axes: Sequence[Spacing], component: int, how: str = CENTRAL) -> Any:
    """div(U u_c): what flows out through the faces, as ``face_value`` has it."""
    found: Any = 0.0
    for axis, one in enumerate(axes):
        here, _, behind = _places(one, axis)
        out = faces[behind][axis] * face_value(faces[behind][axis], row_of_cells(u, one, component, 1, how), how)
        into = faces[here][axis] * face_value(faces[here][axis], row_of_cells(u, one, component, 0, how), how)
        found = found + (out - into) / one.width()
    return found


def row_of_cells(u: Any, one: Spacing, component: int, step: int, how: str) -> FaceRow:
    """The cells before and behind the first face of the cell, or with step 1 its last one."""
    before, behind = (u[along(one.rank, one.axis, s)][component] for s in (step - 1, step))
    if how == CENTRAL:
        return FaceRow((None, before, behind, None), (None, None, None), None)
    far_before, far_behind = one.seen(u, component, step - 2, step - 1), one.seen(u, component, step + 1, step)
    distances = [one.distance(s) for s in (step - 1, step, step + 1)]
    return FaceRow((far_before, before, behind, far_behind), tuple(distances), 0.5 * one.width(step - 1))


def laplacian(u: Any, axes: Sequence[Spacing], component: int) -> Any:
    """lap u_c: the difference of the slopes at the faces."""
    found: Any = 0.0
    for axis, one in enumerate(axes):
        here, _, _ = _places(one, axis)
        last = (one.seen(u, component, 1) - u[here][component]) / one.distance(1)
        first = (u[here][component] - one.seen(u, component, -1)) / one.distance()
        found = found + (last - first) / one.width()
    return found


def divergence(faces: Any, axes: Sequence[Spacing]) -> Any:
    """div U, from the faces of the cell."""
    return divergence_of([stored(faces, one, FIRST) for one in axes], [stored(faces, one, LAST) for one in axes], axes)


def divergence_of(first: Sequence[Any], last: Sequence[Any], axes: Sequence[Spacing]) -> Any:
    """div U, from the velocities through the first and last faces of the cell along each axis."""
    found: Any = 0.0
    for axis, one in enumerate(axes):
        found = found + (last[axis] - first[axis]) / one.width()
    return found


def stored(faces: Any, one: Spacing, face: int) -> Any:
    """The velocity through the first or last face of the cell along an axis, from a field of them."""
    return faces[along(one.rank, one.axis, face)][one.axis]


def slope_at_face(p: Any, one: Spacing, face: int = FIRST) -> Any:
    """dp/dx at the first or last face of the cell along an axis, from the two cells next to it; none at a solid."""
    before, behind = _cells_of_face(one, face)
    return one.if_open(_OUTWARDS[face], (p[behind] - p[before]) / one.distance(face), 0.0)


def slope_at_centre(p: Any, one: Spacing) -> Any:
    """dp/dx in the cell: the mean of its two faces."""
    return 0.5 * (slope_at_face(p, one) + slope_at_face(p, one, LAST))


def interpolated(u: Any, one: Spacing, face: int = FIRST) -> Any:
    """The velocity along an axis at the first or last face of the cell; none through that of a solid."""
    before, behind = _cells_of_face(one, face)
    return one.if_open(_OUTWARDS[face], one.at_face(u[before][one.axis], u[behind][one.axis], face), 0.0)


def _cells_of_face(one: Spacing, face: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cells before and behind a face of the cell."""
    return along(one.rank, one.axis, face - 1), along(one.rank, one.axis, face)


def volume(axes: Sequence[Spacing]) -> Any:
    """Of the cell."""
    found: Any = 1.0
    for one in axes:
        found = found * one.width()
    return found


def area(axes: Sequence[Spacing], across: int) -> Any:
    """Of the faces of the cell that an axis goes through."""
    return volume([one for one in axes if one.axis != across])


def least_width(axes: Sequence[Spacing]) -> Any:
    """Of the cell."""
    found = axes[0].width()
    for one in axes[1:]:
        found = np.minimum(found, one.width())
    return found


def energy_of(u: Sequence[Any], axes: Sequence[Spacing]) -> Any:
    """The kinetic energy of the cell."""
    return 0.5 * sum(one * one for one in u) * volume(axes)


def source(divergence: Any, dt: Any, now: Any, axes: Sequence[Spacing]) -> Any:
    """The right-hand side for the pressure: -div U / (now dt), times the volume of the cell."""
    return -divergence * volume(axes) / (now * dt)


def _places(one: Spacing, axis: int) -> tuple[tuple[int, ...], ...]:
    """The cell, that before it and that behind it."""
    return tuple(along(one.rank, axis, step) for step in (0, -1, 1))


# --- kernels ----------------------------------------------------------------------------------------------------------


@cache
def kernels(even: tuple[bool, ...], how: str = CENTRAL) -> SimpleNamespace:
    """All kernels for as many axes, on which cells are of one width or not; ``how`` convection is made discrete."""
    return SimpleNamespace(**_prediction(even, how), **_faces(even), **_projection(even), **_looks(even))


def _prediction(even: tuple[bool, ...], how: str) -> dict[str, ml.Kernel]:
    here = (0,) * len(even)

    def advanced(u: Any, faces: Any, dt: Any, viscosity: Any, widths: Any, force: Any) -> list[Any]:
        """u + dt (-div(U u) + nu lap u + f), where f has a component along the first axis alone."""
        axes = spacings(widths, even)
        rates = [viscosity * laplacian(u, axes, c) - convection(u, faces, axes, c, how) for c in range(len(even))]
        rates[0] = rates[0] + axes[0].in_fluid(force)
        return [u[here][c] + dt * rate for c, rate in enumerate(rates)]

    @ml.kernel
    def predict(
        u: ml.Read, faces: ml.Read, dt: ml.Read, viscosity: ml.Read, u_star: ml.Write, *widths: ml.Read,
        force: ml.Read = 0.0,  # type: ignore[assignment]  # a number where there is none
    ):  # fmt: skip
        u_star[...] = np.stack(advanced(u, faces, dt, viscosity, widths, force))

    @ml.kernel
    def predict_blended(
        u: ml.Read, faces: ml.Read, dt: ml.Read, viscosity: ml.Read, u_start: ml.Read, start: ml.Read, now: ml.Read,
        u_star: ml.Write, *widths: ml.Read, force: ml.Read = 0.0,  # type: ignore[assignment]
    ):  # fmt: skip
        parts = advanced(u, faces, dt, viscosity, widths, force)
        u_star[...] = np.stack([start * u_start[c] + now * part for c, part in enumerate(parts)])

    @ml.kernel
    def explicit_part(
        u: ml.Read, faces: ml.Read, p: ml.Read, dt: ml.Read, share: ml.Read, viscosity: ml.Read, force: ml.Read,
        convected: ml.ReadWrite, right: ml.Write, guess: ml.Write, *widths: ml.Read,
    ):  # fmt: skip
        """All that is known of a step of ``CrankNicolson``'s."""
        axes, right_hand, now = spacings(widths, even), [], []
        for c, one in enumerate(axes):
            now.append(convection(u, faces, axes, c, how))
            rate = 0.5 * viscosity * laplacian(u, axes, c) - slope_at_centre(p, one)
            rate = rate - (1.0 + share) * now[c] + share * convected[c] + (one.in_fluid(force) if c == 0 else 0.0)
            right_hand.append(u[here][c] + dt * rate)
        right[...] = np.stack(right_hand)
        convected[...] = np.stack(now)
        guess[...] = u[here]

    return {"predict": predict, "predict_blended": predict_blended, "explicit_part": explicit_part}


def _faces(even: tuple[bool, ...]) -> dict[str, Any]:
    """U*. ``to_faces`` and ``to_faces_and_source`` by how many pairs of u and U they take from before: of each it keeps
    a share of what U has beyond the interpolated u. From the latest this share relaxes; where there are two, the first
    are those at the start of the step."""
    rank = len(even)

    @ml.kernel
    def interpolate_two_steps(
        u_star: ml.Read, u: ml.Read, faces: ml.Read, dt: ml.Read, fading: ml.Read, share: ml.Read,
        beyond: ml.ReadWrite, new: ml.Write, *widths: ml.Read,
    ):  # fmt: skip
        """Interpolated, and the rest relaxes by a rate from two steps; ``beyond``: what there was beyond interpolated
        ones."""
        axes = spacings(widths, even)
        now = [faces[a] - interpolated(u, one) for a, one in enumerate(axes)]
        rates = [fading * ((1.0 + share) * now[a] - share * beyond[a]) for a in range(rank)]
        new[...] = np.stack([interpolated(u_star, one) + now[a] - dt * rates[a] for a, one in enumerate(axes)])
        beyond[...] = np.stack(now)

    @ml.kernel
    def outflow_of_cells(faces: ml.Read, dt: ml.Read, now: ml.Read, b: ml.Write, *widths: ml.Read):
        axes = spacings(widths, even)
        b[...] = source(divergence(faces, axes), dt, now, axes)

    each = [_to_faces(even, count) for count in range(3)]
    return {"interpolate_two_steps": interpolate_two_steps, "outflow_of_cells": outflow_of_cells,
            "to_faces": [one for one, _ in each], "to_faces_and_source": [one for _, one in each]}  # fmt: skip


def _to_faces(even: tuple[bool, ...], count: int) -> tuple[ml.Kernel, ml.Kernel]:
    """For faces alone, and with the source of the pressure: there a cell makes U* at its last faces, too, as the cells
    behind it do, and nothing is loaded again. ``known``: u and U as often as said, then widths."""

    def through(face: int, u_star: Any, shares: Sequence[Any], known: Sequence[Any]) -> list[Any]:
        """U* at the first or last faces of the cell."""
        found = []
        for one in spacings(known[2 * count :], even):
            new = interpolated(u_star, one, face)
            for share, u, faces in zip(
                shares[2 - count :], known[: 2 * count : 2], known[1 : 2 * count : 2], strict=True
            ):
                new = new + share * (stored(faces, one, face) - interpolated(u, one, face))
            found.append(new)
        return found

    @ml.kernel
    def to_faces(
        u_star: ml.Read, dt: ml.Read, start: ml.Read, now: ml.Read, fading: ml.Read, new: ml.Write, *known: ml.Read
    ):
        new[...] = np.stack(through(FIRST, u_star, (start, now * (1.0 - dt * fading)), known))

    @ml.kernel
    def to_faces_and_source(
        u_star: ml.Read, dt: ml.Read, start: ml.Read, now: ml.Read, fading: ml.Read, new: ml.Write, b: ml.Write,
        *known: ml.Read,
    ):  # fmt: skip
        shares, axes = (start, now * (1.0 - dt * fading)), spacings(known[2 * count :], even)
        first, last = (through(face, u_star, shares, known) for face in (FIRST, LAST))
        new[...] = np.stack(first)
        b[...] = source(divergence_of(first, last, axes), dt, now, axes)

    return to_faces, to_faces_and_source


def _projection(even: tuple[bool, ...]) -> dict[str, ml.Kernel]:
    rank = len(even)

    def gradient(p: Any, widths: Any) -> list[Any]:
        return [slope_at_centre(p, one) for one in spacings(widths, even)]

    def at_centres(u_star: Any, p: Any, time: Any, widths: Any) -> list[Any]:
        return [u_star[c] - time * slope for c, slope in enumerate(gradient(p, widths))]

    def through(face: int, faces_star: Any, p: Any, time: Any, widths: Any) -> list[Any]:
        axes = spacings(widths, even)
        return [stored(faces_star, one, face) - time * slope_at_face(p, one, face) for one in axes]

    @ml.kernel
    def project(
        u_star: ml.Read, faces_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, u: ml.Write, faces: ml.Write,
        *widths: ml.Read,
    ):  # fmt: skip
        u[...] = np.stack(at_centres(u_star, p, now * dt, widths))
        faces[...] = np.stack(through(FIRST, faces_star, p, now * dt, widths))

    @ml.kernel
    def project_last(
        u_star: ml.Read, faces_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, u: ml.ReadWrite, faces: ml.Write,
        change: ml.Max, energy: ml.Sum, largest: ml.Max, *widths: ml.Read,
    ):  # fmt: skip
        """The same, how fast the velocity changed in the whole step, and what ``measure`` finds."""
        axes, new = spacings(widths, even), at_centres(u_star, p, now * dt, widths)
        first, last = (through(face, faces_star, p, now * dt, widths) for face in (FIRST, LAST))
        for c in range(rank):
            change[...] = np.abs(new[c] - u[c]) / dt
        energy += energy_of(new, axes)
        largest[...] = np.abs(divergence_of(first, last, axes)) * least_width(axes)
        u[...] = np.stack(new)
        faces[...] = np.stack(first)

    @ml.kernel
    def project_in_place(p: ml.Read, dt: ml.Read, u: ml.ReadWrite, *widths: ml.Read):
        u[...] = np.stack(at_centres(u, p, dt, widths))

    @ml.kernel
    def add_slope(p: ml.Read, dt: ml.Read, u: ml.ReadWrite, *widths: ml.Read):
        u[...] = np.stack([u[c] + dt * slope for c, slope in enumerate(gradient(p, widths))])

    @ml.kernel
    def project_faces(faces_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, faces: ml.Write, *widths: ml.Read):
        faces[...] = np.stack(through(FIRST, faces_star, p, now * dt, widths))

    @ml.kernel
    def project_faces_in_place(p: ml.Read, dt: ml.Read, now: ml.Read, faces: ml.ReadWrite, *widths: ml.Read):
        axes = spacings(widths, even)
        faces[...] = np.stack([faces[a] - now * dt * slope_at_face(p, axes[a]) for a in range(rank)])

    return {"project": project, "project_last": project_last, "project_in_place": project_in_place,
            "add_slope": add_slope, "project_faces": project_faces,
            "project_faces_in_place": project_faces_in_place}  # fmt: skip


def _looks(even: tuple[bool, ...]) -> dict[str, ml.Kernel]:
    rank = len(even)

    @ml.kernel
    def measure(u: ml.Read, faces: ml.Read, energy: ml.Sum, largest: ml.Max, *widths: ml.Read):
        """Kinetic energy, and the largest divergence times the least width of its cell."""
        axes = spacings(widths, even)
        energy += energy_of([u[c] for c in range(rank)], axes)
        largest[...] = np.abs(divergence(faces, axes)) * least_width(axes)

    @ml.kernel
    def measure_power(
        u: ml.Read, viscosity: ml.Read, force: ml.Read, power: ml.Sum, *widths: ml.Read
    ):  # fmt: skip
        """What viscosity and force do per unit of time."""
        axes, here = spacings(widths, even), (0,) * rank
        work = sum(u[here][c] * viscosity * laplacian(u, axes, c) for c in range(rank))
        power += (work + force * u[here][0]) * volume(axes)

    return {"measure": measure, "measure_power": measure_power}
