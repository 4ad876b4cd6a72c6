"""Mesh.check: every mesh that is made passes, whatever its shape and order; what is wrong is named."""

from __future__ import annotations

import re
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import KINDS
from meshloom.mesh.corners import corner_angles
from meshloom.mesh.generate import box, naca0012, ramp
from meshloom.mesh.mesh import Mesh
from tests.mesh.samples import as_lists, jittered, shuffled, triangulation

LENGTHS = st.floats(1e-6, 1e6)


@st.composite
def made(draw: st.DrawFn) -> Mesh:
    """Any mesh of ``generate``, small."""
    maker = draw(st.sampled_from(["box", "ramp", "naca0012"]))
    if maker == "naca0012":
        return naca0012(draw(st.integers(2, 12)), draw(st.integers(1, 8)), decimals=draw(st.sampled_from([6, None])))
    if maker == "ramp":
        shape = [draw(st.integers(1, 4)) for _ in range(3)]
        return ramp(shape, extent=[1.0, 1.0, 0.5], slope=draw(st.floats(-1.5, 1.5)))
    kind = draw(st.sampled_from([*KINDS]))
    shape = [draw(st.integers(1, 4)) for _ in range(KINDS[kind].dimension)]
    extent, origin = ([draw(numbers) for _ in shape] for numbers in (LENGTHS, st.floats(-10, 10)))
    if min(extent) < 1e-3 * max(map(abs, origin)):
        origin = [0.0] * len(shape)  # else neighbouring nodes may fall together
    return box(shape, cells=kind, extent=extent, origin=origin, alternate=kind == "triangle" and draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(mesh=made(), seed=st.integers(0, 9))
def test_what_is_made_is_sound(mesh: Mesh, seed: int) -> None:
    mesh.check()
    mesh.reordered("random", seed=seed).check()
    mesh.arranged("random", seed=seed).check()


@pytest.mark.parametrize("seed", range(3))
def test_random_and_shuffled_meshes_are_sound(seed: int) -> None:
    for kind in KINDS:
        x, cells = shuffled(*jittered(kind, seed), seed)
        Mesh.from_cells(x, cells, kind).check()
    Mesh.from_cells(*triangulation(200, seed), "triangle").check()


@pytest.mark.parametrize("kind", [*KINDS])
def test_long_thin_cells_are_sound(kind: str) -> None:
    """Boundary layers: a million times as long as thin, also turned, where coordinates are rounded."""
    dimension = KINDS[kind].dimension
    for extent in permutations((1e-6, 1.0, 1e6), dimension):
        box([2] * dimension, cells=kind, extent=extent).check()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(dimension, dimension)))[0]
    turn *= np.sign(np.linalg.det(turn))
    for extent in permutations((1e-6, 1.0, 1.0), dimension):
        flat = box([2] * dimension, cells=kind, extent=extent)
        Mesh.from_cells(flat.coordinates.numpy() @ turn.T, flat.cell_nodes.indices, kind).check()


@pytest.mark.parametrize("flat", [1.0, 0.1, 1e-2, 1e-4])
def test_flat_hexahedra_whose_nodes_slide_are_sound(flat: float) -> None:
    """Layers thinner than what their nodes are displaced by sideways: affine images of sound cells."""
    mesh = box((3, 3, 3))
    moved = mesh.coordinates.numpy() + np.random.default_rng(0).uniform(-0.2, 0.2, (64, 3)) / 3
    Mesh.from_cells(moved * [1.0, 1.0, flat], mesh.cell_nodes.indices, "hexahedron").check()


@pytest.mark.parametrize("thin", [1e-4, 1e-6])
def test_needles_are_sound(thin: float) -> None:
    """Whose solid angles are known to some digits only."""
    mesh = box((3, 3, 3), cells="tetrahedron")
    moved = mesh.coordinates.numpy() + np.random.default_rng(0).uniform(-0.08, 0.08, mesh.coordinates.numpy().shape)
    Mesh.from_cells(moved * [1.0, thin, thin], mesh.cell_nodes.indices, "tetrahedron").check()


