"""Grids with fields for ParaView: ``.vti`` where all axes are even, ``.vtr`` where one is stretched.

VTK counts points with x fastest; axis 0 of a grid is x, so values are turned around on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.blocks import as_rows, checked_numbers, flat_rows
from meshloom.io.collective import Segment, Text, write_collectively
from meshloom.io.rank_rows import AnyRows, RankRows
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
    arrays = {name: _x_fastest(grid, name, values) for name, values in (fields or {}).items()}
    write_collectively(path, _segments(path.suffix, grid, arrays))


def _x_fastest(grid: Grid, name: str, values: Field | AnyRows) -> AnyRows:
    """Values as (points,) or (points, dim) in the order of VTK."""
    is_foreign = isinstance(values, Field) and values.set is not grid
    rows = grid.shaped(values) if is_foreign else as_rows(values)
    if isinstance(rows, RankRows):
        index = np.unravel_index(rows.numbers, grid.shape)
        numbers = np.ravel_multi_index(index[::-1], grid.shape[::-1])
        return RankRows(rows.count, numbers, flat_rows(checked_numbers(name, rows.values), 1))
    array = checked_numbers(name, rows)
    if array.shape[: grid.rank] != grid.shape:
        raise MeshError(f"field {name}: shape {array.shape} does not fit grid {grid.name}, which is {grid.shape}")
    array = flat_rows(array, grid.rank)
    turned = array.transpose(*reversed(range(grid.rank)), *range(grid.rank, array.ndim))
    return turned.reshape(-1, *array.shape[grid.rank :])


def _segments(suffix: str, grid: Grid, arrays: Mapping[str, AnyRows]) -> Iterator[Segment]:
    missing = 3 - grid.rank
    extent = " ".join(f"0 {n - 1}" for n in (*grid.shape, *(1,) * missing))
    if suffix == IMAGE:
        tag = "ImageData"
        places = f' Origin="{_numbers((*grid.origin, *(0.0,) * missing))}"'
        places += f' Spacing="{_numbers((*grid.spacing, *(1.0,) * missing))}"'
    else:
        tag, places = "RectilinearGrid", ""
    yield head(tag)
    yield Text(f'<{tag} WholeExtent="{extent}"{places}>\n<Piece Extent="{extent}">\n'.encode())
    yield from section("PointData", arrays)
    if suffix == RECTILINEAR:
        axes = (*grid.coordinates, *(np.zeros(1),) * missing)
        yield from section("Coordinates", dict(zip("xyz", axes, strict=True)))
    yield Text(f"</Piece>\n</{tag}>\n</VTKFile>\n".encode())


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(repr(float(v)) for v in values)
