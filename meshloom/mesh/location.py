"""Which element of a set that is, and where, in words."""

from __future__ import annotations

from typing import Any

from meshloom.mesh.core import Set
from meshloom.mesh.grid import Grid


def location_of(on: Set, element: int) -> str:
    """``cells element 17 at (0.5, 0.1)``, or ``point (3, 4) at (0.3, 0.4)`` of a grid, by its row in ``numbered()``."""
    if isinstance(on, Grid):
        index = on.index_at(element)
        return f"point ({', '.join(map(str, index))}) at ({_place(on.place_of(index))})"
    where = f" at ({_place(on.points[element])})" if on.points is not None else ""
    return f"{on.name} element {element}{where}"


def _place(coordinates: Any) -> str:
    return ", ".join(f"{part:.4g}" for part in coordinates)
