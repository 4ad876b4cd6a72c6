"""VTK files for ParaView, without any library: ``.vtu`` meshes with fields, and the ``.pvd`` list of a series.

A ``.vtu`` file is XML whose arrays are base64 text, which every reader understands (raw appended bytes are smaller, but
some readers find the wrong array in them). Files are written next to their place and renamed: nobody sees half of one.
Of several ranks each writes a part of one file, that of one rank (``collective``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from meshloom.errors import MeshError, UserError, one_line
from meshloom.io.blocks import field_rows, with_boundary
from meshloom.io.collective import Base64, Raw, Segment, Text, write_collectively
from meshloom.io.field_rows import as_rows
from meshloom.io.files import write_atomically, writing
from meshloom.io.rank_rows import AnyRows, row_by_row, taken
from meshloom.mesh.cell_kinds import FACE_KINDS
from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.core import Field
from meshloom.mesh.kinds import Kinds
from meshloom.mesh.mesh import Mesh
from meshloom.process.ranks import on_root

CELL_TYPES = {"line": 3, "triangle": 5, "polygon": 7, "quad": 9, "tetrahedron": 10, "hexahedron": 12, "prism": 13,
              "pyramid": 14}  # fmt: skip
_BYTE_ORDER = {"little": "LittleEndian", "big": "BigEndian"}[sys.byteorder]

#: Cell array that holds the group of each boundary face (0 on cells), and the prefix of the names of groups.
GROUP_ARRAY, GROUP_PREFIX = "group", "group:"
#: Prefix of the cell arrays that are 1 on the cells of a group.
CELL_GROUP_PREFIX = "cell_group:"


def write_vtu(
    path: str | os.PathLike[str],
    mesh: Mesh,
    cell_fields: Mapping[str, Field | AnyRows] | None = None,
    node_fields: Mapping[str, Field | AnyRows] | None = None,
    *,
    boundary: bool = False,
    points: AnyRows | None = None,
) -> None:
    """Write a mesh with fields for ParaView, replacing the file in one step.

    ``points`` (nodes, dim): where the nodes of a mesh that moves are now; else the mesh's own coordinates.

    With ``boundary`` the boundary faces follow as cells of their own, with the field values of the cells they bound;
    the array "group" holds their group and field data "group:<name>" the number of each, and arrays "cell_group:<name>"
    are 1 on the cells of a group, so nothing is lost.
    """
    on_cells = field_rows(cell_fields, mesh.cells.total, "cells")
    on_nodes = field_rows(node_fields, mesh.nodes.total, "nodes")
    write_collectively(Path(path), vtu_segments(mesh, on_cells, on_nodes, boundary=boundary, at=points))


def vtu_segments(
    mesh: Mesh,
    cell_fields: Mapping[str, AnyRows],
    node_fields: Mapping[str, AnyRows],
    *,
    boundary: bool,
    at: AnyRows | None = None,
) -> Iterator[Segment]:
    """The file in segments."""
    points = points_in_space(mesh.coordinates if at is None else at)
    elements = [(mesh.lists.cells.nodes, mesh.lists.cells.kinds)]
    groups: dict[str, np.ndarray] = {}
    if boundary:
        if GROUP_ARRAY in cell_fields:
            raise MeshError(f"field {GROUP_ARRAY}: the name is taken by the groups of boundary faces; choose another")
        _check_names(mesh)
        ends = mesh.lists.boundary_faces
        elements.append((ends, ends.kinds(FACE_KINDS)))
        cell_fields = {name: with_boundary(values, mesh) for name, values in cell_fields.items()}
        cell_fields |= _cell_group_arrays(mesh)
        none = np.zeros(mesh.cells.total, dtype=np.int32)
        cell_fields[GROUP_ARRAY] = np.concatenate((none, mesh.boundary_group.numpy()))
        groups = {GROUP_PREFIX + name: np.array([number], np.int32) for name, number in mesh.groups.items()}
    yield from unstructured(points, elements, cell_fields, node_fields, groups)


def write_surface(
    path: str | os.PathLike[str],
    mesh: Mesh,
    groups: tuple[str, ...],
    cell_fields: Mapping[str, Field | AnyRows] | None = None,
    node_fields: Mapping[str, Field | AnyRows] | None = None,
    *,
    points: AnyRows | None = None,
) -> None:
    """Write the boundary faces of some groups for ParaView, with the values of the cells that they bound and of their
    nodes; the array "group" holds the number of their group, as field data "group:<name>" name it."""
    faces = np.sort(np.concatenate([np.zeros(0, np.int64), *(mesh.group(name) for name in groups)]))
    ends = mesh.lists.boundary_faces.taken(faces)
    used, local = np.unique(ends.entries, return_inverse=True)
    of = mesh.boundary_cells.indices[faces, 0]
    on_faces = {name: taken(rows, of) for name, rows in field_rows(cell_fields, mesh.cells.total, "cells").items()}
    on_faces[GROUP_ARRAY] = mesh.boundary_group.numpy()[faces]
    on_nodes = {name: taken(rows, used) for name, rows in field_rows(node_fields, mesh.nodes.total, "nodes").items()}
    places = taken(points_in_space(mesh.coordinates if points is None else points), used)
    numbers = {GROUP_PREFIX + name: np.array([mesh.groups[name]], np.int32) for name in groups}
    rows = NodeLists(ends.starts, local.reshape(-1))
    elements = [(rows, rows.kinds(FACE_KINDS))]
    write_collectively(Path(path), unstructured(places, elements, on_faces, on_nodes, numbers))


def points_in_space(points: Field | AnyRows) -> AnyRows:
    """Points with three coordinates, of which a plane has the last one 0."""

    def padded(values: np.ndarray) -> np.ndarray:
        found = np.zeros((len(values), 3))
        found[:, : values.shape[1]] = values
        return found

    return row_by_row(as_rows(points), padded)


def unstructured(
    points: AnyRows, elements: list[tuple[NodeLists, Kinds]], cell_fields: Mapping[str, AnyRows],
    node_fields: Mapping[str, AnyRows], groups: Mapping[str, np.ndarray],
) -> Iterator[Segment]:  # fmt: skip
    """The file of some elements in segments."""
    topology = {
        "connectivity": np.concatenate([nodes.entries for nodes, _ in elements]),
        "offsets": np.cumsum(np.concatenate([nodes.lengths for nodes, _ in elements])),
        "types": np.concatenate([_types(len(nodes), kinds) for nodes, kinds in elements]),
    }
    yield head("UnstructuredGrid")
    yield Text(b"<UnstructuredGrid>\n")
    if groups:
        yield from section("FieldData", groups, ' NumberOfTuples="1"')
    sizes = f'NumberOfPoints="{points.shape[0]}" NumberOfCells="{len(topology["types"])}"'
    yield Text(f"<Piece {sizes}>\n".encode())
    yield from section("Points", {"Points": points})
    yield from section("Cells", topology)
    yield from section("PointData", node_fields)
    yield from section("CellData", cell_fields)
    yield Text(b"</Piece>\n</UnstructuredGrid>\n</VTKFile>\n")


def _types(count: int, kinds: Kinds) -> np.ndarray:
    """VTK's number for the kind of each element."""
    found = np.zeros(count, np.uint8)
    for kind, numbers in kinds.items():
        found[np.asarray(numbers)] = CELL_TYPES[kind]
    return found


