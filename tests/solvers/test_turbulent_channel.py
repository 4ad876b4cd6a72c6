"""Turbulent flow between walls: sums over planes, means that are what NumPy makes of the fields, the balance of
momentum, restarts, and what it begins with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ConfigError
from meshloom.solvers.fractional_step import Channel
from meshloom.solvers.fractional_step.cells import CellGrid, even_edges, stretched_edges
from meshloom.solvers.fractional_step.channel import stretch_for
from meshloom.solvers.fractional_step.plane_sums import PlaneSums, folds
from meshloom.solvers.fractional_step.turbulence import mean_velocity
from tests.solvers.test_cavity import BACKENDS
from tests.solvers.test_channel import channel, run

SMALL: dict[str, Any] = {
    "mesh__cells": (6, 10, 5), "mesh__length": 3.0, "mesh__width": 1.0, "flow__reynolds_tau": 180.0,
    "statistics__after": 0.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> None:
    ml.use("cpu", threads=1)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 13, 64, 65, 96, 130])
def test_folding_adds_every_cell_once(n: int) -> None:
    values = np.arange(float(n)) ** 2
    expected, left = values.sum(), n
    for together in folds(n):
        for one in together:
            for k in range(1, one.terms):
                values[one.low : one.high] += values[one.low + k * one.step : one.high + k * one.step]
        left = together[-1].high
    assert left == 1 and values[0] == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_over_planes(backend: str) -> None:
    ml.use(backend)
    cells = CellGrid([even_edges(11, 0.0, 1.0), even_edges(4, 0.0, 1.0), even_edges(9, 0.0, 1.0)], [True, False, True])
    u = cells.grid.field("u", data=np.random.default_rng(0).standard_normal((11, 4, 9)))
    sums = PlaneSums(cells, 1, 1)

    def first_fold(box: Any, offsets: tuple[tuple[int, ...], ...], into: ml.Field) -> None:
        @ml.kernel
        def squares(u: ml.Read, into: ml.Write):
            into[...] = sum(u[at] ** 2 for at in offsets)

        squares(box, u[cells.grid.offsets(*offsets)], into)

    found = sums.planes.field("found")

    @ml.kernel
    def copy(one: ml.Read, other: ml.Write):
        other[...] = one[0]

    def all_of_it() -> None:
        sums.take(first_fold)
        copy(sums.planes, sums.at_planes, found)

    ml.program(all_of_it).run()
    np.testing.assert_allclose(found.numpy(), (u.numpy() ** 2).sum(axis=(0, 2)), rtol=1e-13)


def by_hand(case: Channel) -> np.ndarray:
    """Means over x and z of velocities, their squares, and the flux of u through the first faces along y, (ny, 7)."""
    u, faces = (case.grid.shaped(one, ghosts=True) for one in (case.flow.velocity, case.flow.faces))
    inside, below, back = (slice(2, -2),) * 3, (slice(2, -2), slice(1, -3), slice(2, -2)), (slice(1, -3),)
    if case.flow.staggered:
        v = faces[..., 1]
        through = 0.5 * (v[inside] + v[(*back, *inside[1:])])
        flux = through * 0.5 * (faces[inside][..., 0] + faces[below][..., 0])
        above = v[2:-2, 3:-1, 2:-2]
        parts = [faces[inside][..., 0], 0.5 * (v[inside] + above), faces[inside][..., 2]]
        squares = [parts[0] ** 2, 0.5 * (v[inside] ** 2 + above**2), parts[2] ** 2]
    else:
        parts = [u[inside][..., c] for c in range(3)]
        squares, flux = [one**2 for one in parts], faces[inside][..., 1] * 0.5 * (u[inside] + u[below])[..., 0]
    return np.stack([one.mean(axis=(0, 2)) for one in (*parts, *squares, flux)], axis=-1)


@pytest.mark.parametrize("form", ["collocated", "staggered"])
def test_means_are_those_of_the_fields_of_all_steps(form: str) -> None:
    ml.use("numpy")
    case = channel(**SMALL | {"statistics__after": 0.0025}, scheme__form=form, time__dt=0.001)
    samples = []
    for step in range(5):
        if step == 2:
            first = case.mean_velocity()
        case.program.run(1)
        samples.append(by_hand(case))
    expected = np.mean(samples[2:], axis=0)
    found = case.statistics.profiles()
    assert found is not None and found.time == pytest.approx(0.003)
    np.testing.assert_allclose(found.mean, expected[:, :3], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found.squares, expected[:, 3:6] - expected[:, :3] ** 2, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(found.reynolds_shear(), [*-expected[:, 6], 0.0], rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(found.first, first, rtol=1e-12)


@pytest.mark.parametrize("form", ["staggered", pytest.param("collocated", marks=pytest.mark.slow)])
def test_shear_and_what_the_fluid_gains_balance_the_force(form: str) -> None:
    """As good as the middle of steps is known from their ends; the flow is far from steady."""
    ml.use("numpy")
    left = []
    for dt in (4e-4, 2e-4):
        case = channel(**SMALL, scheme__form=form, time__dt=dt, time__end=0.01, scheme__fade=0.002)
        told = run(case)
        assert (told["divergence"] < 1e-12).all()
        shear = case.charts(told)[2].curves
        assert np.abs(shear["together"] - shear["1 - y"]).max() > 0.1
        left.append(np.abs(shear["together"] - shear["1 - y less what the fluid gains"]).max())
    assert left[1] < 0.01 and left[1] < 0.6 * left[0], left


def test_a_restart_goes_on_bit_for_bit_with_its_means() -> None:
    ml.use("numpy")
    whole, first, second = (channel(**SMALL, time__dt=0.001) for _ in range(3))
    expected = whole.program.run(7, record=whole.recorded)[-1]
    first.program.run(3)
    for one, other in zip(first.state, second.state, strict=True):
        other.restore(one.saved())
    np.testing.assert_array_equal(second.program.run(4, record=second.recorded)[-1], expected)
    for one, other in zip(whole.state, second.state, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def divergence(case: Channel) -> np.ndarray:
    """Of the velocities through faces, per cell, (nx, ny, nz); the first face of a cell has the cell's number."""
    faces = case.grid.shaped(case.flow.faces, ghosts=True)
    inside, found = [slice(2, -2)] * 3, 0.0
    for axis, edges in enumerate(case.cells.edges):
        beyond = [slice(3, -1) if a == axis else one for a, one in enumerate(inside)]
        widths = np.expand_dims(np.diff(edges), [a for a in range(3) if a != axis])
        found = found + (faces[(*beyond, axis)] - faces[(*inside, axis)]) / widths
    return found


