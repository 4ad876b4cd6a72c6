"""NumPy in the place of CuPy, and scipy in that of cuSPARSE: enough to run the peers of bench.compact without a device.

It shows that arguments come in the right order and arrays in the right shape, nothing about speed.
"""

from __future__ import annotations

import ctypes
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Array(np.ndarray):
    """An array that tells its address as CuPy's do."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self) -> np.ndarray:
        return np.array(self)


def module() -> ModuleType:
    """To be put into ``sys.modules`` as cupy."""
    made = ModuleType("cupy")
    for name in ("floor", "moveaxis", "broadcast_to"):
        setattr(made, name, getattr(np, name))
    for name in ("arange", "asarray", "ascontiguousarray", "empty", "empty_like"):
        setattr(made, name, _arrays(getattr(np, name)))
    stream = SimpleNamespace(synchronize=lambda: None)
    device = SimpleNamespace(get_cusparse_handle=lambda: 7)
    made.cuda = SimpleNamespace(get_current_stream=lambda: stream, device=device)  # type: ignore[attr-defined]
    made.fft = SimpleNamespace(  # type: ignore[attr-defined]
        rfftfreq=np.fft.rfftfreq, rfft=np.fft.rfft, irfft=lambda *a, **k: np.fft.irfft(*a, **k).view(Array)
    )
    return made


def _arrays(function: Any) -> Any:
    return lambda *arguments, **options: np.asarray(function(*arguments, **options)).view(Array)


class Library:
    """The two batched solvers, reading memory at the addresses they are given."""

    def cusparseDgtsv2StridedBatch_bufferSizeExt(self, handle, m, dl, d, du, x, count, stride, size) -> int:
        size._obj.value = 64
        return 0

    def cusparseDgtsv2StridedBatch(self, handle, m, dl, d, du, x, count, stride, buffer) -> int:
        assert handle.value == 7 and stride.value == m.value and buffer.value
        solve(*(at(one, count.value, m.value) for one in (dl, d, du, x)))
        return 0

    def cusparseDgtsvInterleavedBatch_bufferSizeExt(self, handle, algorithm, m, dl, d, du, x, count, size) -> int:
        size._obj.value = 64
        return 0

    def cusparseDgtsvInterleavedBatch(self, handle, algorithm, m, dl, d, du, x, count, buffer) -> int:
        assert algorithm.value == 0 and buffer.value
        solve(*(at(one, m.value, count.value).T for one in (dl, d, du, x)))
        for one in (dl, d, du):  # as the real one does
            at(one, m.value, count.value)[...] = np.nan
        return 0


def at(address: ctypes.c_void_p, rows: int, columns: int) -> np.ndarray:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_double)), (rows, columns))


def solve(lower: np.ndarray, main: np.ndarray, upper: np.ndarray, x: np.ndarray) -> None:
    """In place, one system for each row."""
    for a, b, c, right in zip(lower, main, upper, x, strict=True):
        right[...] = np.linalg.solve(np.diag(b) + np.diag(a[1:], -1) + np.diag(c[:-1], 1), right)
