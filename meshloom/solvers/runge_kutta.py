"""The classical fourth-order Runge-Kutta method for du/dt = slope(u), and how long its steps may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

import meshloom as ml

#: A purely imaginary symbol (a wave without damping) may have this size times the time step.
IMAGINARY_LIMIT = 2.0 * math.sqrt(2.0)
_TOLERANCE = 1e-12  # of |R| beyond 1, for rounding
_HALVINGS = 50


#: For each evaluation: when, in steps; how far the next one starts along its slope; how much the slope counts.
STAGES = ((0.0, 1 / 2, 1 / 6), (1 / 2, 1 / 2, 1 / 3), (1 / 2, 1.0, 1 / 3), (1.0, 0.0, 1 / 6))


def runge_kutta4(u: ml.Field, dt: ml.Global, rate: Callable[[int, ml.Field, ml.Field], None]) -> None:
    """One step of the field ``u``, for a program or by itself.

    ``rate(number, at, slope)``: sets ``slope`` = du/dt of the state ``at``, for the evaluation of that number.
    """
    slope, stage, total = (u.like(f"{u.name}_{name}") for name in ("slope", "stage", "sum"))
    for number in range(len(STAGES)):
        rate(number, stage if number else u, slope)
        advance = advance_kernel(number)
        if number + 1 < len(STAGES):
            advance(u.set, u, slope, stage, total, dt)
        else:
            advance(u.set, u, slope, total, dt)


@cache
def advance_kernel(number: int) -> ml.Kernel:
    """What becomes of the slope of an evaluation: the state of the next one, and its share of the step."""
    _when, length, weight = STAGES[number]

    @ml.kernel
    def rk_first(u: ml.Read, slope: ml.Read, stage: ml.Write, total: ml.Write, dt: ml.Read):
        stage[...] = u + length * dt * slope
        total[...] = u + weight * dt * slope

    @ml.kernel
    def rk_middle(u: ml.Read, slope: ml.Read, stage: ml.Write, total: ml.ReadWrite, dt: ml.Read):
        stage[...] = u + length * dt * slope
        total[...] = total + weight * dt * slope

    @ml.kernel
    def rk_last(u: ml.Write, slope: ml.Read, total: ml.Read, dt: ml.Read):
        u[...] = total + weight * dt * slope

    return (rk_first, rk_middle, rk_middle, rk_last)[number]


def amplification(z: np.ndarray) -> np.ndarray:
    """The factor R(z) of one step for du/dt = s u with z = s dt."""
    return 1.0 + z * (1.0 + z / 2.0 * (1.0 + z / 3.0 * (1.0 + z / 4.0)))


def largest_step(symbols: np.ndarray, growth: Callable[[np.ndarray], np.ndarray] = amplification) -> float:
    """The longest stable step for slopes with these eigenvalues (the complex symbol of every wave): |R| <= 1.

    ``growth``: the R of another method, of which no eigenvalue of size 1 may be stable beyond a step of 16.
    """
    values = np.asarray(symbols, complex).ravel()

    def stable(dt: float) -> bool:
        return bool((np.abs(growth(dt * values)) <= 1.0 + _TOLERANCE).all())

    size = float(np.abs(values).max(initial=0.0))
    if size == 0.0:
        return math.inf
    low, high = 0.0, (4.0 if growth is amplification else 16.0) / size  # no eigenvalue is stable beyond that
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low
