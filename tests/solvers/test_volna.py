"""Shallow water: the original program's states, exact solutions, and what any water must obey."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml
from bench.truth_cases import (
    V18_DAM,
    WATER_STATES,
    WATER_TOTALS,
    unmet,
    water_at_a_step,
    water_to_the_end,
    water_totals,
)
from meshloom.solvers import clock
from meshloom.solvers.clock import Timing
from meshloom.solvers.exact_water import Stoker, Thacker
from meshloom.solvers.volna import first_order, second_order
from meshloom.solvers.volna.flux import Water
from meshloom.solvers.volna.geometry import inner_first, measure
from tests.solvers.water import DATA, reference, run, state_of, to_the_end, water

SCHEMES = ("v17", "v18")
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use(before[0], threads=1)
    yield
    ml.use(before[0], threads=before[1])


# --- the original program ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", CUDA])
@pytest.mark.parametrize(("scheme", "name"), [(s, name) for s, names in WATER_STATES.items() for name in names])
def test_states_of_the_original(scheme: str, name: str, backend: str):
    """Of the first order everywhere; of the second in the mean over the cells, because it enlarges rounding: see the
    tests that follow."""
    ml.use(backend)
    assert water(f"volna_{name.split('_')[0]}").flow.w.dtype == np.float32
    assert not unmet(water_at_a_step(scheme, name))


@pytest.mark.parametrize("name", [
    "dambreak_100_20_it174", pytest.param("thacker_40_40_it171", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.slow
def test_the_original_second_order_is_as_near_as_rounding_allows(name: str):
    """Another order in memory changes nothing but the order of sums, and moves the state about as far: one of them by
    chance less, so the farthest of three counts."""
    steps, _, truth = reference(f"v18_{name}")
    states = []
    for order in ("given", "random", "hilbert", "rcm"):
        case = water(f"volna_{name.split('_')[0]}", f"mesh.order={order}")
        run(case, steps)
        states.append(state_of(case))
    from_truth, *from_others = (np.abs(states[0] - other)[:, 0].mean() for other in (truth, *states[1:]))
    from_itself = max(from_others)
    assert from_truth < 4.0 * from_itself, (from_truth, from_others)


@pytest.mark.slow
def test_rounding_at_the_foot_of_a_dam_decides_about_slopes():
    """A disturbance of 1e-9 m/s moves the first steps of the second order as far as the original is away."""
    truth = water_totals()["v18_dambreak_400_20_t0.5"]["steps"][2]
    energies = []
    for size in (0.0, 1e-9):
        case = water("volna_dambreak", "flow.scheme=v18", "mesh.nx=400")
        start = case.flow.w.numpy()
        start[:, 1:3] += size * np.random.default_rng(0).choice([-1, 0, 1], (len(start), 2))
        case.flow.w.assign(start)
        energies.append(run(case, 3)[-1, 3])
    still, disturbed = energies
    assert abs(truth["ke"] / still - 1.0) < abs(disturbed / still - 1.0) < V18_DAM.energy[0]
    assert min(energies) < truth["ke"] < max(energies)


@pytest.mark.optimised  # shores in single precision: bounds are those of compiled code as users have it
@pytest.mark.parametrize("backend", ["cpu", CUDA])
@pytest.mark.parametrize("name", [name for name in WATER_TOTALS if "400" not in name])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_steps_and_totals_of_the_original(name: str, scheme: str, backend: str):
    """Each case as it comes ends like the original's."""
    ml.use(backend)
    assert not unmet(water_to_the_end(scheme, name))


# --- exact solutions --------------------------------------------------------------------------------------------


