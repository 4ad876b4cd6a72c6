"""O-grids, the flat plate and the bump: closed, valid, where they should be, and as their docstrings say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError
from meshloom.mesh.generate import box, bump, cylinder, flat_plate, naca0012_ogrid, quality
from meshloom.mesh.generators.conformal import airfoil_map
from meshloom.mesh.generators.planar import half_thickness
from meshloom.mesh.generators.spacing import geometric, growth
from meshloom.mesh.mesh import Mesh
from tests.mesh.samples import closure

SMALL: list[tuple[Callable[..., Mesh], tuple[int, int], float]] = [  # with their areas
    (naca0012_ogrid, (64, 24), np.pi * 100.0**2),
    (cylinder, (48, 20), np.pi * (50.0**2 - 0.5**2)),
    (flat_plate, (34, 24), 7 / 3),
    (bump, (24, 8), 3.0 - 0.0671104),  # less the segment of a circle of radius 1.3, half angle asin(0.5 / 1.3)
]


@pytest.mark.parametrize("cells", ["quad", "triangle", "mixed"])
@pytest.mark.parametrize("make, counts, area", SMALL, ids=[one[0].__name__ for one in SMALL])
def test_closed_valid_and_as_large_as_it_should_be(
    make: Callable[..., Mesh], counts: tuple[int, int], area: float, cells: str
) -> None:
    mesh = make(*counts, cells=cells)
    wanted = {"quad": {"quad": counts[0] * counts[1]}, "triangle": {"triangle": 2 * counts[0] * counts[1]},
              "mixed": {"quad": counts[0] * counts[1] // 2, "triangle": counts[0] * counts[1]}}  # fmt: skip
    assert {kind: len(numbers) for kind, numbers in mesh.cells.kinds.items()} == wanted[cells]
    size = np.abs(mesh.coordinates.numpy()).max()
    assert np.abs(closure(mesh)).max() < 1e-14 * size
    assert (mesh.cell_volumes > 0).all()
    assert mesh.cell_volumes.sum() == pytest.approx(area, rel=0.01)
    assert "boundary" not in mesh.groups  # every boundary face has a name
    mesh.check()


def test_airfoil_nodes_lie_on_the_section() -> None:
    mesh = naca0012_ogrid(256, 8)
    x, y = mesh.coordinates.numpy()[:256].T
    np.testing.assert_allclose(np.abs(y), half_thickness(x), atol=1e-16)
    assert (x[0], y[0], x[128], y[128]) == (1.0, 0.0, 0.0, 0.0)
    np.testing.assert_allclose(y[1:128], -y[:128:-1], atol=1e-9)  # the same above and below
    np.testing.assert_allclose(x[1:128], x[:128:-1], atol=1e-9)
    # NACA 0012 as it is tabulated, x scaled by where the formula's thickness ends: 12 % thick at 30 % of the chord
    assert 2 * half_thickness(x).max() == pytest.approx(0.12 / 1.00893, rel=1e-3)
    steps = np.hypot(np.diff(x[:129]), np.diff(y[:129]))
    assert steps.argmax() in range(40, 90) and steps[0] < steps[64] / 20 and steps[-1] < steps[64] / 3


def test_airfoil_grid_has_right_angles() -> None:
    """Cells of a conformal map: only those beside the tail, where the section has a corner, are skew."""
    found = quality(naca0012_ogrid(256, 96))
    assert found.non_orthogonality[0] < 0.05 and found.non_orthogonality[1] < 6.0
    assert found.aspect[1] < 10
    mesh = naca0012_ogrid(256, 96, far=20.0, wall_aspect=1.0)
    x = mesh.coordinates.numpy().reshape(97, 256, 2)
    assert np.hypot(*(x[-1] - (0.5, 0.0)).T) == pytest.approx(np.full(256, 20.0), rel=0.02)
    high = np.linalg.norm(x[1] - x[0], axis=1)
    wide = np.linalg.norm(np.roll(x[0], -1, axis=0) - np.roll(x[0], 1, axis=0), axis=1) / 2
    inner = np.r_[20:108]
    np.testing.assert_allclose((high / wide)[inner], 1.0, rtol=0.05)


def test_conformal_map_of_a_joukowski_airfoil_is_known() -> None:
    """Joukowski's symmetric airfoil is the image of a circle: the map must find its radius."""
    offset = 0.08
    angle = np.linspace(0, np.pi, 4001)
    zeta = -offset + (1 + offset) * np.exp(1j * angle)
    z = zeta + 1 / zeta
    x, y = (z.real - z.real.min()) / np.ptp(z.real), np.abs(z.imag) / np.ptp(z.real)

    def section(at: np.ndarray) -> np.ndarray:
        return np.interp(np.sqrt(at), np.sqrt(x[::-1]), y[::-1])

    nose = 8 * offset**2 / np.ptp(z.real) / (1 + 2 * offset)
    found = airfoil_map(section, nose_radius=nose, tail_slope=0.0)
    assert found.radius == pytest.approx((1 + offset) / np.ptp(z.real), rel=1e-3)


def test_cylinder_is_round_and_goes_far_enough() -> None:
    mesh = cylinder(32, 10, diameter=2.0, far=60.0, first_height=0.01)
    r = np.hypot(*mesh.coordinates.numpy().reshape(11, 32, 2).T)
    np.testing.assert_allclose(r[:, 0], 1.0)
    np.testing.assert_allclose(r[:, -1], 120.0)
    np.testing.assert_allclose(r[:, 1], 1.01)
    ratios = np.diff(r[0])[1:] / np.diff(r[0])[:-1]
    np.testing.assert_allclose(ratios, growth(119.0, 0.01, 10))


