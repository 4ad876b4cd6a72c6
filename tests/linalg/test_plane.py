"""All transformed axes at once, as on a GPU: its formulas compiled for the CPU, with SciPy's waves between them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import scipy.fft

import meshloom as ml
from meshloom.linalg import batched_fft as formulas
from meshloom.linalg.batched_fft import Plane, squares
from meshloom.linalg.fast_poisson import FastPoisson
from meshloom.native import compiler

ORDER = "I step0, I step1, I step2, I n0, I n1, I n2, int kind0, int kind1, int kind2"
PAIRED = "I length, I m, I inner, I step, int cosines, const C* first, const C* last, C* u"
SOURCE = f"""
#include <complex>
#include <cstdint>
typedef int64_t I;
typedef std::complex<double> C;
extern "C" void into_order(I count, const double* cells, {ORDER}, double* ordered) {{
  for (I i = 0; i < count; ++i) {{ {formulas.INTO_ORDER} }}
}}
extern "C" void out_of_order(I count, const double* ordered, {ORDER}, double* cells) {{
  for (I i = 0; i < count; ++i) {{ {formulas.OUT_OF_ORDER} }}
}}
extern "C" void mix(I count, {PAIRED}) {{ for (I i = 0; i < count; ++i) {{ {formulas.MIXED} }} }}
extern "C" void separate(I count, {PAIRED}) {{ for (I i = 0; i < count; ++i) {{ {formulas.SEPARATED} }} }}