def test_the_dam_break_of_stoker():
    truth = json.loads((DATA / "stoker_dambreak_2_1.json").read_text())
    exact = Stoker(truth["hl"], truth["hr"], truth["g"])
    assert exact.middle == pytest.approx((truth["hm"], truth["um"]), rel=1e-12)
    assert exact.bore_speed == pytest.approx(truth["shock_speed"], rel=1e-12)
    h, u = exact.at(np.array([-9.0, 0.0, 4.0, 9.0]), 1.0)
    assert h[[0, 3]].tolist() == [2.0, 1.0] and u[[0, 3]].tolist() == [0.0, 0.0]
    assert (h[2], u[2]) == exact.middle, "between the waves"
    front = (exact.middle[1] - np.sqrt(9.81 * exact.middle[0])) * np.array([1.0 + 1e-9, 1.0 - 1e-9])
    np.testing.assert_allclose(*(values for values in zip(*exact.at(front, 1.0), strict=True)), rtol=1e-7)


def test_the_dam_break_on_dry_land_of_ritter():
    exact = Stoker(left=2.0, right=0.0)
    front = 2.0 * np.sqrt(9.81 * 2.0)
    h, u = exact.at(np.array([0.0, 0.999 * front, 1.001 * front]), 1.0)
    assert (h[0], u[0]) == pytest.approx((4.0 / 9.0 * 2.0, front / 3.0), rel=1e-12)
    assert 0.0 < h[1] < 1e-5 and (h[2], u[2]) == (0.0, 0.0) and exact.bore_speed == front


def test_the_bowl_of_thacker():
    """It solves the equations: the rate of change of the depth is what flows in, checked by differences."""
    exact, x, y, t, d = Thacker(), np.array([0.3, -0.5]), np.array([0.2, 0.1]), 0.7, 1e-5
    assert exact.omega == pytest.approx(2.8014282071829006) and exact.period == pytest.approx(2.242850732733187)

    def flow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        h, u, v = exact.at(x, y, t)
        return np.stack([h * u, h * v])

    rate = (exact.at(x, y, t + d)[0] - exact.at(x, y, t - d)[0]) / (2 * d)
    inward = -(flow(x + d, y)[0] - flow(x - d, y)[0] + flow(x, y + d)[1] - flow(x, y - d)[1]) / (2 * d)
    assert np.abs(rate).min() > 1e-3
    np.testing.assert_allclose(rate, inward, rtol=1e-6)
    u, slope = exact.at(x, y, t)[1], (exact.surface(x + d, y, t) - exact.surface(x - d, y, t)) / (2 * d)
    along = (exact.at(x + d, y, t)[1] - exact.at(x - d, y, t)[1]) / (2 * d)
    speeding = (exact.at(x, y, t + d)[1] - exact.at(x, y, t - d)[1]) / (2 * d)
    np.testing.assert_allclose(speeding + u * along, -9.81 * slope, rtol=1e-6)


def error_in_depth(case, exact_depth: np.ndarray) -> float:
    """Mean difference over the mean depth."""
    area = case.mesh.cell_volumes
    return float(area @ np.abs(state_of(case)[:, 0] - exact_depth) / (area @ exact_depth))


@pytest.mark.parametrize(("scheme", "least", "finest"), [("v17", 0.6, 0.009), ("v18", 0.65, 0.007)])
def test_the_dam_break_converges(scheme: str, least: float, finest: float):
    """First order at the bore and at the corners of the rarefaction is what any such scheme can have; 0.7 is seen."""
    errors = []
    for n in (50, 100, 200):
        case = water("volna_dambreak", f"flow.scheme={scheme}", "run.precision=double", "time.trim=true",
                     f"mesh.nx={n}", "mesh.ny=3", f"dam.width={30.0 / n}")  # fmt: skip
        to_the_end(case)
        assert case.flow.time.value == 0.5, "the last step is trimmed"
        errors.append(error_in_depth(case, case.exact.at(case.mesh.cells.points[:, 0] - 5.0, 0.5)[0]))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders.min() > least, (errors, orders)
    assert errors[-1] < finest


