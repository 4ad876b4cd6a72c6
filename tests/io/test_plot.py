"""ml.plot: what is drawn of a field, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import UserError

pytest.importorskip("matplotlib")

MIXED = {"quad": [[0, 1, 4, 3]], "triangle": [[1, 2, 5]], "polygon": [[1, 5, 7, 6, 4], [3, 4, 6]]}
CORNERS = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [1, 2], [2, 2]], float)


def drawn(figure: Any, kind: str) -> Any:
    """The only collection of a kind on the first axes."""
    (found,) = [one for one in figure.axes[0].collections if type(one).__name__ == kind]
    return found


def linear(mesh: ml.Mesh, name: str = "u") -> ml.Field:
    """x - 2 y + 3 at nodes."""
    x = mesh.coordinates.numpy()
    return mesh.nodes.field(name, data=x[:, 0] - 2.0 * x[:, 1] + 3.0)


def test_cells_of_every_kind_in_the_plane() -> None:
    mesh = ml.Mesh.from_cells(CORNERS, MIXED)
    figure = ml.plot(mesh.cells.field("u", data=[4.0, 3.0, 2.0, 1.0]))
    cells = drawn(figure, "PolyCollection")
    corners = [len(path.vertices) - 1 for path in cells.get_paths()]
    assert sorted(zip(corners, cells.get_array().tolist(), strict=True)) == [(3, 1.0), (3, 3.0), (4, 4.0), (5, 2.0)]
    assert figure.axes[0].get_xlim() == (0.0, 2.0) and figure.axes[1].get_ylabel() == "u"


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("order", ["given", "random"])
def test_the_picture_knows_neither_back_end_nor_layout_nor_order(backend: str, order: str) -> None:
    ml.use(backend)
    mesh = ml.generate.box((6, 5), cells="triangle").arranged(order)
    centres = mesh.cell_centroids
    field = mesh.cells.field("q", 3, data=np.stack([centres[:, 0], centres[:, 1], centres.sum(axis=1)], axis=1))
    field.relayout("soa" if order == "given" else "aosoa4")
    cells = drawn(ml.plot(field, component=1), "PolyCollection")
    middles = np.array([path.vertices[:3].mean(axis=0) for path in cells.get_paths()])
    np.testing.assert_allclose(cells.get_array(), middles[:, 1], rtol=1e-12)
    assert len(middles) == 60


@pytest.mark.parametrize("kind", ["triangle", "quad"])
def test_nodes_are_smooth(kind: str) -> None:
    mesh = ml.generate.box((4, 3), cells=kind)
    field = linear(mesh)
    surface = drawn(ml.plot(field), "TriMesh")
    assert np.array_equal(surface.get_array(), field.numpy()) and len(surface._triangulation.triangles) == 24


def test_vectors_on_meshes_have_arrows_and_on_grids_streamlines() -> None:
    mesh = ml.generate.box((10, 10))
    x = mesh.coordinates.numpy()
    velocity = mesh.nodes.field("velocity", 2, data=np.stack([0.5 - x[:, 1], x[:, 0] - 0.5], axis=1))
    figure = ml.plot(velocity)
    arrows = drawn(figure, "Quiver")
    np.testing.assert_allclose(
        np.stack([arrows.U, arrows.V], axis=1), np.stack([0.5 - arrows.Y, arrows.X - 0.5], axis=1)
    )
    assert len(arrows.U) > 40 and figure.get_suptitle() == "|velocity|"
    assert not [one for one in ml.plot(velocity, arrows=False).axes[0].collections if type(one).__name__ == "Quiver"]
    across = drawn(ml.plot(velocity, component="x"), "TriMesh").get_array()
    np.testing.assert_allclose(across, 0.5 - x[:, 1])

    grid = ml.Grid((12, 12))
    a, b = grid.meshgrid()
    flow = ml.plot(grid.field("flow", 2, data=np.stack([0.5 - b, a - 0.5], axis=-1)))
    np.testing.assert_allclose(drawn(flow, "QuadMesh").get_array(), np.hypot(a - 0.5, b - 0.5).T)
    assert len(drawn(flow, "LineCollection").get_segments()) > 20


def test_faces_and_boundaries_in_the_plane() -> None:
    mesh = ml.generate.box((4, 3))
    inner = ml.plot(mesh.faces.field("flux", data=np.arange(float(len(mesh.faces))))).axes[0].collections[-1]
    assert np.array_equal(inner.get_array(), np.arange(float(len(mesh.faces))))
    side = mesh.boundary("ymax")
    edges = ml.plot(side.field("heat", data=[1.0, 2.0, 3.0, 4.0])).axes[0].collections[-1]
    assert edges.get_array().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert all((segment[:, 1] == 1.0).all() for segment in edges.get_segments())


def test_parts_of_sets_are_drawn_alone() -> None:
    mesh = ml.generate.box((4, 4))
    right = mesh.cells.subset(mesh.cell_centroids[:, 0] > 0.5)
    cells = drawn(ml.plot(right.field("u", data=np.arange(8.0))), "PolyCollection")
    assert cells.get_array().tolist() == list(range(8))
    assert min(path.vertices[:, 0].min() for path in cells.get_paths()) == 0.5
    some = mesh.nodes.subset([0, 7, 11])
    dots = drawn(ml.plot(some.field("v", data=[1.0, 5.0, 2.0])), "PathCollection")
    assert np.array_equal(dots.get_offsets(), mesh.coordinates.numpy()[[0, 7, 11]])
    grid = ml.Grid((3, 3), ghosts=1)
    corner = grid.subset([0, 8])
    image = drawn(ml.plot(corner.field("w", data=[4.0, 6.0])), "QuadMesh").get_array()
    assert np.isfinite(image).sum() == 2 and image[0, 0] == 4.0 and image[2, 2] == 6.0


def test_one_axis_and_sets_without_places_are_curves() -> None:
    grid = ml.Grid(11, extent=2.0)
    (curve,) = ml.plot(grid.field("u", data=grid.coordinates[0] ** 2)).axes[0].lines
    assert np.array_equal(curve.get_xdata(), grid.coordinates[0]) and curve.get_ydata()[-1] == 4.0
    figure = ml.plot(ml.Set(5, "rows").field("q", 2, data=np.arange(10.0).reshape(5, 2)))
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    assert figure.axes[0].get_xlabel() == "number of rows"
    placed = ml.Set(3, "buoys", points=np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 0.0]]))
    assert drawn(ml.plot(placed.field("h", data=[1.0, 2.0, 3.0])), "PathCollection").get_array().tolist() == [1, 2, 3]


def test_the_mesh_itself() -> None:
    mesh = ml.generate.box((3, 2), cells="triangle")
    figure = ml.plot(mesh)
    inner, *groups = figure.axes[0].collections
    assert len(inner.get_segments()) == len(mesh.faces) and [len(one.get_segments()) for one in groups] == [2, 2, 3, 3]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == list(mesh.groups)
    endless = ml.plot(mesh.periodic({"xmin": "xmax", "ymin": "ymax"}))  # without a group to name, and a warning of it
    assert endless.axes[0].get_legend() is None
    solid = ml.plot(ml.generate.box((2, 2, 2), cells="tetrahedron"))
    assert solid.axes[0].get_legend().get_texts()[0].get_text() == "xmin"


# ----- colours ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "name", "ends"),
    [
        ([-1.0, 0.5], "RdBu_r", (-1.0, 1.0)),  # both signs: about zero
        ([1.0, 3.0], "viridis", (1.0, 3.0)),
        ([-3.0, -1.0], "viridis", (-3.0, -1.0)),
        ([-1e-3, 1.0], "viridis", (-1e-3, 1.0)),  # hardly below zero
        ([2.0, 2.0], "viridis", (1.0, 3.0)),  # all the same
        ([0.0, 0.0], "viridis", (-0.5, 0.5)),
        ([np.nan, 5.0, np.inf, 7.0], "viridis", (5.0, 7.0)),
    ],
)
def test_colours_fit_the_values(values: list[float], name: str, ends: tuple[float, float]) -> None:
    mesh = ml.generate.box((len(values), 1))
    cells = drawn(ml.plot(mesh.cells.field("u", data=values)), "PolyCollection")
    assert cells.get_cmap().name == name and cells.get_clim() == ends
    assert len(cells.get_array()) == np.isfinite(values).sum()


def test_limits_and_colours_of_ones_own() -> None:
    mesh = ml.generate.box((4, 1))
    field = mesh.cells.field("u", data=[0.0, 1.0, 2.0, 10.0])
    figure = ml.plot(
        field, limits=(0.0, 2.0), cmap="magma", label="u in m/s", title="mine", window=(0.0, 0.6, 0.0, 1.0)
    )
    cells = drawn(figure, "PolyCollection")
    assert cells.get_clim() == (0.0, 2.0) and cells.get_cmap().name == "magma" and len(cells.get_array()) == 3
    assert figure.axes[1].get_ylabel() == "u in m/s" and figure.get_suptitle() == "mine"


@pytest.mark.parametrize("title", [None, "mine", ""])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_label_stands_for_the_name_of_the_field_wherever_that_stands(dim: int, title: str | None) -> None:
    """On meshes, of numbers and of vectors, and of curves; a title is what was given."""
    mesh = ml.generate.box((3, 2))
    field = mesh.cells.field("p", dim, data=np.ones((6, dim)).squeeze()) if dim < 3 else ml.Set(6, "s").field("p", dim)
    figure = ml.plot(field, label="pressure, Pa", title=title)
    assert figure.get_suptitle() == ("pressure, Pa" if title is None else title)
    assert "pressure, Pa" in {axes.get_ylabel() for axes in figure.axes}


def test_nothing_but_nan_says_so() -> None:
    mesh = ml.generate.box((2, 2))
    for field in (mesh.cells.field("u", data=np.full(4, np.nan)), mesh.nodes.field("u", data=np.full(9, np.nan))):
        (axes,) = ml.plot(field).axes
        assert "no value anywhere" in axes.texts[0].get_text()


# ----- files, axes of others --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_save(tmp_path: Path, ending: str, begins: bytes) -> None:
    path = tmp_path / f"u.{ending}"
    path.write_bytes(b"old")
    ml.plot(linear(ml.generate.box((2, 2))), save=path)
    assert path.read_bytes().startswith(begins) and list(tmp_path.iterdir()) == [path]


def test_on_axes_of_somebody_else() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    field = linear(ml.generate.box((2, 2)))
    assert ml.plot(field, ax=right) is figure and not left.collections and right.get_title() == "u"


def test_notebooks_show_it() -> None:
    assert ml.plot(linear(ml.generate.box((2, 2))))._repr_png_().startswith(b"\x89PNG")


# ----- what is refused --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def fields() -> dict[str, Any]:
    plane, space, grid = ml.generate.box((2, 2)), ml.generate.box((2, 2, 2)), ml.Grid((4, 4))
    return {
        "plane": plane, "space": space, "grid": grid, "u": plane.cells.field("u"), "q": plane.cells.field("q", 4),
        "g": plane.cells.field("g", (2, 2)), "w": space.cells.field("w"), "f": space.faces.field("f"),
        "b": space.boundary_faces.field("b"), "p": grid.field("p"),
        "empty": plane.cells.subset([]).field("empty"),
        "pair": ml.Set(3, "buoys", points=np.zeros((3, 2))).field("pair", 2),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("q", {}, "field q has 4 values at each of cells: say which to draw, component=0"),
        ("pair", {}, "field pair has 2 values at each of buoys: say which to draw, component=0, component=1$"),
        ("q", {"component": 4}, "component=4: field q has 0 to 3"),
        ("q", {"component": "x"}, "field q is no vector of x, y, z; give a number"),
        ("q", {"component": True}, "component=True: field q has 0 to 3"),
        ("g", {"component": (0, 2)}, r"component=\(0, 2\): field g has \(0, 0\) to \(1, 1\)"),
        ("u", {"cut": "z"}, "cut= has no meaning here: the mesh is plane"),
        ("u", {"surface": True}, "surface= has no meaning here: the mesh is plane"),
        ("w", {"cut": ("z", 7)}, "cut at z = 7: the mesh reaches from 0 to 1 along z"),
        ("w", {"cut": "q"}, 'cut must be an axis, "x", "y" or "z"'),
        ("w", {"cut": ("z", np.nan)}, "the place of a cut must be a number"),
        ("w", {"surface": "xmim"}, "did you mean 'xmin'"),
        ("w", {"surface": 3}, "surface must be True, or names of boundary groups, got 3"),
        ("w", {"surface": True, "cut": "z"}, "cut= has no meaning here: a surface is asked for"),
        ("w", {"view": (1, 1, 1)}, "view= has no meaning here"),
        ("w", {"surface": True, "view": (0, 0, 0)}, r"\(0, 0, 0\) is none"),
        ("f", {}, "interior faces of a mesh in space cannot be drawn"),
        ("b", {"cut": "x"}, "boundary faces are a surface"),
        ("p", {"surface": True}, "grid is a grid"),
        ("p", {"cut": "x"}, "grid is plane"),
        ("empty", {}, "has no elements"),
        ("u", {"limits": (1, 0)}, "low < high"),
        ("u", {"limits": 3}, "limits must be"),
        ("u", {"limits": np.array([1j, 2.0])}, "limits must be"),
        ("u", {"window": (0, 1, 1, 0)}, "each pair ascending"),
        ("u", {"cmap": "virids"}, "no colour map 'virids'; did you mean 'viridis'"),
        ("u", {"label": 3}, "label must be a text"),
        ("u", {"arrows": "no"}, "arrows must be True or False"),
        ("u", {"ax": 3}, "ax must be axes of matplotlib"),
        ("u", {"save": "u.gif"}, "must end in .png, .pdf, .svg"),
        ("u", {"save": "nowhere/u.png"}, "there is no folder nowhere"),
        ("u", {"save": 3}, "save must be the name of a file"),
        ("plane", {"component": 0}, "component= is for fields"),
        ("plane", {"limits": (0, 1)}, "limits= is for fields"),
        ("plane", {"cmap": "viridis"}, "cmap= is for fields"),
        ("plane", {"label": "m"}, "label= is for fields"),
        ("plane", {"cut": "z"}, "it is fields that are cut"),
        ("grid", {}, "draws a Field or a Mesh"),
    ],
)
def test_refused_in_one_line(fields: dict[str, Any], name: str, options: Any, message: str, tmp_path: Path,
                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as refused:
        ml.plot(fields[name], **options)
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_arrays_are_told_how_to_become_fields() -> None:
    with pytest.raises(UserError, match=r"got an array; make it a field of its set"):
        ml.plot(np.zeros(3))  # type: ignore[arg-type]


def test_a_mesh_that_is_gone() -> None:
    field = ml.generate.box((2, 2, 2)).cells.field("u")
    with pytest.raises(UserError, match="belongs to no mesh that is still there"):
        ml.plot(field)
