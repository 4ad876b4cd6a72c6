"""What ``meshloom info`` tells: the machine, the compiler, the back ends, the memory's speed."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

import meshloom as ml
from meshloom.backend import cpu_count
from meshloom.errors import CompilerError
from meshloom.native.cache import cache_root
from meshloom.native.compiler import host_compiler

_COPY_BYTES = 256 * 2**20  # far more than any cache that one socket has to itself
_COPY_REPEATS = 5


def lines() -> Iterator[str]:
    """One fact per line, the measured one last."""
    cores = cpu_count()
    yield f"meshloom   {version('meshloom')}"
    yield f"python     {platform.python_version()}, numpy {np.__version__}"
    yield f"machine    {platform.system()} {platform.machine()}, {processor_name()}, {cores} cores usable"
    yield f"compiler   {_compiler_line()}"
    for name, reason in ml.backends().items():
        chosen = " (default)" if name == ml.backend() else ""
        yield f"back end   {name}: {'available' if reason is None else f'not available: {reason}'}{chosen}"
    yield f"strategies {', '.join(ml.strategies())}"
    yield f"cache      {cache_root()}"
    yield f"bandwidth  {copy_bandwidth(cores) / 1e9:.1f} GB/s copy (read + written, {cores} threads)"


def _compiler_line() -> str:
    try:
        found = host_compiler()
    except CompilerError as missing:
        return f"none: {missing}"
    return f"{found.path} ({found.version}), flags: {' '.join(found.flags)}"


def processor_name() -> str:
    """The processor's model where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    return platform.processor() or "unknown processor"


def copy_bandwidth(threads: int) -> float:
    """Bytes per second read and written by copying a large array, the best of some tries."""
    source = np.ones(_COPY_BYTES // 8)
    target = np.zeros_like(source)
    pieces = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_COPY_REPEATS):
            start = time.perf_counter()
            list(pool.map(lambda piece: np.copyto(*piece), pieces))
            best = min(best, time.perf_counter() - start)
    return 2.0 * source.nbytes / best
