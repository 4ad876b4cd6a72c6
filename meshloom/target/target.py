"""What a machine has: lanes, multiprocessors, memory that threads share, and how fast it is.

Back ends hold one (``backend.target``). Nothing here names a device: two that have the same get the same plans, choices
and text.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache

from meshloom.native.machine import cpu_count
from meshloom.records import dataclass
from meshloom.target.device_files import numbers_of
from meshloom.target.language import Language
from meshloom.target.numbers import CpuNumbers, GpuNumbers, Numbers
from meshloom.target.rates import Rates

SHARED_ROW = 128  # bytes that the banks of shared memory give at a time, on every GPU we know


@dataclass(frozen=True)
class Target:
    """Where generated code runs. Memory is in bytes; on a CPU a block has one thread, which shares with nobody."""

    lanes: int  # threads in step, which can ask each other for values (a warp); 1 on a CPU
    multiprocessors: int  # what blocks are dealt out to; on a CPU its cores
    block_threads: int  # of a block, at most
    resident_threads: int  # of a multiprocessor, at most
    registers: int  # of a multiprocessor, 4 bytes each; 0 where nobody counts them
    shared: int  # memory of a block, at most
    shared_unasked: int  # of that, what a block has without asking for more
    cache_line: int
    device: str  # the class whose fitted numbers it has (``numbers.py``)
    speed: float = 1.0  # by which its rates are those of the device that was measured, in that one's unit
    language: Language | None = None  # of a GPU; on a CPU it is C++

    @property
    def is_simt(self) -> bool:
        """Do the threads of a block run at the same time, with barriers, so that plans must keep them apart too?"""
        return self.lanes > 1

    @property
    def has_fma(self) -> bool:
        """Is there an instruction for a*b + c in one rounding? Without it products are rounded by themselves, and what
        kernels compute has other bits than elsewhere."""
        return self.is_simt or _processor_has_fma()

    @property
    def numbers(self) -> Numbers:
        """What was fitted or measured on devices of its class."""
        return numbers_of(self.device)

    @property
    def cpu(self) -> CpuNumbers:
        """The same, of a CPU."""
        found = self.numbers
        assert isinstance(found, CpuNumbers)
        return found

    @property
    def gpu(self) -> GpuNumbers:
        """The same, of a GPU."""
        found = self.numbers
        assert isinstance(found, GpuNumbers)
        return found

    @property
    def rates(self) -> Rates:
        """The figures of the cost model: those that were measured, as much slower as it is."""
        found = self.numbers
        return found.rates if found.speed == self.speed else found.rates.slower(found.speed / self.speed)

    @property
    def threads(self) -> int:
        """How many run at the same time, at most."""
        return self.multiprocessors * self.resident_threads

    @property
    def plan_key(self) -> str:
        """What the arrays of a plan depend on, in short: plans on disk are found by it."""
        return f"{self.lanes} lanes {self.gpu.neighbours} {self.gpu.strips}" if self.is_simt else f"{self.lanes} lanes"

    def whole_warps(self, threads: int) -> int:
        """The number of threads of a block that has room for so many items at a time: whole warps, and not too many."""
        return min(-(-threads // self.lanes) * self.lanes, self.block_threads)

    def blocks_with(self, registers: int, threads: int) -> int:
        """Blocks that fit a multiprocessor's registers; a thread gets them in units of 8."""
        return self.registers // (-(-registers // 8) * 8 * threads)


@cache
def _processor_has_fma() -> bool:
    """Of those that we know x86-64 alone has some without, and says so."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return True
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as said:
        flags = next((line for line in said if line.startswith("flags")), "fma")
        return "fma" in flags.split()
    return True


#: This machine's.
CPU = Target(
    lanes=1, multiprocessors=cpu_count(), block_threads=1, resident_threads=1, registers=0, shared=0, shared_unasked=0,
    cache_line=64, device="cpu",
)  # fmt: skip