@pytest.mark.parametrize("kind", [*KINDS])
def test_angles_fill_a_turn_inside(kind: str) -> None:
    x, cells = jittered(kind, 1)
    mesh = Mesh.from_cells(x, cells, kind)
    total = np.bincount(mesh.cell_nodes.indices.ravel(), corner_angles(x, mesh.cell_nodes.indices, kind).ravel())
    inner = np.setdiff1d(np.arange(len(x)), mesh.lists.boundary_faces.entries)
    np.testing.assert_allclose(total[inner], 2 * np.pi if mesh.dim == 2 else 4 * np.pi, rtol=1e-12)


# ---- odd shapes that are sound --------------------------------------------------------------------------------------

ARROW = np.array([(0.0, 0.0), (2.0, 1.0), (0.0, 2.0), (0.7, 1.0)])
PRISM = np.concatenate((np.column_stack((ARROW, np.zeros(4))), np.column_stack((ARROW, np.ones(4)))))


def test_arrow_heads_and_warped_sides_are_no_faults() -> None:
    Mesh.from_cells(ARROW, [[0, 1, 2, 3]], "quad").check()
    Mesh.from_cells(PRISM, [np.arange(8)], "hexahedron").check()
    twisted = box((1, 1, 1)).coordinates.numpy()
    top, angle = twisted[4:] - 0.5, 0.6  # the roof turned against the floor
    twisted[4:, 0] = 0.5 + np.cos(angle) * top[:, 0] - np.sin(angle) * top[:, 1]
    twisted[4:, 1] = 0.5 + np.sin(angle) * top[:, 0] + np.cos(angle) * top[:, 1]
    Mesh.from_cells(twisted, box((1, 1, 1)).cell_nodes.indices, "hexahedron").check()


def test_a_blast_like_distortion_is_sound() -> None:
    """Hexahedra squeezed against a sphere, as LULESH's are late in a run."""
    mesh = box((8, 8, 8))
    x = mesh.coordinates.numpy()
    radius = np.maximum(np.linalg.norm(x, axis=1), 1e-12)[:, None]
    Mesh.from_cells(x / radius * radius**0.4, mesh.cell_nodes.indices, "hexahedron").check()


def test_collapsed_edges_and_corners_that_touch_are_sound() -> None:
    sector = np.array([(0.0, 0.0), (1.0, 0.0), (0.6, 0.8), (0.0, 0.0)])  # two nodes at the centre of a disc
    Mesh.from_cells(sector, [[0, 1, 2, 3]], "quad").check()
    square = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
    touching = np.concatenate((square, square[1:] + 1.0))
    Mesh.from_cells(touching, [[0, 1, 2, 3], [2, 4, 5, 6]], "quad").check()


# ---- faults ---------------------------------------------------------------------------------------------------------


def parts(mesh: Mesh) -> dict[str, Any]:
    names = ("cell_nodes", "face_cells", "boundary_cells")
    lists = {"face_nodes": as_lists(mesh.lists.faces), "boundary_nodes": as_lists(mesh.lists.boundary_faces)}
    arrays = {name: getattr(mesh, name).indices.copy() for name in names}
    return arrays | lists | {"coordinates": mesh.coordinates.numpy()}


@pytest.mark.parametrize("kind", [*KINDS])
def test_faces_that_contradict_the_cells_are_named(kind: str) -> None:
    mesh = box((3, 3) if KINDS[kind].dimension == 2 else (2, 2, 2), cells=kind)
    good = parts(mesh)

    def refusal(**changes: np.ndarray) -> str:
        wrong = Mesh.from_parts(**(good | changes), kind=kind)  # taken as it is
        with pytest.raises(MeshError) as caught:
            wrong.check()
        return str(caught.value)

    a, b = good["face_cells"][4]
    without = {name: [*good[name][:4], *good[name][5:]] for name in ("face_nodes", "face_cells")}
    assert f"of cell {a} belongs to no face" in refusal(**without)
    again = {name: [*good[name], good[name][4]] for name in ("face_nodes", "face_cells")}
    assert f"of cell {a} belongs to 2 faces" in refusal(**again)
    pairs = good["face_cells"].copy()
    pairs[4] = pairs[4, ::-1]
    assert f"goes around the wrong way at cell {b}" in refusal(face_cells=pairs)
    pairs[4] = (a, a)
    assert f"face 4 {_nodes(good['face_nodes'][4])} has the cell {a} on both sides" in refusal(face_cells=pairs)
    far = int(np.setdiff1d(np.arange(len(mesh.cells)), [a, b])[-1])
    pairs[4] = (a, far)
    assert f"face 4 {_nodes(good['face_nodes'][4])} is no side of its cell {far}" in refusal(face_cells=pairs)
    owners = (good["boundary_cells"] + 1) % len(mesh.cells)
    assert re.search(r"boundary face \d+ .* is no side of its cell", refusal(boundary_cells=owners))


