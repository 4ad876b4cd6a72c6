"""Wave gauges: the surface of the water at some places, after every time step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.config import LARGEST
from meshloom.errors import MeshError, shown
from meshloom.solvers.volna.flux import BED, H
from meshloom.toml import toml_key

Places = Mapping[str, Sequence[float]]  # name -> (x, y)


def check_place(name: str, value: Any) -> None:
    """A gauge is ``name = [x, y]``; ``name = []`` takes one away. ValueError otherwise."""
    numbers = isinstance(value, list | tuple) and all(_is_coordinate(v) for v in value)
    if not numbers or len(value) not in (0, 2):
        raise ValueError(f"must be a place such as [40e3, 30e3] in metres, or [] for none, got {shown(value)}")


def _is_coordinate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def cell_at(mesh: ml.Mesh, name: str, place: Sequence[float]) -> int:
    """The number of the triangle around a place; MeshError where there is none."""
    corners = mesh.coordinates.numpy()[mesh.cell_nodes.indices]
    edges, to = np.roll(corners, -1, axis=1) - corners, np.asarray(place, dtype=np.float64) - corners
    with np.errstate(all="ignore"):  # what is too far away for a product is outside
        inside = (edges[..., 0] * to[..., 1] - edges[..., 1] * to[..., 0] >= 0.0).all(axis=1)
    if not inside.any():
        low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
        raise MeshError(
            f"gauge {toml_key((name,))} at ({place[0]:g}, {place[1]:g}) is outside the mesh, which reaches from"
            f" ({low[0]:g}, {low[1]:g}) to ({high[0]:g}, {high[1]:g})"
        )
    return int(np.argmax(inside))


@ml.kernel
def read_gauges(w: ml.Read, levels: ml.Write):
    """The surface in the cells of all gauges at once."""
    levels[...] = w[:, H] + w[:, BED]


class Gauges:
    """Gauges at named places; ``levels`` (gauges,) holds what they show after ``read`` has run."""

    def __init__(self, mesh: ml.Mesh, places: Places, w: ml.Field):
        used = {name: place for name, place in places.items() if len(place)}
        self.names, self.w = tuple(used), w
        if used:  # otherwise there is nothing to read, and no ``levels``
            self.board = ml.Set(1, "gauges")  # one element that sees all cells with a gauge
            cells = [cell_at(mesh, name, place) for name, place in used.items()]
            self.cells = ml.Map(self.board, mesh.cells, [cells], "gauge_cells")
            values = w.numpy()[cells]
            self.levels = ml.Global(values[:, H] + values[:, BED], "levels", dtype=w.dtype)

    def read(self) -> None:
        """The loop."""
        if self.names:
            read_gauges(self.board, self.w[self.cells], self.levels)
