"""The driven cavity: against Ghia's tables and Botella and Peyret's extrema, steady, restarted, in two and three
dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.config import Setting, build
from meshloom.run.facts import end_row
from meshloom.solvers.fractional_step import CubicCavity, SquareCavity
from meshloom.solvers.fractional_step.cavity import Cavity, ghia
from meshloom.solvers.fractional_step.centreline import Centreline

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip


def cavity(kind: type[Cavity] = SquareCavity, **settings: Any) -> Cavity:
    """A case with settings such as mesh__cells=(8, 8)."""
    return kind(build(kind.Config, [Setting(tuple(k.split("__")), v, "test") for k, v in settings.items()]))


def steady(case: Cavity) -> dict[str, float]:
    """The monitors when it has come to its end."""
    while left := case.steps_left(case.recorded_now()):
        recorded = case.program.run(left, record=case.recorded)
        assert (recorded[:, 2] < 1e-10).all(), "div U in units of speed over width, in every step"
    return dict(zip(case.monitors, case.monitor_rows(recorded)[-1], strict=True))


def worst_against_ghia(case: Cavity) -> float:
    """The largest difference on both lines, in speeds of the lid."""
    found = []
    for chart in case.charts({}):
        here, known = chart.curves.values()
        found.append(np.nanmax(np.abs(here - known)))
    return max(found)


@pytest.mark.slow
def test_a_coarse_cavity_comes_to_rest_near_the_tables() -> None:
    ml.use("cpu", threads=1)
    case = cavity(mesh__cells=(32, 32), time__steady=1e-5)
    monitors = steady(case)
    assert monitors["change"] < 1e-5 and monitors["time"] < 30.0
    assert abs(monitors["u_centre"] + 0.20914) < 0.01  # on fine grids -0.20914 and -0.25380 (Marchi et al. 2009)
    assert abs(monitors["v_min"] + 0.25380) < 0.01
    assert worst_against_ghia(case) < 0.015


@pytest.mark.parametrize("kind", [SquareCavity, CubicCavity])
@pytest.mark.parametrize("scheme", ["rk3", "euler"])
def test_a_restart_goes_on_bit_for_bit(kind: type[Cavity], scheme: str) -> None:
    ml.use("numpy")
    cells = (9, 8) if kind is SquareCavity else (5, 6, 4)
    whole, first, second = (cavity(kind, mesh__cells=cells, mesh__stretch=1.0, scheme__time=scheme) for _ in range(3))
    expected = whole.program.run(7, record=whole.recorded)[-1]
    first.program.run(3)
    for one, other in zip(first.state, second.state, strict=True):
        other.restore(one.saved())
    np.testing.assert_array_equal(second.program.run(4, record=second.recorded)[-1], expected)
    for one, other in zip(whole.state, second.state, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("stretch", [0.0, pytest.param(3.0, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_multigrid_solves_for_the_pressure_in_single_precision(stretch: float) -> None:
    """With a tolerance that is none for such numbers, and cells 1 : 100."""
    ml.use("numpy")
    settings: dict[str, Any] = {"mesh__cells": (24, 24), "mesh__stretch": stretch, "pressure__solver": "multigrid"}
    single, double = (cavity(run__precision=one, **settings) for one in ("single", "double"))
    found, expected = (one.program.run(5, record=one.recorded)[-1] for one in (single, double))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_gives_the_same(backend: str) -> None:
    ml.use("numpy")
    settings: dict[str, Any] = {"mesh__cells": (8, 10), "mesh__stretch": 1.0}
    case = cavity(**settings)
    expected = case.program.run(5, record=case.recorded)
    ml.use(backend)
    case = cavity(**settings)
    np.testing.assert_allclose(case.program.run(5, record=case.recorded), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("stretch", [0.0, 2.0])
@pytest.mark.slow
def test_both_solvers_of_the_pressure_agree(stretch: float) -> None:
    ml.use("numpy")
    fast, slow = (cavity(mesh__cells=(16, 18), mesh__stretch=stretch, pressure__solver=one)
                  for one in ("fast", "multigrid"))  # fmt: skip
    assert (fast.flow.solver.kind, slow.flow.solver.kind) == ("fast", "multigrid")
    expected, found = (case.program.run(10, record=case.recorded) for case in (fast, slow))
    assert (found[:, 2] < 1e-10).all() and (expected[:, 2] < 1e-13).all()
    np.testing.assert_allclose(found[:, [0, 1, 3, 4, 5]], expected[:, [0, 1, 3, 4, 5]], rtol=1e-7)


def test_steady_is_asked_after_the_same_steps_however_a_run_is_cut() -> None:
    ml.use("cpu", threads=1)
    case = cavity(mesh__cells=(8, 8), time__steady=1e-3)
    step = case.flow.clock.step
    now = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    for done, change, left in ((0, 0.0, 100), (30, 0.0, 70), (100, 1.0, 100), (100, 1e-4, 0), (230, 1e-4, 70)):
        now[0], now[3] = done * step, change
        assert case.steps_left(now) == left, (done, change)
    now[0], now[3] = case.config.time.end - 1.5 * step, 1.0
    assert case.steps_left(now) == 2


def test_the_end_says_whether_it_was_steady() -> None:
    ml.use("numpy")
    case = cavity(mesh__cells=(4, 4), time__steady=1e-3, time__end=50.0)
    assert end_row(case) == [], "it has not ended"
    case.flow.time.value, case.flow.change.value = 100 * case.flow.clock.step, 1e-4
    assert end_row(case) == [("ended", "steady by time.steady = 0.001")]
    case.flow.time.value, case.flow.change.value = 50.0, 1.0
    assert end_row(case) == [("ended", "at time 50, not yet steady by time.steady = 0.001")]
    assert end_row(cavity(mesh__cells=(4, 4), time__steady=0.0)) == []


def test_profiles_and_monitors_meet_in_the_middle() -> None:
    """Cells are even and odd in number, in the plane and in space."""
    ml.use("numpy")
    for kind, cells in ((SquareCavity, (6, 5)), (CubicCavity, (4, 5, 6))):
        case = cavity(kind, mesh__cells=cells)
        u = np.random.default_rng(0).standard_normal((*cells, len(cells)))
        case.flow.velocity.assign(u)
        ml.program(case.look).run()
        u_centre, v_min = (float(one.value) for one in case.looked)
        middle = [slice((n - 1) // 2, n // 2 + 1) for n in cells]
        assert np.isclose(u_centre, u[(*middle, 0)].mean())
        assert np.isclose(v_min, u[(slice(None), *middle[1:], 1)].reshape(cells[0], -1).mean(axis=1).min())
        assert np.isclose(Centreline(case.cells, 0).profile(case.flow.velocity, 1).min(), v_min)


@pytest.mark.slow
def test_the_steady_flow_does_not_depend_on_the_length_of_a_step() -> None:
    """The face velocities forget in a time of their own where one is given (``scheme.fade``), not in a step."""
    ml.use("cpu", threads=1)
    found = []
    for cfl in (0.9, 0.5):
        fading: dict[str, Any] = {"scheme__form": "collocated", "scheme__fade": 0.05}
        case = cavity(mesh__cells=(12, 12), time__steady=1e-6, time__cfl=cfl, **fading)
        steady(case)
        found.append(case.flow.velocity.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=0.0, atol=1e-5)


def test_ghia_without_the_misprint() -> None:
    places, values = ghia("v_on_horizontal_line", 400.0)
    assert len(places) == 16 and (np.diff(places) > 0.0).all() and values.min() == -0.44993
    assert len(ghia("u_on_vertical_line", 400.0)[0]) == 17 and not len(ghia("u_on_vertical_line", 250.0)[0])


def documented(heading: str) -> dict[str, list[float]]:
    """The numbers in the rows of a table of docs/incompressible.md, by what stands first; ``heading``: the table's."""
    text = (Path(__file__).parents[2] / "docs" / "incompressible.md").read_text(encoding="utf-8")
    rows = text[text.index(f"\n| {heading} |") :].strip().split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {first: [float(one) for one in rest if one and "," not in one] for first, *rest in cells}