def test_flat_plate_is_that_of_the_resource() -> None:
    mesh = flat_plate(136, 96)
    x, y = mesh.coordinates.numpy().T
    assert (x.min(), x.max(), y.min(), y.max()) == (pytest.approx(-1 / 3), 2.0, 0.0, 1.0)
    floor = np.unique(x[y == 0])
    assert np.count_nonzero(floor < 0) == 24 and 0.0 in floor  # a quarter of the resource's 96 of 544
    wall = mesh.boundary("wall").centre.numpy()
    assert len(wall) == 112 and wall[:, 0].min() > 0 and len(mesh.group("symmetry")) == 24
    assert np.diff(np.unique(y))[0] == pytest.approx(2e-6)
    steps = np.diff(floor)
    assert steps.argmin() in (23, 24)  # finest at the leading edge


def test_bump_is_a_circular_arc() -> None:
    mesh = bump(48, 4, height=0.04)
    x, y = mesh.coordinates.numpy()[:49].T
    on_arc = (x > 0) & (x < 1)
    assert y[~on_arc].max() == 0 and y.max() == pytest.approx(0.04)
    radius = (0.25 + 0.04**2) / 0.08
    np.testing.assert_allclose(np.hypot(x - 0.5, y + radius - 0.04)[on_arc], radius)


@given(
    around=st.integers(4, 40).map(lambda n: 2 * n),
    outward=st.integers(1, 30),
    far=st.floats(2.0, 500.0),
    aspect=st.floats(0.01, 1.0),
    cells=st.sampled_from(["quad", "triangle", "mixed"]),
)
@settings(max_examples=25, deadline=None)
def test_any_ogrid_is_valid(around: int, outward: int, far: float, aspect: float, cells: str) -> None:
    mesh = naca0012_ogrid(around, outward, far=far, wall_aspect=aspect, cells=cells)
    assert (mesh.cell_volumes > 0).all()
    assert np.abs(closure(mesh)).max() < 1e-13 * far
    assert len(mesh.group("wall")) == len(mesh.group("far")) == around


@given(length=st.floats(1e-3, 1e3), share=st.floats(1e-9, 0.9), cells=st.integers(2, 300))
@settings(max_examples=60, deadline=None)
def test_geometric_spacing_reaches_both_ends(length: float, share: float, cells: int) -> None:
    places = geometric(length, share * length, cells, "test")
    steps = np.diff(places)
    assert places[0] == 0 and places[-1] == length
    assert steps[0] == pytest.approx(share * length, rel=1e-6)
    assert (steps >= 0).all()


@pytest.mark.parametrize("make, given_, message", [
    (naca0012_ogrid, {"around": 9}, "naca0012_ogrid: around must be even, for a node at the nose, got 9"),
    (naca0012_ogrid, {"around": 6}, "naca0012_ogrid: around must be a whole number from 8 to"),
    (naca0012_ogrid, {"far": float("nan")}, "naca0012_ogrid: far must be a number above 1 and at most 1e+06, got nan"),
    (naca0012_ogrid, {"wall_aspect": 0}, "naca0012_ogrid: wall_aspect must be a number above 0, got 0"),
    (naca0012_ogrid, {"wall_aspect": 1e5}, "does not fit into"), (bump, {"height": 1e-300}, "bump: height must be"),
    *((make, {name: 1e-300}, "is lost in the rounding of")
      for make, name in ((naca0012_ogrid, "wall_aspect"), (cylinder, "first_height"), (flat_plate, "first_height"),
                         (bump, "first_height"))),
    (naca0012_ogrid, {"cells": "hexagon"}, "unknown cells of naca0012_ogrid 'hexagon'"),
    (naca0012_ogrid, {"quad_rows": -1, "cells": "mixed"}, "naca0012_ogrid: quad_rows must be a whole number from 0"),
    (cylinder, {"around": 100_000, "outward": 100_000}, "cylinder: 100000 x 100000 cells are too many"),
    (cylinder, {"first_height": 60.0}, "cylinder: a first cell of 60 does not fit into 49.5; make it smaller"),
    (cylinder, {"diameter": "wide"}, "cylinder: diameter: expected real numbers"),
    (flat_plate, {"along": 1}, "flat_plate: along must be a whole number from 2"),
    (flat_plate, {"first_height": -1.0}, "flat_plate: first_height must be a number above 0, got -1.0"),
    (bump, {"along": 10}, "bump: along must be a multiple of 3, for nodes at both ends of the arc, got 10"),
    (bump, {"height": 0.6}, "bump: height must be a number above 1e-12 and at most 0.5, got 0.6"),
])  # fmt: skip
def test_wrong_arguments_are_one_line(make: Callable[..., Mesh], given_: dict[str, Any], message: str) -> None:
    with pytest.raises(MeshError) as refused:
        make(**given_)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_quality_of_known_cells() -> None:
    """Squares are the best quadrilaterals; a plate of flat cells is not."""
    best = quality(box((3, 3)))
    assert best.cells == {"quad": 9} and best.shape == pytest.approx((1.0, 1.0))
    assert (best.aspect, best.non_orthogonality, best.growth) == (pytest.approx((1, 1)), (0, 0), pytest.approx((1, 1)))
    flat = quality(box((3, 3), extent=(10.0, 1.0)))
    assert flat.aspect == pytest.approx((10, 10)) and flat.shape[0] == pytest.approx(40 / 121)
    assert quality(box((1, 1, 1))).shape == pytest.approx((1, 1))
    assert quality(box((2, 2), cells="triangle")).non_orthogonality[1] == pytest.approx(np.degrees(np.arctan(0.5)))
    assert "9 quad cells" in str(best) and "aspect mean 1.0" in str(best)
    with pytest.raises(MeshError, match="quality: the mesh must be a Mesh, got str"):
        quality("mesh")  # type: ignore[arg-type]