@pytest.mark.parametrize("scheme", SCHEMES)
def test_water_runs_over_dry_land_as_it_should(scheme: str):
    errors = []
    for n in (50, 100):
        case = water("volna_dambreak", f"flow.scheme={scheme}", "run.precision=double", "time.trim=true", "dam.right=0",
                     "time.end=0.4", f"mesh.nx={n}", "mesh.ny=3", f"dam.width={30.0 / n}")  # fmt: skip
        to_the_end(case)
        errors.append(error_in_depth(case, case.exact.at(case.mesh.cells.points[:, 0] - 5.0, 0.4)[0]))
    assert errors[1] < 0.7 * errors[0] and errors[1] < 0.02, errors


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "least", "finest"), [("v17", 0.65, 0.085), ("v18", 0.9, 0.045)])
def test_the_bowl_converges(scheme: str, least: float, finest: float):
    """After half a swing, when the water stands highest on the dry slope."""
    exact, errors = Thacker(), []
    for n in (20, 40):
        case = water("volna_thacker", f"flow.scheme={scheme}", "run.precision=double", "time.trim=true",
                     f"mesh.nx={n}", f"mesh.ny={n}", f"time.end={exact.period / 2}")  # fmt: skip
        to_the_end(case)
        errors.append(error_in_depth(case, exact.at(*case.mesh.cells.points.T, exact.period / 2)[0]))
    assert np.log2(errors[0] / errors[1]) > least, errors
    assert errors[-1] < finest


@pytest.mark.slow
def test_the_second_order_is_nearer_than_the_first():
    errors = {}
    for scheme in SCHEMES:
        case = water("volna_thacker", f"flow.scheme={scheme}", "mesh.nx=30", "mesh.ny=30", "time.trim=true")
        to_the_end(case)
        errors[scheme] = error_in_depth(case, case.exact.at(*case.mesh.cells.points.T, case.exact.period)[0])
    assert errors["v18"] < 0.75 * errors["v17"]


# --- what any water must obey -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_lake_at_rest_stays_at_rest_to_the_last_digit(scheme: str, precision: str, backend: str):
    ml.use(backend, threads=1)
    case = water("volna_lake", f"flow.scheme={scheme}", f"run.precision={precision}", "mesh.nx=8", "mesh.ny=8")
    before = case.flow.w.numpy()
    run(case, 20)
    np.testing.assert_array_equal(case.flow.w.numpy(), before)


def test_a_lake_with_an_island_stays_at_rest():
    """Dry land in the middle of still water."""
    case = water("volna_lake", "lake.mound=1.5", "flow.scheme=v17")
    run(case, 20)
    w = state_of(case)
    wet = w[:, 0] > 1e-5
    assert 0.5 < wet.mean() < 0.995
    assert np.abs(w[wet, 0] + w[wet, 3]).max() < 1e-5 and np.abs(w[wet, 1:3]).max() < 1e-3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_water_is_neither_made_nor_lost(scheme: str):
    case = water("volna_hump", f"flow.scheme={scheme}", "run.precision=double", "mesh.nx=36", "mesh.ny=12")
    before = case.flow.volume.value
    recorded = run(case, 100)
    np.testing.assert_allclose(recorded[:, 2], before, rtol=1e-13)
    assert recorded[:, 3].max() > 1.0, "it moves"


@pytest.mark.slow
def test_renewed_rates_are_another_scheme_but_nearly_the_same_flow():
    plain, renewed = (water("volna_hump", f"flow.renew_rates={on}", "mesh.nx=36", "mesh.ny=12") for on in
                      ("false", "true"))  # fmt: skip
    a, b = (run(case, 20)[-1, 3] for case in (plain, renewed))
    assert a != b and a == pytest.approx(b, rel=0.05)


@pytest.mark.parametrize("order", ["random"])
def test_every_numbering_gives_the_same_flow(order: str):
    settings = ("flow.scheme=v17", "run.precision=double", "mesh.nx=16", "mesh.ny=16")
    given, moved = water("volna_thacker", *settings), water("volna_thacker", *settings, f"mesh.order={order}")
    np.testing.assert_allclose(run(moved, 20)[:, :4], run(given, 20)[:, :4], rtol=1e-9)
    np.testing.assert_allclose(state_of(moved), state_of(given), rtol=1e-9, atol=1e-12)


