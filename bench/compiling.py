"""Compiling ahead: the CUDA code of many loops on all cores of a machine, before one after the other is measured.

Machine code is cached by the content of its source, so a loop that was compiled here is only loaded later. Nothing here
needs a device: only its architecture has to be known.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.backend import register
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.backend.cuda.engine import Device, LaunchFunction
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.errors import MeshloomError
from meshloom.target import H200


class _Compiler(Device):
    """Compiles for an architecture and loads nothing."""

    architecture = ""
    target = H200  # the GPU that is measured; another one compiles again what differs

    def upload(self, array: np.ndarray) -> Any:
        return array

    zeros = upload

    def events(self) -> Any:
        return None

    def usage(self, launch: LaunchFunction, threads: int, shared: int) -> dict[str, Any]:
        return {}

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> dict[str, LaunchFunction]:
        return defaultdict(lambda: _no_launch)


def _no_launch(*arguments: Any, **options: Any) -> None:
    raise RuntimeError("compiled ahead, not loaded")


class CompileOnly(CudaBackend):
    """CUDA without a device."""

    name = "compile only"

    def __init__(self, architecture: str):
        super().__init__()
        self.engine = _Compiler()
        self.engine.architecture = architecture

    def unavailable(self) -> str | None:
        return None

    def place(self, storage: Any) -> Any:
        return storage


def compile_one(architecture: str, make: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Prepare the loop ``make(*arguments)`` gives; the reason where it cannot be."""
    register(CompileOnly(architecture))
    ml.use(CompileOnly.name)
    try:
        make(*arguments).prepare()
    except MeshloomError as refusal:
        return str(refusal)
    return ""


def compile_all(architecture: str, make: Callable[..., Any], listed: Sequence[tuple[Any, ...]]) -> float:
    """Compile the loops that ``make`` gives for every tuple of arguments, on all cores; seconds."""
    begin = time.perf_counter()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ProcessPoolExecutor(min(cores, max(len(listed), 1)), mp_context=get_context("spawn")) as pool:
        for waiting in [pool.submit(compile_one, architecture, make, arguments) for arguments in listed]:
            waiting.result()
    return time.perf_counter() - begin
