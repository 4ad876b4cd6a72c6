"""Where nodes lie on a line: cells that grow by one ratio from a given first one."""

from __future__ import annotations

from math import expm1, log1p

import numpy as np

from meshloom.errors import MeshError

_LEAST = 1e-14  # a first cell as a share of all


def geometric(length: float, first: float, cells: int, what: str) -> np.ndarray:
    """Places (cells + 1,) from 0 to ``length``: the first cell is ``first`` long, each next one longer (or shorter) by
    one ratio. ``what`` begins the message where no ratio does that.
    """
    if cells == 1:
        return np.array([0.0, length])
    if not 0 < first < length:
        raise MeshError(f"{what}: a first cell of {first:g} does not fit into {length:g}; make it smaller")
    if first < _LEAST * length:
        raise MeshError(f"{what}: a first cell of {first:g} is lost in the rounding of {length:g}; make it larger")
    return length * np.concatenate(([0.0], _shares(_ratio(length / first, cells), cells)))


def _shares(logarithm: float, cells: int) -> np.ndarray:
    """How far the cells 1..n reach together, as a share of all of them."""
    k = np.arange(1, cells + 1)
    reach = np.expm1(logarithm * k) if logarithm != 0 else k
    return reach / reach[-1]


def growth(length: float, first: float, cells: int) -> float:
    """The ratio by which each of the cells is longer than the one before."""
    return float(np.exp(_ratio(length / first, cells))) if cells > 1 else 1.0


def _ratio(times: float, cells: int) -> float:
    """The logarithm of the ratio with which ``cells`` cells are ``times`` as long as the first: bisection."""

    def sum_of(logarithm: float) -> float:
        return cells if logarithm == 0 else expm1(logarithm * cells) / expm1(logarithm)

    # The last cell alone is shorter than all of them, and the sum is at least 1 however fast cells shrink.
    low, high = -50.0, log1p(times) / (cells - 1)
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if sum_of(middle) < times else (low, middle)
    return (low + high) / 2
