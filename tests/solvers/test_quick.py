"""Convection by parabolas upstream: of third order at faces, right on cells of all widths, from either side."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Wall
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges, stretched_edges
from meshloom.solvers.fractional_step.convective_flux import QUICK, FaceRow, face_value
from meshloom.solvers.fractional_step.schemes import RK3
from tests.solvers.test_fractional_step import finished, flow, observed, periodic, stirred, vortices


def test_even_cells_have_leonards_weights() -> None:
    for k, weight in enumerate((-1 / 8, 6 / 8, 3 / 8, 0.0)):
        values = tuple(np.eye(4)[k])
        assert face_value(1.0, FaceRow(values, (1.0, 1.0, 1.0), 0.5), QUICK) == pytest.approx(weight)
        assert face_value(-1.0, FaceRow(values[::-1], (1.0, 1.0, 1.0), 0.5), QUICK) == pytest.approx(weight)


@pytest.mark.parametrize("velocity", [1.0, -1.0])
def test_values_at_faces_are_of_third_order_on_cells_of_any_widths(velocity: float) -> None:
    errors = []
    for h in (0.1, 0.05, 0.025):
        at = h * np.array([-2.2, -0.4, 0.7, 1.9])
        found = face_value(velocity, FaceRow(tuple(np.exp(at)), tuple(np.diff(at)), 0.4 * h), QUICK)
        errors.append(abs(float(found) - 1.0))
    assert all(abs(order - 3.0) < 0.2 for order in observed(errors)), errors


def by_hand(u: np.ndarray, through: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """div(U u) along the last axis of u (m, n + 4), with two ghosts at each end; U (m, n + 1), edges (n + 5,)."""
    centres, out = 0.5 * (edges[1:] + edges[:-1]), np.zeros(through.shape)
    for (k, face), speed in np.ndenumerate(through):
        cells = [face, face + 1, face + 2] if speed > 0.0 else [face + 1, face + 2, face + 3]
        out[k, face] = speed * np.polyval(np.polyfit(centres[cells], u[k, cells], 2), edges[face + 2])
    return np.diff(out, axis=1) / np.diff(edges)[2:-2]


def test_the_kernel_is_what_parabolas_by_hand_give() -> None:
    """Walls below and above, stretched cells, periodic along x, flow in both directions."""
    ml.use("numpy")
    shape = (5, 7)
    cells = CellGrid([even_edges(5, 0.0, 1.0), stretched_edges(7, 0.0, 1.0, 1.5)], [True, False])
    sides: dict[tuple[int, str], Condition] = {(1, LOW): Wall(), (1, HIGH): Wall((1.0,))}
    dice = np.random.default_rng(0)
    made = flow(cells, dice.standard_normal((*shape, 2)), sides=sides, convection=QUICK)
    known = cells.cross(made.velocity, 2), cells.both_faces(made.faces), 1.0, 0.0
    made._do.predict(cells.grid, *known, made.u_star, *cells.widths_within(2))
    u, through = (cells.grid.shaped(one, ghosts=True) for one in (made.velocity, made.faces))
    x, y = np.arange(-2, 8) / 5.0, np.concatenate([[0.0, 0.0], cells.edges[1], [0.0, 0.0]])
    y[[1, 0, -2, -1]] = -y[3], -y[4], 2.0 - y[-4], 2.0 - y[-5]
    for c in range(2):
        expected = by_hand(u[2:-2, :, c], through[2:-2, 2:-1, 1], y)
        expected += by_hand(u[:, 2:-2, c].T, through[2:-1, 2:-2, 0].T, x).T
        found = made.velocity.numpy()[..., c] - made.u_star.numpy()[..., c]
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-11)


@pytest.mark.slow
def test_quick_is_of_second_order_in_space() -> None:
    """The values at faces are of third order, what is made of them is of second, as friction and pressure are."""
    ml.use("cpu", threads=1)
    errors = []
    for n, dt in ((16, 0.02), (32, 0.01)):
        cells = periodic(n, bent=0.4)
        made = finished(flow(cells, vortices(cells), viscosity=0.1, dt=dt, end=0.5, scheme=RK3, convection=QUICK))
        exact = vortices(cells) * np.exp(-2.0 * 0.1 * 0.5)
        errors.append(float(np.abs(made.velocity.numpy() - exact).max()))
    assert observed(errors)[0] > 1.85 and errors[-1] < 0.004, errors


def test_quick_damps_what_central_means_keep() -> None:
    ml.use("cpu", threads=1)
    lost = []
    for convection in ("central", "quick"):
        cells = periodic(16)
        made = flow(cells, stirred(cells), viscosity=0.0, dt=0.02, end=0.5, fade=0.05, convection=convection)
        energy = made.step.run(25, record=(made.energy,))[:, 0]
        assert (np.diff(energy) < 0.0).all()
        lost.append(1.0 - energy[-1] / energy[0])
    assert lost[1] > 1.5 * lost[0], lost
