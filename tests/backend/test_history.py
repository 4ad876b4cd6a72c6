"""Recorded globals: the kernel that gathers them compiles for a GPU and does what it says, there and on the CPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda import history, nvrtc
from meshloom.errors import ScheduleError
from meshloom.native import compiler
from tests.backend.test_cuda import needs_nvrtc

#: What a kernel needs to be a C++ function; one thread after the other.
ON_THE_CPU = """
#define __global__
struct Place { unsigned x; };
static Place blockIdx, blockDim, threadIdx;
"""


def globals_of_all_kinds() -> list[ml.Global]:
    return [
        ml.Global(1.5, "a"),
        ml.Global(2.25, "b", dtype=np.float32),
        ml.Global(2**40 + 1, "c", dtype=np.int64),
        ml.Global(np.arange(40.0), "d"),
        ml.Global(-7, "e", dtype=np.int32),
    ]


def expected(record: list[ml.Global]) -> np.ndarray:
    return np.concatenate([np.atleast_1d(one.numpy()).astype(np.float64) for one in record])


def test_the_kernel_gathers_a_row() -> None:
    record = globals_of_all_kinds()
    wrapper = f"""
extern "C" void all_threads(long long blocks, long long threads, double* rows, long long row, void** g) {{
  blockDim.x = (unsigned)threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
      {history.NAME}(rows, row, (double*)g[0], (float*)g[1], (long long*)g[2], (double*)g[3], (int*)g[4]);
}}
"""
    loaded = compiler.load(ON_THE_CPU + history.source(record) + wrapper, "history_on_the_cpu")
    rows = np.full((3, history.width(record)), -1.0)
    pointers = (ctypes.c_void_p * len(record))(*(one.storage.ctypes.data for one in record))
    loaded.all_threads(ctypes.c_int64(history.blocks(record)), ctypes.c_int64(history.THREADS),
                       ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(1), pointers)  # fmt: skip
    np.testing.assert_array_equal(rows, np.stack([np.full(44, -1.0), expected(record), np.full(44, -1.0)]))


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_it_compiles_for_a_gpu(architecture: str) -> None:
    cubin, log = nvrtc.build(history.source(globals_of_all_kinds()), history.NAME, architecture)
    assert cubin and nvrtc.resources(log)[history.NAME]["spills"] == 0


def test_what_cannot_be_recorded_is_named() -> None:
    with pytest.raises(ScheduleError, match="a global of complex128 cannot be recorded"):
        history._ctype(np.dtype(np.complex128))


@ml.kernel
def march(time: ml.ReadWrite, steps: ml.ReadWrite, part: ml.ReadWrite, parts: ml.Write):
    time += 0.5
    steps += 1
    part[...] = 0.5 * part
    for k in range(3):
        parts[k] = k * time


@pytest.mark.parametrize("backend", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_history_of_a_program(backend: str) -> None:
    ml.use(backend)
    time, steps = ml.Global(0.0, "time"), ml.Global(0, "steps", dtype=np.int64)
    part, parts = ml.Global(1.0, "part", dtype=np.float32), ml.Global(np.zeros(3), "parts")
    unused, clock = ml.Global(4.5, "unused"), ml.Set(1, "clock")

    @ml.program
    def step() -> None:
        march(clock, time, steps, part, parts)

    record = (steps, part, unused, parts, time)
    found = np.concatenate([step.run(3, record=record), step.run(0, record=record), step.run(4, record=record)])
    n = np.arange(1.0, 8.0)
    np.testing.assert_array_equal(
        found, np.stack([n, 0.5**n, np.full(7, 4.5), 0.0 * n, 0.5 * n, n, 0.5 * n], axis=1)
    )  # fmt: skip
    assert step.run(2).shape == (2, 0) and steps.value == 9
