"""On a GPU all transformed axes of an array at once: one plan of cuFFT each way, whatever they are.

Cosines along an axis of n cells are the waves of the same cells in another order: first the even ones ascending, then
the odd ones descending (J. Makhoul, 1980); sines are cosines with the sign of every second cell turned, in the opposite
order. So one step puts cells in order, on its way from a field with ghosts, say; one plan finds the waves of all axes;
and one step mixes each with the wave that goes the other way. What comes out are the shares of the cosines, but not
where one would look for them: ``values`` says where the operator multiplies what. Nothing else has to know.

The formulas are C++, for CuPy's elementwise kernels; ``i`` numbers what a thread does.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from meshloom.linalg.transforms import Cosines, Transform, Waves

#: Where cell j of an axis of n goes; ``kind``: 0 where it stays, 1 for cosines, 2 for sines.
PLACES = """
  const I c0 = kind0 ? (j0 & 1 ? n0 - 1 - j0 / 2 : j0 / 2) : j0;
  const I c1 = kind1 ? (j1 & 1 ? n1 - 1 - j1 / 2 : j1 / 2) : j1;
  const I c2 = kind2 ? (j2 & 1 ? n2 - 1 - j2 / 2 : j2 / 2) : j2;
  const bool turned = ((kind0 == 2) & (int)(j0 & 1)) ^ ((kind1 == 2) & (int)(j1 & 1)) ^ ((kind2 == 2) & (int)(j2 & 1));
  const I there = (c0 * n1 + c1) * n2 + c2;
"""
CELL = """
  const I j2 = (I)i % n2, rest = (I)i / n2, j1 = rest % n1, j0 = rest / n1;
  const I here = j0 * step0 + j1 * step1 + j2 * step2;
"""
INTO_ORDER = CELL + PLACES + "ordered[there] = turned ? -cells[here] : cells[here];"
OUT_OF_ORDER = CELL + PLACES + "cells[here] = turned ? -ordered[there] : ordered[there];"
_NUMBERS = "W step0, W step1, W step2, W n0, W n1, W n2, int32 kind0, int32 kind1, int32 kind2"

#: The same where cells lie side by side along the first axis, and in order along the last: squares of them go through
#: shared memory, so that neighbouring threads have neighbours both ways.
EDGE, ROWS = 32, 8
MOST_BLOCKS = 65535  # along the third axis of a launch
SQUARES = """
typedef INDEX I;
extern "C" __global__ void NAME(NUMBER* cells, NUMBER* ordered, I step0, I step1, I step2, I n0, I n1, I n2, int kind0,
                                int kind1, int kind2) {
  __shared__ NUMBER square[32][33];
  const I j1 = blockIdx.z, first0 = (I)blockIdx.x * 32, first2 = (I)blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += 8) {
    const I j0 = first0 + LOADED0, j2 = first2 + LOADED2;
    if (j0 < n0 && j2 < n2) { PLACES square[LOADED2][LOADED0] = LOADED; }
  }
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += 8) {
    const I j0 = first0 + STORED0, j2 = first2 + STORED2;
    if (j0 < n0 && j2 < n2) { PLACES STORED = square[STORED2][STORED0]; }
  }
}
"""
_CELL, _ORDERED = "cells[j0 * step0 + j1 * step1 + j2 * step2]", "ordered[there]"


def squares(name: str, number: str, index: str, *, into: bool) -> str:
    """The text of a kernel that brings cells into order, or out of it, in squares."""
    along0, along2 = ("(int)threadIdx.x", "r"), ("r", "(int)threadIdx.x")  # (j0, j2): by cells, and by order
    (load0, load2), (store0, store2) = (along0, along2) if into else (along2, along0)
    loaded, stored = (_CELL, _ORDERED) if into else (_ORDERED, _CELL)
    sign = f"(turned ? -{loaded} : {loaded})"
    words = {"NAME": name, "NUMBER": number, "INDEX": index, "LOADED0": load0, "LOADED2": load2, "STORED0": store0,
             "STORED2": store2, "LOADED": sign, "STORED": stored, "PLACES": PLACES}  # fmt: skip
    text = SQUARES
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


#: Waves k and n - k along the first axis, at the same place of all others; of the last axis the phase of its cosines.
PAIRS = """
  const I r = (I)i % inner, t = (I)i / inner, half = length / 2 + 1, k = t % half, o = t / half;
  const I here = (o * length + k) * inner + r, there = (o * length + (k ? length - k : 0)) * inner + r;
  const C turn = first[k], phase = last[r / step % m], one = u[here], other = u[there], imaginary = C(0, 1);
