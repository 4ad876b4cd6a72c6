"""The value in the convective flux through a face: the mean of both cells, or a parabola, two upstream and one down.

A *row* is four values in a line, two before a face and two behind it, with the distances between them. Rows of values
at centres are seen from faces, and those of values at faces from centres, where a staggered grid has the faces of its
velocities' own cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

CENTRAL, QUICK = CONVECTIONS = ("central", "quick")
REACH = {CENTRAL: 1, QUICK: 2}  # how many steps away are the values that are looked at


@dataclass(frozen=True)
class FaceRow:
    """``values`` (4): the second and the first before the face, the first and the second behind it; ``distances`` (3)
    between them; ``to_face``: from the first before it to the face. The outer ones are for parabolas alone."""

    values: tuple[Any, Any, Any, Any]
    distances: tuple[Any, Any, Any]
    to_face: Any


def face_value(velocity: Any, row: FaceRow, convection: str) -> Any:
    """The value that is convected through a face with a velocity.

    ``central``: the mean of its two cells, whatever their distances: convection moves kinetic energy about and
    makes none. ``quick``: B. P. Leonard's (1979), on a parabola through the two upstream and the one downstream, which
    is of third order and damps what changes from cell to cell.
    """
    far_before, before, behind, far_behind = row.values
    if convection == CENTRAL:
        return 0.5 * (before + behind)
    first, middle, last = row.distances
    forwards = on_parabola(row.to_face, first, middle, (far_before, before, behind))
    backwards = on_parabola(middle - row.to_face, last, middle, (far_behind, behind, before))
    return np.where(velocity > 0.0, forwards, backwards)


def on_parabola(at: Any, far: Any, near: Any, values: tuple[Any, Any, Any]) -> Any:
    """The value ``at`` a distance downstream of the middle one of three, which lies ``far`` from the one upstream and
    ``near`` to the one downstream: by Newton's differences."""
    upstream, middle, downstream = values
    slope = (downstream - middle) / near
    bend = (slope - (middle - upstream) / far) / (far + near)
    return middle + at * (slope + (at - near) * bend)
