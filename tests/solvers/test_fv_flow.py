"""Finite volumes for compressible flow: what must hold on every kind of cell, and order of accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench.shock_tubes import run_until
from meshloom.errors import ConfigError
from meshloom.solvers.finite_volume.conditions import (
    AdiabaticWall,
    CharacteristicFarField,
    GivenState,
    IsothermalWall,
    Periodic,
    PressureOutlet,
    ReservoirInlet,
    SlipWall,
    SupersonicOutlet,
    join_periodic,
)
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.geometry import GRADIENTS, Volumes
from meshloom.solvers.finite_volume.kernels import FlowScheme
from tests.solvers.gas_flows import KINDS, distorted, error_at, irregular, smooth_flow, waves

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
EULER, LAMINAR = IdealGas(), IdealGas(law="constant", reference_viscosity=0.01)
LIMITED = FlowScheme(flux="hllc", limiter="venkatakrishnan")


@pytest.fixture(autouse=True)
def on_numpy() -> None:
    ml.use("numpy")


def uniform(mesh: ml.Mesh, gas: IdealGas, scheme: FlowScheme, condition: Any) -> tuple[CompressibleFlow, np.ndarray]:
    stream = np.array([1.0, *[0.5, 0.3, -0.2][: mesh.dim], 1.0])
    start = np.tile(gas.conserved(stream), (len(mesh.cells), 1))
    return CompressibleFlow(mesh, gas, scheme, dict.fromkeys(mesh.groups, condition), start, stream), start


def inflow_of(flow: CompressibleFlow) -> np.ndarray:
    found = flow.mesh.cells.field("found", flow.dim + 2, dtype=flow.dtype)
    ml.program(lambda: flow.inflow(flow.terms(flow.u), found)).run()
    return found.numpy()


# --- what must hold for any flow ------------------------------------------------------------------------------


@pytest.mark.parametrize("gas", [EULER, LAMINAR], ids=["euler", "laminar"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_uniform_stream_stays_uniform(kind: str, gas: IdealGas):
    flow, start = uniform(distorted(kind, 3), gas, LIMITED, CharacteristicFarField())
    run_until(flow, 0.2)
    np.testing.assert_allclose(flow.u.numpy(), start, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_between_walls_nothing_is_lost(kind: str):
    mesh = distorted(kind, 4)
    start = EULER.conserved(waves(mesh.cell_centroids)).T
    flow = CompressibleFlow(
        mesh, EULER, LIMITED, dict.fromkeys(mesh.groups, SlipWall()), start, waves(np.zeros((1, mesh.dim)))[:, 0]
    )
    before = start.T @ mesh.cell_volumes
    steps = run_until(flow, 0.1)
    after = flow.u.numpy().T @ mesh.cell_volumes
    assert abs(flow.u.numpy() - start).max() > 0.05, "something moves"
    np.testing.assert_allclose(after[[0, -1]], before[[0, -1]], rtol=1e-14)
    np.testing.assert_allclose([steps.totals.mass.value, steps.totals.energy.value], after[[0, -1]], rtol=1e-13)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_linear_functions_are_exact(kind: str, gradient: str):
    """Also in cells at a boundary that says nothing, as long as their other faces do."""
    mesh = distorted(kind, 5)
    slope = np.random.default_rng(1).normal(size=(mesh.dim + 2, mesh.dim))

    def linear(x: np.ndarray) -> np.ndarray:
        return (3.0 + x @ slope.T).T

    class Linear(GivenState):
        def given(self, centres: np.ndarray, stream: np.ndarray) -> np.ndarray:
            return linear(centres).T

    for condition, free in ((Linear(), False), (CharacteristicFarField(), True)):
        given = dict.fromkeys(mesh.groups, condition)
        start, stream = np.ones((len(mesh.cells), mesh.dim + 2)), np.ones(mesh.dim + 2)
        flow = CompressibleFlow(mesh, EULER, FlowScheme(gradient=gradient), given, start, stream)
        found = flow.gradient(mesh.cells.field("v", mesh.dim + 2, data=linear(mesh.cell_centroids).T)).numpy()
        inner = np.setdiff1d(np.arange(len(mesh.cells)), mesh.boundary_cells.indices)
        which = inner if free else slice(None)
        np.testing.assert_allclose(found[which], np.tile(slope, (len(found[which]), 1, 1)), rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("dim", [2, 3])
def test_small_waves_do_not_grow(dim: int, gradient: str):
    """Without a limiter, on cells as irregular as mesh generators make them. With gradients by the neighbours of each
    tetrahedron alone waves become 10^4 times as large."""
    ml.use("cpu")
    mesh = irregular(dim, 4 if dim == 3 else 6)
    stream = np.array([1.0, *np.linspace(0.5, 0.3, dim), 1.0])
    noise = 1e-6 * np.random.default_rng(4).normal(size=(dim + 2, len(mesh.cells)))
    start = EULER.conserved(stream[:, None] * (1.0 + noise)).T
    given = dict.fromkeys(mesh.groups, CharacteristicFarField())
    flow = CompressibleFlow(mesh, EULER, FlowScheme(gradient=gradient), given, start, stream)
    run_until(flow, 2.0)
    left = np.abs(flow.u.numpy() - EULER.conserved(stream)).max()
    assert left < 0.5 * np.abs(start - EULER.conserved(stream)).max()


@pytest.mark.parametrize(
    ("kind", "gas"),
    [
        pytest.param("triangle", EULER, id="triangle-euler"),
        pytest.param("quad", EULER, id="quad-euler"),
        pytest.param("quad", LAMINAR, id="quad-laminar"),
    ],
)
def test_second_order_in_the_plane(kind: str, gas: IdealGas):
    """A manufactured solution on distorted cells; first order is six times as far off on the finer mesh."""
    coarse, fine = (error_at(distorted(kind, n), gas, FlowScheme(), 0.3) for n in (6, 12))
    assert (np.log2(coarse / fine) > 1.7).all(), (coarse, fine)
    if kind == "quad" and gas is EULER:
        assert (error_at(distorted(kind, 12), gas, FlowScheme(order=1), 0.3) > 6.0 * fine).all()


@pytest.mark.slow
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("gas", [EULER, LAMINAR], ids=["euler", "laminar"])
@pytest.mark.parametrize(("kind", "sizes"), [("triangle", (16, 32)), ("quad", (16, 32)), ("mixed plane", (16, 32)),
("mixed space", (8, 16)), ("tetrahedron", (6, 12)), ("hexahedron", (10, 20))])  # fmt: skip
def test_second_order(kind: str, sizes: tuple[int, int], gas: IdealGas, gradient: str):
    """Of all components together, and roughly of each: the meshes are drawn at random, so that one is not part of the
    other."""
    ml.use("cpu")
    coarse, fine = (error_at(distorted(kind, n), gas, FlowScheme(gradient=gradient), 0.4) for n in sizes)
    assert np.log2(coarse.sum() / fine.sum()) > 1.75, (coarse, fine)
    assert (np.log2(coarse / fine) > 1.5).all(), (coarse, fine)


def test_a_limiter_keeps_new_extremes_away():
    """A step of pressure and temperature: pressures beyond those of the start are 1 % of those without a limiter."""
    mesh = distorted("triangle", 8)
    left, right = EULER.state(1.0, (0.3, 0.1), 1.0), EULER.state(0.2, (0.0, 0.1), 0.1)
    V = np.where(mesh.cell_centroids[:, 0] < 0.5, left[:, None], right[:, None])
    reached = {}
    for limiter in ("none", "barth_jespersen", "venkatakrishnan"):
        flow = CompressibleFlow(mesh, EULER, FlowScheme(limiter=limiter, limiter_constant=0.1),
                                dict.fromkeys(mesh.groups, SupersonicOutlet()), EULER.conserved(V).T, left)  # fmt: skip
        run_until(flow, 0.02)
        found = EULER.primitives(flow.u.numpy().T)
        reached[limiter] = float(max(found[0].max() - 1.0, 0.1 - found[0].min()))
    assert reached["none"] > 0.01
    assert max(reached["barth_jespersen"], reached["venkatakrishnan"]) < 0.01 * reached["none"]


# --- conditions -------------------------------------------------------------------------------------------------


def at_side(condition: type, V: Any, given: Any, normal: Any = (1.0, 0.0)) -> np.ndarray:
    return np.asarray(condition.state(EULER, np.asarray(V), np.asarray(given), np.asarray(normal)))


def test_far_field_takes_in_and_lets_out():
    stream, inside = EULER.state(1.0, (0.4, 0.1), 1.0), EULER.state(1.1, (0.45, 0.0), 1.1)
    np.testing.assert_allclose(at_side(CharacteristicFarField, stream, stream), stream, rtol=1e-14)
    out = at_side(CharacteristicFarField, inside, stream)
    assert out[2] == inside[2], "going out, the velocity along the face is that inside"
    coming = at_side(CharacteristicFarField, inside, stream, (-1.0, 0.0))
    assert coming[2] == stream[2]
    entropy = out[0] / EULER.density(out) ** 1.4
    assert entropy == pytest.approx(inside[0] / EULER.density(inside) ** 1.4, rel=1e-14)
    fast, still_faster = EULER.state(1.0, (3.0, 0.0), 1.0), EULER.state(0.9, (3.3, 0.2), 1.2)
    np.testing.assert_allclose(at_side(CharacteristicFarField, still_faster, fast), still_faster, rtol=1e-13)
    np.testing.assert_allclose(at_side(CharacteristicFarField, still_faster, fast, (-1.0, 0.0)), fast, rtol=1e-13)


def test_an_inlet_keeps_total_pressure_and_temperature():
    inside = EULER.state(1.0, (0.2, 0.0), 0.9)
    V = at_side(ReservoirInlet, inside, [1.0, 0.8, 0.6, 1.1], (-1.0, 0.0))
    mach2 = (V[1] ** 2 + V[2] ** 2) / float(EULER.sound_speed(V)) ** 2
    assert V[2] / V[1] == pytest.approx(0.75, rel=1e-14)
    assert V[-1] * (1.0 + 0.2 * mach2) == pytest.approx(1.1, rel=1e-14)
    assert V[0] * (1.0 + 0.2 * mach2) ** 3.5 == pytest.approx(1.0, rel=1e-14)

    def invariant(V: np.ndarray) -> float:
        return float(-V[1] + 5.0 * EULER.sound_speed(V))

    assert invariant(V) == pytest.approx(invariant(inside), rel=1e-13)


def test_an_outlet_holds_the_pressure_unless_the_flow_is_supersonic():
    inside = EULER.state(1.0, (0.5, 0.2), 1.0)
    V = at_side(PressureOutlet, inside, [0.8, 0.0, 0.0, 1.0])
    assert V[0] == 0.8 and V[2] == 0.2 and V[1] > 0.5
    fast = EULER.state(1.0, (3.0, 0.2), 1.0)
    np.testing.assert_array_equal(at_side(PressureOutlet, fast, [0.8, 0.0, 0.0, 1.0]), fast)


def test_a_wall_in_couette_flow():
    """Between a wall at rest and one that moves, both of one temperature, in a straight line; shear and heat are exact
    where the flow is linear: the inflow into all cells but for what friction heats is zero."""
    gas = IdealGas(law="constant", reference_viscosity=0.1)
    mesh = ml.generate.box((3, 6))
    y = mesh.cell_centroids[:, 1]
    V = np.stack([1.0 + 0.0 * y, 0.2 * y, 0.0 * y, 1.0 + 0.0 * y])
    conditions = {"xmin": SupersonicOutlet(), "xmax": SupersonicOutlet(), "ymin": AdiabaticWall(),
                  "ymax": IsothermalWall(velocity=(0.2, 0.0), temperature=1.0)}  # fmt: skip
    flow = CompressibleFlow(mesh, gas, FlowScheme(), conditions, gas.conserved(V).T, V[:, 0])
    totals = ml.Global(np.zeros(2), "force"), ml.Global(np.zeros(2), "friction"), ml.Global(0.0, "moment")
    about = ml.Global(np.zeros(2), "about")
    ml.program(lambda: flow.forces(flow.terms(flow.u), about, totals)).run()
    np.testing.assert_allclose(totals[1].value, [0.1 * 0.2 - 0.1 * 0.2, 0.0], atol=1e-15)
    np.testing.assert_allclose(totals[2].value, 1.0 * 0.1 * 0.2, rtol=1e-12)  # the upper wall is dragged, at y = 1
    inner = (mesh.cell_centroids[:, 0] > 0.34) & (mesh.cell_centroids[:, 0] < 0.66)
    np.testing.assert_allclose(inflow_of(flow)[inner, 1], 0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        ({"xmin": SlipWall(), "xmax": SlipWall(), "ymin": SlipWall()},
         "boundary group 'ymax' of the mesh (2 faces) has no condition"),
        (dict.fromkeys(("xmin", "xmax", "ymin", "ymax", "top"), SlipWall()), "boundary.top is no boundary group"),
        (dict.fromkeys(("xmin", "xmax", "ymin", "ymax"), AdiabaticWall(velocity=(1.0,))),
         "boundary.xmin has a velocity of 1 numbers; the mesh has 2 axes"),
    ],
)  # fmt: skip
def test_every_group_has_one_condition(conditions: dict[str, Any], says: str):
    mesh = ml.generate.box((2, 2))
    with pytest.raises(ConfigError) as caught:
        Volumes.of(mesh, conditions, np.ones(4))
    assert says in str(caught.value) and "\n" not in str(caught.value)


# --- engine ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", pytest.param("emulated", marks=pytest.mark.slow), CUDA])
@pytest.mark.parametrize("kind", ["triangle", pytest.param("tetrahedron", marks=pytest.mark.slow)])
def test_every_back_end_gives_the_same_flow(backend: str, kind: str):
    mesh = distorted(kind, 3)
    found = []
    for one in ("numpy", backend):
        ml.use(one)
        found.append(inflow_of(smooth_flow(mesh, LAMINAR, LIMITED)))
    np.testing.assert_allclose(found[1], found[0], rtol=0.0, atol=1e-13)


def test_single_precision():
    mesh = distorted("triangle", 4)
    double, single = (inflow_of(uniform_waves(mesh, dtype)) for dtype in (np.float64, np.float32))
    assert single.dtype == np.float32 and 1e-9 < abs(single - double).max() < 1e-5


def uniform_waves(mesh: ml.Mesh, dtype: Any) -> CompressibleFlow:
    start = LAMINAR.conserved(waves(mesh.cell_centroids)).T
    stream = waves(np.zeros((1, 2)))[:, 0]
    return CompressibleFlow(
        mesh, LAMINAR, LIMITED, dict.fromkeys(mesh.groups, CharacteristicFarField()), start, stream, dtype=dtype
    )


# --- periodic sides -------------------------------------------------------------------------------------------


def test_a_wave_goes_round():
    """Density carried along a periodic channel: after one turn it is where it was, to second order."""
    errors = []
    for n in (8, 16):
        channel = ml.generate.box((n, 2), extent=(1.0, 0.25))
        mesh, rest = join_periodic(channel, {"xmin": Periodic(partner="xmax"), "ymin": SlipWall(), "ymax": SlipWall()})
        density = 1.0 + 0.2 * np.sin(2.0 * np.pi * mesh.cell_centroids[:, 0])
        V = EULER.state(density, (1.0 + 0.0 * density, 0.0 * density), 1.0 + 0.0 * density)
        flow = CompressibleFlow(mesh, EULER, FlowScheme(), rest, EULER.conserved(V).T, V[:, 0])
        run_until(flow, 1.0)
        errors.append(abs(flow.u.numpy()[:, 0] - density).mean())
    assert errors[1] < 0.02 and errors[0] / errors[1] > 3.0, errors


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        (
            {"xmin": Periodic(partner="xman")},
            "boundary.xmin joins 'xman', which is no boundary group; did you mean 'xmin'?",
        ),
        (
            {"xmin": Periodic(partner="xmax"), "xmax": SlipWall()},
            "boundary.xmin joins 'xmax', which has another condition",
        ),
        ({"xmin": Periodic(partner="xmin")}, "boundary.xmin joins 'xmin', which has another condition"),
    ],
)
def test_partners_that_are_none(conditions: dict[str, Any], says: str):
    with pytest.raises(ConfigError) as caught:
        join_periodic(ml.generate.box((2, 2)), conditions)
    assert says in str(caught.value)
