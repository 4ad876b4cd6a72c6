"""How far values reach along a line: products of factors, and when they no longer count."""

from __future__ import annotations

import math

import numpy as np


def negligible(dtype: np.dtype) -> float:
    """A factor that changes nothing in this precision."""
    return float(np.finfo(dtype).eps) / 8.0


def decay_points(factor: float, dtype: np.dtype) -> int:
    """Points after which a carry that shrinks by ``factor`` at each no longer counts."""
    return max(1, math.ceil(math.log(negligible(dtype)) / math.log(factor))) if 0.0 < factor < 1.0 else 1


def turn(factor: float, points: float) -> float:
    """What the carry of one turn around a periodic line becomes by all further turns: 1 / (1 - factor^points)."""
    return 1.0 / (1.0 - factor**points)
