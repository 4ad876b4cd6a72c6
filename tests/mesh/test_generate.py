"""Generators: the reference airfoil mesh to the last digit, and boxes of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshloom.errors import MeshError
from meshloom.mesh import generate
from meshloom.mesh.generate import box, naca0012, ramp
from meshloom.mesh.mesh import Mesh
from tests.mesh.samples import closure

NI, NJ = 20, 30
#: Nodes, cells, faces and boundary faces of the reference file of that size, and the rms the original program
#: computes on it in its first iterations (compiled without fused multiply-add).
SIZES = [1891, 1800, 3530, 140]
RMS = [
    0.006519696136628172, 0.0058649515258419, 0.005197171326130124, 0.0045381631314947305, 0.0039080602714531495,
    0.0033255169228396924, 0.002807804770217482, 0.002370959612360098, 0.00202866889783739, 0.001788696728104014,
]  # fmt: skip


@pytest.fixture(scope="module")
def airfoil() -> Mesh:
    return naca0012(NI, NJ)


def reference_faces(i_max: int, j_max: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Interior faces (2 nodes, 2 cells) and boundary faces (2 nodes, cell, group), by the words of the format."""

    def node(i: int, j: int) -> int:
        return i + j * (3 * i_max + 1)

    def cell(i: int, j: int) -> int:
        return i + j * 3 * i_max

    inner, outer = [], []
    for j in range(j_max):
        for i in range(3 * i_max):
            if j == 0 and i < i_max:
                inner.append((node(i, 0), node(i + 1, 0), cell(3 * i_max - 1 - i, 0), cell(i, 0)))
            if j < j_max - 1:
                inner.append((node(i, j + 1), node(i + 1, j + 1), cell(i, j), cell(i, j + 1)))
            if i < 3 * i_max - 1:
                inner.append((node(i + 1, j), node(i + 1, j + 1), cell(i + 1, j), cell(i, j)))
    last = 3 * i_max
    outer += [(node(i + 1, 0), node(i, 0), cell(i, 0), 1) for i in range(i_max, 2 * i_max)]
    outer += [(node(last, j + 1), node(last, j), cell(last - 1, j), 2) for j in range(j_max)]
    outer += [(node(i, j_max), node(i + 1, j_max), cell(i, j_max - 1), 2) for i in reversed(range(last))]
    outer += [(node(0, j), node(0, j + 1), cell(0, j), 2) for j in reversed(range(j_max))]
    return inner, outer


@pytest.mark.parametrize("i, j", [(2, 1), (3, 2), (5, 4)])
def test_airfoil_numbering(i: int, j: int) -> None:
    mesh = naca0012(i, j)
    inner, outer = reference_faces(i, j)
    assert np.hstack((mesh.face_nodes.indices, mesh.face_cells.indices)).tolist() == [list(row) for row in inner]
    groups = mesh.boundary_group.numpy()[:, None]
    found = np.hstack((mesh.boundary_nodes.indices, mesh.boundary_cells.indices, groups))
    assert found.tolist() == [list(row) for row in outer]
    width = 3 * i + 1
    assert mesh.cell_nodes.indices[3 * i * (j - 1)].tolist() == [
        width * (j - 1), width * (j - 1) + 1, width * j + 1, width * j,
    ]  # fmt: skip


def test_airfoil_sizes_and_geometry(airfoil: Mesh) -> None:
    sizes = [len(s) for s in (airfoil.nodes, airfoil.cells, airfoil.faces, airfoil.boundary_faces)]
    assert sizes == SIZES
    assert airfoil.groups == {"wall": 1, "farfield": 2}
    assert len(airfoil.group("wall")) == NI
    assert np.abs(closure(airfoil)).max() < 1e-14
    assert np.abs(closure(naca0012(NI, NJ, decimals=None))).max() < 1e-14
    assert (airfoil.cell_volumes > 0).all()
    x = airfoil.coordinates.numpy()
    assert (x.min(axis=0).tolist(), x.max(axis=0).tolist()) == ([-9.0, -18.0], [9.0, 18.0])
    wake = np.arange(NI + 1)
    np.testing.assert_array_equal(x[wake], x[3 * NI - wake])  # the same places under other numbers
    # the trailing edge is at x = 1 of the unmapped plane, the airfoil is symmetric
    np.testing.assert_array_equal(x[NI], [1.0, 0.0])
    np.testing.assert_allclose(x[NI : 2 * NI + 1], x[NI : 2 * NI + 1][::-1] * (1, -1), atol=2e-6)


def test_airfoil_coordinates_are_those_of_a_printed_file() -> None:
    exact, rounded = naca0012(40, 60, decimals=None).coordinates.numpy(), naca0012(40, 60).coordinates.numpy()
    printed = np.array([float(f"{value:f}") for value in exact.ravel()]).reshape(exact.shape)
    np.testing.assert_array_equal(rounded, printed)
    assert not np.signbit(rounded[rounded == 0]).any()


