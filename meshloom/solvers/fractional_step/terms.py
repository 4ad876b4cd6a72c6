"""The terms of the equations in one cell, and the kernels made of them; one text for two and three axes.

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
from meshloom.solvers.fractional_step.carried import CENTRAL, FaceRow, carried
from meshloom.solvers.fractional_step.cells import Spacing, spacings
from meshloom.solvers.fractional_step.offsets import along


def convection(u: Any, faces: Any, axes: Sequence[Spacing], component: int, how: str = CENTRAL) -> Any:
    """div(U u_c): what flows out through the faces, as ``carried`` has it."""
    found: Any = 0.0
    for axis, one in enumerate(axes):
        here, _, behind = _places(one, axis)
        out = faces[behind][axis] * carried(faces[behind][axis], row_of_cells(u, one, component, 1, how), how)
        into = faces[here][axis] * carried(faces[here][axis], row_of_cells(u, one, component, 0, how), how)
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
    found: Any = 0.0
    for axis, one in enumerate(axes):
        here, _, behind = _places(one, axis)
        found = found + (faces[behind][axis] - faces[here][axis]) / one.width()
    return found


def slope_at_face(p: Any, one: Spacing) -> Any:
    """dp/dx at the first face of the cell along an axis, from the two cells beside it; none at a solid."""
    here, before, _ = _places(one, one.axis)
    return one.if_open(-1, (p[here] - p[before]) / one.distance(), 0.0)


def slope_at_centre(p: Any, one: Spacing) -> Any:
    """dp/dx in the cell: the mean of its two faces."""
    here, _, behind = _places(one, one.axis)
    return 0.5 * (slope_at_face(p, one) + one.if_open(1, (p[behind] - p[here]) / one.distance(1), 0.0))


def interpolated(u: Any, axes: Sequence[Spacing]) -> list[Any]:
    """For each axis the velocity along it at the first face of the cell; none through that of a solid."""
    found = []
    for axis, one in enumerate(axes):
        here, before, _ = _places(one, axis)
        found.append(one.if_open(-1, one.at_face(u[before][axis], u[here][axis]), 0.0))
    return found


def volume(axes: Sequence[Spacing]) -> Any:
    """Of the cell."""
    found: Any = 1.0
    for one in axes:
        found = found * one.width()
    return found


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


def _faces(even: tuple[bool, ...]) -> dict[str, ml.Kernel]:
    rank = len(even)

    @ml.kernel
    def interpolate(u_star: ml.Read, faces: ml.Write, *widths: ml.Read):
        faces[...] = np.stack(interpolated(u_star, spacings(widths, even)))

    @ml.kernel
    def interpolate_change(
        u_star: ml.Read, u: ml.Read, faces: ml.Read, dt: ml.Read, fading: ml.Read, new: ml.Write, *widths: ml.Read
    ):
        """Interpolated, and what is left of what the faces had beyond that: it fades."""
        left, axes = 1.0 - dt * fading, spacings(widths, even)
        star, old = interpolated(u_star, axes), interpolated(u, axes)
        new[...] = np.stack([star[a] + left * (faces[a] - old[a]) for a in range(rank)])

    @ml.kernel
    def interpolate_blended(
        u_star: ml.Read, u: ml.Read, u_start: ml.Read, faces_start: ml.Read, dt: ml.Read, fading: ml.Read,
        start: ml.Read, now: ml.Read, faces: ml.ReadWrite, *widths: ml.Read,
    ):  # fmt: skip
        left, axes = now * (1.0 - dt * fading), spacings(widths, even)
        star, old, first = (interpolated(one, axes) for one in (u_star, u, u_start))
        faces[...] = np.stack([
            star[a] + start * (faces_start[a] - first[a]) + left * (faces[a] - old[a]) for a in range(rank)
        ])  # fmt: skip

    @ml.kernel
    def interpolate_two_steps(
        u_star: ml.Read, u: ml.Read, faces: ml.Read, dt: ml.Read, fading: ml.Read, share: ml.Read,
        beyond: ml.ReadWrite, new: ml.Write, *widths: ml.Read,
    ):  # fmt: skip
        """The same with the rate of fading from two steps; ``beyond``: what there was beyond interpolated ones."""
        axes = spacings(widths, even)
        star, old = interpolated(u_star, axes), interpolated(u, axes)
        now = [faces[a] - old[a] for a in range(rank)]
        rates = [fading * ((1.0 + share) * now[a] - share * beyond[a]) for a in range(rank)]
        new[...] = np.stack([star[a] + now[a] - dt * rates[a] for a in range(rank)])
        beyond[...] = np.stack(now)

    @ml.kernel
    def outflow_of_cells(faces: ml.Read, dt: ml.Read, now: ml.Read, b: ml.Write, *widths: ml.Read):
        """b = -div U / (now dt), times the volume: the right-hand side for the pressure."""
        axes = spacings(widths, even)
        b[...] = -divergence(faces, axes) * volume(axes) / (now * dt)

    return {"interpolate": interpolate, "interpolate_change": interpolate_change,
            "interpolate_blended": interpolate_blended, "interpolate_two_steps": interpolate_two_steps,
            "outflow_of_cells": outflow_of_cells}  # fmt: skip


def _projection(even: tuple[bool, ...]) -> dict[str, ml.Kernel]:
    rank = len(even)

    def gradient(p: Any, widths: Any) -> list[Any]:
        return [slope_at_centre(p, one) for one in spacings(widths, even)]

    @ml.kernel
    def project(u_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, u: ml.Write, *widths: ml.Read):
        slope = gradient(p, widths)
        u[...] = np.stack([u_star[c] - now * dt * slope[c] for c in range(rank)])

    @ml.kernel
    def project_in_place(p: ml.Read, dt: ml.Read, u: ml.ReadWrite, *widths: ml.Read):
        slope = gradient(p, widths)
        u[...] = np.stack([u[c] - dt * slope[c] for c in range(rank)])

    @ml.kernel
    def add_slope(p: ml.Read, dt: ml.Read, u: ml.ReadWrite, *widths: ml.Read):
        slope = gradient(p, widths)
        u[...] = np.stack([u[c] + dt * slope[c] for c in range(rank)])

    @ml.kernel
    def project_last(
        u_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, u: ml.ReadWrite, change: ml.Max, *widths: ml.Read
    ):
        """The same, and how fast the velocity changed in the whole step."""
        slope = gradient(p, widths)
        new = [u_star[c] - now * dt * slope[c] for c in range(rank)]
        for c in range(rank):
            change[...] = np.abs(new[c] - u[c]) / dt
        u[...] = np.stack(new)

    @ml.kernel
    def project_faces(faces_star: ml.Read, p: ml.Read, dt: ml.Read, now: ml.Read, faces: ml.Write, *widths: ml.Read):
        axes = spacings(widths, even)
        faces[...] = np.stack([faces_star[a] - now * dt * slope_at_face(p, axes[a]) for a in range(rank)])

    @ml.kernel
    def project_faces_in_place(p: ml.Read, dt: ml.Read, now: ml.Read, faces: ml.ReadWrite, *widths: ml.Read):
        axes = spacings(widths, even)
        faces[...] = np.stack([faces[a] - now * dt * slope_at_face(p, axes[a]) for a in range(rank)])

    return {"project": project, "project_in_place": project_in_place, "project_last": project_last,
            "add_slope": add_slope,
            "project_faces": project_faces, "project_faces_in_place": project_faces_in_place}  # fmt: skip


def _looks(even: tuple[bool, ...]) -> dict[str, ml.Kernel]:
    rank = len(even)

    @ml.kernel
    def measure(u: ml.Read, faces: ml.Read, energy: ml.Sum, largest: ml.Max, *widths: ml.Read):
        """Kinetic energy, and the largest divergence times the least width of its cell."""
        axes = spacings(widths, even)
        energy += 0.5 * sum(u[c] * u[c] for c in range(rank)) * volume(axes)
        least = axes[0].width()
        for one in axes[1:]:
            least = np.minimum(least, one.width())
        largest[...] = np.abs(divergence(faces, axes)) * least

    return {"measure": measure}