def _check_names(mesh: Mesh) -> None:
    """MeshError where a group would come back from the file by another name: XML holds no control characters."""
    for what, names in (("boundary", mesh.groups), ("cell", mesh.cell_groups)):
        for name in names:
            if not name.isprintable():
                raise MeshError(f"{what} group {name!r}: a VTU file keeps names of printable characters; rename it")


def _cell_group_arrays(mesh: Mesh) -> dict[str, np.ndarray]:
    """For every group of cells an array of cells and boundary faces, 1 on the cells of the group."""
    arrays = {}
    for name, cells in mesh.cell_groups.items():
        inside = np.zeros(mesh.cells.total + mesh.boundary_faces.total, np.uint8)
        inside[cells] = 1
        arrays[CELL_GROUP_PREFIX + name] = inside
    return arrays


def head(kind: str) -> Text:
    """The first lines of a VTK file."""
    return Text((
        '<?xml version="1.0"?>\n'
        f'<VTKFile type="{kind}" version="1.0" byte_order="{_BYTE_ORDER}" header_type="UInt64">\n'
    ).encode())  # fmt: skip


def quoted(text: str) -> str:
    """As the value of an attribute."""
    from xml.sax.saxutils import quoteattr  # which brings everything with it that opens addresses of the net

    return quoteattr(text)


