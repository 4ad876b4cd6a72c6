"""Fractional steps in general coordinates: uniform flow, manufactured solutions, decay, walls, and the operator."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.solvers.fractional_step.curvilinear import CurvilinearFlow, CurvilinearGeometry, CurvilinearSteps
from meshloom.solvers.fractional_step.curvilinear_metrics import metrics_of, pairs, points_of
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip
#: Of whole flows, whose solver takes longer to compile than to run; those of the docs run on the CPU.
FLOW_BACKENDS = ("numpy", pytest.param("cpu", marks=pytest.mark.slow), *BACKENDS[2:])
LENGTH = 2.0 * np.pi


def smooth_points(shape: tuple[int, ...], seed: int = 0, size: float = 0.03) -> np.ndarray:
    """A periodic box whose points are moved by a few random waves, the same for every number of points."""
    dice, rank = np.random.default_rng(seed), len(shape)
    waves = dice.integers(-1, 2, (rank, 4, rank))
    phases, sizes = dice.uniform(0.0, LENGTH, (rank, 4)), dice.uniform(0.5, 1.0, (rank, 4))

    def wave(numbers: np.ndarray, phase: float, angles: list[Any]) -> Any:
        return np.sin(sum(k * a for k, a in zip(numbers, angles, strict=True)) + phase)

    def mapping(*index: np.ndarray) -> list[Any]:
        angles = [LENGTH * i / n for i, n in zip(index, shape, strict=True)]
        moved = [sum(sizes[a, k] * wave(waves[a, k], phases[a, k], angles) for k in range(4)) for a in range(rank)]
        return [a + size * LENGTH * m / 4 for a, m in zip(angles, moved, strict=True)]

    return points_of(mapping, shape)


def places(points: np.ndarray) -> tuple[np.ndarray, ...]:
    """x, y, z of the points themselves."""
    inside = points[(slice(2, -2),) * (points.ndim - 1)]
    return tuple(np.moveaxis(inside, -1, 0))


def steps_on(points: np.ndarray) -> CurvilinearSteps:
    return CurvilinearSteps(CurvilinearGeometry(metrics_of(points)))


def inside(values: np.ndarray, rank: int) -> np.ndarray:
    return values[(slice(1, -1),) * rank]


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(9, 12), (7, 6, 8)])
def test_metrics_are_those_of_the_mapping(shape: tuple[int, ...]) -> None:
    """On a grid that is turned, sheared and scaled, all of them are known."""
    rank = len(shape)
    matrix = np.eye(rank) + 0.3 * np.random.default_rng(1).random((rank, rank))  # d x / d xi
    found = metrics_of(
        points_of(lambda *index: [sum(m * i for m, i in zip(row, index, strict=True)) for row in matrix], shape)
    )
    inverse, volume = np.linalg.inv(matrix), np.linalg.det(matrix)
    gram = volume * inverse @ inverse.T
    np.testing.assert_allclose(found.jacobian, volume, rtol=1e-12)
    np.testing.assert_allclose(
        np.moveaxis(found.base, 0, -2),
        np.broadcast_to(inverse, (*found.jacobian.shape, rank, rank)),
        rtol=1e-9,
        atol=1e-12,
    )
    np.testing.assert_allclose(found.spread, np.broadcast_to(np.diag(gram), found.spread.shape), rtol=1e-9)
    np.testing.assert_allclose(
        found.shear, np.broadcast_to([gram[d, e] for d, e in pairs(rank)], found.shear.shape), rtol=1e-9
    )
    assert not found.orthogonal and found.rank == rank


def test_a_stretched_grid_is_orthogonal() -> None:
    found = metrics_of(points_of(lambda i, j, k: (i + 0.01 * i**2, 2.0 * j, np.exp(0.1 * k)), (5, 6, 7)))
    assert found.orthogonal
    np.testing.assert_allclose(
        found.jacobian, 1.0 / np.prod([found.base[a][..., a] for a in range(3)], axis=0), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("points", "says"),
    [(np.zeros((5, 5, 3)), "got shape (5, 5, 3)"), (np.zeros((4, 9, 2)), "two layers beyond each end"),
     (np.full((5, 5, 2), np.nan), "not all places are finite"),
     (points_of(lambda i, j: (-i, j), (3, 3)), "the volume at point (-1, -1) is -1")],
)  # fmt: skip
def test_bad_points_are_refused(points: np.ndarray, says: str) -> None:
    with one_line_from(MeshError, re.escape(says)):
        metrics_of(points)


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", FLOW_BACKENDS)
@pytest.mark.parametrize("shape", [(10, 13), (7, 8, 9)])
def test_a_uniform_flow_stays(backend: str, shape: tuple[int, ...]) -> None:
    ml.use(backend)
    velocity = np.array([1.0, 0.5, -0.3])[: len(shape)]
    flow = CurvilinearFlow(smooth_points(shape, size=0.05), 0.01)
    flow.start(np.broadcast_to(velocity, (*shape, len(shape))))
    for _ in range(3):
        flow.step(0.02)
    assert np.abs(flow.u.numpy() - velocity).max() < 1e-13
    assert np.abs(flow.divergence()).max() < 1e-13


@pytest.mark.parametrize("shape", [(8, 9), (5, 6, 7)])
def test_a_uniform_flow_stays_between_walls_that_go_along(shape: tuple[int, ...]) -> None:
    """Metrics at walls, and beyond them, belong to the same closed cells."""
    ml.use("numpy")
    velocity = np.array([1.0, 0.5, -0.3])[: len(shape)]
    walls = {(axis, side): tuple(velocity) for axis in range(len(shape)) for side in ("low", "high")}
    flow = CurvilinearFlow(smooth_points(shape, size=0.05), 0.01, periodic=False, walls=walls)
    flow.start(np.broadcast_to(velocity, (*shape, len(shape))))
    for _ in range(2):
        flow.step(0.02)
    assert np.abs(flow.u.numpy() - velocity).max() < 1e-13 and np.abs(flow.divergence()).max() < 1e-13


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("rank", [2, 3])
def test_the_pressure_operator_is_symmetric_and_positive(rank: int, periodic: bool) -> None:
    ml.use("numpy")
    shape = (5, 6, 7)[:rank]
    steps = CurvilinearSteps(CurvilinearGeometry(metrics_of(smooth_points(shape, seed=3, size=0.08)), periodic))
    matrix = dense(steps)
    scale = np.abs(matrix).max()
    assert np.abs(matrix - matrix.T).max() < 1e-13 * scale
    values = np.linalg.eigvalsh(matrix)
    assert abs(values[0]) < 1e-13 * scale and values[1] > 1e-3 * scale, "constants alone have no slope"
    assert np.abs(matrix.sum(axis=1)).max() < 1e-13 * scale


def dense(steps: CurvilinearSteps) -> np.ndarray:
    """The pressure operator, column by column."""
    grid = steps.grid
    p, out, columns = grid.field("p"), grid.field("out"), []
    for one in np.eye(grid.size):
        p.assign(one.reshape(grid.shape))
        steps.pressure_operator(p, out)
        columns.append(out.numpy().ravel())
    return np.array(columns).T


@pytest.mark.parametrize(("shape", "size", "least", "most"), [((16, 16), 0.06, 9, 10), ((64, 64), 0.03, 8, 9),
                                                              ((12, 12, 12), 0.1, 14, 15)])  # fmt: skip
def test_iterations_are_those_of_the_docs(shape: tuple[int, ...], size: float, least: int, most: int) -> None:
    ml.use("numpy")
    flow = CurvilinearFlow(smooth_points(shape, seed=2, size=size), 0.1)
    values = np.random.default_rng(0).standard_normal(shape)
    flow.b.assign(values - values.mean())
    report = flow.solve_pressure(tol=1e-8)
    assert report.converged and least <= report.iterations <= most


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_sweep_is_one_of_jacobi(orthogonal: bool) -> None:
    ml.use("numpy")
    shape = (5, 6, 7)
    points = points_of(lambda i, j, k: (i + 0.2 * np.sin(i), j, k), shape) if orthogonal else smooth_points(shape)
    steps = steps_on(points)
    assert steps.geometry.orthogonal is orthogonal
    dice, grid, dt = np.random.default_rng(0), steps.grid, ml.Global(0.1, "dt")
    p, faces = grid.field("p", data=dice.random(shape)), grid.field("faces", 3, data=dice.random((*shape, 3)))
    out, divergence = grid.field("out"), grid.field("divergence")
    steps.sweep(p, faces, dt, out)
    steps.divergence(faces, dt, divergence)
    matrix = dense(steps)
    residual = -divergence.numpy().ravel() - matrix @ p.numpy().ravel()
    expected = p.numpy().ravel() + 2.0 / 3.0 * residual / np.diag(matrix)
    np.testing.assert_allclose(out.numpy().ravel(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", FLOW_BACKENDS)
def test_manufactured_solutions_at_second_order(backend: str) -> None:
    ml.use(backend)
    coarse, fine = (np.array(errors(n)) for n in ((12, 24) if backend == "emulated" else (16, 32)))
    orders = np.log2(coarse / fine)
    assert (orders > 1.7).all(), orders


def errors(n: int) -> tuple[float, float, float]:
    """Of u*, of the pressure's operator and of the gradient, at n^3 points of one and the same mapping."""
    points = smooth_points((n, n, n), seed=5)
    steps, (x, y, z) = steps_on(points), places(points)
    grid, jacobian = steps.grid, steps.geometry.jacobian.numpy()
    sin, cos = np.sin, np.cos
    u = np.stack([sin(z) + cos(y), sin(x) + cos(z), sin(y) + cos(x)], axis=-1)  # lap u = -u, div u = 0
    carried = np.stack([-u[..., 1] * sin(y) + u[..., 2] * cos(z), u[..., 0] * cos(x) - u[..., 2] * sin(z),
                        -u[..., 0] * sin(x) + u[..., 1] * cos(y)], axis=-1)  # fmt: skip
    p, slope = sin(x) * cos(y + z), np.stack(
        [cos(x) * cos(y + z), -sin(x) * sin(y + z), -sin(x) * sin(y + z)], axis=-1)  # fmt: skip
    dt, nu = ml.Global(1.0, "dt"), ml.Global(0.7, "nu")
    velocity, pressure = grid.field("u", 3, data=u), grid.field("p", data=p)
    faces, found, image, zero = grid.field("faces", 3), grid.field("found", 3), grid.field("image"), grid.field("z", 3)
    steps.interpolate(velocity, faces)
    steps.predict(velocity, faces, dt, nu, found)
    of_velocity = np.abs(found.numpy() - (u - carried - 0.7 * u)).max()
    steps.pressure_operator(pressure, image)
    of_pressure = np.abs(image.numpy() / jacobian - 3.0 * p).max()
    steps.project_points(zero, pressure, dt, found)
    return of_velocity, of_pressure, np.abs(found.numpy() + slope).max()


