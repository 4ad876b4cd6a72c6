"""What a GPU does at most, measured by kernels that do nothing else (``peaks.cuh``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.native.peaks import TYPES
from meshloom.target.limit import ATOMIC, DEVICE_KINDS

THREADS, BLOCKS_EACH = 256, 8  # of a block; for every multiprocessor
TARGETS = 1 << 20  # of atomics
REPEATS = 5
#: Steps of a kernel: about a millisecond of each, on a large device.
STEPS = {"multiply-add": 2048, "division": 128, "square root": 128, "special": 128, ATOMIC: 32}
VALUES = 8  # that a thread goes on with


def source() -> str:
    """CUDA C++ of all of them."""
    return Path(__file__).with_name("peaks.cuh").read_text()


def name_of(kind: str, dtype: str) -> str:
    """What the kernel is called."""
    return f"{kind.replace(' ', '_').replace('-', '_')}_{dtype}"


Made = Callable[[str, str], Any]  # a kernel, by text and name


def rate(cupy: Any, kernel: Made, events: Callable[[], Any], kind: str, dtype: str) -> float | None:
    """So many per second; the best of a few runs, of which the first does not count."""
    if kind not in DEVICE_KINDS or dtype not in TYPES:
        return None
    blocks = BLOCKS_EACH * int(cupy.cuda.Device().attributes["MultiProcessorCount"])
    threads, steps = blocks * THREADS, STEPS[kind]
    values = cupy.asarray(np.full(2 + max(threads, TARGETS), 0.75, dtype))
    launch, taken = kernel(source(), name_of(kind, dtype)).bound(blocks, THREADS, 0, [values, np.int32(steps)]), []
    for _ in range(1 + REPEATS):
        start, end = events()
        start.record()
        launch()
        end.record()
        taken.append(start.elapsed(end))
    return float(threads * steps * VALUES / min(taken[1:]))
