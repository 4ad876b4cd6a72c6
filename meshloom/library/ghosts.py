"""Filling the ghost layers of a grid: small loops over slabs, which a program records like any other."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from meshloom.errors import MeshError, instance, known_name
from meshloom.kernel.access import Read, Write
from meshloom.mesh.box import AXES, SIDES, Box
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.offsets import Index
from meshloom.operation.loop import Kernel, kernel

#: What ghosts beyond a closed end hold: the value at the end, or that of the point as far inside.
CLOSED = ("copy", "mirror")


@lru_cache(maxsize=256)  # round the end of an axis offsets are as long as the grid, so there may be many
def _copier(offset: Index) -> Kernel:
    """The kernel that takes the value at an offset."""

    @kernel
    def fill_ghosts(source: Read, target: Write) -> None:
        values: Any = source
        target[...] = values[offset]

    return fill_ghosts


def fill_ghosts(*fields: Field, closed: str | None = "copy") -> None:
    """Give the ghosts of fields of a grid their values: around the end of periodic axes, else by ``closed``.

    "copy" repeats the value at the end, "mirror" takes that of the point as far inside, None leaves them as they are.
    Axis after axis, so that edges and corners are right, too. Inside a program it is recorded.
    """
    if closed is not None:
        known_name("way to fill ghosts beyond closed ends", closed, CLOSED, error=MeshError)
    for field in fields:
        grid = instance("fill_ghosts: what has ghosts", field, Field, error=MeshError).set
        if not isinstance(grid, Grid):
            raise MeshError(f"fill_ghosts: field {field.name} lives on {grid.name}, which is no grid")
        for axis, width in enumerate(grid.ghosts):
            if width:
                _fill_axis(grid, field, axis, closed)


def _fill_axis(grid: Grid, field: Field, axis: int, closed: str | None) -> None:
    n, width = grid.shape[axis], grid.ghosts[axis]
    if not grid.periodic[axis] and closed == "mirror" and width >= n:
        raise MeshError(f"grid {grid.name}: axis {AXES[axis]} has {n} points, too few to mirror {width} ghost layers")
    for side in SIDES:
        inwards = 1 if side == SIDES[0] else -1
        slab = grid.ghost(axis, side)
        if grid.periodic[axis]:
            _take(field, slab, axis, inwards * n)
        elif closed is not None:
            for layer in range(1, width + 1):
                index = -layer if side == SIDES[0] else n - 1 + layer
                _take(field, _layer(slab, axis, index), axis, inwards * layer * (2 if closed == "mirror" else 1))


def _layer(slab: Box, axis: int, index: int) -> Box:
    low, high = list(slab.low), list(slab.high)
    low[axis], high[axis] = index, index + 1
    return slab.grid.box(low, high)


def _take(field: Field, box: Box, axis: int, step: int) -> None:
    offset = tuple(step if a == axis else 0 for a in range(box.grid.rank))
    _copier(offset)(box, field[box.grid.offsets(offset)], field)
