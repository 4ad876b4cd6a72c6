"""How times are taken: variants in turn, round after round, and the fastest round of each counts.

A shared machine has quiet and busy moments; turns spread them over all variants, and the minimum takes the quiet ones.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

Work = Callable[[int], object]  # carries out n repetitions


def seconds(work: Callable[..., object], *arguments: Any) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def repetitions(work: Work, target: float) -> int:
    """How many repetitions take about ``target`` seconds; the first call warms up and is not counted."""
    work(1)
    n = 1
    while (taken := seconds(work, n)) < 0.1 * target:
        n *= 10 if taken < 0.01 * target else 4
    return max(1, round(n * target / taken))


def fastest(variants: Mapping[str, Work], *, rounds: int = 7, target: float = 0.3) -> dict[str, float]:
    """Seconds per repetition of every variant: the minimum over ``rounds`` in which all take turns."""
    counts = {name: repetitions(work, target) for name, work in variants.items()}
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds):
        for name, work in variants.items():
            n = counts[name]
            best[name] = min(best[name], seconds(work, n) / n)
    return best


def processor() -> str:
    """The model's name, where the system tells."""
    names = ("model name", "Model", "CPU part")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(":") for line in file]
    except OSError:
        pairs = []
    found = {key.strip(): value.strip() for key, _, value in pairs}
    return next((found[name] for name in names if name in found), platform.processor() or "unknown")


def surroundings() -> dict[str, Any]:
    """Date, machine, versions and code: what a result file must say about where it comes from."""
    from bench.record import SCHEMA, command
    from bench.stamp import stamp
    from meshloom.native.compiler import host_compiler

    packages = ("meshloom", "numpy", "scipy", "numba", "cupy-cuda13x", "torch", "jax")
    compiler = host_compiler()
    return {
        "schema": SCHEMA,
        "command": command(),
        "code": stamp(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "architecture": platform.machine(),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "system": platform.system(),
            "gpu": gpu(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in packages},
            "compiler": compiler.version,
            "flags": " ".join((*compiler.flags, *compiler.own)),
        },
    }


def gpu() -> str | None:
    """Name of the CUDA device; None without one."""
    from meshloom.backend import backends

    if backends()["cuda"] is not None:
        return None
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