# --- flows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", FLOW_BACKENDS)
def test_taylor_green_decays_at_second_order(backend: str) -> None:
    ml.use(backend)
    found = [decayed(n) for n in ((8, 16) if backend in ("numpy", "emulated") else (16, 32))]
    assert np.log2(found[0] / found[1]) > 1.7, found


def decayed(n: int, nu: float = 0.1, end: float = 0.2) -> float:
    """The largest error of the velocity at the end; the divergence at faces is looked at after every step."""
    points = smooth_points((n, n), seed=2)
    x, y = places(points)
    start = np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)], axis=-1)
    flow, steps = CurvilinearFlow(points, nu), 4 * (n // 8) ** 2
    flow.start(start)
    for _ in range(steps):
        report = flow.step(end / steps)
        assert report.converged and report.iterations <= 20
        assert np.abs(flow.divergence()).max() < 1e-10 * LENGTH / n
    return float(np.abs(flow.u.numpy() - start * np.exp(-2.0 * nu * end)).max())


@pytest.mark.slow
def test_a_distorted_grid_between_walls() -> None:
    """Between a wall at rest and one that moves the velocity grows evenly, wherever the points are."""
    ml.use("numpy")
    found = [couette(n) for n in (8, 16)]
    assert np.log2(found[0] / found[1]) > 1.6, found


def couette(n: int) -> float:
    def mapping(i: Any, j: Any) -> tuple[Any, Any]:
        y = (j + 0.5) / n
        bump = np.sin(np.pi * y) ** 2  # walls stay straight
        return i / n + 0.05 * bump * np.sin(LENGTH * i / n + 1.0), y + 0.05 * bump * np.sin(LENGTH * i / n)

    points = points_of(mapping, (n, n))
    flow = CurvilinearFlow(points, 1.0, periodic=(True, False), walls={(1, "high"): (1.0, 0.0)})
    y = places(points)[1]
    flow.start(np.stack([y, 0.0 * y], axis=-1))
    for _ in range(12):
        flow.step(0.1 / n**2)
        assert np.abs(flow.divergence()).max() < 1e-10
    return float(np.abs(flow.u.numpy() - np.stack([y, 0.0 * y], axis=-1)).max())


@pytest.mark.slow
def test_a_turned_cavity_is_the_cavity() -> None:
    """Lines along x and y take kernels of their own; turned by some angle they take the general ones."""
    ml.use("numpy")
    n, angle = 10, 0.4
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def straight(i: Any, j: Any) -> tuple[Any, Any]:
        return (i + 0.5) / n, (j + 0.5) / n

    def turned(i: Any, j: Any) -> list[Any]:
        return [row[0] * straight(i, j)[0] + row[1] * straight(i, j)[1] for row in turn]

    lid, found = np.array([1.0, 0.0]), []
    for mapping, speed in ((straight, lid), (turned, turn @ lid)):
        flow = CurvilinearFlow(points_of(mapping, (n, n)), 0.01, periodic=False, walls={(1, "high"): tuple(speed)})
        flow.start(np.zeros((n, n, 2)))
        for _ in range(15):
            assert flow.step(0.02).converged
        assert np.abs(flow.divergence()).max() < 1e-10
        found.append((flow.u.numpy(), flow.geometry.orthogonal))
    (u, plain), (u_turned, general) = found
    assert (plain, general) == (True, False) and np.abs(u).max() > 0.3
    np.testing.assert_allclose(u_turned, u @ turn.T, atol=1e-9)


@pytest.mark.parametrize("turns", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_no_index_comes_first(turns: int) -> None:
    """A sheared cavity whose indices run along other sides is the same cavity, at its corners, too."""
    ml.use("numpy")
    n, lid = 6, (1.0, 0.2)

    def sheared(i: Any, j: Any) -> tuple[Any, Any]:
        x, y = (i + 0.5) / n, (j + 0.5) / n
        return x + 0.4 * y + 0.05 * np.sin(3.0 * y), y + 0.2 * x

    points, sides = points_of(sheared, (n, n)), [(1, "high"), (0, "high"), (1, "low"), (0, "low")]
    found = []
    for quarter in (0, turns):
        turned = np.ascontiguousarray(np.rot90(points, quarter))
        flow = CurvilinearFlow(turned, 0.02, periodic=False, walls={sides[-quarter % 4]: lid})
        flow.start(np.zeros((n, n, 2)))
        for _ in range(4):
            flow.step(0.02)
        found.append(np.rot90(flow.u.numpy(), -quarter))
    assert np.abs(found[0]).max() > 0.05
    np.testing.assert_allclose(found[1], found[0], rtol=0.0, atol=1e-8)


@pytest.mark.parametrize(
    ("given", "says"),
    [({"walls": {(0, "low"): (0.0, 0.0)}}, "walls: there is none at (0, 'low'); known: none"),
     ({"walls": {(0, "low"): (0.0,)}, "periodic": False}, "the velocity at (0, 'low') must be 2 numbers"),
     ({"periodic": (True,)}, "periodic must be True or False, or one of them for each of the 2 axes")],
)  # fmt: skip
def test_bad_walls_and_ends_are_refused(given: dict[str, Any], says: str) -> None:
    with one_line_from(MeshError, re.escape(says)):
        CurvilinearFlow(smooth_points((6, 6)), 0.1, **given)


def test_walls_that_let_more_in_than_out_are_refused() -> None:
    """Its divergence would stay, and nobody would be told; what leaves elsewhere is no such thing, nor is rounding."""
    ml.use("numpy")
    points = points_of(lambda i, j: (i + 0.3 * j, j - 0.2 * i), (5, 4))
    up, along = (-0.2, 1.0), (0.3 * 0.1, 0.1)
    with one_line_from(MeshError, "walls: 4.8 more flows out through them than in; they may move along themselves"):
        CurvilinearFlow(points, 0.1, periodic=(True, False), walls={(1, "high"): up}).start(np.zeros((5, 4, 2)))
    for walls in ({(1, "low"): up, (1, "high"): up}, {(0, "low"): along}):
        flow = CurvilinearFlow(points, 0.1, periodic=(0, "low") not in walls and (True, False), walls=walls)
        flow.start(np.zeros((5, 4, 2)))
        flow.step(0.01)
        assert np.abs(flow.divergence()).max() < 1e-10
