"""Groups of cells, and names that no element carries: read, kept by every arrangement, written, read back."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.mesh import Mesh
from tests.one_line import one_line_from

# four triangles round the middle of a square: two of air, one of water, one in no group, and two names without elements
POINTS = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0.5, 0.5, 0)], float)
CELLS = [(1, 2, 5, 7), (2, 3, 5, 7), (3, 4, 5, 8), (4, 1, 5, 0)]  # nodes from 1, group
EDGES = [(1, 2, 3), (3, 4, 4)]
NAMES = [(1, 3, "wall"), (1, 4, "top"), (1, 5, "hole in it"), (2, 7, "air"), (2, 8, "water"), (2, 9, "oil")]
CELL_GROUPS = {"air": [0, 1], "water": [2], "oil": []}


def named() -> bytes:
    lines = "".join(f'{dim} {tag} "{name}"\n' for dim, tag, name in NAMES)
    return f"$PhysicalNames\n{len(NAMES)}\n{lines}$EndPhysicalNames\n".encode()


def gmsh_22(binary: bool) -> bytes:
    rows = [(1, n, group, nodes) for n, (*nodes, group) in enumerate(EDGES, 1)]
    rows += [(2, n, group, nodes) for n, (*nodes, group) in enumerate(CELLS, 3)]
    if not binary:
        points = "".join(f"{n} {x} {y} {z}\n" for n, (x, y, z) in enumerate(POINTS, 1))
        elements = "".join(f"{n} {code} 2 {g} {g} {' '.join(map(str, nodes))}\n" for code, n, g, nodes in rows)
        return (b"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n" + named() +
                f"$Nodes\n5\n{points}$EndNodes\n$Elements\n{len(rows)}\n{elements}$EndElements\n".encode())  # fmt: skip
    points = b"".join(struct.pack("<iddd", n, *x) for n, x in enumerate(POINTS, 1))
    elements = b"".join(struct.pack(f"<iiiiii{len(nodes)}i", code, 1, 2, n, g, g, *nodes) for code, n, g, nodes in rows)
    return (b"$MeshFormat\n2.2 1 8\n" + struct.pack("<i", 1) + b"\n$EndMeshFormat\n" + named() + b"$Nodes\n5\n" +
            points + b"\n$EndNodes\n$Elements\n6\n" + elements + b"\n$EndElements\n")  # fmt: skip


def gmsh_41(binary: bool, wall: list[int] | None = None) -> bytes:
    """Curves 1 and 2 are wall and top, surfaces 1, 2 and 3 are air, water and nothing; water is in "oil" as well.
    ``wall``: what curve 1 is instead."""
    curves, surfaces = {1: wall or [3], 2: [4]}, {1: [7], 2: [8, 9], 3: []}
    text = binary is False

    def i(*values: int) -> bytes:
        return (" ".join(map(str, values)) + "\n").encode() if text else struct.pack(f"<{len(values)}i", *values)

    def s(*values: int) -> bytes:
        return (" ".join(map(str, values)) + "\n").encode() if text else struct.pack(f"<{len(values)}Q", *values)

    def d(*values: float) -> bytes:
        return (" ".join(map(str, values)) + "\n").encode() if text else struct.pack(f"<{len(values)}d", *values)

    entities = s(0, len(curves), len(surfaces), 0)
    for some in (curves, surfaces):
        for tag, groups in some.items():
            entities += i(tag) + d(0, 0, 0, 1, 1, 0) + s(len(groups)) + i(*groups) * bool(groups) + s(0)
    nodes = s(1, 5, 1, 5) + i(2, 1, 0) + s(5) + s(*range(1, 6)) + b"".join(d(*x) for x in POINTS)
    blocks = [(1, 1, 1, EDGES[:1]), (1, 2, 1, EDGES[1:])]
    blocks += [(2, 1, 2, CELLS[:2]), (2, 2, 2, CELLS[2:3]), (2, 3, 2, CELLS[3:])]
    elements, number = s(5, 6, 1, 6), 0
    for dim, tag, code, rows in blocks:
        elements += i(dim, tag, code) + s(len(rows))
        for *corners, _ in rows:
            number += 1
            elements += s(number, *corners)
    head = b"$MeshFormat\n4.1 0 8\n" if text else b"$MeshFormat\n4.1 1 8\n" + struct.pack("<i", 1) + b"\n"
    parts = (("Entities", entities), ("Nodes", nodes), ("Elements", elements))
    return head + b"$EndMeshFormat\n" + named() + b"".join(
        f"${name}\n".encode() + body + f"\n$End{name}\n".encode() for name, body in parts)  # fmt: skip


def in_lists(mesh: Mesh) -> dict[str, list[int]]:
    return {name: cells.tolist() for name, cells in mesh.cell_groups.items()}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("version", ["2.2", "4.1"])
def test_gmsh_groups_of_cells_and_names_without_elements(tmp_path: Path, version: str, binary: bool) -> None:
    path = tmp_path / "m.msh"
    path.write_bytes(gmsh_22(binary) if version == "2.2" else gmsh_41(binary))
    mesh = ml.read(path)
    expected = CELL_GROUPS if version == "2.2" else CELL_GROUPS | {"oil": [2]}  # there an entity may be in several
    assert in_lists(mesh) == expected and list(mesh.cell_groups) == ["air", "water", "oil"]
    assert mesh.groups == {"wall": 3, "top": 4, "hole in it": 5, "boundary": 1}
    assert [len(mesh.group(name)) for name in mesh.groups] == [1, 1, 0, 2]


def test_unnamed_tags_of_cells_are_groups_as_those_of_faces_are(tmp_path: Path) -> None:
    path = tmp_path / "m.msh"
    path.write_bytes(gmsh_22(False).replace(named(), b""))
    assert in_lists(ml.read(path)) == {"group7": [0, 1], "group8": [2]}


def test_su2_markers_without_elements(tmp_path: Path) -> None:
    path = tmp_path / "m.su2"
    path.write_text("NDIME= 2\nNELEM= 1\n5 0 1 2 0\nNPOIN= 3\n0 0 0\n1 0 1\n0 1 2\nNMARK= 2\nMARKER_TAG= none\n"
                    "MARKER_ELEMS= 0\nMARKER_TAG= wall\nMARKER_ELEMS= 1\n3 0 1\n")  # fmt: skip
    mesh = ml.read(path)
    assert set(mesh.groups) == {"none", "wall", "boundary"} and len(mesh.group("none")) == 0
    ml.write(tmp_path / "again.su2", mesh)
    again = ml.read(tmp_path / "again.su2")
    assert set(again.groups) == set(mesh.groups) and len(again.group("none")) == 0 and again.cell_groups == {}


@pytest.mark.parametrize("name", ["m.msh", "m.vtu"])
def test_all_groups_round_trip(tmp_path: Path, name: str) -> None:
    if name.endswith(".vtu"):
        pytest.importorskip("meshio")
    grid = ml.generate.box((6, 5))
    boundary = {"left": grid.boundary_nodes.indices[grid.group("xmin")], "hole": np.zeros((0, 2), int)}
    mesh = Mesh.from_cells(grid.coordinates.numpy(), grid.cell_nodes.indices, "quad", boundary,
                           cell_groups={"a b": np.arange(7), "lone": [29], "none": []})  # fmt: skip
    ml.write(tmp_path / name, mesh)
    again = ml.read(tmp_path / name)
    assert in_lists(again) == in_lists(mesh) and again.groups == mesh.groups and len(again.group("hole")) == 0
    plain = Mesh.from_cells(grid.coordinates.numpy(), grid.cell_nodes.indices, "quad")
    ml.write(tmp_path / f"plain_{name}", plain)
    assert ml.read(tmp_path / f"plain_{name}").cell_groups == {}


def test_groups_that_share_cells_go_to_vtu_and_not_to_gmsh(tmp_path: Path) -> None:
    grid = ml.generate.box((3, 2))
    mesh = Mesh.from_cells(grid.coordinates.numpy(), grid.cell_nodes.indices, "quad",
                           cell_groups={"a": [0, 1, 2], "b": [2, 3], "c": range(6)})  # fmt: skip
    with pytest.raises(MeshError, match="cell 2 is in the groups 'a' and 'b'; in a Gmsh file a cell has one"):
        ml.write(tmp_path / "m.msh", mesh)
    ml.write(tmp_path / "m.vtu", mesh)
    pytest.importorskip("meshio")
    assert in_lists(ml.read(tmp_path / "m.vtu")) == {"a": [0, 1, 2], "b": [2, 3], "c": [0, 1, 2, 3, 4, 5]}


def test_a_meshio_file_with_tags_on_cells(tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    cells = [("triangle", np.array([(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]))]
    meshio.Mesh(POINTS, cells, cell_data={"gmsh:physical": [np.array([3, 3, 4, 0])]}).write(tmp_path / "m.vtu")
    assert in_lists(ml.read(tmp_path / "m.vtu")) == {"group3": [0, 1], "group4": [2]}


@pytest.mark.parametrize("order", ["random", "hilbert", "greedy"])
def test_groups_follow_the_cells_however_they_are_arranged_or_numbered(order: str) -> None:
    grid = ml.generate.box((9, 8))
    inside = np.flatnonzero(grid.cell_centroids[:, 0] < 0.4)
    mesh = Mesh.from_cells(grid.coordinates.numpy(), grid.cell_nodes.indices, "quad", cell_groups={"left": inside})
    assert (mesh.arranged(order).cell_group("left") == inside).all()
    again = mesh.reordered(order).reordered("random", seed=3)
    assert (np.sort(np.flatnonzero(again.cell_centroids[:, 0] < 0.4)) == again.cell_group("left")).all()
    assert (again.permutation.cells[again.cell_group("left")][np.argsort(
        again.permutation.cells[again.cell_group("left")])] == inside).all()  # fmt: skip
    assert mesh.arranged(order).digest == mesh.digest != Mesh.from_cells(
        grid.coordinates.numpy(), grid.cell_nodes.indices, "quad").digest  # fmt: skip


def test_unknown_names_say_which_there_are() -> None:
    grid = ml.generate.box((2, 2))
    mesh = Mesh.from_cells(grid.coordinates.numpy(), grid.cell_nodes.indices, "quad", cell_groups={"water": [1]})
    assert "cell groups: water" in repr(mesh) and "cell groups" not in repr(grid)
    with pytest.raises(MeshError, match="unknown cell group 'watr'; did you mean 'water'"):
        mesh.cell_group("watr")
    with pytest.raises(MeshError, match="unknown cell group 'x'; there is none"):
        grid.cell_group("x")
    with pytest.raises(MeshError, match="unknown boundary group 'q'; allowed: xmin, xmax, ymin, ymax"):
        grid.group("q")
    with pytest.raises(ValueError, match="read-only"):
        mesh.cell_groups["water"][0] = 3


@pytest.mark.parametrize(
    "cells, words",
    [
        ([4], "cell 4 does not exist; there are 4"),
        ([-1], "cell -1 does not exist"),
        ([0.5], "a list of cell numbers"),
        ([[0]], "a list of cell numbers"),
    ],
)
def test_wrong_cells_of_a_group(cells: list, words: str) -> None:
    grid = ml.generate.box((2, 2))
    with pytest.raises(MeshError, match=words):
        Mesh.from_cells(grid.coordinates.numpy(), grid.cell_nodes.indices, "quad", cell_groups={"a": cells})


@pytest.mark.parametrize("binary", [False, True])
def test_faces_in_two_groups_are_one_line(tmp_path: Path, binary: bool) -> None:
    """Which condition would hold there? Cells may be in several."""
    (tmp_path / "mesh.msh").write_bytes(gmsh_41(binary, wall=[3, 5]))
    with one_line_from(MeshError, "boundary group hole in it: 1 of its faces belong to group wall already"):
        ml.read(tmp_path / "mesh.msh")


@pytest.mark.parametrize("kind", [".vtu", ".msh", ".su2"])
def test_a_name_comes_back_as_it_was_or_is_refused(tmp_path: Path, kind: str) -> None:
    box, kept = ml.generate.box((2, 2)), []
    sides = box.boundary_nodes.indices
    names = ["a\nb", "a\rb", "a\tb", "\x85", "\u2028x", "\x01", "a\x0bb", "\ud800", "a\0b", "<&>", "a  b", "é", 'a"b']
    for number, name in enumerate(names):
        groups = {} if kind == ".su2" else {name: [0]}
        made = Mesh.from_cells(box.coordinates.numpy(), box.cell_nodes.indices, "quad",
                               boundary={name: sides[:1], "rest": sides[1:]}, cell_groups=groups)  # fmt: skip
        file = tmp_path / f"{number}{kind}"
        try:
            ml.write(file, made)
        except MeshError:
            assert not file.exists()
            continue
        found = ml.read(file)
        assert list(found.groups) == [name, "rest"] and list(found.cell_groups) == list(groups), repr(name)
        kept.append(name)
    assert {"<&>", "a  b", "é"} <= set(kept)
