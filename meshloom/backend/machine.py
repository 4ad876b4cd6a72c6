"""What kind of machine this is, in words: its processor, its GPUs, the versions of what runs on it."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np

from meshloom.backend import Backend, threads
from meshloom.native import machine
from meshloom.native.machine import cpu_count
from meshloom.process.ranks import ranks
from meshloom.process.version import VERSION


def backend_text(used: Backend) -> str:
    """``cpu, 2 threads``; the other back ends have no threads to speak of."""
    return f"cpu, {threads()} thread{'s' if threads() != 1 else ''}" if used.name == "cpu" else used.name


def machine_rows(used: Backend) -> list[tuple[str, str]]:
    """(label, text) of all that a result may depend on besides its settings. Nothing names this machine or its user."""
    of_all = f", on each of {size} ranks" if (size := ranks().size) > 1 else ""
    rows = [
        ("meshloom", VERSION),
        ("back end", f"{backend_text(used)}{of_all}"),
        ("machine", f"{platform.system()} {platform.machine()}, {processor_name()}"),
        ("cores", f"{cpu_count()} usable"),
        ("memory", f"{machine.memory() / 2**30:.3g} GiB"),
        ("python", f"{platform.python_version()}, numpy {np.__version__}"),
    ]
    if used.name == "cuda":
        rows.insert(2, ("gpu", ", ".join(gpu_names())))
    return rows


def gpu_names() -> list[str]:
    """The models of the CUDA devices; only where the cuda back end is available."""
    import cupy

    runtime = cupy.cuda.runtime
    return [runtime.getDeviceProperties(k)["name"].decode() for k in range(runtime.getDeviceCount())]


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
