"""On a GPU all transformed axes of an array at once: one plan of cuFFT each way, whatever they are.

Cosines along an axis of n cells are the waves of the same cells in another order: first the even ones ascending, then
the odd ones descending (J. Makhoul, 1980); sines are cosines with the sign of every second cell turned, in the opposite
order. So one step puts cells in order, on its way from a field with ghosts, say; one plan finds the waves of all axes;
and one step mixes each with the wave that goes the other way. What comes out are the shares of the cosines, but not
where one would look for them: ``values`` says where the operator multiplies what. Nothing else has to know.

The steps are operations (``fft_nests``), and run wherever blocks of threads do; where a GPU is emulated, SciPy finds
the waves.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from meshloom.backend import current
from meshloom.linalg import fft_kernels as kernels
from meshloom.linalg.fft_nests import CellOrder, PairKernels, WavePairs, change_pairs, reorder
from meshloom.linalg.spectral_solve import COMPLEX
from meshloom.linalg.transforms import Cosines, Transform, Waves, libraries
from meshloom.mesh.core import Field, Set
from meshloom.mesh.grid import Grid

#: By whether the first axis has cosines.
MIX = {True: PairKernels(kernels.mix_cosines, kernels.mix_cosines, kernels.mix_cosines),
       False: PairKernels(kernels.mix_waves, kernels.mix_alone, kernels.mix_alone)}  # fmt: skip
SEPARATE = {True: PairKernels(kernels.separate_cosines, kernels.separate_constant, kernels.separate_cosines),
            False: PairKernels(kernels.separate_waves, kernels.separate_alone, kernels.separate_alone)}  # fmt: skip


class BatchedFFT:
    """``transforms``: of all axes of a grid's cells but one, each with its number. The last axis is where numbers are
    real, so that half of the waves are enough; the shares are complex (*shares,).

    Lines along the last axis of the cells would leave transforms nothing that is contiguous: ``moved``, that axis comes
    first for everything here, ``shape`` and ``transforms`` too, and the step that puts cells in order does it.
    """

    def __init__(self, grid: Grid, transforms: dict[int, Transform], dtype: np.dtype):
        self.grid, self.dtype, self.moved = grid, dtype, grid.rank - 1 not in transforms
        self.transforms = {a + 1 if self.moved else a: one for a, one in transforms.items()}
        self.shape, self.axes = self._seen(grid.shape), tuple(sorted(self.transforms))
        self.real = self.axes[-1]
        self.first = self.axes[0] if len(self.axes) > 1 else None
        self.cosines = [a for a in self.axes if isinstance(self.transforms[a], Cosines)]
        self.shares = (*self.shape[:-1], self.shape[-1] // 2 + 1)

    @classmethod
    def of(cls, grid: Grid, transforms: dict[int, Transform], dtype: np.dtype) -> BatchedFFT | None:
        """For all axes but one; None for other vectors than waves, cosines and sines, and where that leaves none."""
        if not transforms or not all(isinstance(one, Cosines | Waves) for one in transforms.values()):
            return None
        return cls(grid, transforms, dtype)

    def _seen(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """What the grid has for each axis, in the order of the axes here."""
        return (axes[-1], *axes[:-1]) if self.moved else axes

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

    # ----- its steps ------------------------------------------------------------------------------------------------
    def forwards(self, cells: Field, shares: Field) -> None:
        """The shares of what is given in cells: their real and imaginary parts one after the other."""
        ordered = self._in_order(cells)
        if ordered is not cells:
            reorder(cells, ordered, self.order, into=True)
        self._find_waves(self._numbers(ordered), self._waves(shares))
        shares.changed()
        if self.cosines:
            change_pairs(shares, *self._phases, "mix_waves", self.pairs, MIX[self.first in self.cosines])

    def backwards(self, shares: Field, cells: Field) -> None:
        """What is in each cell, over the scale; the shares are lost."""
        if self.cosines:
            change_pairs(shares, *self._phases, "separate_waves", self.pairs, SEPARATE[self.first in self.cosines])
        ordered = self._in_order(cells)
        self._add_waves(self._waves(shares), self._numbers(ordered))
        shares.changed()
        ordered.changed()
        if ordered is not cells:
            reorder(cells, ordered, self.order, into=False)

    @cached_property
    def order(self) -> CellOrder:
        """Where cells lie, and what becomes of each axis."""
        words = tuple(self.transforms[a].word if a in self.cosines else "" for a in range(len(self.shape)))
        origin = sum(first * step for first, step in zip(self.grid.first, self.grid.strides, strict=True))
        return CellOrder(self.shape, self._seen(self.grid.strides), origin, words)

    @cached_property
    def pairs(self) -> WavePairs:
        """Along the first transformed axis; of one axis alone there are none."""
        if self.first is None:
            return WavePairs(1, 1, prod(self.shares), self.shares[-1], paired=False)
        outer, inner = prod(self.shares[: self.first]), prod(self.shares[self.first + 1 :])
        return WavePairs(outer, self.shape[self.first], inner, self.shares[-1], paired=True)

    def _in_order(self, cells: Field) -> Field:
        """Where cells are in order: there, or in room for them."""
        as_they_are = not self.cosines and not self.moved and self.grid.total == prod(self.shape)
        return cells if as_they_are else self._room

    @cached_property
    def _room(self) -> Field:
        return Set(prod(self.shape), "cells in order").field("ordered", dtype=self.dtype)

    @cached_property
    def _phases(self) -> tuple[Field, Field]:
        """By which the waves of the first axis and of the last are turned to make cosines."""
        found = []
        for name, axis in (("turn", self.first), ("phase", self.real)):
            n = 1 if axis is None else self.shape[axis]
            angles = 0.5 * np.pi * np.arange(n // 2 + 1) * (axis in self.cosines) / n
            parts = np.exp(-1j * angles).view(float).reshape(-1, 2).astype(self.dtype)
            found.append(Set(len(parts), name).field(name, 2, dtype=self.dtype, data=parts, layout="aos"))
        return found[0], found[1]

    def _numbers(self, cells: Field) -> Any:
        """The cells of a field that has nothing else, as an array where loops run."""
        current().bring(cells)
        return cells.storage[: prod(self.shape)].reshape(self.shape)

    def _waves(self, shares: Field) -> Any:
        """Shares as a complex array where loops run."""
        current().bring(shares)
        return shares.storage[: 2 * prod(self.shares)].view(COMPLEX[self.dtype.name]).reshape(self.shares)

    @cached_property
    def _plans(self) -> CufftPlans:
        return CufftPlans(self)

    def _find_waves(self, ordered: Any, waves: Any) -> None:
        if isinstance(ordered, np.ndarray):  # of a GPU that is emulated
            waves[...] = libraries(ordered)[1].rfftn(ordered, axes=self.axes)
        else:
            self._plans.forwards.fft(ordered, waves, -1)

    def _add_waves(self, waves: Any, ordered: Any) -> None:
        if isinstance(ordered, np.ndarray):
            lengths = [self.shape[a] for a in self.axes]
            ordered[...] = libraries(ordered)[1].irfftn(waves, s=lengths, axes=self.axes, norm="forward")
        else:
            self._plans.backwards.fft(waves, ordered, 1)


class CufftPlans:
    """A plan each way."""

    def __init__(self, batched: BatchedFFT):
        from cupy.cuda import cufft

        self.batched = batched
        double = batched.dtype.itemsize == 8
        both = (cufft.CUFFT_D2Z, cufft.CUFFT_Z2D) if double else (cufft.CUFFT_R2C, cufft.CUFFT_C2R)
        self.forwards, self.backwards = (self._plan(cufft, one, forwards=k == 0) for k, one in enumerate(both))

    def _plan(self, cufft: Any, kind: int, *, forwards: bool) -> Any:
        """A plan from cells to shares, or back: any two axes, the last of which is real, and all others a batch."""
        batched, shape = self.batched, self.batched.shape
        lengths = tuple(shape[a] for a in batched.axes)
        sides = [self._embedded(shape), self._embedded(batched.shares)]
        (inner, inner_step, inner_next), (outer, outer_step, outer_next) = sides if forwards else sides[::-1]
        batch = prod(shape) // prod(lengths)
        return cufft.PlanNd(lengths, inner, inner_step, inner_next, outer, outer_step, outer_next, kind, batch,
                            "C", len(lengths) - 1, lengths[-1])  # fmt: skip

    def _embedded(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
        """(lengths, steps along the last axis, steps from one transform to the next) for cuFFT."""
        batched = self.batched
        strides = [prod(shape[a + 1 :]) for a in range(len(shape))]
        step = strides[batched.real]
        rows = 1 if batched.first is None else strides[batched.first] // step
        batch = [strides[a] for a in range(len(shape)) if a not in batched.axes]
        lengths = (shape[batched.real],) if batched.first is None else (shape[batched.first], rows)
        return lengths, step, batch[0] if batch else prod(shape)