@pytest.mark.slow
@pytest.mark.parametrize("reynolds", [100.0, 400.0, 1000.0])
def test_the_cavity_of_129_cells_against_others(reynolds: float) -> None:
    """Ghia's tables; at Re 1000 the extrema of O. Botella and R. Peyret, Computers and Fluids 27, 1998, 421-433. And
    the docs, to their last digit."""
    ml.use("cpu", threads=1)
    case = cavity(mesh__cells=(129, 129), flow__reynolds=reynolds, scheme__form="collocated")
    steady(case)
    u = Centreline(case.cells, 1).profile(case.flow.velocity, 0)
    v = Centreline(case.cells, 0).profile(case.flow.velocity, 1)
    found = [worst_against_ghia(case), u.min(), v.max(), v.min()]
    if reynolds == 1000.0:
        np.testing.assert_allclose(found[1:], [-0.3886, 0.3769, -0.5271], rtol=0.0, atol=0.01)
    else:
        assert found[0] < 0.01
    np.testing.assert_allclose(found, documented("Re")[f"{reynolds:g}"], rtol=0.0, atol=1e-4)


def test_tables_of_the_docs_are_found() -> None:
    """Those that slow tests make anew."""
    assert [len(row) for row in documented("Re").values()] == [4, 4, 4] and set(documented("Re")) >= {"100", "1000"}
    assert all(len(row) == 3 for row in documented("form").values()) and len(documented("form")) == 4