"""
MIXED = (
    PAIRS
    + """
  const C own = turn * one, back = conj(turn) * other;
  if (cosines) {
    if (there != here) u[there] = phase * imaginary * (own - back);
    u[here] = phase * (own + back);
  } else if (there == here) {
    u[here] = phase * one;
  } else {
    u[there] = (phase * one - conj(phase * other)) * C(0, -0.5);
    u[here] = (phase * one + conj(phase * other)) * C(0.5, 0);
  }
"""
)
SEPARATED = (
    PAIRS
    + """
  const C back = conj(phase);
  if (cosines) {
    const C second = k ? other : C(0, 0);
    if (there != here) u[there] = turn * back * (one + imaginary * second) * C(0.5, 0);
    u[here] = conj(turn) * back * (one - imaginary * second) * C(0.5, 0);
  } else if (there == here) {
    u[here] = back * one;
  } else {
    u[there] = back * (conj(one) + imaginary * conj(other));
    u[here] = back * (one + imaginary * other);
  }
"""
)
_PAIRED = "W length, W m, W inner, W step, int32 cosines, raw C first, raw C last"


class Plane:
    """``transforms``: of all axes of cells of ``shape`` but one, each with its number. The last of these axes is where
    numbers are real, so that half of the waves are enough; the shares are complex (*shares,).

    Lines along the last axis of the cells would leave transforms nothing that is contiguous: ``moved``, that axis comes
    first for everything here, ``shape`` and ``transforms`` too, and the step that puts cells in order does it.
    ``places``: numbers of a field that the cells may be a part of, with ghosts.
    """

    def __init__(self, shape: tuple[int, ...], transforms: dict[int, Transform], dtype: np.dtype, *, moved: bool,
                 places: int = 0):  # fmt: skip
        self.shape, self.dtype, self.axes, self.moved = shape, dtype, tuple(sorted(transforms)), moved
        self.transforms, self.real = transforms, self.axes[-1]
        self.first = self.axes[0] if len(self.axes) > 1 else None
        self.cosines = [a for a in self.axes if isinstance(transforms[a], Cosines)]
        half = shape[self.real] // 2 + 1
        self.shares = tuple(half if a == self.real else n for a, n in enumerate(shape))
        self.needs_64_bits = max(2 * prod(shape), places) >= 2**31  # to number them

    @classmethod
    def of(
        cls, shape: tuple[int, ...], transforms: dict[int, Transform], dtype: np.dtype, places: int = 0
    ) -> Plane | None:
        """For all axes but one; None for other vectors than waves, cosines and sines, where that leaves none, and where
        a launch in squares has no room for as many."""
        if not transforms or not all(isinstance(one, Cosines | Waves) for one in transforms.values()):
            return None
        if len(shape) - 1 in transforms:
            return cls(shape, transforms, dtype, moved=False, places=places)
        if len(shape) == 3 and shape[0] > MOST_BLOCKS:
            return None
        first = {a + 1: one for a, one in transforms.items()}
        return cls((shape[-1], *shape[:-1]), first, dtype, moved=True, places=places)

    @property
    def apart(self) -> bool:
        """Have real and imaginary parts values of their own?"""
        return self.real in self.cosines

    @property
    def scale(self) -> float:
        """What is left to multiply by after going both ways."""
        return float(np.prod([1.0 / (self.shape[a] * one.h) for a, one in self.transforms.items()]))  # type: ignore[attr-defined]

    def values(self) -> np.ndarray:
        """What the operators multiply a share with, (*shares,) with one place along the axis that is not transformed;
        where real and imaginary parts are ``apart`` their places follow each other along the last axis."""
        rank = len(self.shape)
        wave, other = self._along_real()
        place = tuple(-1 if a == self.real else 1 for a in range(rank))
        found = np.stack([wave.reshape(place), other.reshape(place)], axis=-1)
        if self.first is not None:
            found = self._with_first(found)
        return found.reshape(*found.shape[:-2], -1) if self.apart else found[..., 0]

    def _along_real(self) -> tuple[np.ndarray, np.ndarray]:
        """Along the last axis: those of real parts, and of imaginary ones."""
        half, values = self.shares[self.real], self._ordered(self.real)
        if not self.apart:
            return values[:half], values[:half]
        return values[:half], np.concatenate([values[:1], values[:-half:-1]])

    def _with_first(self, found: np.ndarray) -> np.ndarray:
        """Those of the first axis added, where pairs of waves are mixed."""
        assert self.first is not None
        n, rank = self.shape[self.first], len(self.shape)
        place = tuple(-1 if a == self.first else 1 for a in range(rank + 1))
        if self.apart and self.first not in self.cosines:  # of a pair of waves one has the real parts, one the others
            paired, k = np.arange(n) * 2 % n != 0, np.arange(n)
            real, imaginary = found[..., :1], found[..., 1:]
            low, high = ((paired & side).reshape(place) for side in (2 * k < n, 2 * k > n))
            found = np.where(low, real, np.where(high, imaginary, found))
        return found + self._ordered(self.first).reshape(place)

    def _ordered(self, axis: int) -> np.ndarray:
        """Of all vectors of an axis, as they come out."""
        one, n = self.transforms[axis], self.shape[axis]
        if isinstance(one, Cosines):
            return one.values[::-1] if one.sines else one.values
        assert isinstance(one, Waves)
        return one.values if len(one.values) == n else np.concatenate([one.values, one.values[1 : (n + 1) // 2][::-1]])

    # ----- on a GPU -------------------------------------------------------------------------------------------------
    @cached_property
    def _gpu(self) -> PlaneOnGPU:
        return PlaneOnGPU(self)

    def forwards(self, cells: Any, shares: Any) -> None:
        """The shares of what is given in cells, an array of CuPy, perhaps with room between its rows."""
        self._gpu.forwards(self._seen(cells), shares)

    def backwards(self, shares: Any, cells: Any) -> None:
        """What is in each cell, over the scale; the shares are lost."""
        self._gpu.backwards(shares, self._seen(cells))

    def _seen(self, cells: Any) -> Any:
        """Cells as an array (*shape,)."""
        rank = len(self.shape)
        return cells.transpose(rank - 1, *range(rank - 1)) if self.moved else cells

    def numbers(self) -> tuple[int, ...]:
        """n0, n1, n2, kind0, kind1, kind2 of ``PLACES``; of two axes there is none in the middle."""
        kinds = [self._kind(a) for a in range(len(self.shape))]
        if len(self.shape) == 2:
            return self.shape[0], 1, self.shape[1], kinds[0], 0, kinds[1]
        return (*self.shape, *kinds)

    def _kind(self, axis: int) -> int:
        one = self.transforms.get(axis)
        return 0 if not isinstance(one, Cosines) else 2 if one.sines else 1

    def pairs(self) -> tuple[int, tuple[int, ...], np.ndarray, np.ndarray]:
        """How many there are; ``PAIRS``' length, m, inner, step, cosines; phases along the first axis and the last."""
        first, real = self.first, self.real
        n = 1 if first is None else self.shape[first]
        inner = prod(self.shares if first is None else self.shares[first + 1 :])
        outer = 1 if first is None else prod(self.shares[:first])
        step = prod(self.shares[real + 1 :])
        numbers = n, self.shares[real], inner, step, int(first in self.cosines)
        return outer * (n // 2 + 1) * inner, numbers, self._phases(first, n), self._phases(real, self.shape[real])

    def _phases(self, axis: int | None, n: int) -> np.ndarray:
        """By which the waves of an axis of n cells are turned to make cosines."""
        if axis not in self.cosines:
            return np.ones(n // 2 + 1, complex)
        return np.exp(-0.5j * np.pi * np.arange(n // 2 + 1) / n)


class PlaneOnGPU:
    """The plans, the steps around them, and room for cells in another order."""

    def __init__(self, plane: Plane):
        import cupy
        from cupy.cuda import cufft

        self.plane, self.cupy = plane, cupy
        double = plane.dtype.itemsize == 8
        both = (cufft.CUFFT_D2Z, cufft.CUFFT_Z2D) if double else (cufft.CUFFT_R2C, cufft.CUFFT_C2R)
        self.plans = [self._plan(cufft, one, forwards=k == 0) for k, one in enumerate(both)]
        number, pair = ("double", "complex128") if double else ("float", "complex64")
        index, word = ("long long", "int64") if plane.needs_64_bits else ("int", "int32")

        def kernel(taken: str, given: str, text: str, name: str) -> Any:
            taken, given = (one.replace("W ", f"{word} ").replace("raw C ", f"raw {pair} ") for one in (taken, given))
            preamble = f"typedef {index} I; typedef complex<{number}> C;"
            return cupy.ElementwiseKernel(taken, given, text, name, preamble=preamble)

        if plane.moved:
            self.into_order, self.out_of_order = (
                self._by_squares(cupy.RawKernel(squares(name, number, index, into=into), name), index)
                for name, into in (("ml_squares_into_order", True), ("ml_squares_out_of_order", False))
            )
        else:
            self.into_order = self._by_cells(kernel(f"raw T cells, {_NUMBERS}", "raw T ordered", INTO_ORDER,
                                                    "ml_into_order"), into=True)  # fmt: skip
            self.out_of_order = self._by_cells(kernel(f"raw T ordered, {_NUMBERS}", "raw T cells", OUT_OF_ORDER,
                                                      "ml_out_of_order"), into=False)  # fmt: skip
        self.mix = kernel(_PAIRED, "raw C u", MIXED, "ml_mix_waves")
        self.separate = kernel(_PAIRED, "raw C u", SEPARATED, "ml_separate_waves")
        self.count, numbers, *phases = plane.pairs()
        self.paired = (*numbers, *(cupy.asarray(one.astype(pair)) for one in phases))
        self.room: Any = None

    def _plan(self, cufft: Any, kind: int, *, forwards: bool) -> Any:
        """A plan from cells to shares, or back: any two axes, the last of which is real, and all others a batch."""
        plane, shape = self.plane, self.plane.shape
        lengths = tuple(shape[a] for a in plane.axes)
        sides = [self._embedded(shape), self._embedded(plane.shares)]
        (inner, inner_step, inner_next), (outer, outer_step, outer_next) = sides if forwards else sides[::-1]
        batch = prod(shape) // prod(lengths)
        return cufft.PlanNd(lengths, inner, inner_step, inner_next, outer, outer_step, outer_next, kind, batch,
                            "C", len(lengths) - 1, lengths[-1])  # fmt: skip

    def _embedded(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
        """(lengths, steps along the last axis, steps from one transform to the next) for cuFFT."""
        plane = self.plane
        strides = [prod(shape[a + 1 :]) for a in range(len(shape))]
        step = strides[plane.real]
        rows = 1 if plane.first is None else strides[plane.first] // step
        batch = [strides[a] for a in range(len(shape)) if a not in plane.axes]
        lengths = (shape[plane.real],) if plane.first is None else (shape[plane.first], rows)
        return lengths, step, batch[0] if batch else prod(shape)

    def _by_cells(self, kernel: Any, *, into: bool) -> Any:
        def run(cells: Any, ordered: Any) -> None:
            first, last = (cells, ordered) if into else (ordered, cells)
            kernel(_flat(self.cupy, first), *self._steps(cells), *self.plane.numbers(), _flat(self.cupy, last),
                   size=cells.size)  # fmt: skip

        return run

    def _by_squares(self, kernel: Any, index: str) -> Any:
        integer = np.int64 if index == "long long" else np.int32
        n0, n1, n2 = self.plane.numbers()[:3]
        grid = (-(-n0 // EDGE), -(-n2 // EDGE), n1)

        def run(cells: Any, ordered: Any) -> None:
            sizes = [integer(one) for one in (*self._steps(cells), *self.plane.numbers()[:3])]
            kinds = [np.int32(one) for one in self.plane.numbers()[3:]]
            kernel(grid, (EDGE, ROWS), (_flat(self.cupy, cells), ordered, *sizes, *kinds))

        return run

    def _steps(self, cells: Any) -> tuple[int, ...]:
        """From cell to cell along three axes; what is missing is in the middle of two, as ``numbers`` has it."""
        steps = [one // cells.itemsize for one in cells.strides]
        return (steps[0], 0, steps[1]) if len(steps) == 2 else tuple(steps)

    def _ordered(self, cells: Any) -> Any:
        """Where cells are in order: there, or in room for them."""
        if not self.plane.cosines and cells.flags.c_contiguous:
            return cells
        if self.room is None:
            self.room = self.cupy.empty(self.plane.shape, self.plane.dtype)
        return self.room

    def forwards(self, cells: Any, shares: Any) -> None:
        ordered = self._ordered(cells)
        if ordered is not cells:
            self.into_order(cells, ordered)
        self.plans[0].fft(ordered, shares, -1)
        if self.plane.cosines:
            self.mix(*self.paired, shares, size=self.count)

    def backwards(self, shares: Any, cells: Any) -> None:
        if self.plane.cosines:
            self.separate(*self.paired, shares, size=self.count)
        ordered = self._ordered(cells)
        self.plans[1].fft(shares, ordered, 1)
        if ordered is not cells:
            self.out_of_order(cells, ordered)


def _flat(cupy: Any, cells: Any) -> Any:
    """The memory of an array from its first number to its last, as one row."""
    last = sum((n - 1) * step for n, step in zip(cells.shape, cells.strides, strict=True))
    return cupy.ndarray((last // cells.itemsize + 1,), cells.dtype, memptr=cells.data)
