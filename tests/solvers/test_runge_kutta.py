"""The Runge-Kutta method: fourth order, and its stability limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.solvers.runge_kutta import IMAGINARY_LIMIT, RungeKutta4, cfl_limit, largest_step


@ml.kernel
def swing(u: ml.Read, slope: ml.Write):
    slope[...] = np.stack([-u[1], u[0]])


def error_after_one_turn(steps: int) -> float:
    points = ml.Set(3, "points")
    u = points.field("u", 2, data=np.tile([1.0, 0.0], (3, 1)))
    rk = RungeKutta4(u, 2.0 * math.pi / steps)

    @ml.program
    def step() -> None:
        for stage in rk.stages:
            swing(points, stage.at, rk.slope)
            stage.advance()

    step.run(steps)
    return float(np.abs(u.numpy() - [1.0, 0.0]).max())


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_fourth_order(backend):
    before = ml.backend()
    ml.use(backend)
    try:
        coarse, fine = error_after_one_turn(40), error_after_one_turn(80)
    finally:
        ml.use(before)
    assert fine < 1e-5 and abs(math.log2(coarse / fine) - 4) < 0.15


def test_the_longest_steps():
    assert abs(largest_step(np.array([1j, -0.5j])) - IMAGINARY_LIMIT) < 1e-6
    assert abs(largest_step(np.array([-1.0])) - 2.785293563) < 1e-6
    assert largest_step(np.zeros(1)) == math.inf
    lele = cfl_limit(lambda theta: compact.symbol(compact.LELE6, theta))
    assert abs(lele - IMAGINARY_LIMIT / 1.98944) < 1e-3
