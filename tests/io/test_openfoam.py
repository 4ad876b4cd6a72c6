"""Meshes of OpenFOAM: the cells are found by their faces, patches are groups, and what is wrong is one line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.generate import box
from meshloom.mesh.mesh import Mesh
from tests.mesh.mixed_samples import layered, space
from tests.one_line import one_line_from

HEAD = "/* a title */\nFoamFile\n{{\n    version 2.0; format {}; class {}; object {};\n}}\n// * * *\n"


def listed(path: Path, kind: str, rows: list[str], form: str = "ascii") -> None:
    path.write_text(HEAD.format(form, kind, path.name) + f"{len(rows)}\n(\n" + "\n".join(rows) + "\n)\n// * * *\n")


def write(folder: Path, mesh: Mesh) -> Path:
    """A mesh as OpenFOAM has it: interior faces, then those of each patch."""
    folder.mkdir(parents=True)
    order = np.argsort(mesh.boundary_group.numpy(), kind="stable")
    nodes = [*mesh.lists.faces, *mesh.lists.boundary_faces.taken(order)]
    listed(
        folder / "points",
        "vectorField",
        [f"({' '.join(map(repr, point))})" for point in mesh.coordinates.numpy().tolist()],
    )
    listed(folder / "faces", "faceList", [f"{len(face)}({' '.join(map(str, face))})" for face in nodes])
    owner = [*mesh.face_cells.indices[:, 0], *mesh.boundary_cells.indices[order, 0]]
    listed(folder / "owner", "labelList", [*map(str, owner)])
    listed(folder / "neighbour", "labelList", [*map(str, mesh.face_cells.indices[:, 1])])
    first, patches = len(mesh.faces), []
    for name in sorted(mesh.groups, key=mesh.groups.__getitem__):
        count = len(mesh.group(name))
        patches.append(f"{name}\n{{\n type wall; inGroups 1(wall);\n nFaces {count};\n startFace {first};\n}}")
        first += count
    listed(folder / "boundary", "polyBoundaryMesh", patches)
    return folder


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].dimension == 3])
def test_every_kind_comes_back(tmp_path: Path, kind: str) -> None:
    mesh = box((3, 2, 2), cells=kind)
    write(tmp_path / "case" / "constant" / "polyMesh", mesh)
    for path in (tmp_path / "case", tmp_path / "case" / "constant", tmp_path / "case" / "constant" / "polyMesh"):
        found = ml.read(path)
        assert found.kind == kind and found.groups == mesh.groups and len(found.faces) == len(mesh.faces)
        np.testing.assert_allclose(found.cell_volumes, mesh.cell_volumes, rtol=1e-12)
        np.testing.assert_allclose(found.cell_centroids, mesh.cell_centroids, atol=1e-14)
        for name in mesh.groups:
            mine, theirs = found.boundary(name), mesh.boundary(name)
            np.testing.assert_allclose(mine.normal.numpy().sum(axis=0), theirs.normal.numpy().sum(axis=0), atol=1e-14)


@pytest.mark.parametrize("make", [space, layered])
def test_several_kinds_keep_their_numbers(tmp_path: Path, make: Callable[[int], tuple[np.ndarray, dict]]) -> None:
    mesh = Mesh.from_cells(*make(3)).reordered("random")
    found = ml.read(write(tmp_path / "polyMesh", mesh))
    np.testing.assert_allclose(found.cell_volumes, mesh.cell_volumes, rtol=1e-12)
    assert {kind: list(of) for kind, of in found.cells.kinds.items()} == {
        kind: list(of) for kind, of in mesh.cells.kinds.items()
    }


def change(folder: Path, name: str, old: str, new: str) -> Path:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(("name", "old", "new", "why"), [
    ("points", "format ascii", "format binary", "points is binary; write it as text"),
    ("faces", "4(", "4(77777 ", "faces: "), ("boundary", "startFace 4", "startFace 1", "patch xmin has the faces"),
    ("boundary", "nFaces 4;", "", "patch xmin has no startFace or no nFaces"),
    ("points", "(0.0 0.0 0.0)", "(0.0 0.0)", "points holds 80 numbers; expected three for each"),
    ("neighbour", "\n1\n", "\n0\n", "cell 0 has other faces than a tetrahedron, pyramid, prism or hexahedron"),
    ("owner", "(", "[", "owner has no list in brackets"), ("points", "0.0", "zero", "points"),
    ("points", "27\n", "28\n", "points announces 28 entries and holds 27: truncated or malformed"),
    ("faces", "36\n", "37\n", "faces announces 37 entries and holds 36"),
    ("neighbour", "12\n", "11\n", "neighbour announces 11 entries and holds 12"),
    ("boundary", "6\n", "7\n", "boundary announces 7 entries and holds 6"),
    ("boundary", "xmax\n", "xmin\n", "two patches xmin; each may be given once"),
    ("faces", "4(", "-1(", "faces lists a face of -1 points"), ("faces", "4(", "2(", "faces lists a face of 2 points"),
    ("neighbour", "\n7\n", "\n2147483648\n", "names cell 2147483648, but 36 faces do not make so many"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, name: str, old: str, new: str, why: str) -> None:
    folder = write(tmp_path / "polyMesh", box((2, 2, 2)))
    if "startFace" in old:
        old = f"startFace {len(box((2, 2, 2)).faces)}"
    if name == "owner":
        (folder / name).write_text("nothing")
    with one_line_from(MeshError, f"polyMesh: .*{why}"):
        ml.read(folder if name == "owner" else change(folder, name, old, new))


def test_folders_without_a_mesh_are_one_line(tmp_path: Path) -> None:
    with one_line_from(MeshError, "a folder without a mesh of OpenFOAM"):
        ml.read(tmp_path)
    folder = write(tmp_path / "polyMesh", box((1, 1, 2)))
    (folder / "neighbour").unlink()
    with one_line_from(
        MeshError, "no file neighbour; a mesh of OpenFOAM has points, faces, owner, neighbour, boundary"
    ):
        ml.read(folder)


def test_compressed_files_are_read(tmp_path: Path) -> None:
    """As OpenFOAM writes them with writeCompression on: all of them, or some."""
    folder = write(tmp_path / "polyMesh", box((2, 1, 1)))
    for name in ("points", "faces", "owner", "boundary"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    assert ml.read(tmp_path).groups == box((2, 1, 1)).groups
    for wrong in ((folder / "faces.gz").read_bytes()[:30], b"faces"):
        (folder / "faces.gz").write_bytes(wrong)
        with one_line_from(MeshError, "polyMesh: faces.gz cannot be unpacked"):
            ml.read(folder)
