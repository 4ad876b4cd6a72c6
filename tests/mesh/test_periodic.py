"""Periodic sides: pairs of boundary faces are interior faces, whatever the cells, and what has no partner is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.generate import box
from meshloom.mesh.mesh import Mesh
from tests.mesh.samples import closure
from tests.one_line import one_line_from

ALL = {2: {"xmin": "xmax", "ymin": "ymax"}, 3: {"xmin": "xmax", "ymax": "ymin", "zmin": "zmax"}}


def made(kind: str, *, seed: int = 0, extent: float = 1.0, origin: float = 0.0) -> Mesh:
    """A box of cells whose inner nodes lie at random."""
    dim = KINDS[kind].dimension
    shape = (4, 3, 3)[:dim]
    mesh = box(shape, cells=kind, extent=[extent] * dim, origin=[origin] * dim)
    x = mesh.coordinates.numpy()
    inner = np.setdiff1d(np.arange(len(x)), mesh.lists.boundary_faces.entries)
    x[inner] += np.random.default_rng(seed).uniform(-0.03, 0.03, (len(inner), dim)) * extent
    mesh.coordinates.assign(x)
    return mesh


@pytest.mark.parametrize("kind", [*KINDS])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 99), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_box_without_a_boundary(kind: str, seed: int, scale: float) -> None:
    plain = made(kind, seed=seed, extent=scale, origin=scale)
    mesh = plain.periodic(ALL[plain.dim])
    mesh.check()
    assert len(mesh.boundary_faces) == 0 and mesh.groups == {}
    assert len(mesh.faces) == len(plain.faces) + len(plain.boundary_faces) // 2
    area = np.abs(mesh.face_normals).max()
    assert np.abs(closure(mesh)).max() < 1e-12 * area
    apart = mesh.cell_distances
    assert ((apart * mesh.face_normals).sum(axis=1) > 0).all()
    np.testing.assert_allclose(mesh.cell_to_face[:, 0] - mesh.cell_to_face[:, 1], apart, atol=1e-14 * 4 * scale)
    assert np.linalg.norm(apart, axis=1).max() < 0.7 * scale
    # The gradient of a linear function with the jump taken out: exact on every cell by least squares through all faces.
    slope = np.array((1.0, -2.0, 0.5)[: mesh.dim])
    normal = np.zeros((len(mesh.cells), mesh.dim, mesh.dim))
    right = np.zeros((len(mesh.cells), mesh.dim))
    for end, sign in ((0, 1.0), (1, -1.0)):
        np.add.at(normal, mesh.face_cells.indices[:, end], apart[:, :, None] * apart[:, None, :])
        np.add.at(right, mesh.face_cells.indices[:, end], sign * apart * (sign * (apart @ slope))[:, None])
    found = np.linalg.solve(normal / scale**2, (right / scale**2)[:, :, None])[:, :, 0]
    np.testing.assert_allclose(found, np.tile(slope, (len(found), 1)), rtol=1e-10)


@pytest.mark.parametrize("order", ["hilbert", "random", "rcm", "color"])
@pytest.mark.parametrize("kind", ["triangle", "prism", "pyramid"])
def test_orders_carry_the_joints_along(kind: str, order: str) -> None:
    mesh = made(kind).periodic({"xmin": "xmax"})
    there = mesh.reordered(order)
    there.check()
    back = there.permutation
    sign = np.where(back.flipped, -1.0, 1.0)[:, None]
    np.testing.assert_allclose(back.undo("faces", sign * there.cell_distances), mesh.cell_distances, atol=1e-15)
    np.testing.assert_allclose(back.undo("faces", sign * there.face_shifts), mesh.face_shifts, atol=1e-15)
    laid = mesh.arranged(order)
    assert laid.digest == mesh.digest != made(kind).digest
    np.testing.assert_array_equal(laid.face_shifts, mesh.face_shifts)
    again = laid.opened().periodic({"xmin": "xmax"})
    assert again.digest == mesh.digest


def test_one_after_the_other_and_back(tmp_path: Path) -> None:
    plain = made("prism")
    layer = plain.periodic({"zmin": "zmax"})
    once, twice = plain.periodic(ALL[3]), layer.periodic({"xmin": "xmax", "ymax": "ymin"})
    assert len(once.faces) == len(twice.faces) and list(layer.groups) == list(plain.groups)[:4]
    assert once.opened().groups == plain.groups and len(once.opened().boundary_faces) == len(plain.boundary_faces)
    once.opened().check()
    assert plain.opened() is plain and "periodic: xmin, xmax, ymax, ymin, zmin, zmax" in repr(once)
    ml.write(tmp_path / "mesh.su2", once)
    assert ml.read(tmp_path / "mesh.su2").digest == Mesh.from_cells(
        plain.coordinates.numpy(), plain.cell_nodes.indices, "prism",
        {name: list(plain.lists.boundary_faces.taken(plain.group(name))) for name in plain.groups}).digest  # fmt: skip


@pytest.mark.parametrize("order", ["given", "random", "rcm"])
def test_opened_faces_lie_where_their_groups_say_in_any_order(order: str) -> None:
    mesh = ml.generate.box((6, 4)).periodic({"xmin": "xmax", "ymin": "ymax"}).reordered(order).opened()
    for name, axis, place in (("xmin", 0, 0.0), ("xmax", 0, 1.0), ("ymin", 1, 0.0), ("ymax", 1, 1.0)):
        assert set(mesh.boundary_centres[mesh.group(name)][:, axis]) == {place}, name


def test_neighbours_across_the_joint() -> None:
    mesh = box((4, 1)).periodic({"xmin": "xmax", "ymin": "ymax"})
    mesh.check()
    assert mesh.cell_cells.indices.tolist() == [[0, 1, 0, 3], [1, 2, 1, 0], [2, 3, 2, 1], [3, 0, 3, 2]]
    assert mesh.face_cells.indices.tolist() == [[0, 1], [1, 2], [2, 3], [0, 3], [0, 0], [1, 1], [2, 2], [3, 3]]
    np.testing.assert_allclose(mesh.cell_distances[3], [-0.25, 0.0], atol=1e-15)  # the face is at the side of cell 0
    np.testing.assert_allclose(np.abs(mesh.cell_distances[4:, 1]), 1.0)  # from a cell to itself, once round
    np.testing.assert_allclose(mesh.face_shifts[3], [-1.0, 0.0], atol=1e-15)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_waves_go_round(backend: str) -> None:
    """Upwind advection by one cell in each step comes back after so many steps."""
    ml.use(backend)
    mesh = box((8, 1), cells="quad").arranged("random").periodic({"xmin": "xmax"})
    u, flow = mesh.cells.field("u", data=np.arange(8.0)), mesh.cells.field("flow")
    normal = mesh.faces.field("normal", 2, data=mesh.face_normals)

    @ml.kernel
    def upwind(normal: ml.Read, u: ml.Read, flow: ml.Inc):
        flux = np.where(normal[0] > 0.0, u[0], u[1]) * normal[0]
        flow[0] -= flux
        flow[1] += flux

    @ml.kernel
    def step(flow: ml.ReadWrite, u: ml.ReadWrite):
        u += flow
        flow[...] = 0.0

    for turn in range(8):
        np.testing.assert_allclose(u.numpy(), np.roll(np.arange(8.0), turn))
        upwind(mesh.faces, normal, u[mesh.face_cells], flow[mesh.face_cells])
        step(mesh.cells, flow, u)


@pytest.mark.parametrize(("pairs", "why"), [
    ({"xmin": "xmxa"}, "unknown boundary group 'xmxa'; did you mean 'xmax'"), ({}, "which groups belong together"),
    ({"xmin": "xmin"}, "group xmin is named twice"), ({"xmin": "xmax", "ymin": "xmax"}, "group xmax is named twice"),
    ({"xmin": "ymin"}, "group xmin has 3 faces and group ymin 4; each needs a partner"), (3, "periodic takes names"),
    ({"xmin": 3}, "unknown boundary group 3"),
])  # fmt: skip
def test_wrong_pairs_are_one_line(pairs: Any, why: str) -> None:
    with one_line_from(MeshError, why):
        box((4, 3)).periodic(pairs)


def test_why_a_mesh_lies_as_it_does_is_still_known() -> None:
    mesh = box((20, 20), cells="triangle").arranged()
    assert str(mesh.periodic({"xmin": "xmax"}).arrangement) == str(mesh.arrangement) != str(box((2, 2)).arrangement)


def test_faces_without_a_partner_are_named_with_their_place() -> None:
    mesh = box((3, 3))
    x = mesh.coordinates.numpy()
    x[4, 1] += 0.05  # on xmin
    mesh.coordinates.assign(x)
    with one_line_from(
        MeshError, r"face \(0, 4\) of group xmin has no partner in group xmax, .* is 0.0\d+ away \(near 0, 0.19"
    ):
        mesh.periodic({"xmin": "xmax"})
    with one_line_from(MeshError, r"face .* of group xmin has no partner in group ymin, .* (away|face it)"):
        box((3, 3)).periodic({"xmin": "ymin"})
    with one_line_from(MeshError, "tolerance must be a number above 0 and up to 0.1, got 2"):
        mesh.periodic({"xmin": "xmax"}, tolerance=2)
    turned = box((2, 2, 2), cells="tetrahedron")
    y = turned.coordinates.numpy()
    y[:, 2] *= 1.0 + 0.5 * y[:, 0]
    turned.coordinates.assign(y)
    with one_line_from(MeshError, "periodic: face .* of group xmin has no partner in group xmax"):
        turned.periodic({"xmin": "xmax"})
