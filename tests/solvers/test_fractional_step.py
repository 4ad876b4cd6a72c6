"""The fractional step method: orders in space and time, what it conserves, what holds at sides, no odd-even modes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case.even_steps import EvenSteps
from meshloom.config import Setting, build
from meshloom.errors import ConfigError, MeshError, SolveError
from meshloom.solvers.fractional_step import DecayingVortices
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Inflow, Outflow, Symmetry, Wall
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges, stretched_edges
from meshloom.solvers.fractional_step.flow import IncompressibleFlow
from meshloom.solvers.fractional_step.pressure import check
from meshloom.solvers.fractional_step.schemes import EULER, RK3, SCHEMES, TimeScheme

TURN = 2.0 * np.pi


@pytest.fixture(autouse=True)
def one_thread() -> None:
    ml.use("cpu", threads=1)


def periodic(n: int, *, bent: float = 0.0) -> CellGrid:
    """A square of 2 pi whose cells have widths that differ, smoothly, by a factor of (1 + bent) / (1 - bent)."""
    even = even_edges(n, 0.0, TURN)
    edges = even + bent * np.sin(even)
    return CellGrid([edges, even + 0.5 * bent * np.sin(even)], [True, True])


def vortices(cells: CellGrid) -> np.ndarray:
    x, y = np.meshgrid(*(one.centres for one in cells.axes), indexing="ij")
    return np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)], axis=-1)


def stirred(cells: CellGrid) -> np.ndarray:
    """A flow whose inertia is no gradient, so that it changes its shape."""
    x, y = np.meshgrid(*(one.centres for one in cells.axes), indexing="ij")
    u = np.sin(x) * np.cos(y) + 0.5 * np.cos(2.0 * y + 1.0)
    return np.stack([u, -np.cos(x) * np.sin(y) + 0.3 * np.sin(3.0 * x)], axis=-1)


def flow(
    cells: CellGrid,
    start: np.ndarray | float,
    *,
    sides: Mapping[tuple[int, str], Condition] | None = None,
    viscosity: float = 0.02,
    dt: float = 0.01,
    end: float = 1.0,
    **options: Any,
) -> IncompressibleFlow:
    made = IncompressibleFlow(cells, sides or {}, viscosity, EvenSteps(dt, end), **options)
    made.start(start)
    return made


def finished(made: IncompressibleFlow) -> IncompressibleFlow:
    made.step.run(made.clock.steps_left(float(made.time.value)))
    return made


def observed(errors: list[float], ratio: float = 2.0) -> list[float]:
    """Orders between neighbouring errors."""
    return [float(np.log(a / b) / np.log(ratio)) for a, b in pairwise(errors)]


# --- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "bent"), [(RK3, 0.0), (RK3, 0.4), (EULER, 0.4)])
def test_second_order_in_space(scheme: TimeScheme, bent: float) -> None:
    errors = []
    for n, dt in ((16, 0.02), (32, 0.005)):
        cells = periodic(n, bent=bent)
        made = finished(flow(cells, vortices(cells), viscosity=0.1, dt=dt, end=0.5, scheme=scheme))
        exact = vortices(cells) * np.exp(-2.0 * 0.1 * 0.5)
        errors.append(float(np.abs(made.velocity.numpy() - exact).max()))
    assert observed(errors)[0] > 1.85 and errors[-1] < 0.004, errors


@pytest.mark.parametrize(("scheme", "order"), [(RK3, 3.0), (EULER, 1.0)], ids=["rk3", "euler"])
@pytest.mark.slow
def test_the_order_in_time(scheme: TimeScheme, order: float) -> None:
    """On one grid, against very short steps; for velocities at centres and at faces."""
    cells = periodic(12)
    steps = (8, 16, 32) if scheme is RK3 else (32, 64, 128)  # far from where rounding and the reference count
    found = []
    for count in (*steps, 256 if scheme is RK3 else 2048):
        made = finished(flow(cells, stirred(cells), dt=1.0 / count, scheme=scheme, fade=0.2))
        found.append((made.velocity.numpy(), made.faces.numpy()))
    for which in (0, 1):
        errors = [float(np.abs(one[which] - found[-1][which]).max()) for one in found[:-1]]
        assert all(abs(one - order) < 0.25 for one in observed(errors)), observed(errors)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_a_step_of_the_longest_length_is_stable(scheme: TimeScheme) -> None:
    cells, viscosity = periodic(16), 0.05
    widths = cells.narrowest
    longest = scheme.longest_step(sum(2.0 / h for h in widths), 4 * viscosity * sum(1 / h**2 for h in widths),
                                  8.0 / viscosity)  # fmt: skip
    made = flow(cells, stirred(cells), viscosity=viscosity, dt=longest, end=200 * longest, scheme=scheme)
    energy = made.step.run(200, record=(made.energy,))[:, 0]
    assert (np.diff(energy) < 0.0).all() and energy[-1] < 0.9 * energy[0]


def test_without_friction_only_rk3_has_a_step() -> None:
    assert RK3.longest_step(10.0, 0.0, np.inf) == pytest.approx(np.sqrt(3.0) / 10.0)
    assert EULER.longest_step(10.0, 0.0, np.inf) == 0.0


# --- what is conserved ------------------------------------------------------------------------------------------------


def walls(rank: int) -> dict[tuple[int, str], Condition]:
    return {(axis, end): Wall() for axis in range(rank) for end in (LOW, HIGH)}


@pytest.mark.parametrize("shape", [(12, 9), (6, 5, 7)])
def test_convection_makes_no_energy_on_stretched_cells_between_walls(shape: tuple[int, ...]) -> None:
    """To rounding, whatever the velocities at centres, as long as those at faces have no divergence."""
    ml.use("numpy")
    cells = CellGrid([stretched_edges(n, 0.0, 1.0, 1.5) for n in shape], [False] * len(shape))
    dice = np.random.default_rng(0)
    made = flow(cells, dice.standard_normal((*shape, len(shape))), sides=walls(len(shape)))
    assert float(made.divergence.value) < 1e-12
    u = dice.standard_normal((*shape, len(shape)))
    made.velocity.assign(u)
    made.boundaries.fill_velocity(made.velocity)
    known = cells.cross(made.velocity), cells.both_faces(made.faces), 1.0, 0.0
    made._do.predict(cells.grid, *known, made.u_star, *cells.widths)
    volume = np.prod(np.meshgrid(*(one.widths for one in cells.axes), indexing="ij"), axis=0)[..., None]
    work = volume * u * (made.u_star.numpy() - u)
    assert abs(work.sum()) < 1e-13 * np.abs(work).sum()
    assert abs((volume * (made.u_star.numpy() - u)).sum()) < 1e-10 * np.abs(work).sum(), "nor momentum, without walls"


@pytest.mark.slow
def test_without_friction_energy_goes_only_by_the_projection_at_centres() -> None:
    """Which is a part of second order, and never gains; the steps in time are so short that they do not count."""
    lost = []
    for n in (16, 32):
        cells = periodic(n)
        made = flow(cells, stirred(cells), viscosity=0.0, dt=0.01, end=0.5, fade=0.02)
        energy = made.step.run(50, record=(made.energy,))[:, 0]
        assert (np.diff(energy) <= 1e-14 * energy[0]).all()
        lost.append((energy[0] - energy[-1]) / energy[0])
    assert 0.0 < lost[1] < 2e-3 and observed(lost)[0] > 1.8, lost


@pytest.mark.parametrize(("scheme", "solver"), [(RK3, "fast"), (EULER, "multigrid")])
def test_no_divergence_after_any_step(scheme: TimeScheme, solver: str) -> None:
    ml.use("numpy")
    cells = CellGrid([stretched_edges(14, 0.0, 1.0, 2.0), even_edges(9, 0.0, 1.0)], [False, True])
    sides: dict[tuple[int, str], Condition] = {(0, LOW): Wall(), (0, HIGH): Wall((0.0, 1.0))}
    start = np.random.default_rng(0).standard_normal((14, 9, 2))
    made = flow(cells, start, sides=sides, dt=0.001, scheme=scheme, solver=solver)
    assert (made.step.run(10, record=(made.divergence,)) < 1e-10).all()


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_what_is_told_of_a_step_is_that_of_its_fields(scheme: TimeScheme) -> None:
    """Energy, divergence and change come with the projection: from both faces of a cell, of which others store one."""
    ml.use("numpy")
    cells = CellGrid([stretched_edges(7, 0.0, 1.0, 1.0), even_edges(6, 0.0, 2.0)], [False, True])
    sides: dict[tuple[int, str], Condition] = {(0, LOW): Inflow(lambda x, y: (1.0, 0.0 * y)), (0, HIGH): Outflow()}
    start = np.random.default_rng(0).standard_normal((7, 6, 2))
    made = flow(cells, start, sides=sides, dt=0.001, scheme=scheme, solver="multigrid", tolerance=1e-4)
    made.step.run(2)
    before = made.velocity.numpy()
    made.step.run(1)
    u, faces = made.velocity.numpy(), cells.grid.shaped(made.faces, ghosts=True)[2:-1, 2:-1]
    widths = np.meshgrid(*(one.widths for one in cells.axes), indexing="ij")
    assert float(made.energy.value) == pytest.approx((0.5 * (u**2).sum(-1) * widths[0] * widths[1]).sum(), rel=1e-13)
    assert float(made.change.value) == pytest.approx(np.abs(u - before).max() / 0.001, rel=1e-9)
    through = np.diff(faces[:, :-1, 0], axis=0) / widths[0] + np.diff(faces[:-1, :, 1], axis=1) / widths[1]
    largest = (np.abs(through) * np.minimum(*widths)).max()
    assert largest > 1e-9 and float(made.divergence.value) == pytest.approx(largest, rel=1e-6)


def test_last_faces_through_which_the_same_flows_at_all_times_are_set_once() -> None:
    """No loop of a step writes them: where nothing is open, all loops over faces go over the cells alone."""
    ml.use("numpy")
    cells = CellGrid([even_edges(4, 0.0, 1.0), even_edges(5, 0.0, 1.0)], [False, False], blocks=[((2, 3), (4, 5))])
    sides: dict[tuple[int, str], Condition] = walls(2) | {
        (0, HIGH): Inflow(lambda x, y: (-y, 0.0)),
        (1, LOW): Outflow(),
    }
    made = IncompressibleFlow(cells, sides, 0.02, EvenSteps(0.01, 1.0))
    last = -np.where(cells.solid, 0.0, cells.axes[1].centres)[-1]  # nothing flows in where the side is that of a solid
    for step in range(3):
        for faces in (made.faces, made.faces_star):
            np.testing.assert_array_equal(cells.grid.shaped(faces, ghosts=True)[-2, 2:-2, 0], last, err_msg=str(step))
        made.step.run(1)
    assert made.boundaries.open_last_faces == []
    closed, out = ({(1, LOW): Wall(), (1, HIGH): end} for end in (Wall((1.0,)), Outflow()))
    for sides, count in ((closed, 1), (out | {(1, LOW): Inflow(lambda x, y: (0.0, 1.0))}, 2)):
        round_x = CellGrid(cells.edges, [True, False])
        assert len(IncompressibleFlow(round_x, sides, 0.02, made.clock).boundaries.open_last_faces) == count


# --- odd-even modes ---------------------------------------------------------------------------------------------------


def odd_even(values: np.ndarray) -> float:
    """How much of a field changes its sign from cell to cell along both axes."""
    i, j = np.indices(values.shape[:2])
    return float(np.abs(((-1.0) ** (i + j) * (values - values.mean())).mean()))


@pytest.mark.parametrize(("scheme", "solver"), [(RK3, "fast"), (EULER, "multigrid")])
def test_an_odd_even_pressure_dies(scheme: TimeScheme, solver: str) -> None:
    """Central differences of twice the width do not see it: with them alone it would stay for ever."""
    cells = CellGrid([even_edges(16, 0.0, 1.0)] * 2, [False, False])
    sides = walls(2) | {(1, HIGH): Wall((1.0,))}
    quiet, excited = (flow(cells, 0.0, sides=sides, dt=0.002, end=9.0, scheme=scheme, solver=solver) for _ in range(2))
    for one in (quiet, excited):
        one.step.run(20)
    board = (-1.0) ** np.indices(cells.shape).sum(axis=0)
    excited.pressure.assign(excited.pressure.numpy() + 10.0 * board)
    excited.velocity.assign(excited.velocity.numpy() + 0.1 * board[..., None])
    excited.boundaries.fill_velocity(excited.velocity)
    assert odd_even(excited.pressure.numpy()) > 9.9 and odd_even(excited.velocity.numpy()[..., 0]) > 0.09
    for one in (quiet, excited):
        one.step.run(1)
    assert odd_even(excited.pressure.numpy() - quiet.pressure.numpy()) < 0.05, "after one step next to nothing is left"
    for one in (quiet, excited):
        one.step.run(200)
    assert odd_even(excited.pressure.numpy() - quiet.pressure.numpy()) < 1e-5
    assert odd_even(excited.velocity.numpy()[..., 0] - quiet.velocity.numpy()[..., 0]) < 1e-5


# --- sides ------------------------------------------------------------------------------------------------------------


def lidded(edges: list[np.ndarray], sides: dict[tuple[int, str], Condition], flags: list[bool]) -> IncompressibleFlow:
    cells = CellGrid(edges, flags)
    made = flow(cells, 0.0, sides=sides, viscosity=0.01, dt=0.005, end=9.0)
    made.step.run(8)
    return made


@pytest.mark.parametrize("layers", [1, 3])
def test_a_flow_in_space_that_is_the_same_in_all_layers_is_that_in_the_plane(layers: int) -> None:
    ml.use("numpy")
    plane = [stretched_edges(10, 0.0, 1.0, 1.0), even_edges(9, 0.0, 1.0)]
    flat = lidded(plane, walls(2) | {(1, HIGH): Wall((1.0,))}, [False] * 2)
    deep = lidded([*plane, even_edges(layers, 0.0, 0.3)], walls(2) | {(1, HIGH): Wall((1.0,))}, [False, False, True])
    for k in range(layers):
        np.testing.assert_allclose(deep.velocity.numpy()[:, :, k, :2], flat.velocity.numpy(), rtol=0.0, atol=1e-13)
        np.testing.assert_allclose(deep.pressure.numpy()[:, :, k], flat.pressure.numpy(), rtol=0.0, atol=1e-11)
    assert np.abs(deep.velocity.numpy()[..., 2]).max() < 1e-13


def test_a_plane_of_symmetry_is_the_middle_of_twice_the_domain() -> None:
    ml.use("numpy")
    x, lid = even_edges(8, 0.0, 1.0), Wall((1.0,))
    whole = lidded([x, even_edges(12, 0.0, 1.0)], walls(2) | {(1, LOW): lid, (1, HIGH): lid}, [False] * 2)
    half = lidded([x, even_edges(6, 0.0, 0.5)], walls(2) | {(1, LOW): lid, (1, HIGH): Symmetry()}, [False] * 2)
    np.testing.assert_allclose(half.velocity.numpy(), whole.velocity.numpy()[:, :6], rtol=0.0, atol=1e-13)


@pytest.mark.slow
def test_what_flows_in_flows_out_and_finds_its_profile() -> None:
    """A uniform inflow between walls becomes a parabola."""
    cells = CellGrid([even_edges(48, 0.0, 6.0), even_edges(12, 0.0, 1.0)], [False, False])
    sides: dict[tuple[int, str], Condition] = {
        (0, LOW): Inflow(lambda x, y: (np.ones_like(y), 0.0)), (0, HIGH): Outflow(),
        (1, LOW): Wall(), (1, HIGH): Wall(),
    }  # fmt: skip
    start = np.zeros((48, 12, 2))
    start[..., 0] = 1.0
    made = flow(cells, start, sides=sides, viscosity=0.05, dt=0.02, end=12.0)
    told = made.step.run(600, record=(made.divergence, made.change))
    assert (told[:, 0] < 1e-12).all() and told[-1, 1] < 1e-4
    through = cells.grid.shaped(made.faces, ghosts=True)[2:-1, 2:-2, 0].mean(axis=1)
    np.testing.assert_allclose(through, 1.0, rtol=1e-12)
    y = cells.axes[1].centres
    np.testing.assert_allclose(made.velocity.numpy()[-6, :, 0], 6.0 * y * (1.0 - y), atol=0.03)


def test_inflow_at_the_high_end_of_any_axis_in_space() -> None:
    """Against the axis, with a profile over the two others, out at the low end and through half a symmetric duct."""
    ml.use("numpy")
    cells = CellGrid([stretched_edges(6, 0.0, 1.0, 1.0), even_edges(5, 0.0, 0.5), even_edges(8, 0.0, 2.0)], [False] * 3)
    sides: dict[tuple[int, str], Condition] = walls(3) | {
        (1, HIGH): Symmetry(),
        (2, LOW): Outflow(),
        (2, HIGH): Inflow(lambda x, y, z: (0.0, 0.0, -x * (1.0 - x) * y)),
    }
    made = flow(cells, 0.0, sides=sides, viscosity=0.1, dt=0.002, end=1.0)
    assert (made.step.run(10, record=(made.divergence,)) < 1e-12).all()
    through = cells.grid.shaped(made.faces, ghosts=True)[2:-2, 2:-2, 2:-1, 2]
    x, y = cells.axes[0], cells.axes[1]
    flows = np.einsum("ijk,i,j->k", through, x.widths, y.widths)
    given = -np.einsum("i,j->", x.widths * x.centres * (1.0 - x.centres), y.widths * y.centres)
    np.testing.assert_allclose(flows, given, rtol=1e-12)
    assert np.abs(cells.grid.shaped(made.faces)[0, :, :, 0]).max() == 0.0, "walls let nothing through"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({(1, LOW): None}, r"give a condition for each end of the closed axes, which are \(0, 'low'\), \(0, 'high'\)"),
        ({(2, LOW): Wall()}, "give a condition for each end"),
        ({(0, LOW): Inflow(lambda x, y: (y, 0.0))}, "0.5 more flows in than out, and no side is an Outflow"),
        ({(0, LOW): Wall((0.2,)), (0, HIGH): Wall((0.2,))}, r"wall at the low end of x .* goes through"),
        ({(1, HIGH): Wall((0.0, 2.0)), (0, HIGH): Outflow()}, r"wall at the high end of y .* along y must be 0"),
    ],
)
def test_sides_that_do_not_fit_are_refused(changed: dict[tuple[int, str], Condition | None], says: str) -> None:
    ml.use("numpy")
    cells = CellGrid([stretched_edges(6, 0.0, 3.0, 1.0), even_edges(4, 0.0, 1.0)], [False] * 2)
    sides = {key: value for key, value in (walls(2) | changed).items() if value is not None}
    with pytest.raises(MeshError, match=says):
        flow(cells, 0.0, sides=sides)


# --- the case ---------------------------------------------------------------------------------------------------------


def decay(**settings: Any) -> DecayingVortices:
    given = [Setting(tuple(key.split("__")), value, "test") for key, value in settings.items()]
    return DecayingVortices(build(DecayingVortices.Config, given))


def test_the_case_tells_its_error() -> None:
    case = decay(mesh__cells=(32, 32), time__end=1.0)
    last = case.program.run(case.steps_left(case.recorded_now()), record=case.recorded)[-1]
    monitors = dict(zip(case.monitors, case.monitor_rows(last[None])[0], strict=True))
    u = case.flow.velocity.numpy()
    assert monitors["time"] == 1.0
    assert monitors["error"] == pytest.approx(np.abs(u - vortices(case.cells) * np.exp(-0.02)).max(), rel=1e-12)
    assert 0.0 < monitors["error"] < 0.01
    assert monitors["kinetic_energy"] == pytest.approx(0.25 * np.exp(-0.04), rel=0.02)


def test_in_space_the_vortices_break_up() -> None:
    ml.use("numpy")
    case = decay(mesh__cells=(12, 12, 12), time__end=2.0, flow__reynolds=50.0)
    told = case.program.run(case.steps_left(case.recorded_now()), record=case.recorded)
    assert case.monitors == ("time", "kinetic_energy", "divergence", "change", "energy_lost")
    assert (told[:, 2] < 1e-12).all()
    assert np.abs(case.flow.velocity.numpy()[..., 2]).max() > 0.05
    assert (np.diff(told[:, 1]) < 0.0).all()


@pytest.mark.parametrize("cells", [(8,), (8, 8, 8, 8), (1, 8)])
def test_other_numbers_of_axes_are_refused(cells: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"numbers in brackets from 2 up to 65536 .two or three of them."):
        decay(mesh__cells=cells)


def test_a_solver_that_stalls_says_how_far_it_came() -> None:
    report = ml.linalg.Report(False, 7, 3e-4, np.ones(8), "stalled")
    with pytest.raises(SolveError, match=r"stalled after 7 iterations, residual 3.00e-04 of pressure\.tolerance"):
        check(report, 1e-10)
