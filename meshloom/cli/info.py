"""What ``meshloom info`` tells: the machine, the compiler, the back ends, the memory's speed."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import numpy as np

import meshloom as ml
from meshloom.backend import automatic_backend, cpu_count
from meshloom.backend.cuda import nvrtc
from meshloom.backend.machine import gpu_names, processor_name
from meshloom.cli import launcher
from meshloom.errors import CompilerError, install
from meshloom.native.cache import refusal, wanted_root
from meshloom.native.compiler import host_compiler
from meshloom.native.runtime import copy_bandwidth


def text_lines() -> Iterator[str]:
    """One fact per line, the measured one last."""
    found = ml.backends()
    yield f"meshloom   {ml.__version__}"
    yield f"python     {platform.python_version()}, numpy {np.__version__}"
    yield f"machine    {platform.system()} {platform.machine()}, {processor_name()}, {_cores_text()} usable"
    if found["cuda"] is None:
        yield f"gpu        {', '.join(gpu_names())}"
    yield f"compiler   {_compiler_line()}"
    yield f"nvrtc      {_nvrtc_line()}"
    yield from launcher.text_lines()
    for name, reason in found.items():
        chosen = " (run takes this one)" if name == automatic_backend(found) else ""
        yield f"back end   {name}: {'available' if reason is None else f'not available: {reason}'}{chosen}"
    yield f"strategies {', '.join(ml.strategies())}"
    yield f"cache      {refusal() or wanted_root()}"
    yield f"bandwidth  {_bandwidth_line()}"


def _compiler_line() -> str:
    try:
        found = host_compiler()
    except CompilerError as missing:
        return f"none: {missing}"
    return f"{found.path} ({found.version}), flags: {' '.join((*found.flags, *found.own))}"


def _nvrtc_line() -> str:
    try:
        return f"{nvrtc.version()} (compiles for GPUs)"
    except CompilerError:
        return f"not installed, needed for GPUs: {install('cuda')}"


def _bandwidth_line() -> str:
    try:
        return f"{copy_bandwidth() / 1e9:.1f} GB/s copy (read + written, {_cores_text()})"
    except CompilerError:
        return "not measured, that needs a C++ compiler"


def _cores_text() -> str:
    return f"{cpu_count()} core{'s' if cpu_count() != 1 else ''}"
