"""What the cores of this machine do at most, measured by loops that do nothing else (``peaks.cpp``)."""

from __future__ import annotations

from functools import cache

import numpy as np

from meshloom.native.ffi import call

TYPES = ("float64", "float32")
#: Arithmetic, in the order of ``peaks.cpp``; additions, minima and maxima take as long as multiply-adds.
ARITHMETIC_KINDS = ("multiply-add", "division", "square root", "special")
BYTES = 384  # of the values that a thread goes on with
#: Steps: about a millisecond of each.
STEPS = {"multiply-add": 65_536, "division": 8192, "square root": 8192, "special": 2048}


@cache
def rate(kind: str, dtype: str, threads: int) -> float | None:
    """Operations per second of a kind and type on so many threads; None where it is none of the processor's."""
    if kind not in ARITHMETIC_KINDS or dtype not in TYPES:
        return None
    given, out, taken = np.full(2, 0.75, dtype), np.zeros(threads, dtype), np.zeros(1)
    steps, number = STEPS[kind], ARITHMETIC_KINDS.index(kind)
    call("peaks", f"peak_{dtype}", number, steps, threads, given, out, taken)
    return float(BYTES // out.itemsize * steps * threads / taken[0])
