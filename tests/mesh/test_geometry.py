"""Volumes, centroids and area vectors against independent formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.mesh.corners import corner_volumes
from meshloom.mesh.geometry import area_vectors, cell_centroids, cell_volumes, face_centroids

CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)], float)


def trilinear_moments(x: np.ndarray) -> tuple[float, np.ndarray]:
    """Volume and first moment of one hexahedron by a quadrature of higher order than needed."""
    points, weights = np.polynomial.legendre.leggauss(4)
    points, weights = 0.5 * (points + 1.0), 0.5 * weights
    volume, moment = 0.0, np.zeros(3)
    for index in np.ndindex(4, 4, 4):
        at = points[list(index)]
        factors = np.where(CORNERS == 1, at, 1.0 - at)
        slopes = [(2 * CORNERS[:, a] - 1) * np.delete(factors, a, axis=1).prod(axis=1) for a in range(3)]
        weight = np.linalg.det(np.array(slopes) @ x) * weights[list(index)].prod()
        volume += weight
        moment += weight * (factors.prod(axis=1) @ x)
    return volume, moment


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_warped_hexahedron(seed: int) -> None:
    x = CORNERS + np.random.default_rng(seed).uniform(-0.3, 0.3, (8, 3))
    volume, moment = trilinear_moments(x)
    cell = np.arange(8)[None]
    assert cell_volumes(x, cell, "hexahedron")[0] == pytest.approx(volume, rel=1e-12)
    np.testing.assert_allclose(cell_centroids(x, cell, "hexahedron")[0], moment / volume, rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_tetrahedron_is_a_determinant(seed: int) -> None:
    x = np.random.default_rng(seed).random((4, 3))
    expected = np.linalg.det(x[1:] - x[0]) / 6
    assert cell_volumes(x, np.arange(4)[None], "tetrahedron")[0] == pytest.approx(expected, rel=1e-9, abs=1e-15)
    np.testing.assert_allclose(cell_centroids(x, np.arange(4)[None], "tetrahedron")[0], x.mean(axis=0))


def test_arrow_head_quadrilateral() -> None:
    x = np.array([(0.0, 0.0), (2.0, 0.0), (0.5, 0.5), (0.0, 2.0)])  # concave at (0.5, 0.5)
    cell = np.arange(4)[None]
    assert cell_volumes(x, cell, "quad")[0] == pytest.approx(1.0)
    np.testing.assert_allclose(cell_centroids(x, cell, "quad")[0], [0.5, 0.5])  # two triangles of area 1/2
    assert (corner_volumes(x, cell, "quad")[0] < 0).sum() == 1


def test_area_vectors_of_known_faces() -> None:
    plane = np.array([(0.0, 0.0), (3.0, 4.0)])
    np.testing.assert_array_equal(area_vectors(plane, np.array([(0, 1)])), [(-4.0, 3.0)])  # (dy, -dx), first - second
    space = np.array([(0.0, 0.0, 0.0), (2.0, 0.0, 0.0), (2.0, 3.0, 0.0), (0.0, 3.0, 0.0)])
    np.testing.assert_array_equal(area_vectors(space, np.array([(0, 1, 2)])), [(0.0, 0.0, 3.0)])
    np.testing.assert_array_equal(area_vectors(space, np.array([(0, 1, 2, 3)])), [(0.0, 0.0, 6.0)])


def test_more_cells_than_one_chunk() -> None:
    n = 40_000
    x = np.stack((np.repeat(np.arange(n + 1.0), 2), np.tile((0.0, 1.0), n + 1)), axis=1)
    cells = 2 * np.arange(n)[:, None] + np.array((0, 2, 3, 1))
    np.testing.assert_array_equal(cell_volumes(x, cells, "quad"), np.ones(n))
    np.testing.assert_allclose(cell_centroids(x, cells, "quad")[:, 0], np.arange(n) + 0.5)


def test_face_centroids_of_plane_quads_are_those_of_their_triangles():
    rng = np.random.default_rng(3)
    for _ in range(20):
        corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) + rng.uniform(-0.3, 0.3, (4, 2))
        one, other = rng.standard_normal((2, 3))
        x = corners @ np.stack([one, other])
        sizes = [np.linalg.norm(np.cross(x[b] - x[0], x[b + 1] - x[0])) for b in (1, 2)]
        expected = np.average([x[[0, 1, 2]].mean(axis=0), x[[0, 2, 3]].mean(axis=0)], axis=0, weights=sizes)
        np.testing.assert_allclose(face_centroids(x, np.array([[0, 1, 2, 3]]))[0], expected, rtol=1e-12, atol=1e-13)
    ends = rng.random((2, 2))
    np.testing.assert_allclose(face_centroids(ends, np.array([[0, 1]]))[0], ends.mean(axis=0))
