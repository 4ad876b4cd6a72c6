"""The kernels of ``coloring.cu`` where there is a GPU, and the same text on the cores where there is none."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.backend.cpu import LOOP_FLAGS
from meshloom.native import compiler
from meshloom.native.ffi import address

SOURCE = Path(__file__).with_name("coloring.cu")
SLOTS = {"shared_sum": 1, "shared_max": 2}  # values of shared memory for a thread and component
UNASKED = 48 * 1024  # bytes of shared memory that a block may have without asking
#: launch(arrays, numbers): five arrays and four numbers, as the text lists them
Launch = Callable[[Sequence[Any], Sequence[int]], None]


def text(precision: str, components: int) -> str:
    """The source for one type of numbers, "float64" or "float32"."""
    number = {"float64": "double", "float32": "float"}[precision]
    head = f"#define NUMBER {number}\n#define COMPONENTS {components}\n"
    return head + SOURCE.read_text(encoding="utf-8")


class Kernels(ABC):
    """The kernels for one precision and number of components, and the memory that they work on."""

    def __init__(self, precision: str, components: int, block: int):
        self.precision, self.components, self.block = precision, components, block

    @abstractmethod
    def put(self, array: np.ndarray) -> Any:
        """A copy where the kernels run."""

    @abstractmethod
    def get(self, array: Any) -> np.ndarray:
        """A copy on the host."""

    @abstractmethod
    def launch(self, name: str) -> Launch:
        """The kernel of that name."""


class OnCores(Kernels):
    """All cores, a thread of the GPU after the other."""

    def __init__(self, precision: str, components: int, block: int):
        super().__init__(precision, components, block)
        self.library = compiler.load(text(precision, components), "peer_colored", extra_flags=LOOP_FLAGS)

    def put(self, array: np.ndarray) -> np.ndarray:
        return np.array(array, order="C")

    def get(self, array: Any) -> np.ndarray:
        return np.array(array)

    def launch(self, name: str) -> Launch:
        function = getattr(self.library, name)
        function.restype = None

        def run(arrays: Sequence[Any], numbers: Sequence[int]) -> None:
            function(*(ctypes.c_void_p(address(one)) for one in arrays), *(ctypes.c_int(one) for one in numbers))

        return run


class OnGpu(Kernels):
    """The current CUDA device, by CuPy."""

    def __init__(self, precision: str, components: int, block: int):
        import cupy

        super().__init__(precision, components, block)
        self.cupy = cupy
        self.module = cupy.RawModule(code=text(precision, components), options=("--std=c++17",))

    def put(self, array: np.ndarray) -> Any:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(array.get())

    def launch(self, name: str) -> Launch:
        function = self.module.get_function(name)
        room = SLOTS.get(name, 0) * self.components * self.block * np.dtype(self.precision).itemsize
        if room > UNASKED:
            function.max_dynamic_shared_size_bytes = room

        def run(arrays: Sequence[Any], numbers: Sequence[int]) -> None:
            grid = -(-numbers[1] // self.block)
            function((grid,), (self.block,), (*arrays, *map(np.int32, numbers)), shared_mem=room)

        return run
