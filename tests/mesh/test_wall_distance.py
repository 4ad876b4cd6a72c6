"""Distances to walls against brute force: every point to every face."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.mesh.measured import face_distances
from meshloom.native import threads
from meshloom.native.distance import distances
from tests.mesh.samples import jittered, triangulation
from tests.one_line import one_line_from


def to_segment(p: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The nearest point is a + t (b - a), t by least squares, or an end."""
    along = b - a
    share = np.clip(np.linalg.lstsq(along[:, None], p - a, rcond=None)[0][0], 0.0, 1.0) if along.any() else 0.0
    return float(np.linalg.norm(p - a - share * along))


def to_piece(p: np.ndarray, corners: np.ndarray) -> float:
    """A segment (2, 2), or a triangle (3, 3): the nearest point of its plane by least squares, or of its edges."""
    if len(corners) == 2:
        return to_segment(p, *corners)
    spanned = (corners[1:] - corners[0]).T
    shares = np.linalg.lstsq(spanned, p - corners[0], rcond=None)[0]
    if shares.min() >= 0.0 and shares.sum() <= 1.0:
        return float(np.linalg.norm(p - corners[0] - spanned @ shares))
    return min(to_segment(p, corners[k], corners[k - 1]) for k in range(3))


def brute(points: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    return np.array([min(to_piece(p, corners) for corners in pieces) for p in points])


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 3), st.integers(1, 30), st.integers(0, 2**31), st.sampled_from([1e-6, 1.0, 1e6]), st.booleans())
def test_every_point_against_every_piece(dim: int, count: int, seed: int, scale: float, thin: bool) -> None:
    rng = np.random.default_rng(seed)
    pieces = rng.normal(size=(count, dim, dim))
    if thin:  # long and narrow, all in one direction, as in a layer at a wall
        pieces = pieces * np.array([1.0, 1e-4, 0.3])[:dim]
    points = rng.normal(size=(6, dim))
    found = distances(scale * points, scale * pieces)
    assert np.allclose(found, scale * brute(points, pieces), rtol=1e-9, atol=1e-12 * scale)


def test_pieces_without_extent() -> None:
    point = np.array([[0.0, 2.0, 0.0]])
    flat = np.array([[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]])
    assert distances(point, flat) == distances(point, np.zeros((1, 3, 3))) == 2.0
    assert distances(np.array([[3.0, 4.0]]), np.zeros((1, 2, 2))) == 5.0


@pytest.mark.parametrize("kind", ["triangle", "quad", "tetrahedron", "hexahedron"])
def test_cells_of_a_mesh(kind: str) -> None:
    x, cells = jittered(kind, 3)
    mesh = ml.Mesh.from_cells(x, cells, kind)
    walls = mesh.boundary_nodes.indices
    points = mesh.cell_centroids
    if kind == "hexahedron":  # the sides of a box are plane: any two triangles do
        walls = np.concatenate([walls[:, (0, 1, 2)], walls[:, (0, 2, 3)]])
    few = slice(None, None, len(points) // 12)
    assert np.allclose(mesh.wall_distance("boundary")[few], brute(points[few], x[walls]), rtol=1e-12)
    box = np.minimum(points - x.min(axis=0), x.max(axis=0) - points).min(axis=1)
    assert np.allclose(mesh.wall_distance("boundary"), box, rtol=1e-12)


def test_named_groups_count_alone() -> None:
    mesh = ml.generate.box((7, 5))
    sides = [name for name in mesh.groups if len(mesh.group(name))]
    each = {name: mesh.wall_distance(name) for name in sides}
    assert len(sides) == 4
    assert np.array_equal(mesh.wall_distance(*sides[:2]), np.minimum(each[sides[0]], each[sides[1]]))
    shuffled = mesh.reordered("random")
    assert np.allclose(shuffled.wall_distance(sides[0])[shuffled.permutation.inverse("cells")], each[sides[0]])


def test_a_warped_quadrilateral_is_its_triangles_round_the_middle() -> None:
    x = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    assert face_distances(np.array([[0.5, 0.5, 2.5]]), x, [np.array([[0, 1, 2, 3]])]) < 2.0
    middle = face_distances(np.array([[0.5, 0.5, 0.5]]), x, [np.array([[0, 1, 2, 3]])])
    assert middle == 0.0


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x, cells = triangulation(2000, 5)
    mesh = ml.Mesh.from_cells(x, cells, "triangle")
    alone = mesh.wall_distance("boundary")
    monkeypatch.setattr(threads, "in_use", np.array([3]))
    assert np.array_equal(alone, mesh.wall_distance("boundary"))


def test_wrong_groups_are_refused_in_one_line() -> None:
    mesh = ml.generate.box((3, 3))
    name = next(iter(mesh.groups))
    with one_line_from(ml.errors.MeshError, name):
        mesh.wall_distance(name + "x")
    with one_line_from(ml.errors.MeshError, "no group is named"):
        mesh.wall_distance()
    empty = ml.Mesh.from_cells(*triangulation(5, 1), "triangle", {"wall": np.zeros((0, 2), int)})
    with one_line_from(ml.errors.MeshError, "'wall' has no faces"):
        empty.wall_distance("wall")
    with one_line_from(ml.errors.MeshError, "pieces"):
        distances(np.zeros((1, 2)), np.zeros((0, 2, 2)))
