"""Tables that plans of several methods along lines have, and how far values reach along a line."""

from __future__ import annotations

import math

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.lines.along import StencilAlong
from meshloom.schedule.plan.declare import ANY, REALS, Array, Numbers, Reals, holds


@dataclass(frozen=True, eq=False)
class FactorTables:
    """LU factors of one operator, by rows of a line: forward g = r - lower g(before), backward x = g inverse - upper
    x(behind)."""

    lower: Reals = holds(Array(REALS, ANY), "factors of the sweep forwards")
    inverse: Reals = holds(Array(REALS, ANY), "inverse pivots, scaled")
    upper: Reals = holds(Array(REALS, ANY), "factors of the sweep backwards")


@dataclass(frozen=True, eq=False)
class OperatorTables(FactorTables):
    """The same, and the right-hand sides of the rows at the ends: see ``closure_tables``."""

    closure: Reals = holds(Array(REALS, ANY, ANY), "coefficients of the rows at the ends, padded with zeros")
    closure_at: Numbers = holds(Array(("int32",), ANY), "their first offsets")


def closure_tables(stencil: StencilAlong, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (rows, width), padded with zeros, and first offsets (rows,) of the rows at the ends."""
    rows = stencil.closures
    if not rows:
        return np.zeros((1, 1), dtype), np.zeros(1, np.int32)
    width = closure_width(stencil)
    table = np.zeros((len(rows), width), dtype)
    starts = np.zeros(len(rows), np.int32)
    for k, row in enumerate(rows):
        # the window must stay inside the line: rows at the low end start where they do, at the high end they end there
        starts[k] = min(row) if k < len(stencil.low) else max(row) - width + 1
        for o, c in row.items():
            table[k, o - starts[k]] = c
    return table, starts


def negligible(dtype: np.dtype) -> float:
    """A factor that changes nothing in this precision."""
    return float(np.finfo(dtype).eps) / 8.0


def decay_points(factor: float, dtype: np.dtype) -> int:
    """Points after which a carry that shrinks by ``factor`` at each no longer counts."""
    return max(1, math.ceil(math.log(negligible(dtype)) / math.log(factor))) if 0.0 < factor < 1.0 else 1


def closure_width(stencil: StencilAlong) -> int:
    """Points from the first to the last that a row at an end may use."""
    return max((max(r) - min(r) + 1 for r in stencil.closures), default=1)
