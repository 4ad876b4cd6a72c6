"""The ONERA M6 wing: its section against the taps, its surface, its sizes, and every cell valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError
from meshloom.mesh.generate import onera_m6, quality
from meshloom.mesh.generators import m6_wing as wing
from meshloom.mesh.generators.extrude import extruded
from meshloom.mesh.generators.field_lines import node_normals, wing_charges
from meshloom.mesh.generators.onera_m6 import LEVELS, half_wing, planned
from meshloom.mesh.mesh import Mesh
from meshloom.native.charges import mirrored_field
from tests.mesh.samples import closure

TAPS = Path(__file__).parents[1] / "data" / "onera_m6_taps.csv"  # x/c and z/c of test 2308, AGARD AR-138
#: Faces of the paper's five meshes, interior and boundary.
PAPER_FACES = {1: 1_046_864, 2: 1_908_916, 3: 4_044_699, 4: 8_020_032, 5: 20_280_047}


@pytest.fixture(scope="module")
def small() -> Mesh:
    return onera_m6(cells=12_000)


def test_section_is_the_fit_of_the_taps() -> None:
    x, z = np.loadtxt(TAPS, delimiter=",", skiprows=1).T
    basis = np.stack([np.sqrt(x) ** k * (1 - x) for k in range(1, 9)], axis=1)
    fitted = np.linalg.lstsq(basis, np.abs(z), rcond=None)[0]
    np.testing.assert_allclose(basis @ fitted, wing.half_thickness(x), atol=1e-8)
    away = wing.half_thickness(x) - np.abs(z)
    assert np.sqrt(np.mean(away**2)) < 0.00017 and np.abs(away).max() < 0.00057  # as the docstring says
    at = np.linspace(0, 1, 2001)
    thickness = wing.half_thickness(at)
    assert thickness[0] == thickness[-1] == 0 and (np.diff(thickness, 2) < 0).all()  # closed, convex
    assert at[thickness.argmax()] == pytest.approx(wing.THICKEST, abs=1e-3)


@pytest.mark.parametrize("side, span", [(6, 4), (20, 14), (49, 34)])
def test_surface_is_closed_but_for_the_root(side: int, span: int) -> None:
    surface = wing.wing_surface(side, span)
    assert len(surface.triangles) == 4 * side * span
    pairs = np.concatenate([surface.triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    edges, times = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)
    assert set(times) == {1, 2}
    at_root = set(np.flatnonzero(surface.nodes[:, 1] == 0))
    assert set(edges[times == 1].ravel()) == at_root == set(surface.root) and (times == 1).sum() == 2 * side
    assert len(np.unique(pairs, axis=0)) == len(pairs)  # all triangles go round the same way
    assert (surface.rank[edges[:, 0]] != surface.rank[edges[:, 1]]).all()


def test_surface_is_the_wing() -> None:
    surface = wing.wing_surface(49, 34)
    x, y, z = surface.nodes.T
    on_wing = y < wing.SEMI_SPAN
    share = (x - wing.leading_edge(y)) / wing.chord(y)
    np.testing.assert_allclose((np.abs(z) / wing.chord(y))[on_wing], wing.half_thickness(np.clip(share[on_wing], 0, 1)),
                               atol=1e-12)  # fmt: skip
    # On the tip, distance from the chord line is that of the tip section: a body of revolution.
    share = np.clip((x - wing.leading_edge(np.array(wing.SEMI_SPAN))) / wing.TIP_CHORD, 0, 1)
    radius = np.hypot(y - wing.SEMI_SPAN, z) / wing.TIP_CHORD
    np.testing.assert_allclose(radius[~on_wing], wing.half_thickness(share[~on_wing]), atol=1e-9)
    normals = node_normals(surface)
    np.testing.assert_allclose(normals[surface.root[0]], (1, 0, 0), atol=1e-6)  # the tail at the root
    assert (normals[(z > 0.01), 2] > 0).all() and (normals[(z < -0.01), 2] < 0).all()
    corners = surface.nodes[surface.triangles]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() / 2
    planform = (wing.ROOT_CHORD + wing.TIP_CHORD) / 2 * wing.SEMI_SPAN
    assert 2 * planform < area < 2.1 * planform


def test_sweep_of_the_trailing_edge_follows() -> None:
    """Root and tip chord, span and leading sweep are those given; the trailing edge's 15.8 degrees come out."""
    tails = [wing.leading_edge(y) + wing.chord(y) for y in (np.array(0.0), np.array(wing.SEMI_SPAN))]
    assert np.degrees(np.arctan((tails[1] - tails[0]) / wing.SEMI_SPAN)) == pytest.approx(15.8, abs=0.1)


