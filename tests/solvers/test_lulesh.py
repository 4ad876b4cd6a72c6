"""LULESH: the original program's cycles and energies, Sedov's solution, and that nothing depends on how it is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make, run_to_the_end
from bench.truth_cases import LULESH_ON_THE_WAY, lulesh_energies, lulesh_on_the_way, lulesh_run, lulesh_truth, unmet
from meshloom.errors import RunError
from meshloom.io import checkpoint
from meshloom.run.folder import claim
from meshloom.run.report import RunReport
from meshloom.run.runner import Outcome, Runner
from meshloom.solvers.exact import SPHERICAL, Sedov
from meshloom.solvers.lulesh import Lulesh
from meshloom.solvers.lulesh.kernels import kernels
from meshloom.solvers.lulesh.options import LuleshConfig
from tests.backend.test_cuda import CompileBackend, needs_nvrtc

DATA = Path(__file__).parents[1] / "data" / "lulesh"
BLAST_ENERGY = 8 * 3.948746e7 * (1.125 / 45) ** 3  # of the whole sphere


@pytest.fixture(autouse=True)
def one_thread_and_the_same_backend_afterwards() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use("cpu", threads=1)
    yield
    ml.use(before[0], threads=before[1], contract=True)


def lulesh(size: int, *changes: str) -> Lulesh:
    return make("lulesh", f"mesh.size={size}", *changes)


# --- the original program -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 10])
@pytest.mark.parametrize("contract", [False, True])
def test_cycles_and_energy_of_the_original(size: int, contract: bool):
    ml.use("cpu", threads=2, contract=contract)
    assert not unmet(lulesh_run(size))


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 30])
def test_cycles_and_energy_of_the_original_on_finer_meshes(size: int):
    ml.use("cpu", threads=2)
    assert not unmet(lulesh_run(size))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [5, 10, 20])
def test_cycles_and_energy_of_the_original_on_a_gpu(size: int):
    ml.use("cuda")
    assert not unmet(lulesh_run(size))


@pytest.mark.parametrize("backend", ["numpy", "emulated"])
@pytest.mark.slow
def test_other_back_ends(backend: str):
    ml.use(backend)
    assert not unmet(lulesh_run(5))


@pytest.mark.parametrize("key", LULESH_ON_THE_WAY)
def test_all_fields_on_the_way(key: str):
    assert not unmet(lulesh_on_the_way(key))


# --- an exact solution ----------------------------------------------------------------------------------------


def left_of_the_blast(case: Lulesh) -> Sedov:
    """The exact solution for the energy that is left in the gas: the hourglass filter takes kinetic energy away and
    gives it to nobody, so the blast is weaker than it began."""
    return Sedov(8.0 * sum(lulesh_energies(case)), SPHERICAL, 5.0 / 3.0)


def density_error(case: Lulesh) -> float:
    """Mean difference of the density from the exact one."""
    sedov = left_of_the_blast(case)
    centres = case.node_positions()[case.mesh.cell_nodes.indices].mean(axis=1)
    density = case.cell_fields()["density"]
    exact = sedov.at(np.linalg.norm(centres, axis=1), case.config.time.end).density
    share = case.volume0.numpy() / density
    return float(share @ np.abs(density - exact) / share.sum())


def test_the_reference_blast_was_made_for_a_shock_at_one():
    assert Sedov(BLAST_ENERGY, SPHERICAL, 5.0 / 3.0).shock_radius(0.01) == pytest.approx(1.0, abs=2e-6)


@pytest.mark.slow
def test_the_density_converges_to_sedovs():
    errors, peaks = [], []
    for size in (8, 16):
        case = lulesh(size)
        run_to_the_end(case)
        errors.append(density_error(case))
        peak = int(np.argmax(case.cell_fields()["density"]))
        centre = case.node_positions()[case.mesh.cell_nodes.indices[peak]].mean(axis=0)
        peaks.append(np.linalg.norm(centre) / left_of_the_blast(case).shock_radius(0.01))
    assert np.log2(errors[0] / errors[1]) > 0.25, errors
    assert errors[1] < 0.18 and abs(peaks[1] - 1.0) < 0.03, (errors, peaks)


@pytest.mark.slow
def test_the_order_of_convergence_rises():
    errors = {}
    for size in (10, 20, 30):
        case = lulesh(size)
        run_to_the_end(case)
        errors[size] = density_error(case)
    orders = np.log(errors[10] / errors[20]) / np.log(2.0), np.log(errors[20] / errors[30]) / np.log(1.5)
    assert 0.45 < orders[0] < orders[1] and orders[1] > 0.7, errors


@pytest.mark.slow
def test_without_the_filter_less_energy_is_lost():
    lost = []
    for strength in (0.0, 3.0):
        case = lulesh(8, f"material.hourglass={strength}")
        run_to_the_end(case)
        lost.append(1.0 - 8.0 * sum(lulesh_energies(case)) / BLAST_ENERGY)
    assert 0.0 < lost[0] < 0.07 and lost[1] > 2.0 * lost[0], lost


# --- nothing depends on how it is run --------------------------------------------------------------------------


def random_case(size: int = 4, *changes: str) -> Lulesh:
    """A state in which everything moves and pushes."""
    case = lulesh(size, *changes)
    rng = np.random.default_rng(2)
    nodes, cells = len(case.mesh.nodes), len(case.mesh.cells)
    case.x.assign(case.node_positions() + 0.03 * rng.standard_normal((nodes, 3)))
    case.velocity.assign(rng.standard_normal((nodes, 3)))
    for field in (case.p, case.q, case.sound):
        field.assign(1.0 + rng.random(cells))
    return case


def forces_of(case: Lulesh) -> np.ndarray:
    loop = next(loop for loop in case.program.loops if loop.name == "forces")
    force = loop.storages[-1]
    force.fill(0.0)
    loop()
    return force.numpy()


@pytest.mark.parametrize("backend", [pytest.param("cpu", marks=pytest.mark.slow), "emulated"])
@pytest.mark.slow
def test_all_strategies_agree_on_the_forces(backend: str):
    ml.use("numpy")
    wanted = forces_of(random_case())
    assert np.abs(wanted.sum(axis=0)).max() < 1e-12 * np.abs(wanted).max(), "inner forces move nothing as a whole"
    ml.use(backend)
    for strategy in ml.strategies() if backend == "cpu" else ("staged", "block_color"):
        found = forces_of(random_case(4, f"schedule.forces={strategy}"))
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12, err_msg=strategy)


@pytest.mark.parametrize("order", ["random", "hilbert", "rcm"])
def test_renumbering_changes_nothing(order: str):
    rows, wanted = (run_to_the_end(lulesh(5, f"mesh.order={name}")) for name in (order, "given"))
    np.testing.assert_allclose(rows[:, :4], wanted[:, :4], rtol=1e-11)


@pytest.mark.slow
def test_single_precision_comes_close():
    case = lulesh(6, "run.precision=single")
    assert case.x.dtype == case.dt.dtype == np.float32 and case.time.dtype == np.float64
    rows, wanted = run_to_the_end(case), run_to_the_end(lulesh(6))
    assert rows[-1, 2] == pytest.approx(0.01, rel=1e-6) and abs(len(rows) - len(wanted)) <= 2
    assert rows[-1, 0] == pytest.approx(wanted[-1, 0], rel=1e-3)


def test_kernels_stay_small():
    """Operations of the reference kernels after the passes: a guard against passes that stop working."""
    case = lulesh(3)
    flops = {loop.name: loop.counts.flops for loop in case.program.loops if loop.domain.visits_elements}
    assert flops["forces"] < 1400 and flops["kinematics"] < 680 and flops["material"] < 160, flops
    assert set(flops) == set(kernels(case.config)._fields)


@needs_nvrtc
@pytest.mark.parametrize("precision", ["double", "single"])
def test_kernels_compile_for_a_gpu(precision: str):
    """The forces hold 48 values of their nodes and 32 of the modes at once: a few spill in double precision."""
    backend = CompileBackend(("sm_90",))
    for loop in lulesh(3, "schedule.forces=staged", f"run.precision={precision}").program.loops:
        if not loop.domain.all_memory:
            loop.on(backend).prepare()
    found = backend.engine.resources
    assert len(found) == len(kernels(LuleshConfig()))
    for name, per_kernel in found.items():
        allowed = 200 if name.startswith("forces") and precision == "double" else 0
        assert all(used["spills"] <= allowed for used in per_kernel.values()), (name, per_kernel)


# --- runs ------------------------------------------------------------------------------------------------------


def run(folder: Path, *changes: str) -> Outcome:
    claimed = claim("lulesh", folder)
    try:
        return Runner(lulesh(5, "output.plot=false", *changes), claimed, RunReport()).run()
    finally:
        claimed.release()


@pytest.mark.slow
def test_a_run_and_its_files(tmp_path: Path):
    pytest.importorskip("matplotlib")
    outcome = run(tmp_path / "a", "output.plot=true", "output.every=30")
    assert outcome.finished and outcome.iteration == outcome.monitors["cycles"] == lulesh_truth()["5"]["cycle"]
    assert len(list((tmp_path / "a").glob("fields_*.vtu"))) == 3
    assert (tmp_path / "a" / "picture.png").stat().st_size > 1e4
    meshio = pytest.importorskip("meshio")
    written = meshio.read(tmp_path / "a" / "fields_0000072.vtu")
    with np.load(DATA / "final_fields_5.npz") as wanted:
        np.testing.assert_allclose(written.points[:, 0], wanted["x"], rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(written.cell_data["energy"][0], wanted["e"], rtol=1e-9, atol=1e-9)


def test_a_restart_equals_a_run_without_a_break(tmp_path: Path):
    whole, first, second = lulesh(5), lulesh(5), lulesh(5)
    whole.program.run(40)
    first.program.run(25)
    for one, other in zip(first.state, second.state, strict=True):
        other.assign(one.numpy())
    second.program.run(15)
    for one, other in zip(whole.state, second.state, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes(), one.name


def test_a_checkpoint_holds_all_of_it(tmp_path: Path):
    run(tmp_path / "a", "run.iterations=10")
    saved = checkpoint.load(tmp_path / "a" / "checkpoint.h5")
    assert set(saved.state) == {field.name for field in lulesh(5).state} and saved.state["cycle"] == 10


@pytest.mark.parametrize("changes, message", [
    (("material.largest_q=900.0",),
     r"^the solution broke down: q is \d+\.?\d* \(must be below 900: material.largest_q\) in cell \d+ at \(.*"
     r" after loop material in iteration \d+ \(time [\d.e-]+\); shorter steps .* may help; the last good checkpoint"),
    (("time.courant=1.0", "time.expansion=1.0", "time.growth=10.0"),
     r"^the solution broke down: v_new is -.* \(must be above 0: the element is tangled\) in cell \d+ at \(.*"
     r" after loop kinematics in iter"),
])  # fmt: skip
def test_a_bad_state_is_named_with_its_element_and_step(tmp_path: Path, changes: tuple[str, ...], message: str):
    with pytest.raises(RunError, match=message):
        run(tmp_path / "a", "output.checkpoint_every=1", *changes)
    assert checkpoint.load(tmp_path / "a" / "checkpoint.h5").iteration > 0
