"""A GPU that is none: its kernels compiled for the CPU, to be right where there is no device."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.dialect import KernelText
from meshloom.backend.cuda.engine import NO_CONTRACTION, Engine, LaunchFunction
from meshloom.backend.unit import Unit
from meshloom.native import compiler
from meshloom.native.closing import function_of
from meshloom.native.ffi import address
from meshloom.target import H200, Target

_one_at_a_time = threading.Lock()  # emulated launches: a library has one set of fibres


class Emulator(Engine):
    """The same kernels compiled for the CPU, a block's threads as fibres. For tests: correct, not fast."""

    name = "emulated"

    def __init__(self, target: Target = H200):
        self._target = target

    @property
    def target(self) -> Target:
        return self._target

    def upload(self, array: np.ndarray) -> Any:
        return np.array(array, order="C")

    def load(self, unit: Unit, made: list[KernelText], *, wide_index: bool,
             flags: tuple[str, ...]) -> tuple[dict[str, LaunchFunction], dict[str, dict[str, int]]]:  # fmt: skip
        header = dialect.for_a_cpu(self.target) + dialect.FIBRES
        source = dialect.render(unit, made, wide_index=wide_index, emulation=header)
        # fibres jump from stack to stack, which checks that some compilers add by themselves take for a mistake
        strictly = ("-ffp-contract=off",) if NO_CONTRACTION in flags else ()
        options = ("-O1", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing", *strictly)
        loaded = compiler.load(source, f"emulated_{unit.spec.name}", extra_flags=options)
        return {one.name: self._launcher(loaded, f"run_{one.name}", wide_index) for one in made}, {}

    def _launcher(self, library: ctypes.CDLL, name: str, wide_index: bool) -> LaunchFunction:
        number = ctypes.c_int64 if wide_index else ctypes.c_int32
        function = function_of(library, name, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

        def launch(grid: int, threads: int, shared: int, arguments: list[Any]) -> None:
            values = [number(a) if isinstance(a, int) else ctypes.c_void_p(address(a)) for a in arguments]
            table = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            with _one_at_a_time:  # other threads of Python run during the call
                function(ctypes.c_int64(grid), ctypes.c_int64(threads), ctypes.c_int64(shared), table)

        return launch
