"""The Runge-Kutta method: fourth order, and its stability limits."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.solvers.runge_kutta import IMAGINARY_LIMIT, largest_step, runge_kutta4


@ml.kernel
def swing(u: ml.Read, slope: ml.Write):
    slope[...] = np.stack([-u[1], u[0]])


def error_after_one_turn(steps: int) -> float:
    points = ml.Set(3, "points")
    u = points.field("u", 2, data=np.tile([1.0, 0.0], (3, 1)))
    dt = ml.Global(2.0 * math.pi / steps, "dt")
    step = ml.program(lambda: runge_kutta4(u, dt, lambda _number, at, slope: swing(points, at, slope)))
    step.run(steps)
    return float(np.abs(u.numpy() - [1.0, 0.0]).max())


def test_fourth_order():
    before = ml.backend()
    ml.use("numpy")
    coarse, fine = error_after_one_turn(40), error_after_one_turn(80)
    ml.use(before)
    assert fine < 1e-5 and abs(math.log2(coarse / fine) - 4) < 0.15


def test_stages_round_a_line_loop_on_a_gpu():
    """Loops of the stages are fused there, line loops are not: what passes between them must be stored."""
    before = ml.backend()
    found = []
    for backend in ("numpy", "emulated"):
        ml.use(backend)
        grid = ml.Grid(16, 1.0, periodic=True)
        u = grid.field("u", data=np.sin(2 * np.pi * grid.coordinates[0]))
        dt = ml.Global(0.01, "dt")

        def slopes(_number: int, at: ml.Field, slope: ml.Field) -> None:
            compact.d(at, 0, slope, compact.PADE4)

        step = ml.program(partial(runge_kutta4, u, dt, slopes))
        step.run(3)
        found.append(grid.shaped(u))
    ml.use(before)
    np.testing.assert_allclose(found[1], found[0], atol=1e-14)
    np.testing.assert_allclose(found[0], np.sin(2 * np.pi * (grid.coordinates[0] + 0.03)), atol=1e-4)


def test_the_longest_steps():
    assert abs(largest_step(np.array([1j, -0.5j])) - IMAGINARY_LIMIT) < 1e-6
    assert abs(largest_step(np.array([-1.0])) - 2.785293563) < 1e-6
    assert largest_step(np.zeros(1)) == math.inf
    waves = compact.symbol(compact.LELE6, np.linspace(0.0, np.pi, 1001))
    assert abs(largest_step(waves) - IMAGINARY_LIMIT / 1.98944) < 1e-3