@pytest.mark.parametrize("form", ["", "collocated"])
def test_what_it_begins_with(form: str) -> None:
    """The mean of turbulent flow, disturbed by more than a tenth of it, at rest at the walls, without divergence: by
    the velocities that a form goes on from, which are those at faces unless told otherwise."""
    ml.use("numpy")
    case = channel(**SMALL | {"mesh__cells": (12, 24, 12)} | ({"scheme__form": form} if form else {}))
    assert case.flow.staggered is (not form)
    through = case.flow.faces.numpy()
    u = through if case.flow.staggered else case.flow.velocity.numpy()
    y_plus, bulk = 180.0 * (1.0 - np.abs(case.cells.axes[1].centres)), float(case.looked[0].value)
    np.testing.assert_allclose(u[..., 0].mean(axis=(0, 2)), mean_velocity(y_plus), rtol=1e-13)
    assert 15.0 < bulk < 16.0 and np.abs(u).max() < 1.3 * 18.3
    disturbed = u.std(axis=(0, 2))
    assert (disturbed[6:-6] > 0.2).all() and disturbed[:, 0].max() > 0.1 * bulk, disturbed
    assert not case.grid.shaped(case.flow.faces, ghosts=True)[:, [2, -2], :, 1].any(), "nothing goes through walls"
    rounding = np.finfo(np.float64).eps * np.abs(through).max() / min(case.cells.narrowest)
    assert np.abs(divergence(case)).max() < 16.0 * rounding and float(case.flow.divergence.value) < 1e-13
    assert (np.diff(case.cells.edges[1])[[0, -1]] * 180.0 <= 1.0 + 1e-9).all()


def test_mean_velocity_follows_the_law_of_the_wall() -> None:
    assert mean_velocity(np.array(1.0)) == pytest.approx(1.0, abs=0.05)
    assert mean_velocity(np.array(100.0)) == pytest.approx(2.44 * np.log(100.0) + 5.2, abs=0.6)


def test_no_more_stretch_than_is_needed() -> None:
    stretch = stretch_for(96, 1.0 / 180.0)
    assert np.diff(stretched_edges(96, -1.0, 1.0, stretch))[0] == pytest.approx(1.0 / 180.0)
    assert stretch_for(96, 0.1) == 0.0


def test_turbulence_in_the_plane_is_refused() -> None:
    ml.use("numpy")
    with pytest.raises(ConfigError, match="turbulence needs space; give three numbers of cells"):
        channel(mesh__cells=(8, 8), flow__start="turbulent")
    assert not channel(mesh__cells=(4, 6, 4), flow__reynolds_tau=99.0).turbulent


@pytest.mark.slow
def test_turbulence_lives_on() -> None:
    """In a narrow box on a coarse grid, for several times that eddies need to go round."""
    case = channel(
        mesh__cells=(32, 40, 24), mesh__length=3.14, mesh__width=1.2, flow__reynolds_tau=180.0, time__end=4.0,
        time__cfl=1.3, statistics__after=2.0, scheme__form="staggered",
    )  # fmt: skip
    told = run(case)
    assert 0.6 < told["balance"][-1] < 1.6 and 13.0 < told["bulk_velocity"][-1] < 18.0
    found = case.statistics.profiles()
    assert found is not None
    assert np.sqrt(found.squares.max(axis=0)).min() > 0.5 and found.reynolds_shear().max() > 0.4
