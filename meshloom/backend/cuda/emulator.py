"""A GPU that is none: its kernels compiled for the CPU, to be right where there is no device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.engine import Engine, LaunchFunction
from meshloom.backend.cuda.kernels import NO_CONTRACTION, GpuText
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.native import compiler
from meshloom.native.dlclose import function_of
from meshloom.native.ffi import address
from meshloom.target import H200, Target

_one_at_a_time = threading.Lock()  # emulated launches: a library has one set of fibres


class Emulator(Engine):
    """The same kernels compiled for the CPU, a block's threads as fibres. For tests: correct, not fast."""

    name = "emulated"
    compiles_apart = True

    def __init__(self, target: Target = H200):
        self._target = target

    @property
    def target(self) -> Target:
        return self._target

    @cached_property
    def emulation(self) -> str:
        return dialect.for_a_cpu(self.target) + dialect.FIBRES

    def upload(self, array: np.ndarray) -> Any:
        return np.array(array, order="C")

    def known(self, text: GpuText) -> Compiled | None:
        library = compiler.known(text.source, _name(text), extra_flags=_options(text))
        return None if library is None else Compiled(text)

    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        compiler.build(text.source, _name(text), extra_flags=_options(text))  # a process anyway
        return Compiled(text)

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> dict[str, LaunchFunction]:
        text: GpuText = code.content
        loaded = compiler.load(text.source, _name(text), extra_flags=_options(text))
        return {one.name: self._launcher(loaded, f"run_{one.name}", wide_index) for one in made}

    def _launcher(self, library: ctypes.CDLL, name: str, wide_index: bool) -> LaunchFunction:
        number = ctypes.c_int64 if wide_index else ctypes.c_int32
        function = function_of(library, name, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

        def launch(grid: int, threads: int, shared: int, arguments: Sequence[Any]) -> None:
            values = [number(a) if isinstance(a, int) else ctypes.c_void_p(address(a)) for a in arguments]
            table = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            with _one_at_a_time:  # other threads of Python run during the call
                function(ctypes.c_int64(grid), ctypes.c_int64(threads), ctypes.c_int64(shared), table)

        return launch


def _name(text: GpuText) -> str:
    return f"emulated_{text.name}"


def _options(text: GpuText) -> tuple[str, ...]:
    # fibres jump from stack to stack, which checks that some compilers add by themselves take for a mistake
    strictly = ("-ffp-contract=off",) if NO_CONTRACTION in text.flags else ()
    return ("-O1", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing", *strictly)
