"""Velocities at faces alone: orders, energy, sides, and the cavity beside the collocated form and Ghia's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.case.even_steps import EvenSteps
from meshloom.solvers.fractional_step import CubicCavity, SquareCavity
from meshloom.solvers.fractional_step.boundary_conditions import HIGH, LOW, Condition, Inflow, Outflow, Symmetry, Wall
from meshloom.solvers.fractional_step.cavity import Cavity
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges, stretched_edges
from meshloom.solvers.fractional_step.schemes import EULER, RK3, TimeScheme
from meshloom.solvers.fractional_step.staggered import StaggeredFlow
from tests.solvers.test_cavity import BACKENDS, cavity, documented, steady, worst_against_ghia
from tests.solvers.test_fractional_step import finished, observed, periodic, stirred, vortices, walls


@pytest.fixture(autouse=True)
def one_thread() -> None:
    ml.use("cpu", threads=1)


def flow(
    cells: CellGrid, start: np.ndarray | float, *, viscosity: float = 0.02, dt: float = 0.01, end: float = 1.0,
    sides: dict[tuple[int, str], Condition] | None = None, **options: Any,
) -> StaggeredFlow:  # fmt: skip
    made = StaggeredFlow(cells, sides or {}, viscosity, EvenSteps(dt, end), **options)
    made.start(start)
    return made


@pytest.mark.parametrize("convection", ["central", pytest.param("quick", marks=pytest.mark.slow)])
def test_second_order_in_space(convection: str) -> None:
    """What is given and compared are values at centres, so that the error of two interpolations is in it."""
    errors = []
    for n, dt in ((16, 0.02), (32, 0.01)):
        cells = periodic(n, bent=0.4)
        made = finished(flow(cells, vortices(cells), viscosity=0.1, dt=dt, end=0.5, convection=convection))
        exact = vortices(cells) * np.exp(-2.0 * 0.1 * 0.5)
        errors.append(float(np.abs(made.velocity.numpy() - exact).max()))
    assert observed(errors)[0] > 1.85 and errors[-1] < 0.012, errors


@pytest.mark.parametrize(
    ("scheme", "order"), [(RK3, 3.0), pytest.param(EULER, 1.0, marks=pytest.mark.slow)], ids=["rk3", "euler"]
)
def test_the_order_in_time(scheme: TimeScheme, order: float) -> None:
    cells = periodic(12)
    steps = (8, 16, 32) if scheme is RK3 else (32, 64, 128)
    found = [
        finished(flow(cells, stirred(cells), dt=1.0 / count, scheme=scheme)).faces.numpy()
        for count in (*steps, 256 if scheme is RK3 else 2048)
    ]
    errors = [float(np.abs(one - found[-1]).max()) for one in found[:-1]]
    assert all(abs(one - order) < 0.25 for one in observed(errors)), observed(errors)


@pytest.mark.parametrize("shape", [pytest.param((12, 9), marks=pytest.mark.slow), (6, 5, 7)])
def test_without_friction_energy_is_kept_on_stretched_cells_between_walls(shape: tuple[int, ...]) -> None:
    """But for the steps in time, which lose a part of third order in their length."""
    ml.use("numpy")
    cells = CellGrid([stretched_edges(n, 0.0, 1.0, 1.0) for n in shape], [False] * len(shape))
    start = np.random.default_rng(0).standard_normal((*shape, len(shape)))
    lost = []
    for dt in (0.002, 0.001):
        made = flow(cells, start, sides=walls(len(shape)), viscosity=0.0, dt=dt, end=0.02)
        before = float(made.energy.value)
        told = made.step.run(round(0.02 / dt), record=(made.energy, made.divergence))
        assert (told[:, 1] < 1e-12).all()
        lost.append(abs(told[-1, 0] / before - 1.0))
    assert lost[1] < 1e-4 and observed(lost)[0] > 2.7, lost


def sided(edges: list[np.ndarray], sides: dict[tuple[int, str], Condition], flags: list[bool]) -> StaggeredFlow:
    made = flow(CellGrid(edges, flags), 0.0, sides=sides, viscosity=0.01, dt=0.005, end=9.0, convection="quick")
    assert (made.step.run(20, record=(made.divergence,)) < 1e-12).all()
    return made


@pytest.mark.parametrize("axis", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_flow_in_space_that_is_the_same_in_all_layers_is_that_in_the_plane(axis: int) -> None:
    """Whichever axis has the layers: no axis is another's special case."""
    ml.use("numpy")
    plane = [stretched_edges(8, 0.0, 1.0, 1.0), even_edges(7, 0.0, 1.0)]
    flat = sided(plane, walls(2) | {(1, HIGH): Wall((1.0,))}, [False] * 2)
    order = [a for a in range(3) if a != axis]
    edges, flags, lid = list(plane), [False] * 2, [0.0] * 3
    edges.insert(axis, even_edges(3, 0.0, 0.3))
    flags.insert(axis, True)
    lid[order[0]] = 1.0
    sides: dict[tuple[int, str], Condition] = {(a, end): Wall() for a in order for end in (LOW, HIGH)}
    deep = sided(edges, sides | {(order[1], HIGH): Wall(tuple(lid))}, flags)
    found = np.take(deep.velocity.numpy(), 1, axis=axis)
    np.testing.assert_allclose(found[..., order], flat.velocity.numpy(), rtol=0.0, atol=1e-13)
    assert np.abs(found[..., axis]).max() < 1e-13 and np.abs(flat.velocity.numpy()).max() > 0.05


