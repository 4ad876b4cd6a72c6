"""Pictures of fields in space: cuts and surfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.io.draw import surface
from meshloom.io.draw.section import Section, section

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
def without_pyvista(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "can_render", lambda: False)


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


def test_surfaces() -> None:
    """Of boundary faces, and of cells and nodes beside them; the nearest polygon is drawn last."""
    mesh = ml.generate.box((3, 3, 3), cells="prism")
    faces = mesh.boundary_faces.field("area", data=np.linalg.norm(mesh.boundary_normals, axis=1))
    assert len(ml.plot(faces).axes[0].collections[0].get_paths()) == len(mesh.boundary_faces)
    cells = mesh.cells.field("u", data=mesh.cell_centroids[:, 0])
    top = ml.plot(cells, surface="zmax", view=(0.0, 0.0, 1.0)).axes[0].collections[0]
    assert len(top.get_paths()) == len(mesh.group("zmax"))
    corners = np.concatenate([path.vertices for path in top.get_paths()])
    assert corners.min() == pytest.approx(0.0) and corners.max() == pytest.approx(1.0), (
        "seen from above, x to the right"
    )
    part = mesh.boundary("xmin").field("v", data=1.0)
    assert len(ml.plot(part).axes[0].collections[0].get_paths()) == len(mesh.group("xmin"))
    nodes = mesh.nodes.field("w", data=mesh.coordinates.numpy()[:, 2])
    both = ml.plot(nodes, surface=("zmin", "zmax"), view=(1.0, 1.0, 2.0))
    drawn = both.axes[0].collections[0]
    assert len(drawn.get_paths()) == len(mesh.group("zmin")) + len(mesh.group("zmax"))
    brightness = drawn.get_facecolors()[:, :3].sum(axis=1)
    last, first = brightness[-1], brightness[0]
    assert last > 1.5 > first, "yellow on top is in front of dark blue below"


def test_the_light_shows_the_shape() -> None:
    mesh = ml.generate.box((2, 2, 2))
    drawn = ml.plot(mesh.boundary_faces.field("one", data=1.0)).axes[0].collections[0]
    assert len(np.unique(drawn.get_facecolors().round(6), axis=0)) == 3, "one colour, and three directions of faces"


def test_pyvista_renders_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyvista", reason="the extra pictures3d is not installed")
    monkeypatch.undo()
    mesh = ml.generate.box((2, 2, 2))
    figure = ml.plot(mesh.boundary_faces.field("x", data=mesh.boundary_centres[:, 0]))
    (image,) = figure.axes[0].images
    pixels = np.asarray(image.get_array())
    inside = pixels[pixels.shape[0] // 2, pixels.shape[1] // 4 : pixels.shape[1] * 3 // 4]
    assert pixels.shape[2] == 4 and (inside[:, 3] == 255).all() and len(np.unique(inside, axis=0)) >= 3


def test_a_renderer_that_dies_leaves_it_to_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """VTK ends its process where it finds no screen: not ours."""
    monkeypatch.setattr(surface, "can_render", lambda: True)
    monkeypatch.setattr(surface.sys, "executable", "/bin/false")
    mesh = ml.generate.box((2, 2, 2))
    figure = ml.plot(mesh.boundary_faces.field("u", data=1.0))
    assert not figure.axes[0].images and len(figure.axes[0].collections[0].get_paths()) == 24
