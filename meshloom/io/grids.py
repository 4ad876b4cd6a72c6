"""Grids with fields for ParaView: ``.vti`` where all axes are even, ``.vtr`` where one is stretched.

VTK counts points with x fastest; axis 0 of a grid is x, so values are turned around on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.blocks import checked_numbers, flat_rows
from meshloom.io.collective import Segment, Text, write_collectively
from meshloom.io.field_rows import as_rows
from meshloom.io.rank_rows import AnyRows, Range, RankRows
from meshloom.io.vtk import head, section
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid

IMAGE, RECTILINEAR = ".vti", ".vtr"


def suffix_of(grid: Grid) -> str:
    """The ending of the files that suit a grid."""
    return IMAGE if all(grid.uniform) else RECTILINEAR


def write_grid(path: Path, grid: Grid, fields: Mapping[str, Field | AnyRows] | None = None) -> None:
    """Write a grid with values at its points, replacing the file in one step; ghosts are left out.

    ``fields``: name -> a Field of the grid, or values (*shape,), (*shape, dim), or with more axes. The ending of the
    file says which form it has; an uneven grid needs ``.vtr``.
    """
    if path.suffix not in (IMAGE, RECTILINEAR):
        raise MeshError(f"{path}: a grid is written to {IMAGE} or {RECTILINEAR} files")
    if path.suffix == IMAGE and not all(grid.uniform):
        raise MeshError(f"{path}: grid {grid.name} has a stretched axis, which {RECTILINEAR} files hold")
    arrays = {name: _in_file(grid, name, values) for name, values in (fields or {}).items()}
    write_collectively(path, grid_segments(path.suffix, grid, arrays))


def _in_file(grid: Grid, name: str, values: Field | AnyRows) -> AnyRows:
    """Values as (points,) or (points, dim) in the order of VTK."""
    if isinstance(values, Field) and values.set is not grid:
        grid.shaped(values)  # which refuses it
    rows = as_rows(values)
    if isinstance(rows, RankRows):
        index = np.unravel_index(rows.numbers, grid.shape)
        numbers = np.ravel_multi_index(index[::-1], grid.shape[::-1])
        return RankRows(rows.count, numbers, flat_rows(checked_numbers(name, rows.values), 1))
    array = checked_numbers(name, rows)
    if array.shape[: grid.rank] != grid.shape:
        raise MeshError(f"field {name}: shape {array.shape} does not fit grid {grid.name}, which is {grid.shape}")
    return x_fastest(array, grid.rank)


def x_fastest(values: np.ndarray, axes: int) -> np.ndarray:
    """Values at points along so many axes, (..., dim), in the order of VTK, (points, dim)."""
    array = flat_rows(values, axes)
    turned = array.transpose(*reversed(range(axes)), *range(axes, array.ndim))
    return turned.reshape(-1, *array.shape[axes:])


def tag_of(suffix: str) -> str:
    """What VTK calls a grid in files with this ending."""
    return "ImageData" if suffix == IMAGE else "RectilinearGrid"


def extent(grid: Grid, planes: Range) -> str:
    """The points of some planes of the first axis, as an attribute has them."""
    ends = (planes, *((0, n) for n in grid.shape[1:]), *((0, 1),) * (3 - grid.rank))
    return " ".join(f"{first} {last - 1}" for first, last in ends)


def places_of(suffix: str, grid: Grid) -> str:
    """Where an even grid lies, as attributes."""
    missing = 3 - grid.rank
    origin, spacing = _numbers((*grid.origin, *(0.0,) * missing)), _numbers((*grid.spacing, *(1.0,) * missing))
    return f' Origin="{origin}" Spacing="{spacing}"' if suffix == IMAGE else ""


def grid_segments(
    suffix: str, grid: Grid, arrays: Mapping[str, AnyRows], planes: Range | None = None
) -> Iterator[Segment]:  # fmt: skip
    """The file of a grid in segments: all of it, or some planes of the first axis."""
    everything, tag = (0, grid.shape[0]), tag_of(suffix)
    first, last = planes or everything
    yield head(tag)
    yield Text(f'<{tag} WholeExtent="{extent(grid, everything)}"{places_of(suffix, grid)}>\n'
               f'<Piece Extent="{extent(grid, (first, last))}">\n'.encode())  # fmt: skip
    yield from section("PointData", arrays)
    if suffix == RECTILINEAR:
        axes = (grid.coordinates[0][first:last], *grid.coordinates[1:], *(np.zeros(1),) * (3 - grid.rank))
        yield from section("Coordinates", dict(zip("xyz", axes, strict=True)))
    yield Text(f"</Piece>\n</{tag}>\n</VTKFile>\n".encode())


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(repr(float(v)) for v in values)