@pytest.mark.slow
def test_a_plane_of_symmetry_is_the_middle_of_twice_the_domain() -> None:
    ml.use("numpy")
    x, lid = even_edges(8, 0.0, 1.0), Wall((1.0,))
    whole = sided([x, even_edges(12, 0.0, 1.0)], walls(2) | {(1, LOW): lid, (1, HIGH): lid}, [False] * 2)
    half = sided([x, even_edges(6, 0.0, 0.5)], walls(2) | {(1, LOW): lid, (1, HIGH): Symmetry()}, [False] * 2)
    np.testing.assert_allclose(half.velocity.numpy(), whole.velocity.numpy()[:, :6], rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("forwards", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.slow
def test_what_flows_in_flows_out_and_finds_its_profile(forwards: bool) -> None:
    """A uniform inflow between walls becomes a parabola, whichever way it goes."""
    cells = CellGrid([even_edges(48, 0.0, 6.0), even_edges(12, 0.0, 1.0)], [False, False])
    speed, ends = (1.0, (LOW, HIGH)) if forwards else (-1.0, (HIGH, LOW))
    sides: dict[tuple[int, str], Condition] = {
        (0, ends[0]): Inflow(lambda x, y: (np.full_like(y, speed), 0.0)), (0, ends[1]): Outflow(),
        (1, LOW): Wall(), (1, HIGH): Wall(),
    }  # fmt: skip
    start = np.zeros((48, 12, 2))
    start[..., 0] = speed
    made = flow(cells, start, sides=sides, viscosity=0.05, dt=0.02, end=12.0)
    told = made.step.run(600, record=(made.divergence, made.change))
    assert (told[:, 0] < 1e-12).all() and told[-1, 1] < 1e-4
    through = cells.grid.shaped(made.faces, ghosts=True)[2:-1, 2:-2, 0].mean(axis=1)
    np.testing.assert_allclose(through, speed, rtol=1e-12)
    y, last = cells.axes[1].centres, -6 if forwards else 5
    np.testing.assert_allclose(made.velocity.numpy()[last, :, 0], speed * 6.0 * y * (1.0 - y), atol=0.03)


@pytest.mark.parametrize("end", [LOW, HIGH])
def test_what_flows_in_along_a_side_is_given_where_its_faces_are(end: str) -> None:
    """Between the cells, of several widths here: half a cell aside everything would be of first order only."""
    ml.use("numpy")
    cells = CellGrid([even_edges(6, 0.0, 1.0), stretched_edges(8, 0.0, 1.0, 1.0), even_edges(5, 0.0, 1.0)],
                     [False, False, True])  # fmt: skip
    speed = 1.0 if end == LOW else -1.0
    sides: dict[tuple[int, str], Condition] = {
        (0, LOW): Outflow(), (0, HIGH): Outflow(), (1, LOW): Wall(), (1, HIGH): Wall(),
    }  # fmt: skip
    sides[0, end] = Inflow(lambda x, y, z: (speed * y, np.sin(3.0 * y), y + np.cos(2.0 * np.pi * z)))
    made = flow(cells, 0.0, sides=sides, dt=0.001)
    made.step.run(2)
    u = cells.grid.shaped(made.faces, ghosts=True)[:, 2:-2, 2:-2]
    beyond, inside, on = (1, 2, 2) if end == LOW else (-2, -3, -2)
    y, z = (np.broadcast_to(one, (8, 5)) for one in (cells.axes[1].centres[:, None], cells.axes[2].edges[:-1]))
    v, w = (0.5 * (u[beyond] + u[inside])[..., c] for c in (1, 2))
    np.testing.assert_allclose(u[on][..., 0], speed * y, rtol=1e-13)
    np.testing.assert_allclose(v[1:], np.sin(3.0 * np.broadcast_to(cells.edges[1][1:-1, None], (7, 5))), rtol=1e-12)
    np.testing.assert_allclose(w, y + np.cos(2.0 * np.pi * z), rtol=1e-12)


# --- the cavity -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_cavity_staggered_and_collocated() -> None:
    """Both near Ghia's values, and nearer to each other than the grid is fine."""
    found = []
    for form in ("collocated", "staggered"):
        case = cavity(mesh__cells=(24, 24), time__steady=1e-4, scheme__form=form)
        found.append(steady(case))
        assert worst_against_ghia(case) < 0.02
    for name in ("u_centre", "v_min"):
        assert abs(found[0][name] - found[1][name]) < 0.01


@pytest.mark.parametrize(
    ("kind", "scheme"), [(SquareCavity, "euler"), pytest.param(CubicCavity, "rk3", marks=pytest.mark.slow)]
)
def test_a_restart_goes_on_bit_for_bit(kind: type[Cavity], scheme: str) -> None:
    ml.use("numpy")
    cells = (9, 8) if kind is SquareCavity else (5, 6, 4)
    settings: dict[str, Any] = {
        "mesh__cells": cells, "mesh__stretch": 1.0, "scheme__time": scheme, "scheme__form": "staggered",
        "scheme__convection": "quick",
    }  # fmt: skip
    whole, first, second = (cavity(kind, **settings) for _ in range(3))
    expected = whole.program.run(12, record=whole.recorded)[-1]
    first.program.run(5)
    for one, other in zip(first.state, second.state, strict=True):
        other.restore(one.saved())
    np.testing.assert_array_equal(second.program.run(7, record=second.recorded)[-1], expected)
    for one, other in zip(whole.state, second.state, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_gives_the_same(backend: str) -> None:
    ml.use("numpy")
    settings: dict[str, Any] = {"mesh__cells": (8, 10), "mesh__stretch": 1.0, "scheme__form": "staggered"}
    case = cavity(**settings)
    expected = case.program.run(5, record=case.recorded)
    ml.use(backend)
    case = cavity(**settings)
    np.testing.assert_allclose(case.program.run(5, record=case.recorded), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("convection", ["central", "quick"])
@pytest.mark.parametrize("form", ["collocated", "staggered"])
def test_the_cavity_of_64_cells_is_that_of_the_docs(form: str, convection: str) -> None:
    """Most of the difference from Ghia's table is in that: finer grids leave it."""
    case = cavity(mesh__cells=(64, 64), scheme__form=form, scheme__convection=convection)
    told = steady(case)
    found = [worst_against_ghia(case), told["u_centre"], told["v_min"]]
    row = documented("form")[form if convection == "central" else f"{form}, `{convection}`"]
    np.testing.assert_allclose(found, row, rtol=0.0, atol=1e-4)
    np.testing.assert_allclose(found[1:], [-0.20914, -0.25380], rtol=0.0, atol=0.002)