def _nodes(nodes: list[int]) -> str:
    return f"({', '.join(map(str, nodes))})"


def test_cells_with_a_wrong_shape_are_named_with_their_place() -> None:
    good = parts(box((3, 2)))
    for order, message in (
        ([3, 2, 1, 0], r"cell 4 has a negative area, -0.167: nodes \(9, 10, 6, 5\); .*\(near 0.5, 0.75\)"),
        ([0, 2, 1, 3], r"cell 4 has no area: nodes \(5, 10, 6, 9\)"),
        ([0, 1, 2, 2], r"cell 4 names a node twice: \(5, 6, 10, 10\)"),
    ):
        cells = good["cell_nodes"].copy()
        cells[4] = cells[4][order]
        with pytest.raises(MeshError, match=message):
            Mesh.from_parts(**(good | {"cell_nodes": cells}), kind="quad").check()


def test_a_wake_cut_must_lie_at_one_place() -> None:
    good = parts(naca0012(4, 3))
    good["coordinates"][0] += 0.01  # the last node of the cut, on one of its sides
    with pytest.raises(MeshError, match=r"face 0 \(0, 1\) is no side of its cell 11"):
        Mesh.from_parts(**good, kind="quad").check()


@pytest.mark.parametrize("order, message", [
    ([0, 2, 1, 3, 4, 6, 5, 7], "has no volume"),  # bow-ties below and above
    ([0, 1, 2, 3, 6, 7, 4, 5], "the face .* of cell 0 crosses itself"),  # the roof turned by half a turn
    ([0, 1, 2, 3, 4, 5, 7, 6], "folded over"),
    ([0, 1, 3, 2, 4, 5, 6, 7], "folded over"),
])  # fmt: skip
def test_hexahedra_that_cross_themselves_are_refused(order: list[int], message: str) -> None:
    x = box((1, 1, 1)).coordinates.numpy()[[0, 1, 3, 2, 4, 5, 7, 6]]
    with pytest.raises(MeshError, match=message):
        Mesh.from_cells(x, [order], "hexahedron").check()


@pytest.mark.parametrize("corner", [(0.3, 0.3, -0.1), (0.5, 0.5, -0.3)])
def test_a_corner_pushed_through_a_hexahedron_is_refused(corner: tuple[float, float, float]) -> None:
    x = box((1, 1, 1)).coordinates.numpy()[[0, 1, 3, 2, 4, 5, 7, 6]]
    x[6] = corner
    with pytest.raises(MeshError, match=r"folded over|no volume|negative"):
        Mesh.from_cells(x, [np.arange(8)], "hexahedron").check()


def test_cells_that_overlap_at_a_node_are_named() -> None:
    x = np.array([(0.0, 0.0), (1.0, 0.0), (0.5, 1.0), (-0.5, 1.0), (0.8, -0.1), (0.9, 0.5), (9.0, 9.0)])
    mesh = Mesh.from_cells(x, [[0, 1, 2], [0, 4, 5]], "triangle")  # two fans at node 0, one across the other
    with pytest.raises(MeshError, match=r"cells (0 and 1|1 and 0) overlap at their node 0 \(near 0, 0\)"):
        mesh.check()
    five = np.array([(np.cos(t), np.sin(t)) for t in 2.2 * np.arange(5)] + [(0.0, 0.0)])
    mesh = Mesh.from_cells(five, [[5, k, k + 1] for k in range(4)], "triangle")  # a spiral of more than a turn
    with pytest.raises(MeshError, match=r"overlap: around their node 5 they fill 1\.40056 full turns"):
        mesh.check()


def test_coordinates_too_large_to_compute_with() -> None:
    with pytest.raises(MeshError, match="cell 0 has coordinates too large for its area to be computed"):
        Mesh.from_cells(box((1, 1)).coordinates.numpy() * 1e200, [[0, 1, 3, 2]], "quad")