def test_field_of_charged_lines() -> None:
    """Against sums over many points of each line and its image."""
    rng = np.random.default_rng(3)
    points, lines = (
        rng.random((37, 3)),
        np.column_stack((rng.random((5, 6)), 0.01 * rng.random(5) + 0.01, rng.random(5))),
    )
    wanted = np.zeros_like(points)
    share = (np.arange(4000) + 0.5)[:, None] / 4000
    for line in lines:
        for side in (1, -1):
            away = points[:, None] - (line[:3] + share * (line[3:6] - line[:3])) * (1, side, 1)
            wanted += line[7] * np.mean(away / (np.sum(away**2, axis=2, keepdims=True) + line[6]) ** 1.5, axis=1)
    np.testing.assert_allclose(mirrored_field(points, lines), wanted, rtol=1e-5, atol=1e-7)
    with pytest.raises(MeshError, match=r"expected \(n, 3\) and \(m, 8\)"):
        mirrored_field(points[:, :2], lines)
    with pytest.raises(MeshError, match="every blur must be positive"):
        mirrored_field(points, lines * (1, 1, 1, 1, 1, 1, 0, 1))


@pytest.mark.slow
def test_lines_leave_the_wing_nearly_at_right_angles() -> None:
    surface = wing.wing_surface(50, 34)
    field = mirrored_field(surface.nodes, wing_charges())
    cosine = np.sum(field * node_normals(surface), axis=1) / np.linalg.norm(field, axis=1)
    assert np.degrees(np.arccos(np.median(cosine))) < 5 and cosine.min() > 0.4
    assert (wing_charges()[:, 7] > 0).all()  # so that lines end only far away


def test_small_mesh_is_closed_and_valid(small: Mesh) -> None:
    assert set(small.groups) == {"wing", "symmetry", "far"} and list(small.cells.kinds) == ["prism", "tetrahedron"]
    assert len(small.cells) == pytest.approx(12_000, rel=0.05)
    assert (small.cell_volumes > 0).all()
    assert np.abs(closure(small)).max() < 1e-12 * np.abs(small.face_normals).max()
    small.check()
    symmetry = small.boundary("symmetry")
    assert np.abs(symmetry.centre.numpy()[:, 1]).max() == 0.0
    np.testing.assert_allclose(np.abs(symmetry.normal.numpy()[:, [0, 2]]).max(), 0, atol=1e-12)
    assert (symmetry.normal.numpy()[:, 1] < 0).all()
    assert np.linalg.norm(small.boundary("far").centre.numpy(), axis=1).min() > 14 * wing.SEMI_SPAN
    found = quality(small)
    assert found.shape[0] > 0.005 and found.shape[1] > 0.3 and found.non_orthogonality[1] < 90


def test_small_mesh_fills_half_the_space(small: Mesh) -> None:
    """All cells together are what lies between the wing and the far field: the divergence theorem over the boundary."""
    outward = sum(np.sum(small.boundary(name).centre.numpy() * small.boundary(name).normal.numpy())
                  for name in small.groups)  # fmt: skip
    assert small.cell_volumes.sum() == pytest.approx(outward / 3, rel=1e-9)
    assert small.cell_volumes.sum() == pytest.approx(2 / 3 * np.pi * (15.5 * wing.SEMI_SPAN) ** 3, rel=0.15)


