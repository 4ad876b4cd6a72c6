"""How long explicit steps may be: waves on an even mesh against the polynomial of the stages (von Neumann)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from meshloom.solvers.finite_volume.steps import SSP_STAGES, STEADY_STAGES, SWEEPS
from meshloom.solvers.runge_kutta import largest_step

_WAVES = 361


def in_time(z: np.ndarray) -> np.ndarray:
    """What ``UnsteadySteps`` make of a wave whose rate times the step is z."""
    u = np.ones_like(z)
    for share in SSP_STAGES:
        u = share + (1.0 - share) * (u + z * u)
    return u


def towards_steady(z: np.ndarray) -> np.ndarray:
    """The same for ``SteadySteps``."""
    u = np.ones_like(z)
    for length in STEADY_STAGES:
        u = 1.0 + length * z * u
    return u


@cache
def longest_cfl(order: int, smoothing: float, stages: Callable[[np.ndarray], np.ndarray]) -> float:
    """The largest Courant number with which no wave grows. Upwind differences of first order, or with the central
    gradient of cells (Fromm's scheme), along one axis; along several their Courant numbers add, as in ``time.cfl``.
    ``smoothing``: of the rates, by ``SWEEPS`` of Jacobi."""
    theta = np.linspace(0.0, np.pi, _WAVES)
    face = 1.0 + (0.5j * np.sin(theta) if order == 2 else 0.0)  # of the value in the cell upwind
    rate = -face * (1.0 - np.exp(-1j * theta))
    share = np.ones(_WAVES)
    for _ in range(SWEEPS):
        share = (1.0 + 2.0 * smoothing * np.cos(theta) * share) / (1.0 + 2.0 * smoothing)
    return largest_step(rate * share, stages)