def test_a_mesh_from_a_file(tmp_path):
    mesh = ml.generate.box((10, 10), cells="triangle", extent=(10.0, 10.0))
    ml.write(tmp_path / "lake.msh", mesh)
    case = water("volna_lake", f"mesh.file={json.dumps(str(tmp_path / 'lake.msh'))}")
    generated = water("volna_lake", "mesh.nx=10", "mesh.ny=10")
    np.testing.assert_array_equal(case.flow.w.numpy(), generated.flow.w.numpy())
    ml.write(tmp_path / "quads.msh", ml.generate.box((4, 4)))
    with pytest.raises(ml.errors.MeshError, match="quad cells; this case needs triangles"):
        water("volna_lake", f"mesh.file={json.dumps(str(tmp_path / 'quads.msh'))}")


# --- geometry and clock -------------------------------------------------------------------------------------------


def test_slopes_of_a_plane_are_found():
    mesh = ml.generate.box((5, 4), cells="triangle", alternate=True, extent=(2.0, 1.0))
    at = measure(mesh, np.dtype(np.float64))
    plane = mesh.cells.points @ np.array([0.7, -1.3])
    fit = at.fit.numpy().reshape(-1, 3, 2)
    slopes = np.einsum("ck,ckd->cd", plane[at.neighbours.indices] - plane[:, None], fit)
    inside = (mesh.cell_cells.indices != np.arange(len(mesh.cells))[:, None]).all(axis=1)
    # with the last neighbour straight across or above, the original gives up on a cell
    inside &= fit.any(axis=(1, 2))
    assert inside.sum() > 5
    np.testing.assert_allclose(slopes[inside], np.tile([0.7, -1.3], (inside.sum(), 1)), rtol=1e-12)
    assert not slopes[~inside].any()


def test_walls_come_last_among_the_neighbours():
    assert inner_first(np.array([[0, 5, 7], [4, 1, 7], [4, 5, 2], [4, 5, 6]])).tolist() == [
        [7, 5, 0],
        [4, 7, 1],
        [4, 5, 2],
        [4, 5, 6],
    ]


def test_the_clock_never_promises_a_step_too_many():
    timing = Timing(end=1.0, trim=False, growth=1.05, cfl=0.5)
    for pace in (1e-3, 0.013, 0.5, 2.0):
        time, steps, dt = 0.0, 0, pace
        while time < 1.0:
            dt, steps = dt * 1.05, steps + 1
            time += dt
        assert 1 <= timing.steps_left(0.0, pace) <= steps
        assert timing.steps_left(0.0, pace) >= steps - 1
    assert timing.steps_left(0.0, np.inf) == 1 and timing.steps_left(1.0, 0.1) == 0


# --- every schedule -----------------------------------------------------------------------------------------------


def racy_loops(scheme: str, dtype: np.dtype) -> list[tuple[ml.Kernel, tuple, tuple[ml.Field, ...]]]:
    """The loops in which elements meet, on a small mesh with a rough state: kernel, arguments, what is incremented."""
    mesh, rng = ml.generate.box((6, 5), cells="triangle"), np.random.default_rng(3)
    at, n = measure(mesh, dtype), len(mesh.cells)
    values = np.stack([rng.uniform(0.0, 1.0, n), *rng.normal(size=(2, n)), rng.uniform(-1.0, 0.5, n)], axis=1)
    values[::7, 0] = 1e-6
    w, slopes = mesh.cells.field("w", 4, dtype=dtype, data=values), mesh.cells.field("slopes", 8, dtype=dtype)
    inflow, waves = mesh.cells.field("inflow", 3, dtype=dtype), mesh.cells.field("waves", dtype=dtype)
    inner, wall = mesh.face_cells, mesh.boundary_cells
    on_wall = (mesh.boundary_faces, at.wall_normal, at.wall_length, w[wall], inflow[wall], waves[wall])
    if scheme == "v17":
        kernels = first_order.kernels(Water())
        within = (mesh.faces, at.normal, at.length, w[inner], inflow[inner], waves[inner])
        return [(kernels.fluxes, within, (inflow, waves)), (kernels.wall_fluxes, on_wall, (inflow, waves))]
    more = second_order.kernels(Water())
    more.reconstruct(mesh.cells, at.fit, at.reach, w, w[at.neighbours], slopes)
    across = (mesh.faces, at.normal, at.length, at.way, w[inner], slopes[inner], inflow[inner], waves[inner])
    return [(more.fluxes, across, (inflow, waves)), (more.wall_fluxes, on_wall, (inflow, waves))]


