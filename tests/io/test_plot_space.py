"""Pictures of fields in space: cuts and surfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case import cut_planes, on_surface
from meshloom.errors import MeshError
from meshloom.io.draw import raster, surface
from meshloom.io.draw.section import Section, section
from tests.one_line import one_line_from

pytest.importorskip("matplotlib")

KINDS = ("tetrahedron", "pyramid", "prism", "hexahedron")
MIXED = {  # a unit cube below, a pyramid of half a cube's base upon it, and a prism beside it
    "hexahedron": [[0, 1, 2, 3, 4, 5, 6, 7]], "pyramid": [[4, 5, 6, 7, 8]], "prism": [[1, 9, 5, 2, 10, 6]],
}  # fmt: skip
PLACES = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1],
                   [0.5, 0.5, 2], [2, 0, 0], [2, 1, 0]], float)  # fmt: skip


def area(found: Section) -> float:
    def of(corners: np.ndarray) -> float:
        x, y = corners.T
        return 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))

    return sum(of(found.points[polygon]) for polygon in found.polygons)


@pytest.fixture(autouse=True)
def small_and_without_pyvista(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "can_render", lambda: False)
    monkeypatch.setattr(surface, "_PIXELS", 150)


@pytest.mark.parametrize("place", [0.0, 0.25, 0.3, 1.0])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_covers_the_plane_once(kind: str, axis: int, place: float) -> None:
    """Through cells, and where faces lie in the plane, at the ends of the box, too."""
    mesh = ml.generate.box((4, 3, 2), cells=kind)
    x = mesh.coordinates.numpy()
    found = section(x, mesh.lists.cells, axis, place)
    assert area(found) == pytest.approx(1.0)
    places = found.at_points(x)
    np.testing.assert_allclose(places[:, axis], place, atol=1e-12)
    np.testing.assert_allclose(np.delete(places, axis, axis=1), found.points, atol=1e-12)
    centres = mesh.cell_centroids[found.cells][:, axis]
    assert (np.abs(centres - place) < 0.51).all() and len(set(found.cells)) == len(found.cells)


@pytest.mark.parametrize(("axis", "place", "expected"), [(2, 0.5, 1.5), (2, 1.5, 0.25), (0, 1.5, 0.5), (1, 0.5, 2.0)])
def test_a_cut_of_cells_of_several_kinds(axis: int, place: float, expected: float) -> None:
    mesh = ml.Mesh.from_cells(PLACES, MIXED)
    assert area(section(PLACES, mesh.lists.cells, axis, place)) == pytest.approx(expected)


def test_cells_nodes_and_vectors_of_a_cut() -> None:
    mesh = ml.generate.box((4, 4, 4), cells="tetrahedron")
    x = mesh.coordinates.numpy()
    cells = mesh.cells.field("height", data=mesh.cell_centroids[:, 2])
    figure = ml.plot(cells)
    (drawn,) = figure.axes[0].collections
    assert figure.get_suptitle() == "height, at z = 0.5, in the middle"
    assert (drawn.get_array() < 0.5).all() and (drawn.get_array() > 0.25).all(), "the cells below faces in the plane"
    nodes = mesh.nodes.field("u", data=x @ [1.0, 2.0, 4.0])
    figure = ml.plot(nodes, cut=("x", 0.3))
    (smooth,) = figure.axes[0].collections
    places = np.stack([smooth._triangulation.x, smooth._triangulation.y], axis=1)
    np.testing.assert_allclose(smooth.get_array(), 0.3 + places @ [2.0, 4.0])
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("y", "z")
    turning = mesh.nodes.field("v", 3, data=np.stack([0.5 - x[:, 1], x[:, 0] - 0.5, x[:, 2]], axis=1))
    arrows = ml.plot(turning).axes[0].collections[-1]
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V]), np.stack([0.5 - arrows.Y, arrows.X - 0.5]), atol=1e-12)


def test_planes_of_a_grid_in_space() -> None:
    grid = ml.Grid((5, 6, 4), extent=(1.0, 1.0, 3.0), periodic=(False, False, True))
    x, y, z = grid.meshgrid()
    field = grid.field("u", data=x + 10.0 * y + 100.0 * z)

    def image(**options: Any) -> np.ndarray:
        (drawn,) = ml.plot(field, **options).axes[0].collections
        return np.asarray(drawn.get_array()).T

    np.testing.assert_allclose(image(), (x + 10.0 * y)[:, :, 0] + 150.0)
    np.testing.assert_allclose(image(cut=("z", 0.3)), (x + 10.0 * y)[:, :, 0] + 30.0)
    np.testing.assert_allclose(image(cut=("x", 1.0)), (1.0 + 10.0 * y + 100.0 * z)[0])
    last, first = 225.0, 0.0  # behind the last point comes the first one again
    np.testing.assert_allclose(image(cut=("z", 2.625))[0, 0], 0.5 * (last + first))
    with pytest.raises(ml.errors.UserError, match=r"cut at z = 3\.5: grid grid reaches from 0 to 3 along z"):
        image(cut=("z", 3.5))


def pixels(figure: Any) -> np.ndarray:
    """Those of a surface, (height, width, 3), whole numbers to 255."""
    (image,) = figure.axes[0].images
    found = np.asarray(image.get_array())
    return found if found.dtype == np.uint8 else (255.0 * found).round().astype(np.uint8)


def is_white(image: np.ndarray) -> np.ndarray:
    return (image == 255).all(axis=2)


def test_surfaces_of_groups() -> None:
    """Of boundary faces, and of cells and nodes beside them; a group is seen alone, from where one looks."""
    mesh = ml.generate.box((3, 3, 3), cells="prism")
    cells = mesh.cells.field("u", data=mesh.cell_centroids[:, 0])
    top = pixels(ml.plot(cells, surface="zmax", view=(0.0, 0.0, 1.0)))
    assert is_white(top).mean() < 0.2, "it fills the window but for the margin"
    row = top[len(top) // 2][~is_white(top)[len(top) // 2]].astype(int)
    assert len(np.unique(row, axis=0)) == 6 and (np.diff(row[:, 1]) >= 0).all(), "x to the right, from dark to bright"
    part = mesh.boundary("xmin").field("v", data=1.0)
    for field, options in ((part, {}), (cells, {"surface": ["xmin"]})):
        assert is_white(pixels(ml.plot(field, view=(1.0, 0.0, 0.0), **options))).mean() < 0.2
    faces = mesh.boundary_faces.field("area", data=np.linalg.norm(mesh.boundary_normals, axis=1))
    assert 0.2 < is_white(pixels(ml.plot(faces))).mean() < 0.6, "a cube, seen from a corner"


def test_the_nearer_side_hides_the_other() -> None:
    mesh = ml.generate.box((3, 3, 3))
    nodes = mesh.nodes.field("w", data=mesh.coordinates.numpy()[:, 2])
    for view, hue in (((0.0, 0.0, 1.0), (253, 231, 36)), ((0.0, 0.0, -1.0), (68, 1, 84))):  # the ends of viridis
        image = pixels(ml.plot(nodes, surface=("zmin", "zmax"), view=view))
        (shown,) = np.unique(image[~is_white(image)], axis=0)
        np.testing.assert_allclose(shown / shown.max(), np.array(hue) / max(hue), atol=0.02)


def test_the_light_shows_the_shape_and_meshes_have_edges() -> None:
    mesh = ml.generate.box((2, 2, 2))
    image = pixels(ml.plot(mesh.boundary_faces.field("one", data=1.0)))
    assert len(np.unique(image[~is_white(image)], axis=0)) == 3, "one colour, and three directions of faces"
    own = pixels(ml.plot(mesh))
    assert len(np.unique(own[~is_white(own)], axis=0)) == 6, "three groups are seen, and their edges"


def test_every_pixel_shows_the_nearest_triangle() -> None:
    """Compared with looking at each pixel and each triangle by itself."""
    corners = np.random.default_rng(1).uniform(-4.0, 26.0, (40, 3, 3))
    found = raster.seen(corners, np.zeros((40, 3), bool), 22, 17).triangle
    for row in range(17):
        for column in range(22):
            nearest, best = -1, -np.inf
            for number, (a, b, c) in enumerate(corners):
                system = np.array([[a[0], b[0], c[0]], [a[1], b[1], c[1]], [1.0, 1.0, 1.0]])
                weights = np.linalg.solve(system, [column + 0.5, row + 0.5, 1.0])
                depth = float(weights @ (a[2], b[2], c[2]))
                if (weights >= 0.0).all() and depth > best:
                    nearest, best = number, depth
            assert found[row, column] == nearest


def test_triangles_without_area_and_outside_are_nowhere() -> None:
    flat = np.array([[[1.0, 1.0, 0.0], [5.0, 5.0, 0.0], [3.0, 3.0, 0.0]], [[90.0, 1.0, 0.0], [95, 1, 0], [90, 9, 0]]])
    assert (raster.seen(flat, np.ones((2, 3), bool), 10, 10).triangle == -1).all()


@pytest.mark.parametrize("shape", [(5, 6, 7), (200, 3, 4)])
def test_planes_through_the_middle_of_a_grid(shape: tuple[int, int, int]) -> None:
    grid = ml.Grid(shape)
    x, y, z = grid.meshgrid()
    found = cut_planes(grid.coordinates, x + 2.0 * y + 4.0 * z, "u")
    middles = found.points[found.polygons].mean(axis=1)
    np.testing.assert_allclose(found.values, middles @ [1.0, 2.0, 4.0], rtol=1e-12)
    assert all(len(np.unique(found.points[:, axis])) <= 129 for axis in range(3)) and len(found.polygons) < 3000


@pytest.mark.parametrize("groups", [(), ("xmax",), ("xmin", "zmax")])
def test_the_boundary_with_the_values_of_its_cells(groups: tuple[str, ...]) -> None:
    mesh = ml.generate.box((3, 2, 2), cells="prism").reordered("hilbert")
    found = on_surface(mesh, mesh.cells.field("t", data=np.arange(len(mesh.cells))), "t", groups)
    parts = [mesh.boundary(name) for name in groups or mesh.groups]
    assert sorted(found.values) == sorted(cell for one in parts for cell in one.cells.indices[:, 0])
    assert len(found.polygons) == len(found.values) and found.curves is None


def test_a_boundary_that_cannot_be_drawn() -> None:
    flat, mesh = ml.generate.box((2, 2)), ml.generate.box((2, 2, 2))
    with one_line_from(MeshError, "has 2 dimensions; a Picture draws a plane one"):
        on_surface(flat, np.zeros(4), "t")
    with one_line_from(MeshError, "values of shape .3,., expected .8,., one for each cell"):
        on_surface(mesh, np.zeros(3), "t")
    with one_line_from(MeshError, "no boundary group 'wing'|unknown boundary group 'wing'"):
        on_surface(mesh, np.zeros(8), "t", ["wing"])
    with one_line_from(MeshError, "there are no boundary faces"):
        on_surface(mesh.periodic({"xmin": "xmax", "ymin": "ymax", "zmin": "zmax"}), np.zeros(8), "t")


def test_pyvista_renders_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyvista", reason="the extra pictures3d is not installed")
    monkeypatch.undo()
    mesh = ml.generate.box((2, 2, 2))
    figure = ml.plot(mesh.boundary_faces.field("x", data=mesh.boundary_centres[:, 0]))
    image = pixels(figure)
    monkeypatch.setattr(surface, "can_render", lambda: False)
    own = pixels(ml.plot(mesh.boundary_faces.field("x", data=mesh.boundary_centres[:, 0])))
    assert image.shape == own.shape and (is_white(image) == is_white(own)).mean() > 0.99, "the same shape, as large"
    assert len(np.unique(image[~is_white(image)], axis=0)) >= 3


def test_a_renderer_that_dies_leaves_it_to_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """VTK ends its process where it finds no screen: not ours."""
    monkeypatch.setattr(surface, "can_render", lambda: True)
    monkeypatch.setattr(surface.sys, "executable", "/bin/false")
    mesh = ml.generate.box((2, 2, 2))
    figure = ml.plot(mesh.boundary_faces.field("u", data=1.0))
    assert not is_white(pixels(figure)).all()
