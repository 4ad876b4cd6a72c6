"""Files with cells of several kinds: every format gives back what was written, and others can read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.io.plots import save_picture
from meshloom.mesh.mesh import Mesh
from tests.attacks.mesh_files import VTU
from tests.mesh.mixed_samples import layered, plane, space
from tests.one_line import one_line_from

needs_vtu = pytest.mark.skipif(not VTU, reason="meshio is not installed")
FORMATS = (".msh", ".su2", pytest.param(".vtu", marks=needs_vtu))


def named(mesh: Mesh) -> Mesh:
    """The same with its boundary in two groups, each of all kinds of faces that there are."""
    low = mesh.boundary_centres[:, 0] < 0.5
    lists = mesh.lists.boundary_faces
    boundary = {"low": list(lists.taken(np.flatnonzero(low))), "high": list(lists.taken(np.flatnonzero(~low)))}
    return Mesh.from_table(mesh.coordinates.numpy(), mesh.lists.cells, boundary, cell_groups=mesh.cell_groups)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("make", [plane, space, layered])
@pytest.mark.parametrize("order", ["given", "random"])
def test_what_is_written_comes_back(tmp_path: Path, make: object, extension: str, order: str) -> None:
    x, cells = plane(3, polygons=extension == ".vtu") if make is plane else make(3)  # type: ignore[operator]
    groups = {} if extension == ".su2" else {"some": [0, 3, 4]}
    mesh = named(Mesh.from_cells(x, cells, cell_groups=groups).reordered(order))
    assert mesh.kind == "mixed" and list(mesh.groups) == ["low", "high"]
    path = tmp_path / f"mesh{extension}"
    ml.write(path, mesh)
    found = ml.read(path)
    assert found.digest == mesh.digest and found.groups == mesh.groups
    assert {kind: len(of) for kind, of in found.cells.kinds.items()} == {
        k: len(of) for k, of in mesh.cells.kinds.items()
    }


@needs_vtu
@pytest.mark.parametrize("make", [plane, space, layered])
def test_meshio_opens_fields_on_cells_of_several_kinds(tmp_path: Path, make: object) -> None:
    import meshio

    mesh = Mesh.from_cells(*make(1))  # type: ignore[operator]
    ml.write(tmp_path / "mesh.vtu", mesh, {"volume": mesh.cell_volumes}, {"x": mesh.coordinates})
    found = meshio.read(tmp_path / "mesh.vtu")
    names = {"wedge": "prism", "tetra": "tetrahedron"}
    cells = [(names.get(block.type, block.type), rows) for block in found.cells for rows in block.data.tolist()]
    count = len(mesh.cells)
    for (kind, rows), nodes in zip(cells, [one.tolist() for one in mesh.lists.cells.nodes], strict=False):
        turned = [rows[k] for k in (0, 2, 1, 3, 5, 4)] if kind == "prism" else rows  # meshio's own order of prisms
        assert turned == nodes
    for kind, numbers in mesh.cells.kinds.items():
        assert {cells[number][0] for number in numbers} == {kind}
    values = np.concatenate(found.cell_data["volume"])
    np.testing.assert_array_equal(values[:count], mesh.cell_volumes)
    np.testing.assert_array_equal(values[count:], mesh.cell_volumes[mesh.boundary_cells.indices[:, 0]])


@pytest.mark.parametrize("extension", [".msh", ".su2"])
def test_formats_without_polygons_say_so(tmp_path: Path, extension: str) -> None:
    mesh = Mesh.from_cells([[0, 0], [1, 0], [1.5, 0.5], [1, 1], [0, 1]], {"polygon": [[0, 1, 2, 3, 4]]})
    with one_line_from(MeshError, r"hold no polygons, of which the mesh has 1; \.vtu files do"):
        ml.write(tmp_path / f"mesh{extension}", mesh)
    assert not list(tmp_path.iterdir())


def gmsh_text(elements: str, points: str) -> str:
    nodes = points.splitlines()
    rows = elements.splitlines()
    listed = "".join(f"{k} {point}\n" for k, point in enumerate(nodes, start=1))
    return (f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$PhysicalNames\n2\n1 7 \"wall\"\n2 3 \"air\"\n$EndPhysicalNames\n"
            f"$Nodes\n{len(nodes)}\n{listed}$EndNodes\n$Elements\n{len(rows)}\n{elements}\n$EndElements\n")  # fmt: skip


def test_kinds_in_any_order_keep_the_numbers_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mesh.msh"
    points = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n2 0 0\n2 1 0"
    rows = "1 1 2 7 1 1 2\n2 2 2 3 1 2 5 3\n3 3 2 3 1 1 2 3 4\n4 2 2 3 1 5 6 3"
    path.write_text(gmsh_text(rows, points))
    mesh = ml.read(path)
    assert {kind: list(numbers) for kind, numbers in mesh.cells.kinds.items()} == {"triangle": [0, 2], "quad": [1]}
    assert mesh.cell_volumes.tolist() == [0.5, 1.0, 0.5] and mesh.cell_group("air").tolist() == [0, 1, 2]
    assert mesh.groups["wall"] == 7 and len(mesh.boundary("wall")) == 1
    path.write_text(gmsh_text(rows.replace("5 6 3", "5 6 5"), points))
    with one_line_from(MeshError, r"cell 4 names a node twice: \(5, 6, 5\)"):
        ml.read(path)


def test_gmsh_4_1_with_several_kinds_in_space(tmp_path: Path) -> None:
    """A prism, as Gmsh goes round it, under a tetrahedron, beside a pyramid."""
    points = "0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 1\n0 1 1\n0 0 2\n1 1 0.5"
    nodes = f"1 8 1 8\n3 1 0 8\n{' '.join(map(str, range(1, 9)))}\n{points}"
    elements = "5 5 1 5\n2 5 3 1\n4 1 4 6 3\n2 5 2 1\n5 1 3 2\n3 1 6 1\n1 1 2 3 4 5 6\n3 1 4 1\n2 4 5 6 7\n3 1 7 1\n3 2 3 6 5 8"
    entities = "0 0 1 1\n5 0 0 0 1 1 1 1 9 0\n1 0 0 0 1 1 2 1 2 0"
    path = tmp_path / "mesh.msh"
    path.write_text(f"$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$PhysicalNames\n2\n2 9 \"wall\"\n3 2 \"air\"\n"
                    f"$EndPhysicalNames\n$Entities\n{entities}\n$EndEntities\n$Nodes\n{nodes}\n$EndNodes\n"
                    f"$Elements\n{elements}\n$EndElements\n")  # fmt: skip
    mesh = ml.read(path)
    assert {kind: list(of) for kind, of in mesh.cells.kinds.items()} == {
        "prism": [0],
        "tetrahedron": [1],
        "pyramid": [2],
    }
    np.testing.assert_allclose(mesh.cell_volumes, [0.5, 1 / 6, 1 / 3 * 0.5 * 2.0], rtol=1e-14)
    assert mesh.groups == {"wall": 9, "boundary": 1} and [len(of) for of in map(mesh.group, mesh.groups)] == [2, 9]
    assert sorted(mesh.boundary("wall").nodes.entries.tolist()) == [0, 0, 1, 2, 2, 3, 5]
    assert mesh.cell_group("air").tolist() == [0, 1, 2]


def test_a_picture_of_several_kinds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    mesh = Mesh.from_cells(*plane(3))
    options = {"label": "area", "window": (0.0, 1.0, 0.0, 1.0), "history": {}, "title": "kinds"}
    cells, values = mesh.lists.cells.nodes, np.arange(len(mesh.cells)) + 0.0
    save_picture(tmp_path / "all.png", mesh.coordinates.numpy(), cells, values, **options)  # type: ignore[arg-type]
    values[np.asarray(mesh.cells.kinds["quad"])] = np.nan
    save_picture(tmp_path / "some.png", mesh.coordinates.numpy(), cells, values, **options)  # type: ignore[arg-type]
    assert (tmp_path / "all.png").read_bytes() != (tmp_path / "some.png").read_bytes()


def test_digests_know_the_mesh() -> None:
    """Which is how checkpoints tell that they were made on another one."""
    mesh, other = Mesh.from_cells(*space(1)), Mesh.from_cells(*space(2))
    assert mesh.digest == Mesh.from_cells(*space(1)).digest != other.digest
    as_polygon = Mesh.from_cells([[0, 0], [1, 0], [1, 1], [0, 1]], {"polygon": [[0, 1, 2, 3]]})
    assert as_polygon.digest != Mesh.from_cells(as_polygon.coordinates.numpy(), [[0, 1, 2, 3]], "quad").digest
