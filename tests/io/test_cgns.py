"""CGNS files: sections of one kind and of several, boundary conditions by faces and by points; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.generate import box
from meshloom.mesh.mesh import Mesh
from tests.mesh.mixed_samples import layered, plane, space
from tests.one_line import one_line_from

ZONE = "Base/blk-1"
CODES = {"line": 3, "triangle": 5, "quad": 7, "tetrahedron": 10, "pyramid": 12, "prism": 14, "hexahedron": 17}


def node(parent: Any, name: str, label: str, values: Any = None) -> Any:
    """A node of the tree as the CGNS library writes it to HDF5."""
    made = parent.create_group(name)
    kind = "MT"
    if isinstance(values, str):
        values, kind = np.frombuffer(values.encode(), np.int8), "C1"
    elif values is not None:
        values = np.asarray(values)
        kind = {"i4": "I4", "i8": "I8", "f8": "R8"}[values.dtype.str[1:]]
    for key, text, size in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
        made.attrs.create(key, np.bytes_(text), dtype=f"S{size}")
    if values is not None:
        made.create_dataset(" data", data=values)
    return made


def section(zone: Any, name: str, code: int, first: int, count: int, entries: np.ndarray) -> int:
    made = node(zone, name, "Elements_t", np.array([code, 0], np.int32))
    node(made, "ElementRange", "IndexRange_t", np.array([first, first + count - 1], np.int32))
    node(made, "ElementConnectivity", "DataArray_t", entries.astype(np.int32))
    return first + count


def write(path: Path, mesh: Mesh, *, mixed: bool, by: str = "FaceCenter", sections_only: bool = False) -> None:
    """A mesh as others would write it: cells in one mixed section or one for each kind, faces by group."""
    with h5py.File(path, "w") as file:
        base = node(file, "Base", "CGNSBase_t", np.array([mesh.dim, mesh.dim], np.int32))
        sizes = np.array([[len(mesh.nodes)], [len(mesh.cells)], [0]], np.int32)
        zone = node(base, "blk-1", "Zone_t", sizes)
        node(zone, "ZoneType", "ZoneType_t", "Unstructured")
        grid = node(zone, "GridCoordinates", "GridCoordinates_t")
        for axis, column in zip("XYZ", mesh.coordinates.numpy().T, strict=False):
            node(grid, f"Coordinate{axis}", "DataArray_t", np.ascontiguousarray(column))
        first, kinds = 1, {int(cell): kind for kind, of in mesh.cells.kinds.items() for cell in of}
        lists = mesh.lists.cells.nodes
        if mixed:
            rows = [np.array([CODES[kinds[cell]], *(lists[cell] + 1)]) for cell in range(len(lists))]
            first = section(zone, "Cells", 20, first, len(rows), np.concatenate(rows))
        else:
            for kind, numbers in mesh.cells.kinds.items():
                nodes = mesh.cells.of(kind).nodes.indices + 1
                first = section(zone, f"Cells_{kind}", CODES[kind], first, len(numbers), nodes.ravel())
        conditions = None if sections_only else node(zone, "ZoneBC", "ZoneBC_t")
        for name in mesh.groups:
            begin, ends = first, mesh.lists.boundary_faces.taken(mesh.group(name))
            rows = [np.array([{2: 3, 3: 5, 4: 7}[len(one)], *(one + 1)]) for one in ends]
            if by != "Vertex":
                first = section(
                    zone, name if sections_only else f"faces of {name}", 20, first, len(rows), np.concatenate(rows)
                )
            if conditions is None:
                continue
            made = node(conditions, name, "BC_t", "BCWall")
            if by == "Vertex":
                node(made, "PointList", "IndexArray_t", np.unique(ends.entries)[None].astype(np.int32) + 1)
            elif by == "range":
                node(made, "ElementRange", "IndexRange_t", np.array([begin, first - 1], np.int32))
            else:
                node(made, "PointList", "IndexArray_t", np.arange(begin, first, dtype=np.int32)[None])
                node(made, "GridLocation", "GridLocation_t", by)


def named(make: Callable[[int], Any]) -> Mesh:
    """A mesh with two groups, the low side of the last axis and all else."""
    x, cells = plane(2, polygons=False) if make is plane else make(2)
    mesh = Mesh.from_cells(x, cells, order="given")
    low = mesh.boundary_centres[:, -1] < 1e-9
    lists = mesh.lists.boundary_faces
    groups = {"floor": list(lists.taken(np.flatnonzero(low))), "outer": list(lists.taken(np.flatnonzero(~low)))}
    return Mesh.from_cells(x, cells, boundary=groups, order="given")


@pytest.mark.parametrize("by", ["FaceCenter", "range", "EdgeCenter"])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("make", [plane, space, layered])
def test_sections_and_conditions_come_back(tmp_path: Path, make: Any, mixed: bool, by: str) -> None:
    mesh = named(make)
    write(tmp_path / "mesh.cgns", mesh, mixed=mixed, by=by)
    found = ml.read(tmp_path / "mesh.cgns")
    assert found.groups == mesh.groups
    if mixed:
        assert found.digest == mesh.digest
    np.testing.assert_allclose(np.sort(found.cell_volumes), np.sort(mesh.cell_volumes), rtol=1e-14)
    for name in mesh.groups:
        assert len(found.group(name)) == len(mesh.group(name))


def test_sections_name_what_no_condition_does(tmp_path: Path) -> None:
    mesh = named(space)
    write(tmp_path / "mesh.cgns", mesh, mixed=True, sections_only=True)
    assert ml.read(tmp_path / "mesh.cgns").digest == mesh.digest


def test_conditions_by_points(tmp_path: Path) -> None:
    mesh = box((3, 2, 2))
    write(tmp_path / "mesh.cgns", mesh, mixed=False, by="Vertex")
    found = ml.read(tmp_path / "mesh.cgns")
    assert {name: len(found.group(name)) for name in found.groups} == {
        name: len(mesh.group(name)) for name in mesh.groups
    }
    np.testing.assert_allclose(found.boundary("xmax").normal.numpy().sum(axis=0), [1.0, 0.0, 0.0], atol=1e-14)


def change(path: Path, how: Callable[[Any], None]) -> Path:
    write(path, named(space), mixed=True)
    with h5py.File(path, "a") as file:
        how(file)
    return path


def set_data(file: Any, place: str, values: Any) -> None:
    del file[place][" data"]
    file[place].create_dataset(" data", data=np.asarray(values))


@pytest.mark.parametrize(("how", "why"), [
    (lambda f: f.copy("Base/blk-1", "Base/blk-2"), r"2 zones \(blk-1, blk-2\); expected one: merge them"),
    (lambda f: f.copy("Base", "Other"), r"2 bases \(Base, Other\); expected one: keep one"),
    (lambda f: set_data(f, f"{ZONE}/ZoneType", np.frombuffer(b"Structured", np.int8)), "blk-1 is structured; write"),
    (lambda f: set_data(f, f"{ZONE}/Cells", np.array([22, 0], np.int32)), "Cells has elements of type NGON_n"),
    (lambda f: set_data(f, f"{ZONE}/Cells", np.array([17, 0], np.int32)), "section Cells announces"),
    (lambda f: set_data(f, f"{ZONE}/ZoneBC/floor/PointList", [[1, 2]]), "floor lists 2 .* of which 0 are faces"),
    (lambda f: f.move("Base/blk-1/GridCoordinates/CoordinateX", "Base/blk-1/GridCoordinates/CoordinateR"),
     "no CoordinateX; coordinates must be CoordinateX, CoordinateY, CoordinateZ"),
    (lambda f: f["Base/blk-1/Cells"].attrs.create("type", np.bytes_("LK")), "Cells is a link to another file"),
    (lambda f: f["Base/blk-1"].pop("ZoneType"), "0 zone types; expected one"),
    (lambda f: f["Base/blk-1/Cells"].pop("ElementRange"), "not a readable CGNS file"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_line(tmp_path: Path, how: Callable[[Any], None], why: str) -> None:
    with one_line_from(MeshError, f"mesh.cgns: .*{why}"):
        ml.read(change(tmp_path / "mesh.cgns", how))


def test_other_files_of_the_name_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "old.cgns"
    path.write_bytes(b"@(#)ADF Database Version A02011>" + bytes(100))
    with one_line_from(MeshError, "old.cgns: a CGNS file of the old kind, ADF; turn it into HDF5 by adf2hdf"):
        ml.read(path)
    path.write_bytes(b"nothing")
    with one_line_from(MeshError, "not a CGNS file in HDF5"):
        ml.read(path)
    with one_line_from(MeshError, "CGNS files are read here, not written"):
        ml.write(tmp_path / "new.cgns", box((2, 2)))
    write(path, named(space), mixed=True)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with one_line_from(MeshError, "old.cgns: "):
        ml.read(path)


@pytest.mark.parametrize(("where", "values", "why"), [
    ("Base/blk-1/Cells/ElementRange", [5, 1], "section Cells has the elements 5 to 1"),
    ("Base/blk-1/Cells/ElementRange", [5], "ElementRange holds 1 numbers; expected 2"),
    ("Base/blk-1/Cells/ElementRange", [np.nan, 3.0], "ElementRange holds values of type float64"),
    ("Base/blk-1/Cells/ElementRange", None, "ElementRange holds no values"),
    ("Base/blk-1/Cells/ElementConnectivity", [b"abc"], "ElementConnectivity holds values of type"),
    ("Base/blk-1/ZoneBC/floor/ElementRange", [1, 10**15], r"floor has the range \[1, 1000000000000000\] of elements"),
    ("Base/blk-1/ZoneBC/floor/ElementRange", [9, 2], "floor has the range"),
    ("Base/blk-1/ZoneBC/floor/ElementRange", [], "ElementRange holds|floor has the range"),
    ("Base/blk-1/GridCoordinates/CoordinateX", [1j], "CoordinateX holds values of type complex128"),
    ("Base/blk-1", [5, 5, 0], "zone blk-1 announces 5 points and holds"),
    ("Base", [3], "Base holds 1 numbers; expected 2"), ("Base", [3, 0], "of dimension 3 in a space of 0"),
    ("Base", [7, 7], "of dimension 7 in a space of 7"),
])  # fmt: skip
def test_values_that_lie_are_one_line(tmp_path: Path, where: str, values: Any, why: str) -> None:
    write(tmp_path / "mesh.cgns", named(space), mixed=True, by="range")
    with h5py.File(tmp_path / "mesh.cgns", "r+") as file:
        del file[where][" data"]
        if values is not None:
            file[where].create_dataset(" data", data=np.array(values))
    with one_line_from(MeshError, f"mesh.cgns: .*({why})"):
        ml.read(tmp_path / "mesh.cgns")