def section(tag: str, arrays: Mapping[str, AnyRows], attributes: str = "") -> Iterator[Segment]:
    """An element that holds arrays, each as base64 of its length in bytes and its bytes."""
    yield Text(f"<{tag}>\n".encode())
    for name, rows in arrays.items():
        native = row_by_row(rows, lambda values: np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")))
        yield Text(f'<DataArray {described(name, native)}{attributes} format="binary">'.encode())
        yield Base64(Raw(native))
        yield Text(b"</DataArray>\n")
    yield Text(f"</{tag}>\n".encode())


def described(name: str, rows: AnyRows) -> str:
    """The type, the name and the number of components of an array, as attributes."""
    components = f' NumberOfComponents="{rows.shape[1]}"' if rows.ndim == 2 else ""
    return f'type="{_type_name(rows.dtype)}" Name={quoted(one_line(name))}{components}'


def _type_name(dtype: np.dtype) -> str:
    return {"f": "Float", "i": "Int", "u": "UInt"}[dtype.kind] + str(8 * dtype.itemsize)


class Series:
    """The ``.pvd`` list of the files of a run and their times; valid after every ``add``."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.entries: list[tuple[float, str]] = []  # time, file relative to the list

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> Series:
        """Go on with an existing list; with an empty one if there is none."""
        series = cls(path)
        series.entries = on_root(lambda: _read_entries(series.path) if series.path.is_file() else [])
        return series

    def drop_after(self, time: float) -> None:
        """Without the entries after ``time``, on the disk too; a list of nothing is removed."""
        kept = [entry for entry in self.entries if entry[0] <= time]
        if len(kept) == len(self.entries):
            return
        self.entries = kept
        if kept:
            self.write()
        else:
            with writing(self.path):
                on_root(lambda: self.path.unlink(missing_ok=True))

    def has(self, time: float, stem: str | os.PathLike[str]) -> bool:
        """Whether a file that is ``stem`` with an ending is listed at ``time``, and there."""
        found = [self.path.parent / file for listed, file in self.entries if listed == float(time)]
        return on_root(lambda: any(file.with_suffix("") == Path(stem) and file.is_file() for file in found))

    def add(self, time: float, file: str | os.PathLike[str]) -> None:
        """List ``file`` at ``time``, in place of what was listed at that time, and write the list."""
        relative = Path(os.path.relpath(file, self.path.parent)).as_posix()
        kept = [entry for entry in self.entries if entry[0] != float(time)]
        self.entries = sorted([*kept, (float(time), relative)], key=lambda entry: entry[0])
        self.write()

    def write(self) -> None:
        """Write the list as it is now, in one step."""
        rows = "".join(
            f'<DataSet timestep="{time!r}" group="" part="0" file={quoted(file)}/>\n' for time, file in self.entries
        )
        text = (
            f'<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1" byte_order="{_BYTE_ORDER}">\n'
            f"<Collection>\n{rows}</Collection>\n</VTKFile>\n"
        )
        write_atomically(self.path, text.encode())


def _read_entries(path: Path) -> list[tuple[float, str]]:
    try:
        root = ElementTree.fromstring(path.read_bytes())
        return [(float(entry.attrib["timestep"]), entry.attrib["file"]) for entry in root.iter("DataSet")]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not a ParaView series ({error}); remove it or choose another folder") from error
