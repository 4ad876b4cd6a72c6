"""``new_grid.dat`` (.dat): the text format of the airfoil test, 0-based, faces given.

One line "nodes cells faces boundary-faces", then a row for each node (x y), cell (4 nodes), face (2 nodes, 2 cells)
and boundary face (2 nodes, cell, group). It is the one format that keeps a wake cut: cells joined by a face whose
nodes they do not share.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshloom.errors import MeshError
from meshloom.io.text import as_integers, format_rows, parse_numbers
from meshloom.mesh.mesh import Mesh
from meshloom.native.algorithms import distinct

_NAMES = {1: "wall", 2: "farfield"}


def read_grid(data: bytes) -> Mesh:
    """The mesh of the file, its faces as given and checked; groups 1 and 2 are "wall" and "farfield"."""
    header, _, _ = data.partition(b"\n")
    sizes = as_integers(parse_numbers(header, "first line"), "first line")
    if len(sizes) != 4 or (sizes < 0).any():
        raise MeshError("first line: expected four whole numbers: nodes, cells, faces, boundary faces")
    numbers = parse_numbers(data, "grid")[4:]
    widths = np.array((2, 4, 4, 4))
    expected = int((sizes * widths).sum())
    if len(numbers) != expected:
        raise MeshError(f"{len(numbers)} numbers after the first line, expected {expected}: truncated or malformed")
    parts = np.split(numbers, np.cumsum(sizes * widths)[:-1])
    x, cells, faces, boundary = (part.reshape(n, width) for part, n, width in zip(parts, sizes, widths, strict=True))
    cells, faces, boundary = (as_integers(part, "grid") for part in (cells, faces, boundary))
    if len(cells) == 0:
        raise MeshError("no cells found; expected quadrilaterals")
    present = distinct(boundary[:, 3]).tolist()
    groups = {_NAMES.get(number, f"group{number}"): number for number in present}
    x = x + 0.0  # the original program prints "-0.000000" here and there
    ends, cell, group = boundary[:, :2], boundary[:, 2], boundary[:, 3]
    mesh = Mesh.from_parts(x, cells, faces[:, :2], faces[:, 2:], ends, cell, group, kind="quad", groups=groups)
    mesh.check()
    return mesh


def write_grid(mesh: Mesh) -> Iterator[bytes]:
    """The mesh as pieces of the file: coordinates with 6 decimals where that is exact, else with all digits."""
    if mesh.kind != "quad":
        raise MeshError(f"the format holds quad cells, not {mesh.kind}")
    x = mesh.coordinates.numpy()
    number = "%f" if (np.rint(x * 1e6) / 1e6 == x).all() else "%.17g"
    faces = np.column_stack((mesh.face_nodes.indices, mesh.face_cells.indices))
    boundary = np.column_stack((mesh.boundary_nodes.indices, mesh.boundary_cells.indices, mesh.boundary_group.numpy()))
    row = " %d %d %d %d \n"
    yield (row % (len(x), mesh.cells.total, len(faces), len(boundary))).encode()
    yield from format_rows(f" {number} {number} \n", x)
    for rows in (mesh.cell_nodes.indices, faces, boundary):
        yield from format_rows(row, rows)
