"""CUDA's driver, by NVIDIA's ``cuda.bindings``: machine code loaded, asked about and launched.

CuPy has the memory, the streams, the events and the graphs. It launches kernels that others compiled by nothing that
its reference lists, so those go to the driver itself, on CuPy's current stream.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from meshloom.errors import RunError

_SLOT = 8  # bytes of an argument: an address, or a number whose low bytes a narrower parameter takes
_ALL = (1 << 8 * _SLOT) - 1
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: this thread has none yet


class Driver:
    """Calls of the driver's API by their names; RunError in one line for what is missing, or fails.

    ``enter()`` makes the device's context that of the thread which calls it.
    """

    def __init__(self, functions: Any = None, enter: Callable[[], object] = lambda: None):
        self.enter = enter
        if functions is not None:  # else they are looked for when somebody calls
            self.functions = functions

    @cached_property
    def functions(self) -> Any:
        from cuda.bindings import driver

        return driver

    def call(self, name: str, *arguments: Any) -> Any:
        found = getattr(self.functions, name, None)
        if found is None:
            raise RunError(f"the bindings of CUDA's driver have no {name}")
        error, *result = found(*arguments)
        if int(error) == _NO_CONTEXT:
            self.enter()
            error, *result = found(*arguments)
        if int(error):
            raise RunError(f"{name} of CUDA's driver fails: {error!r}")
        return result[0] if result else None


class Module:
    """Machine code in the memory of the current device, for as long as somebody holds this, or a kernel of it."""

    def __init__(self, driver: Driver, cupy: Any, cubin: bytes, unasked: int):
        self.unasked = unasked  # bytes of shared memory that a block may have without asking
        driver.enter()  # whoever calls first initialises the device, too
        self.driver, self.cupy, self.handle = driver, cupy, driver.call("cuModuleLoadData", cubin)
        weakref.finalize(self, driver.functions.cuModuleUnload, self.handle).atexit = False  # the end unloads it anyway

    def kernel(self, name: str) -> DeviceKernel:
        return DeviceKernel(self, name)


class DeviceLaunch(ABC):
    """A kernel that is launched with (blocks, threads of each, shared bytes, arguments) on CuPy's current stream."""

    @abstractmethod
    def bound(self, grid: int, threads: int, shared: int, arguments: Sequence[Any]) -> Callable[[], None]:
        """The launch with everything decided: what is left to do is cheap."""

    def __call__(self, grid: int, threads: int, shared: int, arguments: Sequence[Any]) -> None:
        self.bound(grid, threads, shared, arguments)()


class DeviceKernel(DeviceLaunch):
    """A kernel of a module, which it keeps loaded. Arguments are arrays of CuPy's and whole numbers."""

    def __init__(self, module: Module, name: str):
        self.module = module
        self.function = module.driver.call("cuModuleGetFunction", module.handle, name.encode())
        self._allowed = module.unasked

    def allow(self, shared: int) -> None:
        """Much shared memory has to be asked for, and that a multiprocessor gives all it has to such blocks."""
        if shared > self._allowed:
            call, known = self.module.driver.call, self.module.driver.functions.CUfunction_attribute
            call("cuFuncSetAttribute", self.function, known.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            call("cuFuncSetAttribute", self.function, known.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
            self._allowed = shared

    def blocks(self, threads: int, shared: int) -> int:
        """Blocks of so many threads and so much shared memory that a multiprocessor runs at the same time."""
        self.allow(shared)
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(self.module.driver.call(name, self.function, threads, shared))

    def bound(self, grid: int, threads: int, shared: int, arguments: Sequence[Any]) -> PackedLaunch:
        self.allow(shared)
        return PackedLaunch(self, (grid, 1, 1, threads, 1, 1, shared), arguments)


class PackedLaunch:
    """A kernel and what it is launched with. ``values[k]``, if it is a number, may be changed between two calls."""

    def __init__(self, kernel: DeviceKernel, sizes: tuple[int, ...], arguments: Sequence[Any]):
        self.values = packed(arguments)
        self._table = self.values.ctypes.data + _SLOT * np.arange(len(arguments), dtype=np.uint64)  # where each lies
        self._held = kernel, list(arguments)
        self._driver = kernel.module.driver
        self._launch = self._driver.functions.cuLaunchKernel
        self._stream = kernel.module.cupy.cuda.get_current_stream
        self._before, self._after = (kernel.function, *sizes), (int(self._table.ctypes.data), 0)

    def __call__(self) -> None:
        stream = self._stream().ptr
        (error,) = self._launch(*self._before, stream, *self._after)
        if error:  # the long way: in the device's context, or with a word on what is wrong
            self._driver.call("cuLaunchKernel", *self._before, stream, *self._after)


def packed(arguments: Sequence[Any]) -> np.ndarray:
    """Addresses of arrays, and numbers, in slots of eight bytes each: negative ones as their two's complement."""
    numbers = [int(one) if isinstance(one, int | np.integer) else one.data.ptr for one in arguments]
    return np.array([number & _ALL for number in numbers], np.uint64)
