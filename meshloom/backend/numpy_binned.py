"""Sums that have the same bits in any order, on whole arrays: what ``binned.hpp`` says, with Python's whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BITS, LEAST = 30, -1080  # of a bin, and the exponent of the unit of the first
#: 1.5 * 2^52 units of the three bins that count, where the unit of the last is one
CUTS = tuple(1.5 * 2.0 ** (52 + BITS * k) for k in (2, 1, 0))
PLUS_ZERO, SPECIAL = 1, {2: math.inf, 4: -math.inf, 8: math.nan}  # what else there was, as marks


class Bins:
    """Whole numbers of units in three bins, ``top`` the first of them; 0 where all summands were zeros so far."""

    def __init__(self, first: np.ndarray):
        self.top, self.units = 0, [0, 0, 0]
        self.beyond = 0.0  # infinities and NaN
        self.minus_zeros = True  # and nothing else
        self.add(first)

    def add(self, values: np.ndarray) -> None:
        """At most 2^22 floating-point numbers, so that their parts are added exactly as well."""
        x = values.astype(np.float64)
        finite = np.isfinite(x)
        if not finite.all():
            self.beyond += float(x[~finite].sum())
            x = x[finite]
        self.minus_zeros &= bool((np.signbit(x) & (x == 0.0)).all())
        largest = float(np.abs(x).max(initial=0.0))
        if largest:
            self._make_bins(max(2, (math.frexp(largest)[1] - LEAST) // BITS))  # of which it has less than 2^29 units
            root = 2.0 ** (-(BITS * (self.top - 2) + LEAST) // 2)  # twice, since what it is the root of may be infinite
            rest = x * root * root
            for k, cut in enumerate(CUTS):
                deposit = (rest + cut) - cut
                self.units[k] += int(deposit.sum()) >> BITS * (2 - k)
                rest -= deposit

    @classmethod
    def of_words(cls, words: np.ndarray) -> Bins:
        """As ``binned.hpp`` has them in memory, (4,) int64."""
        top, marks = (int(one) for one in words[:1].view(np.int32))
        found = cls(np.zeros(0))
        found.top, found.units = top, [int(one) for one in words[1:]]
        found.beyond = sum(value for mark, value in SPECIAL.items() if marks & mark)
        found.minus_zeros = top == 0 and not marks & PLUS_ZERO
        return found

    def words(self) -> np.ndarray:
        """The same."""
        special = {mark for mark, value in SPECIAL.items() if repr(value) == repr(self.beyond)}
        head = np.array([self.top, sum(special) | (0 if self.minus_zeros else PLUS_ZERO)], np.int32)
        return np.concatenate([head.view(np.int64), np.array(self.units, np.int64)])

    def merge(self, other: Bins) -> None:
        """All summands of another one as well."""
        self._make_bins(other.top)
        units = ([0] * (self.top - other.top) + other.units)[:3]
        self.units = [a + b for a, b in zip(self.units, units, strict=True)]
        self.beyond += other.beyond
        self.minus_zeros &= other.minus_zeros

    def _make_bins(self, top: int) -> None:
        """Room for larger summands; bins below the last of three are left away."""
        if top > self.top:
            self.units = ([0] * (top - self.top) + self.units)[:3]
            self.top = top

    def rounded(self, dtype: np.dtype) -> Any:
        """The total, to nearest even; of zeros alone as IEEE 754 adds them."""
        total, exponent = sum(n << BITS * (2 - k) for k, n in enumerate(self.units)), BITS * (self.top - 2) + LEAST
        if not math.isfinite(self.beyond) or total == 0:
            special = self.beyond if self.beyond else -0.0 if self.minus_zeros else 0.0
            return dtype.type(math.nan if math.isnan(special) else special)
        numbers = np.finfo(dtype)
        digits = total.bit_length() - (numbers.nmant + 1)
        dropped = max(digits, int(numbers.minexp) - numbers.nmant - exponent)
        if dropped > 0:
            rest, half = total & ((1 << dropped) - 1), 1 << (dropped - 1)
            total >>= dropped
            total += rest > half or (rest == half and total & 1)
            exponent += dropped
        try:
            with np.errstate(over="ignore"):
                return dtype.type(math.ldexp(total, exponent))
        except OverflowError:
            return dtype.type(math.copysign(math.inf, total))
