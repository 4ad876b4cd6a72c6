"""Meshes with cells of several kinds: faces, measures, groups and orders on random ones, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh import faces as faces_module
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.mesh import Mesh
from tests.attacks.mesh_judge import faults
from tests.mesh.mixed_samples import Cells, layered, neighbours, plane, shuffled_table, space
from tests.mesh.samples import closure, faces_as_sets, jittered
from tests.one_line import one_line_from

Maker = Callable[[int], tuple[np.ndarray, Cells]]
MAKERS: list[Maker] = [plane, space, layered]
seeds = st.integers(0, 10**6)
quick = settings(max_examples=15, deadline=None)
SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
THREE: Cells = {"quad": [[0, 1, 2, 3]], "triangle": [[1, 4, 2], [4, 5, 2]]}
BOX = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]], float)
BOTH_WAYS = SQUARE, {"quad": [[0, 1, 2, 3]], "triangle": [[0, 1, 5]]}
TWICE = SQUARE, {"quad": [[0, 1, 2, 3], [0, 1, 2, 3]]}
THRICE = np.vstack((BOX, [[0, 0, -1]])), {"prism": [[0, 2, 1, 4, 6, 5]], "tetrahedron": [[0, 1, 2, 7], [0, 1, 2, 8]]}


def volume(make: Maker) -> float:
    return 0.3 + 0.7 / 3.0 if make is layered else 1.0


@pytest.mark.parametrize("make", MAKERS)
@quick
@given(seed=seeds)
def test_random_meshes_fill_their_space(make: Maker, seed: int) -> None:
    x, table = shuffled_table(*make(seed), seed)
    mesh = Mesh.from_table(x, table)
    mesh.check()
    assert not faults(mesh)
    assert faces_as_sets(mesh) == neighbours(table)
    pairs = mesh.face_cells.indices
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert np.abs(closure(mesh)).max() < 1e-13 * np.abs(mesh.face_normals).max()
    assert (mesh.cell_volumes > 0).all() and mesh.cell_volumes.sum() == pytest.approx(volume(make), rel=1e-12)
    apart = mesh.cell_centroids[pairs[:, 1]] - mesh.cell_centroids[pairs[:, 0]]
    assert ((mesh.face_normals * apart).sum(axis=1) > 0).all()
    outward = mesh.boundary_centres - mesh.cell_centroids[mesh.boundary_cells.indices[:, 0]]
    assert ((mesh.boundary_normals * outward).sum(axis=1) > 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("make", MAKERS)
def test_measures_at_every_scale_and_place(make: Maker, scale: float) -> None:
    x, cells = make(3)
    near, far = (
        Mesh.from_cells(x, cells),
        Mesh.from_cells(scale * (x + 64.0), cells),
    )  # 64: nothing of x is rounded much
    np.testing.assert_allclose(far.cell_volumes, near.cell_volumes * scale**near.dim, rtol=1e-11)
    np.testing.assert_allclose(
        far.face_normals, near.face_normals * scale ** (near.dim - 1), atol=1e-12 * scale ** (near.dim - 1)
    )
    for name in ("cell_centroids", "face_centres", "boundary_centres"):
        np.testing.assert_allclose(getattr(far, name) / scale - 64.0, getattr(near, name), atol=1e-12)


@pytest.mark.parametrize("make", MAKERS)
def test_centroids_are_those_of_the_whole(make: Maker) -> None:
    mesh = Mesh.from_cells(*make(5))
    mean = (mesh.cell_volumes[:, None] * mesh.cell_centroids).sum(axis=0) / mesh.cell_volumes.sum()
    height = (0.3 * 0.15 + 0.7 / 3 * (0.3 + 0.7 / 4)) / volume(layered)
    expected = [0.5, 0.5, height] if make is layered else [0.5] * mesh.dim
    np.testing.assert_allclose(mean, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [*KINDS])
@pytest.mark.parametrize("make", MAKERS)
def test_compiled_code_finds_the_same_faces(make: Maker, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, table = shuffled_table(*make(7), 7)
    y, rows = jittered(kind, 1)
    plain = Mesh.from_table(x, table), Mesh.from_cells(y, rows, kind)
    monkeypatch.setattr(faces_module, "many_cells", lambda: 0)
    compiled = Mesh.from_table(x, table), Mesh.from_cells(y, rows, kind)
    assert [mesh.digest for mesh in compiled] == [mesh.digest for mesh in plain]
    for bad, why in ((BOTH_WAYS, "cells 0 and 1 overlap or are twisted"), (TWICE, "cell 1 is the same as cell 0"),
                     (THRICE, "cells 0, 1, 2 share the face")):  # fmt: skip
        with one_line_from(MeshError, why):
            Mesh.from_cells(*bad)


def test_a_warped_prism_and_pyramid_beside_a_hexahedron_leave_no_gap() -> None:
    """The bilinear sides of a hexahedron are those of what stands beside it: volumes add up to that of the hull."""
    rng = np.random.default_rng(1)
    top = np.array([[0.5, 0.5, 2.0]])
    wall = np.array([[2.0, 0.5, 0.0], [2.0, 0.5, 1.0]])
    x = np.concatenate((BOX, top, wall))
    cells = {"hexahedron": [[*range(8)]], "pyramid": [[4, 5, 6, 7, 8]], "prism": [[1, 2, 9, 5, 6, 10]]}
    plain = Mesh.from_cells(x, cells)
    x[[5, 6]] += rng.uniform(-0.2, 0.2, (2, 3))  # nodes of all three, inside no hull: compare by divergence
    mesh = Mesh.from_cells(x, cells)
    flux = (mesh.boundary_centres * mesh.boundary_normals).sum() / 3.0
    assert plain.cell_volumes.sum() == pytest.approx(1.0 + 1.0 / 3.0 + 0.5)
    assert mesh.cell_volumes.sum() == pytest.approx(flux, rel=2e-2)  # centres of warped faces are those of triangles
    assert np.abs(closure(mesh)).max() < 1e-14


def test_part_10_of_the_surface() -> None:
    """Kinds in the order given, one set of cells, subsets with maps of their own arity."""
    mesh = Mesh.from_cells(SQUARE, THREE)
    assert mesh.kind == "mixed" and {kind: list(of) for kind, of in mesh.cells.kinds.items()} == {
        "quad": [0],
        "triangle": [1, 2],
    }
    assert len(mesh.cells) == 3 and len(mesh.faces) == 2 and mesh.cell_volumes.tolist() == [1.0, 0.5, 0.5]
    assert mesh.cells.of("triangle").nodes.indices.tolist() == [[1, 4, 2], [4, 5, 2]]
    assert mesh.cell_nodes.starts.tolist() == [0, 4, 7, 10] and mesh.face_nodes.arity == 2
    assert mesh.faces.of("line").nodes.arity == 2 and list(mesh.boundary_faces.kinds) == ["line"]
    assert repr(mesh).startswith("Mesh(1 quad + 2 triangle cells, 2 faces, 6 boundary faces, 6 nodes; groups: boundary")
    assert mesh.cell_cells.starts.tolist() == [0, 4, 7, 10] and mesh.cell_cells.entries.tolist() == [
        0,
        1,
        0,
        0,
        1,
        2,
        0,
        2,
        2,
        1,
    ]
    with one_line_from(MeshError, "map cell_nodes leads to numbers of nodes that differ"):
        _ = mesh.cell_nodes.indices


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_kernel_for_the_cells_of_a_kind(backend: str) -> None:
    """As in part 10 of the public surface."""
    ml.use(backend)
    mesh = Mesh.from_cells(SQUARE, THREE)
    triangles, area = mesh.cells.of("triangle"), mesh.cells.field("area")

    @ml.kernel
    def measure(x: ml.Read, area: ml.Write):
        a, b = x[1] - x[0], x[2] - x[0]
        area[...] = 0.5 * (a[0] * b[1] - a[1] * b[0])

    measure(triangles, mesh.coordinates[triangles.nodes], area)
    assert sorted(area.numpy()) == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("order", ["given", "hilbert", "random", "rcm", "greedy", "color"])
@pytest.mark.parametrize("make", MAKERS)
def test_orders_leave_the_mesh_as_it_is(make: Maker, order: str) -> None:
    mesh = Mesh.from_cells(*make(2), cell_groups={"some": [0, 2]}, order="given")
    there = mesh.reordered(order)
    there.check()
    back = there.permutation
    np.testing.assert_array_equal(back.undo("cells", there.cell_volumes), mesh.cell_volumes)
    np.testing.assert_allclose(
        back.undo("faces", np.where(back.flipped, -1, 1)[:, None] * there.face_normals), mesh.face_normals
    )
    assert {kind: len(of) for kind, of in there.cells.kinds.items()} == {
        kind: len(of) for kind, of in mesh.cells.kinds.items()
    }
    for kind, of in there.cells.kinds.items():
        assert np.isin(back.cells[np.asarray(of)], np.asarray(mesh.cells.kinds[kind])).all()
        assert there.cells.of(kind).nodes.source.whole is there.cells
    laid = mesh.arranged(order)
    assert laid.digest == mesh.digest and (order == "given" or there.digest != mesh.digest or order == "color")
    volumes = laid.cells.field("volume", data=laid.cell_volumes)
    np.testing.assert_array_equal(
        volumes.numpy()[:, 0] if volumes.numpy().ndim == 2 else volumes.numpy(), mesh.cell_volumes
    )


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("order", ["given", "random"])
def test_loops_by_kind_through_faces_and_through_varying_maps(backend: str, order: str) -> None:
    @ml.kernel
    def outflow(normal: ml.Read, total: ml.Inc):
        total[0] += normal
        total[1] -= normal

    @ml.kernel
    def leave(normal: ml.Read, total: ml.Inc):
        total[0] += normal

    @ml.kernel
    def mean(x: ml.Read, middle: ml.Write):
        for axis in range(3):
            middle[axis] = np.sum(x[:, axis]) / x.shape[0]

    @ml.kernel
    def mean_of_kind(x: ml.Read, middle: ml.Write):
        middle[...] = sum(x[k] for k in range(len(x))) / len(x)

    ml.use(backend)
    mesh = Mesh.from_cells(*space(1)).arranged(order)
    total = mesh.cells.field("total", 3)
    outflow(mesh.faces, mesh.faces.field("normal", 3, data=mesh.face_normals), total[mesh.face_cells])
    for name in mesh.groups:
        side = mesh.boundary(name)
        leave(side, side.normal, total[side.cells])
    assert np.abs(total.numpy()).max() < 1e-15
    middle, by_kind = mesh.cells.field("middle", 3), mesh.cells.field("by kind", 3)
    mean(mesh.cells, mesh.coordinates[mesh.cell_nodes], middle)
    for kind in mesh.cells.kinds:
        part = mesh.cells.of(kind)
        mean_of_kind(part, mesh.coordinates[part.nodes], by_kind)
    np.testing.assert_allclose(middle.numpy(), mesh.cells.points, rtol=1e-13)
    np.testing.assert_allclose(by_kind.numpy(), middle.numpy(), rtol=1e-13)


def test_groups_of_triangles_and_quadrilaterals() -> None:
    x, cells = layered(0)
    whole = Mesh.from_cells(x, cells)
    triangles, quads = (whole.boundary_faces.of(kind).nodes.indices for kind in ("triangle", "quad"))
    floor = triangles[(x[triangles][:, :, 2] == 0).all(axis=1)]
    roof = triangles[(x[triangles][:, :, 2] > 0).any(axis=1)]
    mesh = Mesh.from_cells(x, cells, boundary={"floor": floor, "outer": [roof, quads[:, ::-1]]}, groups={"outer": 7})
    assert list(mesh.groups) == ["floor", "outer"] and mesh.groups["outer"] == 7
    outer = mesh.boundary("outer")
    assert len(outer) == len(roof) + len(quads) and len(mesh.boundary("floor")) == len(floor)
    assert outer.nodes.starts[-1] == roof.size + quads.size
    np.testing.assert_allclose(outer.normal.numpy().sum(axis=0), [0.0, 0.0, 1.0], atol=1e-14)
    np.testing.assert_array_equal(outer.centre.numpy(), mesh.boundary_centres[mesh.group("outer")])
    rest = Mesh.from_cells(x, cells, boundary={"floor": floor.tolist(), "sides": [*quads.tolist(), roof[0].tolist()]})
    assert list(rest.groups) == ["floor", "sides", "boundary"] and len(rest.boundary("boundary")) == len(roof) - 1


def test_given_parts_are_taken_as_they_are() -> None:
    mesh = Mesh.from_cells(*space(4))
    lists = mesh.lists
    again = Mesh.from_parts(
        mesh.coordinates.numpy(), list(lists.cells.nodes), list(lists.faces), mesh.face_cells.indices,
        list(lists.boundary_faces), mesh.boundary_cells.indices, mesh.boundary_group.numpy(),
        kind={kind: np.asarray(of) for kind, of in mesh.cells.kinds.items()}, groups=mesh.groups,
    )  # fmt: skip
    again.check()
    assert again.digest == mesh.digest


@pytest.mark.parametrize(("x", "cells", "why"), [
    (SQUARE, {"quad": [[0, 1, 2, 3]], "tetrahedron": [[0, 1, 2, 3]]}, "quad cells are plane and tetrahedron cells are"),
    (SQUARE, {"quads": [[0, 1, 2, 3]]}, "unknown cell kind 'quads'; did you mean 'quad'"),
    (SQUARE, {}, "at least one cell"), (SQUARE, {"quad": []}, "at least one cell"),
    (SQUARE, {"quad": [[0, 1, 2]]}, r"quad cells: expected shape \(n, 4\), got \(1, 3\)"),
    (SQUARE, {"quad": [[0, 1, 2, 3], [1, 4, 5]]}, r"quad cells: expected shape \(n, 4\), got \(1, 3\)"),
    (SQUARE, {"polygon": [[0, 1]]}, "polygon cells: expected at least 3 nodes each"),
    (SQUARE, THREE | {"triangle": [[1, 4, 2], [4, 5, 7]]}, r"cell 2 has nodes \(4, 5, 7\), but nodes go from 0 to 5"),
    (SQUARE, THREE | {"triangle": [[1, 4, 2], [4, 5, 4]]}, r"cell 2 names a node twice: \(4, 5, 4\)"),
    (SQUARE, THREE | {"triangle": [[1, 4, 2], [0, 1, 4]]}, r"cell 2 has no area: nodes \(0, 1, 4\)"),
    (SQUARE, THREE | {"polygon": [[3, 2, 1, 0]]}, "cell 3 is the same as cell 0"),
    (SQUARE, {"polygon": [[0, 4, 5, 1, 2, 3]]}, "cell 0 is folded over: .* do not go around a polygon"),
    (*TWICE, "cell 1 is the same as cell 0"), (*BOTH_WAYS, "cells 0 and 1 overlap or are twisted"),
    (*THRICE, "cells 0, 1, 2 share the face"),
    (BOX, {"prism": [[0, 1, 2, 5, 4, 6]]}, "cell 0 is folded over: .* a prism"),
    (BOX, {"pyramid": [[0, 2, 1, 3, 4]]}, "cell 0 (is folded over|has no volume)"),
    (BOX, {"pyramid": [[0, 1, 2, 3, 0]]}, "cell 0 names a node twice"),
    (BOX, {"prism": [[0.0, 1, 2, 4, 5, 6]]}, "prism cells must be integers"),
    (BOX[:, :2], {"prism": [[0, 1, 2, 4, 5, 6]]}, r"prism cells need coordinates of shape \(n, 3\)"),
    (BOX, {3: [[0, 1, 2, 4]]}, "unknown cell kind 3"),
    (BOX, {"prism": "abc"}, "prism cells: expected real numbers"),
])  # fmt: skip
def test_bad_cells_are_one_line(x: np.ndarray, cells: Any, why: str) -> None:
    with one_line_from(MeshError, why):
        Mesh.from_cells(x, cells)


def test_wrong_words_are_one_line() -> None:
    with one_line_from(MeshError, "the cells are given by kind already, quad, triangle; leave out kind='quad'"):
        Mesh.from_cells(SQUARE, THREE, "quad")
    with one_line_from(MeshError, "which kind of cell is it"):
        Mesh.from_cells(SQUARE, [[0, 1, 2, 3]])
    x, cells = layered(0)
    with one_line_from(
        MeshError, r"boundary group wall: expected node numbers of shape \(n, 3\) or \(n, 4\), got \(1, 5\)"
    ):
        Mesh.from_cells(x, cells, boundary={"wall": [[0, 1, 2, 3, 4]]})
    with one_line_from(MeshError, r"boundary group wall: face \(0, 1, 2, 12\) is not on the boundary"):
        Mesh.from_cells(x, cells, boundary={"wall": [np.array([[0, 1, 2, 12]])]})
