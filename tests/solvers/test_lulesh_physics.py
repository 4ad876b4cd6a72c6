"""What the pieces of LULESH must obey by themselves: geometry, forces, viscosity and equation of state."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from meshloom.mesh import geometry
from meshloom.solvers.lulesh.hexahedron import (
    centre_gradient,
    characteristic_length,
    corner_normals,
    volume,
    volume_gradient,
)
from meshloom.solvers.lulesh.options import MaterialOptions
from meshloom.solvers.lulesh.physics import (
    MODES,
    LuleshGas,
    directional_gradients,
    divergence,
    equation_of_state,
    hourglass_force,
    limiter,
    stress_force,
    viscosity,
)

CUBE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]], float)


@pytest.fixture
def x() -> np.ndarray:
    """A cube with its corners moved about."""
    return CUBE + 0.2 * np.random.default_rng(4).standard_normal((8, 3))


def linear_field(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(velocities of the corners, gradient) of a motion that is linear in space."""
    gradient = np.random.default_rng(8).standard_normal((3, 3))
    return x @ gradient.T + [0.3, -0.2, 0.1], gradient


def test_volume_is_that_of_the_mesh(x: np.ndarray):
    cells = np.arange(8)[None]
    assert volume(CUBE) == 1.0
    assert volume(x) == pytest.approx(geometry.cell_volumes(x, cells, "hexahedron")[0], rel=1e-13)


def test_volume_gradient_is_the_derivative_of_the_volume(x: np.ndarray):
    step, found = 1e-6, volume_gradient(x)
    for corner, axis in np.ndindex(8, 3):
        moved = np.zeros((8, 3))
        moved[corner, axis] = step
        assert found[corner, axis] == pytest.approx((volume(x + moved) - volume(x - moved)) / (2 * step), abs=1e-9)


def test_normals_close_and_push_a_cube_apart(x: np.ndarray):
    np.testing.assert_allclose(corner_normals(x).sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(corner_normals(CUBE), 0.25 * np.sign(CUBE - 0.5))
    np.testing.assert_allclose(stress_force(CUBE, 2.0, 1.0), 0.75 * np.sign(CUBE - 0.5))


def test_divergence_of_a_linear_motion_is_exact(x: np.ndarray):
    """Its gradient is taken in the middle of the step: at the end of a step of no length here."""
    velocity, gradient = linear_field(x)
    assert divergence(x, velocity, 0.0) == pytest.approx(np.trace(gradient), rel=1e-12)
    rows, determinant = centre_gradient(CUBE)
    assert determinant == pytest.approx(1.0)
    np.testing.assert_allclose(rows, 0.25 * np.sign(CUBE[:4] - 0.5))


def test_directional_gradients_of_a_box():
    box = CUBE * [2.0, 3.0, 5.0]
    velocity = box * [0.1, -0.2, 0.3]
    gradients, lengths = directional_gradients(box, velocity, volume(box))
    np.testing.assert_allclose(gradients, [0.1, -0.2, 0.3], rtol=1e-14)
    np.testing.assert_allclose(lengths, [2.0, 3.0, 5.0], rtol=1e-14)
    assert characteristic_length(box, volume(box)) == pytest.approx(2.0)  # volume over the largest face, 3 x 5


def test_hourglass_force_leaves_linear_motions_alone_and_takes_energy_from_others(x: np.ndarray):
    velocity, _ = linear_field(x)
    damp = {"volume_now": volume(x), "sound": 2.0, "mass": 1.5, "strength": 3.0}
    np.testing.assert_allclose(hourglass_force(x, velocity, **damp), 0.0, atol=1e-13)
    other = np.random.default_rng(9).standard_normal((8, 3))
    force = hourglass_force(x, other, **damp)
    np.testing.assert_allclose(force.sum(axis=0), 0.0, atol=1e-14)
    assert (force * other).sum() < 0.0
    np.testing.assert_allclose(MODES @ MODES.T, 8.0 * np.eye(4))


@pytest.mark.parametrize("left, own, right, phi", [
    (1.0, 1.0, 1.0, 1.0),  # smooth: no viscosity
    (-1.0, 1.0, 1.0, 0.0),  # an extremum: all of it
    (0.25, 1.0, 1.0, 0.5),  # twice the smaller one
    (0.8, 1.0, 1.0, 0.9),  # the mean
    (5.0, 1.0, 5.0, 1.0),
])  # fmt: skip
def test_limiter(left: float, own: float, right: float, phi: float):
    assert limiter(left, own, right, 2.0, 1.0) == pytest.approx(phi)


def test_viscosity_acts_on_compression_alone():
    m = MaterialOptions()
    behind = [[0.0, 0.0]] * 3
    linear, quadratic = viscosity(np.array([-2.0, -3.0, 1.0]), behind, np.array([0.5, 0.1, 1.0]), -4.0, 2.0, m)
    assert linear == pytest.approx(0.5 * 2.0 * 1.3) and quadratic == pytest.approx(2.0 / 3.0 * 2.0 * (1.0 + 0.09))
    assert viscosity(np.array([-2.0, -3.0, 9.0]), behind, np.ones(3), 4.0, 2.0, m) == (0.0, 0.0)


def test_slow_compression_is_isentropic():
    """p v**(5/3) is constant, and the error falls with the square of the step or faster."""
    gas, errors = LuleshGas(MaterialOptions()), []
    for steps in (20, 40):
        e, q = 3.0, 0.0
        p = gas.pressure(e, 0.0, 1.0)
        volumes = np.linspace(1.0, 0.5, steps + 1)
        for old, new in pairwise(volumes):
            e, p, q, sound = equation_of_state(gas, (e, p, q), new, new - old, 0.0, 0.0)
        errors.append(abs(p * 0.5 ** (5.0 / 3.0) - 2.0))
        assert sound == pytest.approx(np.sqrt(5.0 / 3.0 * p * 0.5), rel=1e-12)
    assert errors[1] < 1e-6 and errors[0] / errors[1] > 3.9


def test_what_is_too_small_is_zero():
    gas = LuleshGas(MaterialOptions())
    e, p, q, sound = equation_of_state(gas, (1e-8, 0.0, 0.0), 1.0, 0.0, 0.0, 0.0)
    assert (e, p, q) == (0.0, 0.0, 0.0) and sound == 0.3333333e-18
    assert gas.pressure(-1.0, 0.0, 1.0) == 0.0, "pressures are not negative"
    assert gas.pressure(5.0, 0.0, 1e9) == 0.0, "nor is there one in empty space"
