"""Sums that have the same bits in any order, on whole arrays: what ``binned.hpp`` says, with Python's whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BITS, LEAST = 30, -1080  # of a bin, and the exponent of the unit of the first
#: 1.5 * 2^52 units of the three bins that count, where the unit of the last is one
CUTS = tuple(1.5 * 2.0 ** (52 + BITS * k) for k in (2, 1, 0))
_HALF = 32  # bits of a word, so that 2^31 words add up
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

    def words(self) -> np.ndarray:
        """As ``binned.hpp`` has them in memory, (4,) int64."""
        special = {mark for mark, value in SPECIAL.items() if repr(value) == repr(self.beyond)}
        head = np.array([self.top, sum(special) | (0 if self.minus_zeros else PLUS_ZERO)], np.int32)
        return np.concatenate([head.view(np.int64), np.array(self.units, np.int64)])

    @classmethod
    def merged(cls, words: np.ndarray) -> list[Bins]:
        """Of each component all summands of many parts, (parts, components, 4) int64 as ``words`` has them: as if one
        were added after the other."""
        heads = np.ascontiguousarray(words[..., :1]).view(np.int32)
        tops, marks = heads[..., 0], np.bitwise_or.reduce(heads[..., 1], axis=0)
        top = tops.max(axis=0)
        bins = np.arange(len(CUTS)) - (top - tops)[..., None]  # which bin of a part has the units of each of the three
        units = np.where(bins >= 0, np.take_along_axis(words[..., 1:], np.maximum(bins, 0), axis=-1), 0)
        halves = (units >> _HALF).sum(axis=0), (units & ((1 << _HALF) - 1)).sum(axis=0)  # of which none overflows
        found = [cls(np.zeros(0)) for _ in top]
        for k, one in enumerate(found):
            one.top = int(top[k])
            both = (half[k].tolist() for half in halves)
            one.units = [(high << _HALF) + low for high, low in zip(*both, strict=True)]
            one.beyond = sum(value for mark, value in SPECIAL.items() if marks[k] & mark)
            one.minus_zeros = one.top == 0 and not marks[k] & PLUS_ZERO
        return found

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
