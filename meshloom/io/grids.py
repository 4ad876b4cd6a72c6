"""Grids with fields for ParaView: ``.vti`` where all axes are even, ``.vtr`` where one is stretched.

VTK counts points with x fastest; axis 0 of a grid is x, so values are turned around on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.blocks import checked_numbers, flat_rows
from meshloom.io.files import write_atomically
from meshloom.io.vtk import head, section
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid

IMAGE, RECTILINEAR = ".vti", ".vtr"


def suffix_of(grid: Grid) -> str:
    """The ending of the files that suit a grid."""
    return IMAGE if all(grid.uniform) else RECTILINEAR


def write_grid(path: Path, grid: Grid, fields: Mapping[str, Field | np.ndarray] | None = None) -> None:
    """Write a grid with values at its points, replacing the file in one step; ghosts are left out.

    ``fields``: name -> a Field of the grid, or values (*shape,), (*shape, dim), or with more axes. The ending of the
    file says which form it has; an uneven grid needs ``.vtr``.
    """
    if path.suffix not in (IMAGE, RECTILINEAR):
        raise MeshError(f"{path}: a grid is written to {IMAGE} or {RECTILINEAR} files")
    if path.suffix == IMAGE and not all(grid.uniform):
        raise MeshError(f"{path}: grid {grid.name} has a stretched axis, which {RECTILINEAR} files hold")
    arrays = {name: _x_fastest(grid, name, values) for name, values in (fields or {}).items()}
    write_atomically(path, b"".join(_pieces(path.suffix, grid, arrays)))


def _x_fastest(grid: Grid, name: str, values: Field | np.ndarray) -> np.ndarray:
    """Values as (points,) or (points, dim) in the order of VTK."""
    array = checked_numbers(name, grid.shaped(values) if isinstance(values, Field) else np.asarray(values))
    if array.shape[: grid.rank] != grid.shape:
        raise MeshError(f"field {name}: shape {array.shape} does not fit grid {grid.name}, which is {grid.shape}")
    array = flat_rows(array, grid.rank)
    turned = array.transpose(*reversed(range(grid.rank)), *range(grid.rank, array.ndim))
    return turned.reshape(-1, *array.shape[grid.rank :])


def _pieces(suffix: str, grid: Grid, arrays: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    missing = 3 - grid.rank
    extent = " ".join(f"0 {n - 1}" for n in (*grid.shape, *(1,) * missing))
    if suffix == IMAGE:
        tag = "ImageData"
        places = f' Origin="{_numbers((*grid.origin, *(0.0,) * missing))}"'
        places += f' Spacing="{_numbers((*grid.spacing, *(1.0,) * missing))}"'
    else:
        tag, places = "RectilinearGrid", ""
    yield head(tag)
    yield f'<{tag} WholeExtent="{extent}"{places}>\n<Piece Extent="{extent}">\n'.encode()
    yield from section("PointData", arrays)
    if suffix == RECTILINEAR:
        axes = (*grid.coordinates, *(np.zeros(1),) * missing)
        yield from section("Coordinates", dict(zip("xyz", axes, strict=True)))
    yield f"</Piece>\n</{tag}>\n</VTKFile>\n".encode()


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(repr(float(v)) for v in values)
