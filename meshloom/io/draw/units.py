"""Values as a picture can compute with them: those that are far from one are drawn in units that its label names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_FAR = 100.0  # decades from one: squares and differences of what is nearer are numbers, too
_LEAST = -300.0  # decades: the unit is a number by which the least ones can be divided


def unit_of(*several: Any) -> float:
    """A power of ten near the greatest size of finite values, where that is far from one; else one."""
    sizes = [np.abs(np.asarray(one, np.float64)) for one in several]
    greatest = max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)
    decades = math.log10(greatest) if greatest > 0.0 else 0.0
    return 1.0 if abs(decades) < _FAR else float(10.0 ** math.floor(max(decades, _LEAST)))


def in_units(label: str, unit: float) -> str:
    """``pressure / 1e+308`` of values that are drawn in such units."""
    return label if unit == 1.0 else f"{label} / {unit:g}"