def fluxes_by(strategy: str, scheme: str, loops: slice) -> list[np.ndarray]:
    """What some of the racy loops add up under a strategy, which must apply to each."""
    made = racy_loops(scheme, np.dtype(np.float64))[loops]
    for kernel, arguments, _ in made:
        loop = kernel.loop(*arguments, schedule=ml.Schedule(strategy=strategy))
        assert loop.applies, f"{strategy} {kernel.name}: {loop.reason}"
        loop()
    return [field.numpy() for field in made[0][2]]


@pytest.mark.parametrize(
    ("backend", "scheme", "strategies"),
    [
        ("numpy", "v17", ("auto",)),
        ("numpy", "v18", ("auto",)),
        ("cpu", "v17", ml.strategies()),
        ("cpu", "v18", ml.strategies()),
        ("emulated", "v17", ("atomic", "block_color", "tile")),
    ],
)
def test_every_strategy_gives_the_same_fluxes(backend: str, scheme: str, strategies: tuple[str, ...]):
    """As the plain Python function does; the loop over walls, where two meet in a corner, once."""
    loops = slice(0, 2) if scheme == "v17" and backend == "cpu" else slice(0, 1)
    ml.use("numpy")
    plain = racy_loops(scheme, np.dtype(np.float64))[loops]
    with np.errstate(all="ignore"):
        for kernel, arguments, _ in plain:
            kernel.python(*arguments)
    ml.use(backend, threads=1)
    for strategy in strategies:
        for values, field in zip(fluxes_by(strategy, scheme, loops), plain[0][2], strict=True):
            np.testing.assert_allclose(
                values, field.numpy(), rtol=1e-11, atol=1e-12, err_msg=f"{strategy} {field.name}"
            )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_step_element_by_element(scheme: str):
    """Each kernel of a step called plainly as the Python function it is."""
    settings = (f"flow.scheme={scheme}", "run.precision=double", "mesh.nx=5", "mesh.ny=4", "flow.renew_rates=true")
    ml.use("cpu", threads=1)
    compiled, plain = water("volna_thacker", *settings), water("volna_thacker", *settings)
    recorded = run(compiled, 1)[0]
    with np.errstate(all="ignore"):  # both sides of a np.where are computed
        for loop in plain.program.loops:
            loop.run_plainly() if loop.domain.visits_elements else loop()
    np.testing.assert_allclose(plain.recorded_now(), recorded, rtol=1e-12)
    np.testing.assert_allclose(plain.flow.w.numpy(), compiled.flow.w.numpy(), rtol=1e-12, atol=1e-15)


def test_the_clock_counts_in_single_precision_and_sums_in_double():
    case = water("volna_lake", "mesh.nx=4", "mesh.ny=4")
    dt, time = case.flow.dt, case.flow.time
    recorded = run(case, 5)
    assert dt.dtype == np.float32 and time.dtype == np.float64
    np.testing.assert_array_equal(np.cumsum(recorded[:, 1]), recorded[:, 0])
    assert [one.name for one in clock.kernels(case.flow.timing)] == ["time_limit", "tick"]


def test_solvers_do_not_speak_of_execution():
    """Layouts, threads and strategies belong to the engine: the physics never names them."""
    from pathlib import Path

    files = sorted((Path(ml.__file__).parent / "solvers" / "volna").glob("*.py"))
    assert len(files) > 3
    for path in files:
        for word in ("layout", "thread", "Schedule(", "numpy back end"):
            assert word not in path.read_text(), f"{path.name}: {word}"