def residuals(mesh: Mesh, iterations: int) -> list[float]:
    """The airfoil test in plain NumPy with the float constants of its C version: rms after each iteration."""
    gam, cfl, eps, mach = (float(np.float32(v)) for v in (1.4, 0.9, 0.05, 0.4))
    gm1 = gam - 1.0
    u = mach * np.sqrt(gam)
    free = np.array([1.0, u, 0.0, 1.0 / gm1 + 0.5 * u * u])
    x, n = mesh.coordinates.numpy(), len(mesh.cells)
    q = np.tile(free, (n, 1))
    side = np.roll(x[mesh.cell_nodes.indices], -1, axis=1) - x[mesh.cell_nodes.indices]
    (left, right), bound = mesh.face_cells.indices.T, mesh.boundary_cells.indices[:, 0]
    ds, db = (x[m.indices[:, 0]] - x[m.indices[:, 1]] for m in (mesh.face_nodes, mesh.boundary_nodes))
    wall = mesh.boundary_group.numpy() == 1

    def pressure(s: np.ndarray) -> np.ndarray:
        return gm1 * (s[..., 3] - 0.5 * (s[..., 1] ** 2 + s[..., 2] ** 2) / s[..., 0])

    def flux(s: np.ndarray, d: np.ndarray) -> np.ndarray:
        p, volume = pressure(s), (s[..., 1] * d[:, 1] - s[..., 2] * d[:, 0]) / s[..., 0]
        return np.stack((volume * s[..., 0], volume * s[..., 1] + p * d[:, 1], volume * s[..., 2] - p * d[:, 0],
                         volume * (s[..., 3] + p)), axis=1)  # fmt: skip

    history = []
    for _ in range(iterations):
        old = q.copy()
        for _ in range(2):
            velocity = q[:, 1:3] / q[:, :1]
            sound = np.sqrt(gam * gm1 * (q[:, 3] / q[:, 0] - 0.5 * (velocity**2).sum(axis=1)))
            speed = np.abs(velocity[:, None, 0] * side[..., 1] - velocity[:, None, 1] * side[..., 0])
            adt = (speed + sound[:, None] * np.sqrt((side**2).sum(axis=2))).sum(axis=1) / cfl
            mu = 0.5 * (adt[left] + adt[right]) * eps
            f = 0.5 * (flux(q[left], ds) + flux(q[right], ds)) + mu[:, None] * (q[left] - q[right])
            far = 0.5 * (flux(q[bound], db) + flux(np.tile(free, (len(db), 1)), db))
            far += (adt[bound] * eps)[:, None] * (q[bound] - free)
            p = pressure(q[bound])
            solid = np.stack((0 * p, p * db[:, 1], -p * db[:, 0], 0 * p), axis=1)
            res = np.zeros((n, 4))
            np.add.at(res, left, f)
            np.add.at(res, right, -f)
            np.add.at(res, bound, np.where(wall[:, None], solid, far))
            change = res / adt[:, None]
            q = old - change
        history.append(float(np.sqrt((change**2).sum() / n)))
    return history


def test_airfoil_mesh_gives_the_reference_residuals(airfoil: Mesh) -> None:
    np.testing.assert_allclose(residuals(airfoil, 10), RMS, rtol=1e-12)


def test_residuals_would_notice_unrounded_coordinates() -> None:
    found = residuals(naca0012(NI, NJ, decimals=None), 1)[0]
    assert abs(found / RMS[0] - 1) > 1e-8


@pytest.mark.parametrize("i, j", [(1, 5), (5, 0), (2.5, 3)])
def test_airfoil_sizes_are_checked(i: float, j: int) -> None:
    with pytest.raises(MeshError, match=r"naca0012: (i|j) must be a whole number from (1|2) to 2147483647, got"):
        naca0012(i, j)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shape, kind, cells, faces",
    [
        ((4, 3), "quad", 12, 17),
        ((4, 3), "triangle", 24, 29),
        ((4, 3, 2), "hexahedron", 24, 46),
        ((4, 3, 2), "tetrahedron", 144, 236),
    ],
)
def test_boxes(shape: tuple[int, ...], kind: str, cells: int, faces: int) -> None:
    extent, origin = (2.0, 3.0, 0.5)[: len(shape)], (-1.0, 5.0, 2.0)[: len(shape)]
    mesh = box(shape, cells=kind, extent=extent, origin=origin)
    assert (len(mesh.cells), len(mesh.faces)) == (cells, faces)
    assert mesh.cell_volumes.sum() == pytest.approx(np.prod(extent), rel=1e-13)
    assert np.abs(closure(mesh)).max() < 1e-14
    for axis, letter in enumerate("xyz"[: len(shape)]):
        for end, value in (("min", origin[axis]), ("max", origin[axis] + extent[axis])):
            side = mesh.group(letter + end)
            np.testing.assert_array_equal(mesh.coordinates.numpy()[mesh.boundary_nodes.indices[side]][..., axis], value)
            area = np.abs(mesh.boundary_normals[side]).sum()
            assert area == pytest.approx(np.prod(extent) / extent[axis], rel=1e-13)
    assert sum(len(mesh.group(name)) for name in mesh.groups) == len(mesh.boundary_faces)


