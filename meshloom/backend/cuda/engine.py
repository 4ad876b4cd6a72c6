"""Where CUDA kernels run: what an engine is, and the one that is a device, through CuPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.backend.cuda import dialect, nvrtc
from meshloom.backend.cuda.dialect import KernelText
from meshloom.backend.unit import Unit
from meshloom.errors import ScheduleError
from meshloom.native import threads
from meshloom.native.runtime import copy_bandwidth
from meshloom.target import H200, Target, of_device

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SHARED_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent
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
    """The current CUDA device, by CuPy. Launches go to CuPy's current stream and return at once."""

    name = "cuda"

    @cached_property
    def cupy(self) -> Any:
        import cupy

        threads.device_begins()
        return cupy

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
        assert isinstance(launch, DeviceLaunch)
        known, driver, function = super().usage(launch, threads, shared), self.cupy.cuda.driver, launch.function
        launch.allow(shared)
        blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, shared)
        return {**known, "occupancy": blocks * threads / self.target.resident_threads}

    def load(self, unit: Unit, made: list[KernelText], *, wide_index: bool,
             flags: tuple[str, ...]) -> tuple[dict[str, LaunchFunction], dict[str, dict[str, int]]]:  # fmt: skip
        source = dialect.render(unit, made, wide_index=wide_index)
        module, log = self._module(source, unit.spec.name, flags)
        return {
            one.name: DeviceLaunch(self.cupy, module.get_function(one.name), wide_index, self.target) for one in made
        }, nvrtc.resources(log)

    def function(self, source: str, name: str) -> Any:
        """The kernel of that name in some CUDA C++, as CuPy launches it: (blocks, threads, arguments)."""
        return self._module(source, name, ())[0].get_function(name)

    def _module(self, source: str, name: str, flags: tuple[str, ...]) -> tuple[Any, str]:
        """Compiled and loaded, and what the compiler said."""
        cubin, log = nvrtc.build(source, name, self.architecture, flags=flags)
        module = self.cupy.cuda.function.Module()
        module.load(cubin)
        return module, log


class DeviceLaunch:
    """A kernel of a module, ready to be put on the current stream."""

    def __init__(self, cupy: Any, function: Any, wide_index: bool, target: Target):
        self._cupy, self.function = cupy, function
        self._number = np.int64 if wide_index else np.int32
        self._limit = target.shared_unasked  # shared memory beyond this has to be asked for once

    def allow(self, shared: int) -> None:
        """Much shared memory has to be asked for, and that a multiprocessor gives all it has to such blocks."""
        if shared > self._limit:
            for attribute, value in ((MAX_DYNAMIC_SHARED, shared), (SHARED_CARVEOUT, 100)):
                self._cupy.cuda.driver.funcSetAttribute(self.function.ptr, attribute, value)
            self._limit = shared

    def bound(self, grid: int, threads: int, shared: int, arguments: list[Any]) -> Callable[[], None]:
        """The launch with everything decided: what is left to do is cheap."""
        self.allow(shared)
        values = tuple(self._number(a) if isinstance(a, int) else a for a in arguments)
        function, blocks, block = self.function, (grid,), (threads,)
        return lambda: function(blocks, block, values, shared)

    def __call__(self, grid: int, threads: int, shared: int, arguments: list[Any]) -> None:
        self.bound(grid, threads, shared, arguments)()
