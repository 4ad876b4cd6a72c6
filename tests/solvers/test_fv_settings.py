"""What a person meets who sets up a flow: forces, charts and windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import meshloom as ml
from bench.cases import make
from meshloom.solvers.finite_volume.case import shown_window

SMALL = ("mesh.along=6", "mesh.up=3")


@pytest.fixture(autouse=True)
def numpy_back_end() -> Iterator[None]:
    with ml.using("numpy"):
        yield


def forces(iterations: int, *settings: str) -> np.ndarray:
    """Coefficients of lift, drag and moment at the start of the last iteration."""
    case = make("fv", *SMALL, "stream.incidence=10", *settings)
    rows = case.monitor_rows(case.program.run(iterations, record=case.recorded))
    named = dict(zip(case.monitors, rows[-1], strict=True))
    return np.array([named["lift"], named["drag"], named["moment"]])


def test_a_wall_that_is_not_closed_feels_what_differs_from_the_free_stream():
    """Else the lift of a floor would be minus the pressure of the air; at first nothing differs anywhere."""
    np.testing.assert_allclose(forces(1, "boundary.top.kind=symmetry"), 0.0, atol=1e-14)


def test_walls_that_do_not_count():
    """The stream goes up: ceiling and floor feel forces, which add up."""
    top, wall = "boundary.top={kind='slip', forces=false}", "boundary.wall={kind='slip', forces=false}"
    both, floor, ceiling = forces(3), forces(3, top), forces(3, wall)
    np.testing.assert_allclose(floor + ceiling, both, rtol=1e-12)
    assert np.abs(ceiling).min() > 1e-3 and np.abs(floor).min() > 1e-3
    assert [chart.name for chart in make("fv", *SMALL, top).charts({})] == ["cp_top", "cp_wall"], "it still has a chart"


def test_pressure_is_drawn_downwards_and_has_its_places_beside_it():
    (chart,) = make("fv", *SMALL, "boundary.top.kind=symmetry").charts({})
    assert chart.name == "cp_wall" and chart.downwards and list(chart.columns) == ["y"]
    np.testing.assert_allclose(chart.columns["y"][[0, -1]], 0.0, atol=1e-15)
    assert chart.columns["y"].max() > 0.04 and (np.diff(chart.x) > 0.0).all()


def test_a_picture_shows_the_body_and_not_the_far_field():
    far = np.array([[-50.0, -50.0], [50.0, 50.0]])
    body = np.array([[0.0, -0.1], [1.0, 0.1]])
    np.testing.assert_allclose(shown_window(far, body), (-1.0, 2.0, -1.1, 1.1))
    assert shown_window(far, far) == shown_window(far, far[:, ::-1] * [1.0, 0.01]) == (-50.0, 50.0, -50.0, 50.0)
    assert shown_window(far, body - 50.0) == (-50.0, -48.0, -50.0, -48.9), "no further than the domain"
