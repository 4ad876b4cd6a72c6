"""HIP: the passes of GPUs in AMD's words, compiled by hiprtc and launched through CuPy for ROCm.

No AMD device has run this yet. The text runs emulated in every test of it; what is here next to the text is what CuPy
documents, and is run against a stand-in. CuPy has no graphs on ROCm: programs are launched operation by operation.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.backend.base import Recording, Replayed
from meshloom.backend.branches import StreamAssignment
from meshloom.backend.cuda.backend import CudaBackend
from meshloom.backend.cuda.driver import DeviceLaunch
from meshloom.backend.cuda.engine import Device, Engine, LaunchFunction
from meshloom.backend.cuda.kernels import NO_CONTRACTION, GpuText
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.errors import CompilerError
from meshloom.mesh.core import Global
from meshloom.target import Target, of_properties

INSTEAD = "ml.use('emulated', target='hip') runs its text on the CPU"
_FLAGS = {NO_CONTRACTION: "-ffp-contract=off"}  # what hiprtc calls NVRTC's


class HipDevice(Device):
    """The current AMD device, by CuPy for ROCm. Launches go to CuPy's current stream and return at once."""

    name = "hip"
    compiles_apart = False

    @cached_property
    def target(self) -> Target:
        runtime = self.cupy.cuda.runtime
        return of_properties(runtime.getDeviceProperties(runtime.getDevice()))

    @property
    def architecture(self) -> str:
        return ""  # CuPy asks the device

    def rate(self, kind: str, dtype: str) -> float | None:
        return None  # whose kernels are NVIDIA's

    def usage(self, launch: LaunchFunction, threads: int, shared: int) -> dict[str, Any]:
        return Engine.usage(self, launch, threads, shared)

    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        """The text: CuPy compiles and loads in one."""
        return Compiled(text)

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> dict[str, LaunchFunction]:
        text: GpuText = code.content
        options = ("-std=c++17", *(_FLAGS[one] for one in text.flags))
        try:
            module = self.cupy.RawModule(code=text.source, options=options)
            return {one.name: HipLaunch(module.get_function(one.name), wide_index) for one in made}
        except self.cupy.cuda.compiler.CompileException as error:
            first = next((line for line in str(error).splitlines() if "error" in line), str(error).strip())
            raise CompilerError(f"{text.name}: the HIP code did not compile: {first}") from error


class HipLaunch(DeviceLaunch):
    """A kernel of a module of CuPy's, ready to be put on the current stream. Shared memory needs no asking for."""

    def __init__(self, function: Any, wide_index: bool):
        self.function, self._number = function, np.int64 if wide_index else np.int32

    def bound(self, grid: int, threads: int, shared: int, arguments: Sequence[Any]) -> Callable[[], None]:
        values = tuple(self._number(a) if isinstance(a, int) else a for a in arguments)
        function, blocks, block = self.function, (grid,), (threads,)
        return lambda: function(blocks, block, values, shared_mem=shared)


class HipRecording(Recording):
    """Operations put on the stream one by one; the time of a single one is not known."""

    def run(self, times: int, record: Sequence[Global]) -> Replayed:
        return super().run(times, record)._replace(seconds=np.full(len(self.operations), np.nan))


class HipBackend(CudaBackend):
    """Fields live in the memory of an AMD device while loops use them there; ``field.numpy()`` copies out."""

    name = "hip"

    def __init__(self) -> None:
        super().__init__()
        self.engine = HipDevice()

    @cached_property
    def _reason(self) -> str | None:
        missing = self._missing()
        return f"{missing}; {INSTEAD}" if missing else None

    def _missing(self) -> str | None:
        if importlib.util.find_spec("cupy") is None:
            return "CuPy for ROCm is not installed"
        import cupy

        if not getattr(cupy.cuda.runtime, "is_hip", False):
            return "CuPy is built for NVIDIA's GPUs here, not for ROCm"
        return self._no_device(cupy, "HIP")

    def _recording(self, operations: Sequence[Callable[[], None]], assigned: Sequence[StreamAssignment]) -> Recording:
        return HipRecording(operations)
