"""Where CUDA kernels run: what an engine is, and the one that is a device, by CuPy and NVIDIA's driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.backend.cuda import dialect, nvrtc
from meshloom.backend.cuda.dialect import KernelText
from meshloom.backend.cuda.driver import DeviceKernel, Driver, Module
from meshloom.backend.unit import Unit
from meshloom.errors import ScheduleError
from meshloom.native import threads
from meshloom.native.runtime import copy_bandwidth
from meshloom.target import H200, Target, of_device

NO_CONTRACTION = "--fmad=false"  # as NVRTC is told to round every product by itself
#: launch(grid, threads, shared bytes, arguments): arguments are arrays of the engine and whole numbers
LaunchFunction = Callable[[int, int, int, list[Any]], None]


class Engine(ABC):
    """An allocator, a compiler and a launch."""

    name: str = ""

    @property
    def target(self) -> Target:
        """What there is; where there is no device, what a large one has."""
        return H200

    @abstractmethod
    def upload(self, array: np.ndarray) -> Any:
        """A copy of a host array in the engine's memory."""

    @abstractmethod
    def load(self, unit: Unit, made: list[KernelText], *, wide_index: bool,
             flags: tuple[str, ...]) -> tuple[dict[str, LaunchFunction], dict[str, dict[str, int]]]:  # fmt: skip
        """Launch functions by kernel name, and the resources (registers, spills) of each where known."""

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

    def events(self) -> Any:
        """A pair of clocks to put before and after launches; None where there are none."""
        return None


class Clock:
    """A CUDA event."""

    def __init__(self, cupy: Any):
        self._cupy, self._event = cupy, cupy.cuda.Event()

    def record(self) -> None:
        self._event.record()

    def elapsed(self, end: Clock) -> float:
        """Seconds from here to a later event; waits for it."""
        end._event.synchronize()
        return self._cupy.cuda.get_elapsed_time(self._event, end._event) / 1e3


class Device(Engine):
    """The current CUDA device, by CuPy and the driver. Launches go to CuPy's current stream and return at once."""

    name = "cuda"

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

    def events(self) -> Any:
        return Clock(self.cupy), Clock(self.cupy)

    def usage(self, launch: LaunchFunction, threads: int, shared: int) -> dict[str, Any]:
        assert isinstance(launch, DeviceKernel)
        known = super().usage(launch, threads, shared)
        return {**known, "occupancy": launch.blocks(threads, shared) * threads / self.target.resident_threads}

    def load(self, unit: Unit, made: list[KernelText], *, wide_index: bool,
             flags: tuple[str, ...]) -> tuple[dict[str, LaunchFunction], dict[str, dict[str, int]]]:  # fmt: skip
        source = dialect.render(unit, made, wide_index=wide_index)
        module, log = self._module(source, unit.spec.name, flags)
        return {one.name: module.kernel(one.name) for one in made}, nvrtc.resources(log)

    def kernel(self, source: str, name: str) -> DeviceKernel:
        """The kernel of that name in some CUDA C++."""
        return self._module(source, name, ())[0].kernel(name)

    def _module(self, source: str, name: str, flags: tuple[str, ...]) -> tuple[Module, str]:
        """Compiled and loaded, and what the compiler said."""
        cubin, log = nvrtc.build(source, name, self.architecture, flags=flags)
        return Module(self.driver, self.cupy, cubin, self.target.shared_unasked), log
