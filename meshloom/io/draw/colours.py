"""Colours that fit what they show: from blue over white to red about zero where values have both signs, else from dark
to bright."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshloom.records import dataclass

SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
_BOTH_SIGNS = 0.05  # of the larger side, which the smaller one must reach: less is rounding, or a dip below zero


@dataclass(frozen=True)
class ColourScale:
    """A map of matplotlib by name, the values at both its ends, and which of them are exceeded ("neither", "min",
    "max", "both")."""

    map: str
    low: float
    high: float
    extend: str = "neither"

    def norm(self) -> Any:
        """Values to numbers from 0 to 1, as matplotlib wants it."""
        from matplotlib.colors import Normalize

        return Normalize(self.low, self.high)

    def mappable(self) -> Any:
        """What a colour bar shows."""
        from matplotlib.cm import ScalarMappable

        return ScalarMappable(self.norm(), self.map)


def colour_scale(
    values: np.ndarray, *, tail: float = 0.0, limits: tuple[float, float] | None = None, map: str | None = None
) -> ColourScale:
    """The scale for ``values`` of any shape; those that are not finite do not count.

    ``tail``: percent of them at either end that may be beyond the scale, so that a few extreme ones do not use up the
    colours. ``limits`` and ``map`` are a person's choice of the ends and of the colours.
    """
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low, high = (float(end) for end in np.percentile(known, (tail, 100.0 - tail))) if known.size else (least, most)
    if high <= low:  # hardly any value differs from the others: those that do are what is to be seen
        low, high = least, most
    if limits is not None:
        low, high = limits
    signed = low < 0.0 < high and min(-low, high) >= _BOTH_SIGNS * max(-low, high)
    if signed and limits is None:
        low, high = -max(-low, high), max(-low, high)
    low, high = _apart(low, high)
    beyond = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}
    return ColourScale(map or (DIVERGING if signed else SEQUENTIAL), low, high, beyond[least < low, most > high])


def _apart(low: float, high: float) -> tuple[float, float]:
    """Ends that differ, also where all values are the same."""
    if high > low:
        return low, high
    return (low - 0.5 * abs(low), high + 0.5 * abs(high)) if math.isfinite(low) and low != 0.0 else (-0.5, 0.5)
