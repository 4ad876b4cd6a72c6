"""BookLeaf: the original program's fields and totals, exact solutions, conservation, and how runs go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench.bookleaf import COMPARISONS, DECKS, errors
from bench.cases import make, run_to_the_end
from bench.truth_cases import (
    Row,
    bookleaf_fields,
    bookleaf_fields_file,
    bookleaf_first_steps,
    bookleaf_run,
    bookleaf_short_run,
    unmet,
)
from meshloom.errors import ConfigError, MeshError
from meshloom.solvers import cases
from meshloom.solvers.bookleaf import NohCase, Saltzmann, SedovCase, SodCase
from meshloom.solvers.bookleaf.case import BookLeaf
from meshloom.solvers.bookleaf.connect import surroundings
from meshloom.solvers.bookleaf.physics import (
    FREE,
    SLIP_X,
    SLIP_Y,
    WALL,
    BookLeafGas,
    hourglass_forces,
    subzonal_forces,
    work,
)
from meshloom.solvers.bookleaf.problems import check_convex
from meshloom.solvers.bookleaf.quad import corner_cells, corner_volumes, volume, volume_gradient, width_squared
from tests.backend.test_cuda import CompileBackend, needs_nvrtc

DATA = Path(__file__).parents[1] / "data"
PROBLEMS: dict[str, type[BookLeaf]] = {"sod": SodCase, "sedov": SedovCase, "noh": NohCase}
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards() -> Iterator[None]:
    """One thread: these meshes are small, and test machines are busy."""
    before = ml.backend(), ml.threads()
    ml.use(before[0], threads=1)
    yield
    ml.use(before[0], threads=before[1])


# --- the original program ---------------------------------------------------------------------------------


FIRST_STEPS = [(name, backend) for name in PROBLEMS for backend in ("numpy", "cpu")]
FIRST_STEPS += [("sedov", "emulated")]  # compiling takes a while: one problem is enough
FIRST_STEPS += [pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in PROBLEMS]


@pytest.mark.parametrize(("name", "backend"), FIRST_STEPS)
def test_fields_after_1_and_10_steps(name: str, backend: str):
    ml.use(backend)
    assert not unmet(bookleaf_first_steps(name))


def missed(deck: str) -> list[Row]:
    """Without what needs files that are not here."""
    return [row for row in bookleaf_run(deck) if row.verdict == "missed"]


@pytest.mark.parametrize(
    "deck", ["sod_sm_lag_small", "sedov_lag_small", pytest.param("noh_small", marks=pytest.mark.slow)]
)
def test_full_runs(deck: str):
    assert not missed(deck)


@pytest.mark.slow
def test_a_shorter_run_ends_where_the_original_does():
    assert not [row for row in bookleaf_short_run() if row.verdict == "missed"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", CUDA])
@pytest.mark.parametrize("deck", DECKS)
def test_long_full_runs(deck: str, backend: str):
    ml.use(backend)
    assert not missed(deck)


@pytest.mark.parametrize("name", PROBLEMS)
def test_nodes_on_the_boundary_are_what_the_original_says(name: str):
    of_original = {1: FREE, -8: FREE, -1: SLIP_X, -2: SLIP_Y, -3: WALL}
    start = PROBLEMS[name].start(PROBLEMS[name].Config().mesh.cells)
    wanted = bookleaf_fields_file()[f"{name}_kind"]
    np.testing.assert_array_equal(start.kind, [of_original[kind] for kind in wanted.tolist()])


# --- exact solutions --------------------------------------------------------------------------------------


def check_order(coarse: np.ndarray, fine: np.ndarray, ratio: float, low: float) -> None:
    """A shock is first order at best: there the solution jumps within a cell."""
    order = np.log(coarse / fine) / np.log(ratio)
    assert (order > low).all() and (order < 1.4).all(), order


@pytest.mark.parametrize(
    ("name", "meshes", "low", "error"),
    [("sod", 3, 0.9, 0.006), ("sedov", 2, 0.9, 0.11), ("noh", 2, 0.85, 0.11)],
)
def test_convergence_to_the_exact_solution(name: str, meshes: int, low: float, error: float):
    """The first meshes of the table in the docs."""
    of = COMPARISONS[name]
    found = [errors(of, cells) for cells in of.cells[:meshes]]
    for coarse, fine in pairwise(found):
        check_order(coarse, fine, 2.0, low)
    assert found[-1].max() < error


@pytest.mark.slow
def test_saltzmann_drives_a_plane_shock_through_the_skewed_mesh():
    """Behind a strong shock the density is 4, the pressure 4/3; the piston has speed 1, the shock 4/3."""
    case = make(Saltzmann)
    rows = run_to_the_end(case)
    time, found = rows[-1][1], case.cell_fields()
    x = case.node_positions()[case.mesh.cell_nodes.indices].mean(axis=1)[:, 0]
    behind, ahead = x < 4.0 / 3.0 * time - 0.03, x > 4.0 / 3.0 * time + 0.03
    assert np.median(found["pressure"][behind]) == pytest.approx(4.0 / 3.0, rel=2e-3)
    assert found["density"][behind].mean() == pytest.approx(4.0, rel=0.01)
    np.testing.assert_allclose(found["density"][ahead], 1.0, rtol=1e-3)
    work = 4.0 / 3.0 * 0.1 * time  # pressure, height of the tube, way of the piston
    assert rows[-1][3] + rows[-1][4] == pytest.approx(work, rel=5e-3)


# --- what must hold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_mass_and_energy_are_kept(name: str):
    case = make(PROBLEMS[name], "mesh.cells=[12,10]", f"time.end={PROBLEMS[name].Config().time.end / 10}")
    rows = run_to_the_end(case)
    assert np.ptp(rows[:, 2]) == 0.0
    total = rows[:, 3] + rows[:, 4]
    assert rows[-1, 3] > 0.0 and np.ptp(total) < 0.01 * total[0], "kinetic energy is measured by the corners' volumes"


def test_the_blast_is_symmetric_to_the_diagonal():
    case = make(SedovCase, "mesh.cells=[20,20]", "time.end=0.5")
    run_to_the_end(case)
    found = bookleaf_fields(case)
    density, mirrored = found["density"].reshape(20, 20), found["x"].reshape(21, 21).T
    np.testing.assert_allclose(density, density.T, rtol=1e-10)
    np.testing.assert_allclose(found["y"].reshape(21, 21), mirrored, atol=1e-12)


def test_the_implosion_is_round():
    case = make(NohCase, "mesh.cells=[20,8]", "time.end=0.3")
    run_to_the_end(case)
    density = case.cell_fields()["density"].reshape(20, 8)
    np.testing.assert_allclose(density, np.broadcast_to(density[:, :1], density.shape), rtol=2e-9)


def test_gas_at_rest_stays_at_rest():
    """One pressure everywhere: nothing moves, on a mesh of any shape."""
    case = make(Saltzmann, "mesh.cells=[9,5]")
    case.u.fill(0.0)
    case.energy.fill(2.0)
    case.pressure.fill(4.0 / 3.0)
    case.sound2.fill(20.0 / 9.0)
    before = case.node_positions()
    case.program.run(20)
    np.testing.assert_allclose(case.node_positions(), before, atol=1e-13)


@pytest.mark.parametrize("order", ["rcm", "hilbert"])
def test_every_numbering_gives_the_same_flow(order: str):
    ml.use("numpy")
    given, moved = make(SedovCase, "mesh.cells=[12,9]"), make(SedovCase, "mesh.cells=[12,9]", f"mesh.order={order}")
    for case in (given, moved):
        case.program.run(50)
    for name, values in bookleaf_fields(moved).items():
        np.testing.assert_allclose(values, bookleaf_fields(given)[name], rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated", CUDA])
@pytest.mark.slow
def test_every_strategy_gives_the_same_flow(backend: str):
    """The forces of the cells meet at their nodes: the one loop with races."""
    ml.use("numpy")
    reference = make(SedovCase, "mesh.cells=[14,9]")
    reference.program.run(12)
    ml.use(backend)
    for strategy in ml.strategies():
        if backend == "emulated" and strategy not in ("atomic", "block_atomic", "tile"):
            continue  # compiling takes a while
        case = make(SedovCase, "mesh.cells=[14,9]", f"schedule.corner_forces={{strategy='{strategy}', block=32}}")
        case.program.run(12)
        for name, values in bookleaf_fields(case).items():
            wanted = bookleaf_fields(reference)[name]
            np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-10, err_msg=f"{strategy}: {name}")


def test_kernels_element_by_element_agree_with_the_program():
    ml.use("numpy")
    fast, plain = (make(Saltzmann, "mesh.cells=[6,4]", "gas.hourglass=0.02") for _ in range(2))
    fast.program.run(3)
    for _ in range(3):
        for loop in plain.program.loops:
            loop.run_plainly() if loop.domain.visits_elements else loop()
    for name, values in bookleaf_fields(fast).items():
        np.testing.assert_allclose(values, bookleaf_fields(plain)[name], rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_single_precision_is_close():
    ml.use("numpy")
    exactly, roughly = (
        make(SodCase, "mesh.cells=[30,2]", "time.end=4", "time.growth=1.2", f"run.precision={precision}")
        for precision in ("double", "single")
    )
    assert roughly.x.dtype == np.float32
    run_to_the_end(exactly), run_to_the_end(roughly)
    for name, values in bookleaf_fields(roughly).items():
        np.testing.assert_allclose(values, bookleaf_fields(exactly)[name], atol=2e-3, rtol=2e-3, err_msg=name)


# --- geometry ---------------------------------------------------------------------------------------------

QUAD = np.array([[0.1, 0.0], [1.2, 0.2], [0.9, 1.1], [-0.2, 0.8]])


def test_geometry_of_one_cell():
    x, y = QUAD.T
    shoelace = 0.5 * (x * np.roll(y, -1) - np.roll(x, -1) * y).sum()
    assert volume(QUAD) == pytest.approx(shoelace, rel=1e-14)
    assert corner_volumes(QUAD).sum() == pytest.approx(shoelace, rel=1e-14)
    assert sum(volume(part) for part in corner_cells(QUAD)) == pytest.approx(shoelace, rel=1e-14)
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(corner_volumes(square), 0.25)


def test_the_gradient_of_the_volume():
    gradient, step = volume_gradient(QUAD), 1e-6
    for corner in range(4):
        for axis in range(2):
            moved = QUAD.copy()
            moved[corner, axis] += step
            assert (volume(moved) - volume(QUAD)) / step == pytest.approx(gradient[corner, axis], abs=1e-6)


def test_the_width_of_a_cell():
    slab = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 0.5], [0.0, 0.5]])
    assert width_squared(slab, 1e-8) == pytest.approx(0.25)
    wedge = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 1e-9]])  # a side that is a point
    assert width_squared(wedge, 1e-8) == pytest.approx(0.5)


def test_what_a_cell_sees_beyond_its_corners():
    start = SodCase.start((3, 3))
    around = surroundings(start.mesh)
    assert around.neighbours.indices[4].tolist() == [3, 7, 5, 1], "below, right, above, left of the middle cell"
    assert around.beyond.indices[4].tolist() == [1, 13, 8, 11, 14, 2, 7, 4]
    np.testing.assert_array_equal(around.inner.numpy()[0], [0, 1, 1, 0])
    assert around.neighbours.indices[0].tolist() == [0, 3, 1, 0], "itself where the mesh ends"


# --- forces -----------------------------------------------------------------------------------------------


def gas_of(problem: type[BookLeaf]) -> BookLeafGas:
    config = problem.Config()
    return config.gas.constants(config.time, np.dtype(np.float64))


def test_subzonal_forces_are_the_gradient_of_their_energy():
    """A small motion of the corners costs the pressure excess of each corner cell times its change of volume."""
    gas, density, sound2, rng = gas_of(Saltzmann), 1.3, 0.7, np.random.default_rng(3)
    motion = 1e-6 * rng.standard_normal((4, 2))
    before, after = (np.array([volume(part) for part in corner_cells(x)]) for x in (QUAD, QUAD + motion))
    mass = density * before * rng.uniform(0.8, 1.2, 4)
    excess = sound2 * (mass / before - density)
    forces = subzonal_forces(gas, QUAD, mass, density, sound2)
    assert (forces * motion).sum() == pytest.approx(excess @ (after - before), rel=1e-4)
    np.testing.assert_allclose(forces.sum(axis=0), 0.0, atol=1e-14)


def test_the_hourglass_filter_brakes_its_own_motion_only():
    gas, straight = gas_of(SedovCase), np.array([[1.0, 0.5]] * 4) + QUAD @ [[0.3, -0.2], [0.1, 0.4]]
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    linear = square @ [[0.3, -0.2], [0.1, 0.4]] + [1.0, 0.5]
    np.testing.assert_allclose(hourglass_forces(gas, linear, 2.0, 0.1), 0.0, atol=1e-15)
    forces = hourglass_forces(gas, straight, 2.0, 0.1)
    assert work(forces, straight) < 0.0
    np.testing.assert_allclose(forces.sum(axis=0), 0.0, atol=1e-15)


def viscosity_field(velocity: np.ndarray) -> tuple[BookLeaf, np.ndarray, np.ndarray]:
    """A box of 8 by 6 cells with given node velocities (nodes, 2): the viscous forces (cells, 4, 2), and where a cell
    and its neighbours have neighbours."""
    ml.use("numpy")
    case = make(SodCase, "mesh.cells=[8,6]")
    case.u.assign(velocity)
    viscosity = next(loop for loop in case.program.loops if loop.name == "artificial_viscosity")
    viscosity()
    q = next(one for one in viscosity.writes if one.name == "q")
    return case, q.numpy().reshape(-1, 4, 2), np.arange(48).reshape(8, 6)[1:-1, 1:-1].ravel()


def test_smooth_compression_has_no_viscosity():
    """The velocity is linear in space: no edge differs from the ones before and behind it."""
    x = make(SodCase, "mesh.cells=[8,6]").node_positions()
    _, force, inside = viscosity_field(-0.01 * x)
    np.testing.assert_allclose(force[inside], 0.0, atol=1e-13)
    _, force, _ = viscosity_field(-0.01 * x * (x[:, :1] > 50.0))
    assert np.abs(force).max() > 1e-3, "a jump has some"


def test_viscosity_only_takes_kinetic_energy():
    velocity = np.random.default_rng(8).standard_normal((63, 2))
    _, force, _ = viscosity_field(velocity)
    case = make(SodCase, "mesh.cells=[8,6]")
    power = (force * velocity[case.mesh.cell_nodes.indices]).sum(axis=(1, 2))
    assert power.max() < 1e-12 and power.min() < -0.1
    np.testing.assert_allclose(force.sum(axis=1), 0.0, atol=1e-12)


@needs_nvrtc
def test_every_loop_compiles_for_a_gpu():
    backend = CompileBackend(("sm_90",))
    case = make(Saltzmann, "gas.hourglass=0.01")
    loops = [loop for loop in case.program.loops if loop.domain.visits_elements]
    for loop in loops:
        loop.on(backend).prepare()
    assert len(backend.engine.resources) == len(loops)
    assert all(part["spills"] == 0 for parts in backend.engine.resources.values() for part in parts.values())


# --- settings ---------------------------------------------------------------------------------------------


def test_all_cases_are_listed():
    names = [f"bookleaf_{name}" for name in ("blast", "noh", "saltzmann", "sedov", "sod")]
    assert [name for name in cases() if name.startswith("bookleaf")] == names
    for name in names:
        assert cases()[name].monitors == ("steps", "time", "mass", "internal_energy", "kinetic_energy", "density_min",
                                          "density_max", "pressure_min", "pressure_max")  # fmt: skip


def test_a_tangled_start_is_refused():
    start = SodCase.start((3, 2))
    x = start.mesh.coordinates.numpy()
    x[4] = [90.0, 24.0]
    with pytest.raises(MeshError, match=r"tangled at the start: cell 2 at .* counter-clockwise"):
        check_convex(x, start.mesh.cell_nodes.indices)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["mesh.cells=[0,4]"], "mesh.cells must be 2 numbers in brackets from 1"),
        (["mesh.cells=12"], "mesh.cells must be"),
        (["time.end=0"], "time.end must be a number above 0"),
        (["time.ned=1"], "did you mean 'time.end'"),
        (["time.initial=1e-9"], "time.initial must be longer than time.shortest"),
        (["gas.gamma=1"], "gas.gamma must be"),
        (["schedule.forces=clor"], "did you mean 'color'"),  # which loops there are, the program will tell
    ],
)
def test_bad_settings(settings: list[str], words: str):
    with pytest.raises(ConfigError) as problem:
        make(SodCase, *settings)
    assert words in str(problem.value)
