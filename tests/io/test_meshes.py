"""Mesh files: what is written comes back, what other programs write is read, what is broken is named in one line."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError, RunError, UserError
from meshloom.io.meshes import FORMATS, read, write
from meshloom.mesh.generate import box, naca0012
from meshloom.mesh.mesh import Mesh
from tests.io.test_cgns import write as write_cgns

meshio = pytest.importorskip("meshio")

DATA = Path(__file__).parents[1] / "data"
KINDS = ("quad", "triangle", "hexahedron", "tetrahedron")
LISTED = (".msh", ".su2", ".vtu")  # formats that hold cells and named boundary faces


def sample(kind: str) -> Mesh:
    """A box with coordinates that need all their digits, and one face left unnamed."""
    mesh = box((3, 2) if kind in ("quad", "triangle") else (2, 1, 2), cells=kind)
    x = mesh.coordinates.numpy() / 3 + np.sqrt(2)
    named = {name: mesh.boundary_nodes.indices[mesh.group(name)] for name in mesh.groups}
    named["xmin"] = named["xmin"][1:]
    return Mesh.from_cells(x, mesh.cell_nodes.indices, kind, named)


def boundary_of(mesh: Mesh) -> dict[str, list[list[int]]]:
    faces = mesh.boundary_nodes.indices
    return {name: sorted(sorted(nodes) for nodes in faces[mesh.group(name)].tolist()) for name in mesh.groups}


@pytest.mark.parametrize("extension", LISTED)
@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(tmp_path: Path, kind: str, extension: str) -> None:
    mesh = sample(kind)
    write(tmp_path / f"mesh{extension}", mesh)
    found = read(tmp_path / f"mesh{extension}")
    assert found.digest == mesh.digest
    assert boundary_of(found) == boundary_of(mesh) and found.groups == mesh.groups
    assert "boundary" in found.groups and len(found.group("boundary")) == 1
    assert os.listdir(tmp_path) == [f"mesh{extension}"]  # nothing left beside it


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), extension=st.sampled_from(LISTED))
def test_any_grouping_round_trips(tmp_path_factory: pytest.TempPathFactory, seed: int, extension: str) -> None:
    mesh = box((4, 3), cells="triangle")
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, 4, len(mesh.boundary_faces))
    names = ["wall", "in let", "Öffnung", "far-field_2"]
    named = {name: mesh.boundary_nodes.indices[owner == k] for k, name in enumerate(names) if (owner == k).any()}
    mesh = Mesh.from_cells(mesh.coordinates.numpy(), mesh.cell_nodes.indices, "triangle", named)
    path = tmp_path_factory.mktemp("groups") / f"mesh{extension}"
    write(path, mesh)
    assert boundary_of(read(path)) == boundary_of(mesh)


def test_airfoil_keeps_its_wake_cut_in_dat(tmp_path: Path) -> None:
    mesh = naca0012(6, 5)
    write(tmp_path / "new_grid.dat", mesh)
    assert read(tmp_path / "new_grid.dat").digest == mesh.digest
    lines = (tmp_path / "new_grid.dat").read_text().splitlines()
    assert lines[0] == " 114 90 163 34 "
    assert lines[1] == " 9.000000 0.000000 "
    assert lines[-1] == " 0 19 0 2 "


def test_dat_keeps_digits_that_six_decimals_would_lose(tmp_path: Path) -> None:
    mesh = naca0012(6, 5, decimals=None)
    write(tmp_path / "exact.dat", mesh)
    assert read(tmp_path / "exact.dat").digest == mesh.digest


@pytest.mark.parametrize("extension", [".msh", ".vtu"])
def test_fields_are_written(tmp_path: Path, extension: str) -> None:
    mesh = sample("triangle")
    q = mesh.cells.field("q", 4, data=np.arange(48.0).reshape(12, 4), layout="soa")
    path = tmp_path / f"mesh{extension}"
    write(path, mesh, {"q": q}, {"p": np.arange(12.0)})
    assert read(path).digest == mesh.digest
    if extension == ".vtu":
        found = meshio.read(path)
        np.testing.assert_array_equal(found.cell_data["q"][0], q.numpy())
        np.testing.assert_array_equal(found.cell_data["q"][1], q.numpy()[mesh.boundary_cells.indices[:, 0]])
        np.testing.assert_array_equal(found.point_data["p"], np.arange(12.0))
    else:
        content = path.read_bytes()
        assert b'$ElementData\n1\n"q"\n1\n0.0\n3\n0\n9\n22\n' in content  # 4 components stand in 9
        assert b'$NodeData\n1\n"p"\n1\n0.0\n3\n0\n1\n12\n' in content


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extension", LISTED)
def test_meshio_reads_what_we_write(tmp_path: Path, kind: str, extension: str) -> None:
    mesh = sample(kind)
    write(tmp_path / f"mesh{extension}", mesh)
    found = meshio.read(tmp_path / f"mesh{extension}")
    cells = found.get_cells_type({"tetrahedron": "tetra"}.get(kind, kind))
    np.testing.assert_array_equal(cells[: len(mesh.cells)], mesh.cell_nodes.indices)
    np.testing.assert_array_equal(found.points[:, : mesh.dim], mesh.coordinates.numpy())
    tags = {".msh": "gmsh:physical", ".su2": "su2:tag", ".vtu": "group"}[extension]
    counts = [len(mesh.group(name)) for name in mesh.groups]
    found_tags = found.cell_data[tags][1]
    assert [int((found_tags == number).sum()) for number in mesh.groups.values()] == counts


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_gmsh_22_of_meshio_is_read(tmp_path: Path, kind: str, binary: bool) -> None:
    mesh = sample(kind)
    write(tmp_path / "ours.msh", mesh)
    meshio.gmsh.write(tmp_path / "theirs.msh", meshio.read(tmp_path / "ours.msh"), fmt_version="2.2", binary=binary)
    assert read(tmp_path / "theirs.msh").digest == mesh.digest


@pytest.mark.parametrize("binary", [True, False])
def test_gmsh_41_of_meshio_is_read(tmp_path: Path, binary: bool) -> None:
    mesh = box((4, 3), cells="triangle")
    entity = np.tile((2, 1), (len(mesh.nodes), 1))  # dimension and tag of what each node lies on
    for name, number in mesh.groups.items():
        entity[mesh.boundary_nodes.indices[mesh.group(name)]] = (1, number)
    blocks = [("line", mesh.boundary_nodes.indices[mesh.group(name)]) for name in mesh.groups]
    numbers = [*mesh.groups.values(), 1]
    blocks.append(("triangle", mesh.cell_nodes.indices))
    tags = [np.full(len(nodes), number) for (_, nodes), number in zip(blocks, numbers, strict=True)]
    other = meshio.Mesh(
        mesh.coordinates.numpy(),
        blocks,
        point_data={"gmsh:dim_tags": entity},
        cell_data={"gmsh:physical": [10 * tag for tag in tags], "gmsh:geometrical": tags},
        field_data={name: np.array((10 * number, 1)) for name, number in mesh.groups.items()},
    )
    meshio.gmsh.write(tmp_path / "theirs.msh", other, fmt_version="4.1", binary=binary)
    found = read(tmp_path / "theirs.msh")
    assert found.groups == {name: 10 * number for name, number in mesh.groups.items()}
    assert {name: len(found.group(name)) for name in found.groups} == {"xmin": 3, "xmax": 3, "ymin": 4, "ymax": 4}
    for name, value in (("xmin", 0.0), ("xmax", 1.0)):
        ends = found.boundary_nodes.indices[found.group(name)]
        assert (found.coordinates.numpy()[ends][..., 0] == value).all()
    assert found.cell_volumes.sum() == pytest.approx(1.0)


def test_gmsh_41_with_untagged_entities_and_sparse_nodes() -> None:
    mesh = read(DATA / "square_saved_all_41.msh")
    assert (mesh.kind, len(mesh.cells), len(mesh.nodes), mesh.dim) == ("triangle", 4, 5, 2)
    assert mesh.groups == {"wall": 9, "in let": 7, "boundary": 1}
    assert boundary_of(mesh) == {"wall": [[0, 1], [2, 3]], "in let": [[0, 3]], "boundary": [[1, 2]]}


def test_byte_order_of_another_machine(tmp_path: Path) -> None:
    mesh = box((1, 1), cells="triangle")
    nodes = np.zeros(4, dtype=[("tag", ">i4"), ("x", ">f8", (3,))])
    nodes["tag"], nodes["x"][:, :2] = np.arange(1, 5), mesh.coordinates.numpy()
    rows = np.array([(1, 5, 5, 1, 2, 4), (2, 5, 5, 1, 4, 3)], dtype=">i4")
    (tmp_path / "big.msh").write_bytes(
        b"$MeshFormat\n2.2 1 8\n" + np.array(1, dtype=">i4").tobytes() + b"\n$EndMeshFormat\n$Nodes\n4\n"
        + nodes.tobytes() + b"\n$EndNodes\n$Elements\n2\n" + np.array((2, 2, 2), dtype=">i4").tobytes()
        + rows.tobytes() + b"\n$EndElements\n"
    )  # fmt: skip
    if np.little_endian:
        assert read(tmp_path / "big.msh").cell_nodes.indices.tolist() == mesh.cell_nodes.indices.tolist()


def test_su2_without_row_numbers() -> None:
    mesh = read(DATA / "triangles.su2")
    assert len(mesh.cells) == 4
    assert boundary_of(mesh) == {"lower wall": [[0, 1]], "3": [[1, 2], [2, 3]], "boundary": [[0, 3]]}


@pytest.mark.parametrize("binary", [True, False])
def test_vtu_of_another_program_without_groups(tmp_path: Path, binary: bool) -> None:
    mesh = sample("hexahedron")
    other = meshio.Mesh(mesh.coordinates.numpy(), [("hexahedron", mesh.cell_nodes.indices)])
    meshio.vtu.write(tmp_path / "other.vtu", other, binary=binary)
    found = read(tmp_path / "other.vtu")
    assert found.groups == {"boundary": 1} and len(found.boundary_faces) == len(mesh.boundary_faces)


def raw_vtu(mesh: Mesh, compressed: bool, header: str) -> bytes:
    """A VTU file as ParaView saves it: all arrays as raw bytes at the end, whole or in compressed blocks."""
    points = np.zeros((len(mesh.nodes), 3))
    points[:, : mesh.dim] = mesh.coordinates.numpy()
    n, size = len(mesh.cells), {"UInt32": np.uint32, "UInt64": np.uint64}[header]
    decoys = {f"decoy{k}": np.full(3 * n, k, dtype=np.int64) for k in range(6)}  # equal sizes: offsets that collide
    sections = {
        "PointData": {},
        "CellData": {name: values.reshape(n, 3) for name, values in decoys.items()},
        "Points": {"Points": points},
        "Cells": {
            "connectivity": mesh.cell_nodes.indices.reshape(-1).astype(np.int64),
            "offsets": mesh.cell_nodes.arity * np.arange(1, n + 1),
            "types": np.full(n, 9, dtype=np.uint8),
        },
    }
    body, text = b"", ""
    for section, arrays in sections.items():
        text += f"<{section}>"
        for name, values in arrays.items():
            kind = {"f": "Float", "i": "Int", "u": "UInt"}[values.dtype.kind] + str(8 * values.itemsize)
            width = f'NumberOfComponents="{values.shape[1]}"' if values.ndim == 2 else ""
            text += f'<DataArray type="{kind}" Name="{name}" {width} format="appended" offset="{len(body)}"/>'
            content = values.tobytes()
            if compressed:
                blocks = [content[k : k + 256] for k in range(0, len(content), 256)]
                packed = [zlib.compress(block) for block in blocks]
                body += np.array([len(blocks), 256, len(content) % 256, *map(len, packed)], size).tobytes()
                body += b"".join(packed)
            else:
                body += size(len(content)).tobytes() + content
        text += f"</{section}>"
    order = "LittleEndian" if np.little_endian else "BigEndian"
    compressor = 'compressor="vtkZLibDataCompressor"' if compressed else ""
    head = f'<VTKFile type="UnstructuredGrid" version="1.0" byte_order="{order}" header_type="{header}" {compressor}>'
    piece = f'<Piece NumberOfPoints="{len(points)}" NumberOfCells="{n}">{text}</Piece>'
    whole = f'<?xml version="1.0"?>{head}<UnstructuredGrid>{piece}</UnstructuredGrid><AppendedData encoding="raw">\n _'
    return whole.encode() + body + b"\n</AppendedData></VTKFile>\n"


@pytest.mark.parametrize("header", ["UInt32", "UInt64"])
@pytest.mark.parametrize("compressed", [False, True])
def test_vtu_with_raw_appended_arrays(tmp_path: Path, compressed: bool, header: str) -> None:
    mesh = box((7, 5))
    content = raw_vtu(mesh, compressed, header)
    (tmp_path / "raw.vtu").write_bytes(content)
    found = read(tmp_path / "raw.vtu")
    np.testing.assert_array_equal(found.cell_nodes.indices, mesh.cell_nodes.indices)
    np.testing.assert_array_equal(found.coordinates.numpy(), mesh.coordinates.numpy())
    for length in range(0, len(content) - 30, len(content) // 12):
        (tmp_path / "cut.vtu").write_bytes(content[:length])
        assert "truncated or malformed" in refusal(tmp_path / "cut.vtu")


# ---- bad input ------------------------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    """The one line with which a file is refused; it names the file."""
    with pytest.raises(UserError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message, message
    return message


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """The content of one good file of each format (text and binary for Gmsh)."""
    mesh = box((3, 2), cells="triangle")
    contents = {}
    write_cgns(tmp_path / "good.cgns", mesh, mixed=False)
    for extension in FORMATS:
        if extension != ".cgns":
            write(tmp_path / f"good{extension}", naca0012(2, 2) if extension == ".dat" else mesh)
        contents[extension] = (tmp_path / f"good{extension}").read_bytes()
    contents["text.msh"] = (DATA / "square_saved_all_41.msh").read_bytes()
    return contents


def test_truncated_files_are_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = tmp_path / f"cut{name}"
        whole = len(content.rstrip())
        for length in np.unique(np.linspace(0, whole - 12, 40, dtype=int)):
            path.write_bytes(content[:length])
            message = refusal(path)
            assert "Error" not in message.replace("ReadError", ""), message


def test_no_damage_escapes_as_another_error(tmp_path: Path, files: dict[str, bytes]) -> None:
    """Bytes changed at random: the file is read or refused in one line, never anything else."""
    rng = np.random.default_rng(1)
    for name, content in files.items():
        path = tmp_path / f"damaged{name}"
        for _ in range(60):
            damaged = bytearray(content)
            for position in rng.integers(0, len(content), 3):
                damaged[position] = rng.integers(0, 256)
            path.write_bytes(bytes(damaged))
            try:
                read(path)
            except MeshError as error:
                assert "\n" not in str(error) and str(path) in str(error)


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("text.msh", "4.1 0 8", "4.0 0 8", "supported: formats 2.2 and 4.1"),
        ("text.msh", "9 1 2 12", "9 1 2 13", ": element 9 names node 13, which \\$Nodes does not list"),
        ("text.msh", "9 1 2 12", "9 1 2 x", "\\$Elements: numbers expected, found 'x'"),
        ("text.msh", "9 1 2 12", "9 1 2 1.5", "\\$Elements: whole numbers expected"),
        ("text.msh", "2 1 2 4\n9", "2 1 9 4\n9", "type 9 is not supported; first-order elements are"),
        ("text.msh", "2 1 2 4", "2 1 2 400", "\\$Elements ends too early"),
        ("text.msh", '1 9 "wall"', "1 wall", "expected a line such as"),
        ("text.msh", "$Nodes", "$Knots", "is not closed by"),
        ("text.msh", "9 1 2 12\n10 2 3 12", "9 1 2 12\n10 1 2 12", "cell 10 is the same as cell 9"),
        (".su2", "NELEM= 12", "NELEM= 13", "NELEM: 1 of 13 rows are missing, or a row is too short"),
        (".su2", "NELEM= 12", "NELEM= 11", "NELEM: more numbers than 11 rows need"),
        (".su2", "NELEM= 12", "NELEM= many", "NELEM=: numbers expected, found 'many'"),
        (".su2", "NPOIN= 12", "NPOIN= 13", "NPOIN= 13, but 36 numbers follow"),
        (".su2", "NMARK= 4", "NMARK= 5", "NMARK= 5, but 4 markers found"),
        (".su2", "NDIME= 2", "NDIME= 4", "NDIME= 4; expected 2 or 3"),
        (".su2", "NDIME= 2", "NDIM= 2", "no NDIME= line"),
        (".su2", "5 0 1 5 0", "7 0 1 5 0", "element code 7 is not known"),
        (".su2", "MARKER_ELEMS= 2", "MARKER_ELEM= 2", "is not followed by a MARKER_ELEMS"),
        (".dat", " 21 12 18 12 ", " 21 12 18 ", "first line: expected four whole numbers"),
        (".dat", " 21 12 18 12 ", " 21 12 18 13 ", "truncated or malformed"),
        (".dat", " 0 1 8 7 ", " 0 1 8 70 ", "map cell_nodes: index 70 at row 0"),
        (".dat", " 0 1 8 7 ", " 0 1 8 7.5 ", "whole numbers expected"),
    ],
)
def test_malformed_files_are_explained(
    tmp_path: Path, files: dict[str, bytes], name: str, old: str, new: str, message: str
) -> None:
    text = files[name].decode()
    assert old in text
    path = tmp_path / f"bad{name}"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(MeshError, match=message):
        read(path)
    refusal(path)


def su2(path: Path, *rows: str, dimension: int = 2, points: str = "0 0\n1 0\n1 1\n0 1\n2 0\n2 1\n") -> Path:
    head = f"NDIME= {dimension}\nNELEM= {len(rows)}\n" + "".join(f"{row}\n" for row in rows)
    path.write_text(head + f"NPOIN= {points.count(chr(10))}\n{points}NMARK= 0\n")
    return path


def test_cells_that_do_not_make_a_mesh(tmp_path: Path) -> None:
    path = tmp_path / "m.su2"
    assert list(read(su2(path, "5 1 4 5", "9 0 1 2 3")).cells.kinds) == ["triangle", "quad"]
    assert "no cells found" in refusal(su2(path, "3 0 1"))
    assert "no cells found" in refusal(su2(path))
    wedge = "0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 1\n0 1 1\n"
    assert read(su2(path, "13 0 1 2 3 4 5", dimension=3, points=wedge)).kind == "prism"
    assert "element code 42 is not known" in refusal(su2(path, "42 0 1 2 3 4 5", dimension=3, points=wedge))
    assert "a surface in space" in refusal(su2(path, "5 0 1 2", "5 0 2 5", dimension=3, points=wedge))
    assert "cell 1 names a node twice" in refusal(su2(path, "5 0 1 2", "5 0 2 2"))
    flat = "0 0 7\n1 0 7\n1 1 7\n"
    assert read(su2(path, "5 0 1 2", dimension=3, points=flat)).dim == 2


def test_second_order_and_several_pieces_in_vtu(tmp_path: Path) -> None:
    points = np.array([(0, 0), (1, 0), (0, 1), (0.5, 0), (0.5, 0.5), (0, 0.5)], float)
    points = np.column_stack((points, np.zeros(6)))
    meshio.vtu.write(tmp_path / "six.vtu", meshio.Mesh(points, [("triangle6", np.arange(6)[None])]))
    assert "elements of type triangle6 are not supported" in refusal(tmp_path / "six.vtu")
    write(tmp_path / "one.vtu", box((2, 2)))
    text = (tmp_path / "one.vtu").read_text()
    piece = text[text.index("<Piece ") : text.index("</UnstructuredGrid>")]
    (tmp_path / "two.vtu").write_text(text.replace(piece, piece + piece))
    assert "more than one piece" in refusal(tmp_path / "two.vtu")


def test_missing_unknown_and_unreadable_files(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.msh")
    assert "unknown mesh format '.mash'; did you mean '.msh'" in refusal(tmp_path / "x.mash")
    assert "unknown mesh format '(no extension)'" in refusal(tmp_path / "mesh")
    (tmp_path / "folder.su2").mkdir()
    assert "a folder without a mesh of OpenFOAM in it" in refusal(tmp_path / "folder.su2")


def test_vtu_without_meshio_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m.vtu", box((2, 2)))
    monkeypatch.setitem(__import__("sys").modules, "meshio", None)
    with pytest.raises(UserError, match=r"needs meshio: pip install '\.\[io\]' in the folder"):
        read(tmp_path / "m.vtu")


def test_existing_files_are_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "m.su2"
    write(path, box((2, 2)))
    before = path.read_bytes()
    with pytest.raises(MeshError, match=r"m\.su2 exists already; choose another name or give overwrite=True"):
        write(path, box((3, 3)))
    assert path.read_bytes() == before
    write(path, box((3, 3)), overwrite=True)
    assert len(read(path).cells) == 9


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("m.su2", {"cell_fields": {"p": np.zeros(4)}}, "SU2 files hold no fields; .msh, .vtu do"),
        ("m.vtu", {"cell_fields": {"p": np.zeros(5)}}, r"field p: shape \(5,\) does not fit the 4 cells"),
        ("m.vtu", {"node_fields": {"p": np.zeros((8, 2, 2))}}, "does not fit the 9 nodes"),
        ("m.vtu", {"cell_fields": {"p": np.array(["a"] * 4)}}, "field p: values of type <U1 cannot be written"),
        ("m.vtu", {"cell_fields": {"group": np.zeros(4)}}, "the name is taken"),
        ("m.msh", {"cell_fields": {"p": np.zeros((4, 10))}}, "at most 9"),
        ("none/m.msh", {}, "there is no folder"),
        ("m.obj", {}, "unknown mesh format '.obj'"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str, arguments: dict, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        write(tmp_path / name, box((2, 2)), **arguments)
    assert os.listdir(tmp_path) == []


def test_triangles_do_not_fit_dat(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match="the format holds quad cells, not triangle"):
        write(tmp_path / "m.dat", box((2, 2), cells="triangle"))


@pytest.mark.parametrize("name, group", [("m.su2", "a=b"), ("m.su2", " a"), ("m.msh", 'a"b')])
def test_group_names_that_a_format_cannot_hold(tmp_path: Path, name: str, group: str) -> None:
    mesh = Mesh.from_cells([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)], "triangle", {group: [(0, 1)]})
    with pytest.raises(MeshError, match=f"boundary group {group!r}"):
        write(tmp_path / name, mesh)


def test_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.vtu"
    write(path, box((2, 2)))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*m\.vtu: disk full"):
        write(path, box((3, 3)), overwrite=True)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.vtu"]
