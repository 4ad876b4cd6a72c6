"""Random numbers by counter: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw 2011), in the operations of kernels.

A number depends on the seed, the element, how many loops have drawn before, and which one of the kernel's it is; on
nothing else, so that it is the same whoever computes it, and however often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from meshloom.errors import KernelError, whole_number

ROUNDS = 10
_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
MOST_BLOCKS = 2**16  # of four 32-bit words, for one element and call

Words = tuple[Any, Any, Any, Any]


def philox(counter: Words, key: tuple[Any, Any]) -> Words:
    """Four random words of 32 bits, each in an int64, of a counter of four words and a key of two."""
    a, b, c, d = counter
    k, m = key
    with np.errstate(over="ignore"):  # the product of 32-bit words fills 64 bits, whatever the sign says
        for _ in range(ROUNDS):
            p, q = a * np.int64(_MULTIPLIERS[0]), c * np.int64(_MULTIPLIERS[1])
            a, b, c, d = ((q >> 32) & _LOW) ^ b ^ k, q & _LOW, ((p >> 32) & _LOW) ^ d ^ m, p & _LOW
            k, m = (k + _WEYL[0]) & _LOW, (m + _WEYL[1]) & _LOW
    return a, b, c, d


class Draws:
    """What a kernel gets for a parameter ``r: ml.Random``. ``state``: the seed and the number of calls before;
    ``element``: the number of the element in its set."""

    def __init__(self, state: Any, element: Any):
        self._state, self._element, self._blocks = state, element, 0

    @property
    def _key(self) -> tuple[Any, Any]:
        """Made where it is drawn from, so that it belongs to a line of the kernel."""
        seed = self._state[0]
        return seed & _LOW, (seed >> 32) & _LOW

    @property
    def _counter(self) -> tuple[Any, Any, Any, Any]:
        calls, element = self._state[1], self._element
        return element & _LOW, (element >> 32) & _LOW, calls & _LOW, ((calls >> 32) & 0xFFFF) << 16

    def uniform(self, shape: int | tuple[int, ...] | None = None, *, dtype: Any = np.float64) -> Any:
        """Numbers in [0, 1), 1 never among them: multiples of 2**-53, or of 2**-24 for float32. One where no shape is
        given."""
        single = _single(dtype)
        count, fits = _counted(shape)
        found: list[Any] = []
        while len(found) < count:
            a, b, c, d = self._block()
            if single:
                found += [(one >> 8).astype(np.float32) * np.float32(2.0**-24) for one in (a, b, c, d)]
            else:
                found += [_of_53_bits(a, b), _of_53_bits(c, d)]
        return fits(found[:count])

    def normal(self, shape: int | tuple[int, ...] | None = None, *, dtype: Any = np.float64) -> Any:
        """Numbers of the normal distribution of mean 0 and variance 1, by the method of Box and Muller."""
        single = _single(dtype)
        count, fits = _counted(shape)
        found: list[Any] = []
        while len(found) < count:
            a, b, c, d = self._block()
            radius = np.sqrt(-2.0 * np.log(1.0 - _of_53_bits(a, b)))
            angle = 2.0 * math.pi * _of_53_bits(c, d)
            found += [radius * np.cos(angle), radius * np.sin(angle)]
        return fits([one.astype(np.float32) if single else one for one in found[:count]])

    def integers(self, low: int, high: int, shape: int | tuple[int, ...] | None = None) -> Any:
        """Whole numbers from ``low`` to ``high`` - 1, int64; there may be 2**32 different ones."""
        low = whole_number("integers of an ml.Random: low", low, -(2**62), 2**62, error=KernelError)
        span = whole_number("integers of an ml.Random: high - low", high - low, 1, 2**32, error=KernelError)
        count, fits = _counted(shape)
        words: list[Any] = []
        while len(words) < count:
            words += self._block()
        with np.errstate(over="ignore"):  # as in Philox: the upper half of the product
            return fits([(((one * np.int64(span)) >> 32) & _LOW) + low for one in words[:count]])

    def _block(self) -> Words:
        if self._blocks >= MOST_BLOCKS:
            raise KernelError(f"more than {MOST_BLOCKS:,} blocks of random numbers for one element; draw in more loops")
        a, b, c, d = self._counter
        self._blocks += 1
        return philox((a, b, c, d | (self._blocks - 1)), self._key)


def _of_53_bits(high: Any, low: Any) -> Any:
    return ((high << 21) | (low >> 11)).astype(np.float64) * 2.0**-53


def _single(dtype: Any) -> bool:
    if dtype not in (np.float32, np.float64, "float32", "float64", float):
        raise KernelError(f"random numbers are of type float32 or float64, got {dtype!r}")
    return dtype in (np.float32, "float32")


def _counted(shape: Any) -> tuple[int, Any]:
    """How many numbers a shape has, and what makes an array of them of a list."""
    if shape is None:
        return 1, lambda found: found[0]
    lengths = [whole_number("the shape of random numbers", one, 0, 10_000, error=KernelError) for one in _axes(shape)]
    return math.prod(lengths), lambda found: np.array(found).reshape(lengths)


def _axes(shape: Any) -> Iterator[Any]:
    return iter(shape if isinstance(shape, tuple | list) else (shape,))
