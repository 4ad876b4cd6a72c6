"""Recorded globals: one small kernel gathers them all into a row of the history, after every replay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshloom.errors import ScheduleError
from meshloom.mesh.core import Global

NAME = "record"
THREADS = 32
ROW = 1  # which argument says where the row goes
_TYPES = {"float64": "double", "float32": "float", "int64": "long long", "int32": "int", "bool": "bool"}


def width(record: Sequence[Global]) -> int:
    """Values in a row of the history."""
    return sum(one.dim for one in record)


def blocks(record: Sequence[Global]) -> int:
    return -(-max(one.dim for one in record) // THREADS)


def source(record: Sequence[Global]) -> str:
    """CUDA C++ of ``record(history, row, first global, second global, ...)``.

    All loads come before the first store: their latencies pass at the same time.
    """
    pointers = [f"const {_ctype(one.dtype)}* __restrict__ g{k}" for k, one in enumerate(record)]
    starts = np.cumsum([0, *(one.dim for one in record)])
    loads = [f"  const double v{k} = i < {one.dim} ? (double)g{k}[i] : 0.0;" for k, one in enumerate(record)]
    stores = [f"  if (i < {one.dim}) at[{starts[k]} + i] = v{k};" for k, one in enumerate(record)]
    parameters = ", ".join(["double* __restrict__ history", "const long long row", *pointers])
    head = [f'extern "C" __global__ void {NAME}({parameters}) {{', f"  double* at = history + row * {width(record)};"]
    number = "  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);"
    return "\n".join([*head, number, *loads, *stores, "}", ""])


def _ctype(dtype: np.dtype) -> str:
    if dtype.name not in _TYPES:
        raise ScheduleError(f"a global of {dtype.name} cannot be recorded; use one of {', '.join(_TYPES)}")
    return _TYPES[dtype.name]
