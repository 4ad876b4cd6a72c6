"""Boundary conditions for velocities that live at faces (a staggered grid).

The velocity through a side is that of the faces on it: set where it is given, and the one before it where its slope is
zero. All others are mirrored in ghosts: those along a side as values at centres are, those across it with the faces on
the side as the mirror.
"""

from __future__ import annotations

from functools import cache

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.boundary_conditions import GIVEN, LOW, Boundaries, Inflow, Side
from meshloom.solvers.fractional_step.cells import Offset, along


class StaggeredBoundaries:
    """The sides of some cells, for velocities ``u`` at their faces."""

    def __init__(self, boundaries: Boundaries):
        self.boundaries, self.cells = boundaries, boundaries.cells
        self._given = {side: _at_faces(side) for side in boundaries.sides}

    def close(self, u: ml.Field) -> None:
        """The velocities through all sides, and around periodic axes; inside a program this is recorded."""
        for side in self.boundaries.sides:
            if side.rule[side.axis] == GIVEN:
                _given(side.axis)(side.faces, self._given[side], u)
            else:
                at = along(self.cells.rank, side.axis, 1 if side.end == LOW else -1)
                _as_inside(side.axis, at)(side.faces, u[self.cells.grid.offsets(at)], u)
        self.boundaries.wrap(u)

    def fill(self, u: ml.Field, layers: int) -> None:
        """So many layers of ghosts, where ``close`` has been done; what flows through sides stays as it is."""
        for side in self.boundaries.sides:
            for number in range(1, min(layers, self.cells.shape[side.axis]) + 1):
                along_it, across = side.mirror(number), self._mirror_across(side, number)
                places = dict.fromkeys(at for at in (along_it, across) if any(at))
                kernel = _mirrored_faces(along_it, across, side.axis, side.rule)
                kernel(side.layer(number), u[self.cells.grid.offsets(*places)], self._given[side], u)
        self.boundaries.wrap(u)

    def keep_outflow(self, kept: ml.Field, u: ml.Field) -> None:
        """What has been let out through sides where nothing is given, from one field into another."""
        for side in self.boundaries.sides:
            if side.rule[side.axis] != GIVEN:
                _kept(side.axis)(side.faces, kept, u)

    def _mirror_across(self, side: Side, number: int) -> Offset:
        """From a ghost to the image of its face across the side; none for the faces on the side themselves."""
        step = 2 * number if side.end == LOW else -2 * (number - 1)
        return along(self.cells.rank, side.axis, step)


def _at_faces(side: Side) -> ml.Global | ml.Field:
    """The velocity that is given at a side, each component where its faces are: those along the side between cells."""
    condition, cells = side.condition, side.cells
    if not isinstance(condition, Inflow):
        return side.velocity
    parts = [condition.values(cells, side.axis, side.end, None if c == side.axis else c)[..., c]
             for c in range(cells.rank)]  # fmt: skip
    everywhere = np.broadcast_to(np.expand_dims(np.stack(parts, axis=-1), side.axis), (*cells.shape, cells.rank))
    found = cells.grid.field("velocity_at_faces", cells.rank, dtype=cells.dtype, data=everywhere)
    ml.fill_ghosts(found, closed="copy")
    return found


@cache
def _given(axis: int) -> ml.Kernel:
    @ml.kernel
    def close_side(side: ml.Read, u: ml.ReadWrite):
        u[axis] = side[axis]

    return close_side


@cache
def _as_inside(axis: int, at: Offset) -> ml.Kernel:
    @ml.kernel
    def open_side(inside: ml.Read, u: ml.ReadWrite):
        u[axis] = inside[at][axis]

    return open_side


@cache
def _kept(axis: int) -> ml.Kernel:
    @ml.kernel
    def keep_outflow(kept: ml.Read, u: ml.ReadWrite):
        u[axis] = kept[axis]

    return keep_outflow


@cache
def _mirrored_faces(along_it: Offset, across: Offset, axis: int, rule: tuple[float, ...]) -> ml.Kernel:
    @ml.kernel
    def fill_faces(inside: ml.Read, side: ml.Read, u: ml.ReadWrite):
        for c, sign in enumerate(rule):
            if c != axis:
                u[c] = sign * inside[along_it][c] + (1.0 - sign) * side[c]
            elif any(across):
                u[c] = sign * inside[across][c] + (1.0 - sign) * side[c]

    return fill_faces