def test_small_mesh_is_the_same_above_and_below(small: Mesh) -> None:
    """Cell by cell: every centre has its mirror image, with the same volume."""
    centres = np.column_stack((small.cell_centroids, small.cell_volumes))
    other = centres * (1, 1, -1, 1)
    order = [np.lexsort(np.round(a / (1e-7, 1e-7, 1e-7, np.inf), 0).T) for a in (centres, other)]
    np.testing.assert_allclose(centres[order[0]], other[order[1]], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_have_the_paper_s_cells_and_faces(level: int) -> None:
    sizes = planned(level, None, False, None, None, None)
    triangles = 4 * sizes.side * sizes.span
    prisms, tetrahedra = triangles * sizes.prism_layers, 3 * triangles * sizes.outer_layers
    assert sizes.cells == prisms + tetrahedra == pytest.approx(LEVELS[level][0], rel=0.05)
    boundary = 2 * triangles + 2 * sizes.side * (sizes.prism_layers + 2 * sizes.outer_layers)
    assert (5 * prisms + 4 * tetrahedra + boundary) / 2 == pytest.approx(PAPER_FACES[level], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_every_cell_of_every_level_is_valid(level: int) -> None:
    made = half_wing(planned(level, None, False, None, None, None), 15 * wing.SEMI_SPAN)  # which checks each
    assert made.size == pytest.approx(LEVELS[level][0], rel=0.05)


@given(
    cells=st.integers(3_000, 60_000),
    prism_layers=st.one_of(st.none(), st.integers(1, 12)),
    first_height=st.one_of(st.none(), st.floats(1e-6, 5e-3)),
    far=st.floats(5.0, 50.0),
)
@settings(max_examples=4, deadline=None)
@pytest.mark.slow
def test_any_half_wing_is_valid(cells: int, prism_layers: int | None, first_height: float | None, far: float) -> None:
    try:
        sizes = planned(1, cells, False, first_height, None, prism_layers)
        sizes.heights(far * wing.SEMI_SPAN)
    except MeshError as refused:
        assert "are too few" in str(refused) or "would grow by" in str(refused)
        return
    made = half_wing(sizes, far * wing.SEMI_SPAN)  # raises where a cell is folded
    assert made.size == sizes.cells <= 1.1 * cells
    assert len(made.coordinates) == len(np.unique(np.concatenate([nodes.ravel() for nodes in made.cells.values()])))


@pytest.mark.slow
def test_viscous_layers() -> None:
    """First centres one wall unit from the wall, 32 layers that grow by a quarter, and the far field where it was."""
    sizes = planned(1, 40_000, True, None, None, None)
    heights = sizes.heights(18.0)
    assert heights[1] / 2 == pytest.approx(wing.MEAN_CHORD / (11.72e6 * np.sqrt(0.0027 / 2)))
    steps = np.diff(heights)
    np.testing.assert_allclose(steps[1 : sizes.prism_layers] / steps[: sizes.prism_layers - 1], 1.25)
    assert sizes.prism_layers == 32 and heights[-1] == pytest.approx(18.0)
    mesh = onera_m6(cells=40_000, viscous=True)
    wall = mesh.boundary("wing")
    first = np.unique(wall.cells.indices)
    volumes = (
        mesh.cell_volumes[first] / np.linalg.norm(wall.normal.numpy(), axis=1)[np.argsort(wall.cells.indices[:, 0])]
    )
    assert np.median(volumes) == pytest.approx(heights[1], rel=0.02)


def test_layers_on_one_triangle() -> None:
    """Two layers of prisms and two of tetrahedra on a right triangle: volumes, and each side in one group."""
    base = np.array([(0.0, 0, 0), (1, 0, 0), (0, 1, 0)])
    places = base + np.array([(0.0, 0, height) for height in range(5)])[:, None]
    made = extruded(np.array([[0, 1, 2]]), np.arange(3), np.arange(3), places, 2, ("low", "high", "around"))
    mesh = made.mesh()
    np.testing.assert_allclose(mesh.cell_volumes, [0.5] * 2 + [1 / 6] * 6)
    assert {name: len(mesh.group(name)) for name in mesh.groups} == {"low": 1, "around": 6 + 12, "high": 1}
    assert np.abs(closure(mesh)).max() < 1e-15


@pytest.mark.parametrize("given_, message", [
    ({"level": 6}, "onera_m6: level must be a whole number from 1 to 5, got 6"),
    ({"level": 2.0}, "onera_m6: level must be a whole number from 1 to 5, got 2.0"),
    ({"cells": 100}, "onera_m6: cells must be a whole number from 3000 to 100000000, got 100"),
    ({"cells": 5000, "viscous": True}, "onera_m6: 5000 cells are too few for 52 layers; ask for 8832 or more"),
    ({"viscous": 1}, "onera_m6: viscous must be True or False, got 1"),
    ({"first_height": 0.0}, "onera_m6: first_height must be a number above 0 and at most 0.02, got 0.0"),
    ({"growth": 0.5}, "onera_m6: growth must be a number above 1 and at most 2, got 0.5"),
    ({"prism_layers": 0}, "onera_m6: prism_layers must be a whole number from 1 to 1000, got 0"),
    ({"far": -1.0}, "onera_m6: far must be a number above 1 and at most 10000, got -1.0"),
    ({"growth": 2.0, "prism_layers": 40, "cells": 30_000}, "40 layers of prisms that grow by 2 are 1.64e+09 m high;"),
    ({"cells": 3000, "first_height": 1e-6}, "onera_m6: 15 layers from 1e-06 m to 17.9 m would grow by"),
])  # fmt: skip
def test_wrong_arguments_are_one_line(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(MeshError) as refused:
        onera_m6(**given_)
    assert message in str(refused.value) and "\n" not in str(refused.value)
