"""The classical fourth-order Runge-Kutta method for du/dt = slope(u), and how long its steps may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import meshloom as ml

#: A purely imaginary symbol (a wave without damping) may have this size times the time step.
IMAGINARY_LIMIT = 2.0 * math.sqrt(2.0)
_TOLERANCE = 1e-12  # of |R| beyond 1, for rounding
_HALVINGS = 50


@dataclass(frozen=True)
class Stage:
    """One of the four evaluations of a step.

    ``when`` is the time of the evaluation in steps, ``ahead`` how far the next stage starts along this slope,
    ``weight`` how much the slope counts in the end. ``at`` is the field to evaluate at; ``advance()`` uses the slope.
    """

    when: float
    ahead: float
    weight: float
    at: ml.Field
    advance: Callable[[], None]


class RungeKutta4:
    """Steps of a field. In a program, for each of the ``stages``: set ``slope`` from ``stage.at``, then ``advance()``.

    After the fourth stage the field holds the new state. The step ``dt`` is a number, or a Global that is read then.
    """

    _TABLEAU = ((0.0, 1 / 2, 1 / 6), (1 / 2, 1 / 2, 1 / 3), (1 / 2, 1.0, 1 / 3), (1.0, 0.0, 1 / 6))

    def __init__(self, u: ml.Field, dt: ml.Global | float):
        self.u, self.dt = u, dt if isinstance(dt, ml.Global) else ml.Global(float(dt), "dt", dtype=u.dtype)
        layout = None if u.layout_is_free else str(u.layout)
        self.slope, self.ahead, self.sum = (
            u.set.field(f"{u.name}_{name}", u.components, dtype=u.dtype, layout=layout, transient=True)
            for name in ("slope", "ahead", "sum")
        )
        self.stages = tuple(self._stage(i) for i in range(len(self._TABLEAU)))

    def _stage(self, i: int) -> Stage:
        when, ahead, weight = self._TABLEAU[i]
        u, slope, partial, total, dt = self.u, self.slope, self.ahead, self.sum, self.dt
        first, last = i == 0, i == len(self._TABLEAU) - 1

        @ml.kernel
        def rk_first(u: ml.Read, slope: ml.Read, partial: ml.Write, total: ml.Write, dt: ml.Read):
            partial[...] = u + ahead * dt * slope
            total[...] = u + weight * dt * slope

        @ml.kernel
        def rk_middle(u: ml.Read, slope: ml.Read, partial: ml.Write, total: ml.ReadWrite, dt: ml.Read):
            partial[...] = u + ahead * dt * slope
            total[...] = total + weight * dt * slope

        @ml.kernel
        def rk_last(u: ml.Write, slope: ml.Read, total: ml.Read, dt: ml.Read):
            u[...] = total + weight * dt * slope

        update = rk_last if last else rk_first if first else rk_middle

        def advance() -> None:
            if last:
                update(u.set, u, slope, total, dt)
            else:
                update(u.set, u, slope, partial, total, dt)

        return Stage(when, ahead, weight, u if first else partial, advance)


def amplification(z: np.ndarray) -> np.ndarray:
    """The factor R(z) of one step for du/dt = s u with z = s dt."""
    return 1.0 + z * (1.0 + z / 2.0 * (1.0 + z / 3.0 * (1.0 + z / 4.0)))


def largest_step(symbols: np.ndarray) -> float:
    """The longest stable step for slopes with these eigenvalues (the complex symbol of every wave): |R| <= 1."""
    values = np.asarray(symbols, complex).ravel()

    def stable(dt: float) -> bool:
        return bool((np.abs(amplification(dt * values)) <= 1.0 + _TOLERANCE).all())

    size = float(np.abs(values).max(initial=0.0))
    if size == 0.0:
        return math.inf
    low, high = 0.0, 4.0 / size  # no eigenvalue is stable beyond that
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low