def test_defaults_and_numbering() -> None:
    assert box((2, 2)).kind == "quad" and box((2, 2, 2)).kind == "hexahedron"
    assert box((2, 2)).cell_nodes.indices.tolist() == [[0, 1, 4, 3], [1, 2, 5, 4], [3, 4, 7, 6], [4, 5, 8, 7]]
    assert box((1, 1, 1)).cell_nodes.indices.tolist() == [[0, 1, 3, 2, 4, 5, 7, 6]]
    assert box((2, 1), cells="triangle").cell_nodes.indices.tolist() == [[0, 1, 4], [0, 4, 3], [1, 2, 5], [1, 5, 4]]


def test_alternate_diagonals() -> None:
    mesh = box((2, 2), cells="triangle", alternate=True)
    diagonals = {tuple(sorted(nodes)) for nodes in mesh.face_nodes.indices.tolist()}
    assert {(0, 4), (2, 4), (4, 6), (4, 8)} <= diagonals
    assert mesh.cell_volumes.tolist() == [0.125] * 8


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"shape": (3,)}, r"shape must be two or three whole numbers from 1, got \(3,\)"),
        ({"shape": (3, 0)}, "whole numbers from 1"),
        ({"shape": (3, 2.5)}, "whole numbers from 1"),
        ({"shape": (3, 2), "cells": "hexahedron"}, "hexahedron cells do not fit 2-D; allowed: triangle, quad"),
        ({"shape": (3, 2), "cells": "quads"}, "unknown cell kind 'quads'; did you mean 'quad'"),
        ({"shape": (3, 2), "extent": (1.0, 0.0)}, "extent must be positive"),
        ({"shape": (3, 2), "extent": (1.0, 1.0, 1.0)}, "extent must be 2 finite numbers"),
        ({"shape": (3, 2), "origin": (0.0, np.nan)}, "origin must be 2 finite numbers"),
        ({"shape": (3, 2), "alternate": True}, "alternate diagonals are for triangles"),
    ],
)
def test_wrong_boxes_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        box(**arguments)


def test_channel_with_a_ramp() -> None:
    nx, ny, nz, slope = 6, 3, 2, 0.25
    mesh = ramp((nx, ny, nz), extent=(4.0, 2.0, 3.0), slope=slope)
    assert (len(mesh.cells), mesh.kind) == (nx * ny * nz, "hexahedron")
    assert mesh.cell_volumes.sum() == pytest.approx(3.0 * (4.0 * 2.0 - 0.5 * 2.0 * 2.0 * slope), rel=1e-14)
    assert np.abs(closure(mesh)).max() < 1e-14
    assert mesh.cell_nodes.indices[0].tolist() == [0, 12, 15, 3, 1, 13, 16, 4], "VTK order, z first"
    steps = np.diff(mesh.cells.points.reshape(nx, ny, nz, 3), axis=2)
    np.testing.assert_allclose(steps, np.broadcast_to([0.0, 0.0, 1.5], steps.shape), atol=1e-15)
    for axis, letter in ((0, "x"), (2, "z")):
        for end, value in (("min", 0.0), ("max", (4.0, 2.0, 3.0)[axis])):
            side = mesh.boundary_nodes.indices[mesh.group(letter + end)]
            np.testing.assert_array_equal(mesh.coordinates.numpy()[side][..., axis], value)
    x, y, _ = mesh.coordinates.numpy()[mesh.boundary_nodes.indices[mesh.group("ymin")]].reshape(-1, 3).T
    np.testing.assert_allclose(y, np.maximum(0.0, slope * (x - 2.0)), atol=1e-15)
    assert len(mesh.group("ymax")) == nx * nz
    assert (ramp((1, 1, 1)).cell_volumes == 1.0).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"shape": (3, 2)}, r"ramp: shape must be three whole numbers from 1, got \(3, 2\)"),
        ({"shape": (3, 2, 1), "extent": (1.0, 1.0)}, "ramp: extent must be 3 finite numbers"),
        ({"shape": (3, 2, 1), "extent": (1.0, -1.0, 1.0)}, "ramp: extent must be positive"),
        ({"shape": (3, 2, 1), "slope": 2.0}, "a rise of 1 does not fit into the channel"),
        ({"shape": (3, 2, 1), "slope": np.nan}, "a rise of nan does not fit"),
    ],
)
def test_wrong_ramps_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        ramp(**arguments)


def test_the_spline_is_no_full_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.linalg, "solve", None)
    assert generate.naca0012(4, 3).coordinates.numpy().shape == (52, 2)


@given(st.integers(0, 2**32), st.integers(4, 40))
def test_the_spline_is_scipys(seed: int, points: int) -> None:
    """Which takes longer to import than an airfoil takes until its first iteration."""
    from scipy.interpolate import CubicSpline

    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.uniform(0.5, 1.5, points)), rng.uniform(-1.0, 1.0, points)
    at = np.concatenate([x, rng.uniform(x[0], x[-1], 20)])
    expected = CubicSpline(x, y, bc_type="not-a-knot")(at)
    np.testing.assert_allclose(generate._cubic_spline(x, y, at), expected, rtol=0, atol=1e-12)