// Squares, thread by thread. What threads show each other is complete when all have run once, so each runs twice.
#define __global__
#define __shared__ static
#define __syncthreads()
static struct {{ int x, y, z; }} threadIdx, blockIdx;
{squares("squares_in", "double", "int64_t", into=True)}
{squares("squares_out", "double", "int64_t", into=False)}
template <class Kernel>
void launched(I n0, I n1, I n2, Kernel kernel) {{
  for (blockIdx.x = 0; blockIdx.x * 32 < n0; ++blockIdx.x)
    for (blockIdx.y = 0; blockIdx.y * 32 < n2; ++blockIdx.y)
      for (blockIdx.z = 0; blockIdx.z < n1; ++blockIdx.z)
        for (int time = 0; time < 2; ++time)
          for (threadIdx.y = 0; threadIdx.y < 8; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < 32; ++threadIdx.x) kernel();
}}
extern "C" void squares_into_order(I, double* cells, {ORDER}, double* ordered) {{
  launched(n0, n1, n2, [&] {{ squares_in(cells, ordered, step0, step1, step2, n0, n1, n2, kind0, kind1, kind2); }});
}}
extern "C" void squares_out_of_order(I, double* ordered, {ORDER}, double* cells) {{
  launched(n0, n1, n2, [&] {{ squares_out(cells, ordered, step0, step1, step2, n0, n1, n2, kind0, kind1, kind2); }});
}}
"""


@pytest.fixture(scope="module")
def compiled() -> ctypes.CDLL:
    return compiler.load(SOURCE, "plane")


class OnHost:
    """In the place of ``PlaneOnGPU``."""

    def __init__(self, batched_fft: Plane, library: ctypes.CDLL):
        self.batched_fft, self.library = batched_fft, library

    def _call(self, name: str, count: int, *given: Any) -> None:
        sent = [ctypes.c_void_p(one.ctypes.data) if isinstance(one, np.ndarray) else one for one in given]
        getattr(self.library, name)(ctypes.c_int64(count), *sent)

    def _mixed(self, name: str, shares: np.ndarray) -> None:
        count, (*sizes, cosines), first, last = self.batched_fft.pairs()
        self._call(name, count, *map(ctypes.c_int64, sizes), ctypes.c_int(cosines), first, last, shares)

    @property
    def _way(self) -> str:
        return "squares_" if self.batched_fft.moved else ""

    def _order(self, cells: np.ndarray) -> list[Any]:
        numbers, steps = self.batched_fft.numbers(), [one // 8 for one in cells.strides]
        steps = [steps[0], 0, steps[1]] if len(steps) == 2 else steps
        return [*map(ctypes.c_int64, (*steps, *numbers[:3])), *map(ctypes.c_int, numbers[3:])]

    def forwards(self, cells: np.ndarray, shares: np.ndarray) -> None:
        ordered = np.full(cells.shape, np.nan)
        self._call(self._way + "into_order", cells.size, cells, *self._order(cells), ordered)
        shares[...] = scipy.fft.rfftn(ordered, axes=self.batched_fft.axes)
        if self.batched_fft.cosines:
            self._mixed("mix", shares)

    def backwards(self, shares: np.ndarray, cells: np.ndarray) -> None:
        if self.batched_fft.cosines:
            self._mixed("separate", shares)
        lengths = [self.batched_fft.shape[a] for a in self.batched_fft.axes]
        ordered = scipy.fft.irfftn(shares, s=lengths, axes=self.batched_fft.axes, norm="forward")
        self._call(self._way + "out_of_order", cells.size, ordered, *self._order(cells), cells)


KINDS = {"p": (None, True), "n": ("neumann", False), "d": ("dirichlet", False), "s": ("neumann", False)}


@pytest.mark.parametrize("shape", [(4, 6, 8), (5, 7, 9), (3, 2, 2), (2, 5, 4), (35, 3, 40)])
@pytest.mark.parametrize("kinds", ["spp", "snn", "sdd", "spn", "snp", "sdp", "snd", "psp", "pps", "nsn", "dsp", "ps",
                                   "sn", "sd", "sp", "nnn", "ppp", "pnd", "nns", "pns", "dps",
                                   "ns", "ds"])  # fmt: skip
def test_as_axis_after_axis(kinds: str, shape: tuple[int, ...], compiled: ctypes.CDLL) -> None:
    """Axes that are periodic, hold slopes or values, or are stretched: what one axis after the other gives."""
    ml.use("numpy")
    shape = shape[: len(kinds)]
    places = [np.cumsum(1.2 ** np.arange(n)) if k == "s" else None for k, n in zip(kinds, shape, strict=True)]
    sides = [KINDS[k][0] for k in kinds]
    extent, periodic = [2.0 if one is None else None for one in places], [KINDS[k][1] for k in kinds]
    grid = ml.Grid(shape, coordinates=places, periodic=periodic, extent=extent)
    fast = FastPoisson(ml.linalg.Poisson(grid, sides, sides))
    found = fast._at_once
    assert found is not None
    batched_fft, modes = found
    batched_fft.__dict__["_gpu"] = OnHost(batched_fft, compiled)
    room = np.full([n + 2 for n in shape], 7.0)  # with ghosts
    x, b = room[(slice(1, -1),) * len(shape)], np.random.default_rng(0).standard_normal(shape)
    memory = modes.memory
    shares = memory.view(complex) if batched_fft.apart else memory
    batched_fft.forwards(b, shares)
    modes.solve_in_place(memory)
    batched_fft.backwards(shares, x)
    right = fast.solved(b)
    np.testing.assert_allclose(x, right, atol=1e-11 * np.abs(right).max())
    x[...] = 7.0
    assert (room == 7.0).all(), "ghosts are left alone"


def test_numbers_of_cells_that_32_bits_do_not_hold() -> None:
    """Those of a field with ghosts count: with few cells along two axes these are many times as many."""
    grid = ml.Grid((4, 4, 8), ghosts=2, coordinates=[np.cumsum(1.2 ** np.arange(4)), None, None])
    fast = FastPoisson(ml.linalg.Poisson(grid))
    assert fast._at_once is not None and not fast._at_once[0].needs_64_bits
    transforms = dict(fast._transforms)

    def wide(shape: tuple[int, ...], places: int) -> bool:
        made = Plane.of(shape, transforms, np.dtype(np.float64), places)
        assert made is not None
        return made.needs_64_bits

    assert not wide((512, 512, 512), 516**3) and wide((1024, 1024, 1024), 0) and wide((2, 2, 2**28), 36 * 2**28)


def test_more_cells_than_a_launch_has_blocks() -> None:
    """In squares, a block for each cell along the first axis: beyond 65535 it is done axis after axis."""
    grid = ml.Grid((5, 4, 6), coordinates=[None, None, np.cumsum(1.2 ** np.arange(6))])
    transforms = dict(FastPoisson(ml.linalg.Poisson(grid))._transforms)
    assert sorted(transforms) == [0, 1]
    for many, fits in ((65535, True), (65536, False)):
        assert (Plane.of((many, 4, 6), transforms, np.dtype(np.float64)) is not None) is fits
