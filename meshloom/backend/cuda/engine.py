"""Where CUDA kernels run: what an engine is, and the one that is a device, by CuPy and NVIDIA's driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.backend.cuda import nvrtc, peaks
from meshloom.backend.cuda.driver import DeviceKernel, Driver, Module
from meshloom.backend.cuda.kernels import GpuText
from meshloom.backend.lowering import Compiled
from meshloom.backend.translation_unit import KernelText
from meshloom.errors import ScheduleError
from meshloom.native import threads
from meshloom.native.peaks import rate as native_rate
from meshloom.native.runtime import copy_bandwidth
from meshloom.target import H200, Target, of_device

#: launch(grid, threads, shared bytes, arguments): arguments are arrays of the engine and whole numbers
LaunchFunction = Callable[[int, int, int, Sequence[Any]], None]


class Engine(ABC):
    """An allocator, a compiler and a launch."""

    name: str = ""
    compiles_apart: bool = False  # may several threads compile at the same time, each by a process of its own?

    @property
    def target(self) -> Target:
        """What there is; where there is no device, what a large one has."""
        return H200

    @property
    def architecture(self) -> str:
        """What it compiles for, as its compiler calls it."""
        return ""

    @property
    def emulation(self) -> str:
        """A header with which a CPU's compiler takes the text, where that is what compiles it."""
        return ""

    @abstractmethod
    def upload(self, array: np.ndarray) -> Any:
        """A copy of a host array in the engine's memory."""

    def zeros(self, array: np.ndarray) -> Any:
        """The same of an array that is known to hold nothing but zeros."""
        return self.upload(array)

    def known(self, text: GpuText) -> Compiled | None:
        """What ``compiled`` gives, where nothing has to be compiled for it. In any thread."""
        return None

    @abstractmethod
    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        """What a compiler makes of it; ``apart``: by a process of its own, if possible. In any thread, where the engine
        ``compiles_apart``: no device is asked."""

    @abstractmethod
    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> dict[str, LaunchFunction]:
        """Launch functions by kernel name."""

    def usage(self, launch: LaunchFunction, threads: int, shared: int) -> dict[str, Any]:
        """What the engine knows about a kernel with so many threads and so much shared memory, which must be there."""
        if shared > self.target.shared:
            raise ScheduleError(
                f"a block needs {shared:,} bytes of shared memory, the device has {self.target.shared:,}; use smaller"
                " blocks"
            )
        return {"dynamic_shared": shared}

    def copy_bandwidth(self) -> float:
        """Bytes per second, read and written, of copying within the engine's memory."""
        return copy_bandwidth()

    def rate(self, kind: str, dtype: str) -> float | None:
        """Operations of a kind and type that it does per second at most, measured once; None: of none that it has."""
        return native_rate(kind, dtype, 1)

    def events(self) -> Any:
        """A pair of clocks to put before and after launches; None where there are none."""
        return None


class Event:
    """A CUDA event."""

    def __init__(self, cupy: Any):
        self._cupy, self._event = cupy, cupy.cuda.Event()

    def record(self) -> None:
        self._event.record()

    def elapsed(self, end: Event) -> float:
        """Seconds from here to a later event; waits for it."""
        end._event.synchronize()
        return self._cupy.cuda.get_elapsed_time(self._event, end._event) / 1e3


class Device(Engine):
    """The current CUDA device, by CuPy and the driver. Launches go to CuPy's current stream and return at once."""

    name = "cuda"
    compiles_apart = True

    def __init__(self) -> None:
        self.driver = Driver(enter=self._enter)

    @cached_property
    def cupy(self) -> Any:
        import cupy

        threads.device_begins()
        return cupy

    def _enter(self) -> None:
        self.cupy.cuda.runtime.memGetInfo()  # as any call of the runtime: the device's context is this thread's now

    @cached_property
    def target(self) -> Target:
        return of_device(self.cupy.cuda.Device().attributes)

    @cached_property
    def architecture(self) -> str:
        return f"sm_{self.cupy.cuda.Device().compute_capability}"

    def upload(self, array: np.ndarray) -> Any:
        threads.check_device()
        return self.cupy.asarray(array)

    def zeros(self, array: np.ndarray) -> Any:
        threads.check_device()
        return self.cupy.zeros(array.shape, array.dtype)

    def copy_bandwidth(self) -> float:
        return self._copy_bandwidth

    @cached_property
    def _copy_bandwidth(self) -> float:
        source = self.cupy.ones(1 << 26)
        target = self.cupy.zeros_like(source)
        best = float("inf")
        for _ in range(5):
            start, end = self.events()
            start.record()
            self.cupy.copyto(target, source)
            end.record()
            best = min(best, start.elapsed(end))
        return 2 * source.nbytes / best

    def rate(self, kind: str, dtype: str) -> float | None:
        found = self._rates
        if (kind, dtype) not in found:
            found[kind, dtype] = peaks.rate(self.cupy, self.kernel, self.events, kind, dtype)
        return found[kind, dtype]

    @cached_property
    def _rates(self) -> dict[tuple[str, str], float | None]:
        return {}

    def events(self) -> Any:
        return Event(self.cupy), Event(self.cupy)

    def usage(self, launch: LaunchFunction, threads: int, shared: int) -> dict[str, Any]:
        assert isinstance(launch, DeviceKernel)
        known = super().usage(launch, threads, shared)
        return {**known, "occupancy": launch.blocks(threads, shared) * threads / self.target.resident_threads}

    def known(self, text: GpuText) -> Compiled | None:
        found = nvrtc.known(text.source, text.name, text.architecture, flags=text.flags)
        return None if found is None else _read(found)

    def compiled(self, text: GpuText, *, apart: bool = False) -> Compiled:
        return _read(nvrtc.build(text.source, text.name, text.architecture, flags=text.flags, apart=apart))

    def load(self, code: Compiled, made: Sequence[KernelText], *, wide_index: bool) -> dict[str, LaunchFunction]:
        module = self._module(code)
        return {one.name: module.kernel(one.name) for one in made}

    def kernel(self, source: str, name: str) -> DeviceKernel:
        """The kernel of that name in some CUDA C++."""
        return self._module(self.compiled(GpuText(source, name, (), self.architecture))).kernel(name)

    def _module(self, code: Compiled) -> Module:
        return Module(self.driver, self.cupy, code.content, self.target.shared_unasked)


def _read(made: nvrtc.MachineCode) -> Compiled:
    return Compiled(made.cubin, nvrtc.resources(made.log))
