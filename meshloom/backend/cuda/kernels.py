"""The kernels of a unit, compiled for as many blocks at a time as pays. No device is asked: any thread may do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from meshloom.backend.cuda import dialect
from meshloom.backend.cuda.dialect import KernelText
from meshloom.backend.unit import TranslationUnit

NO_CONTRACTION = "--fmad=false"  # as NVRTC is told to round every product by itself


class WantedKernels(NamedTuple):
    """What kernels are made from, and the architecture that they are for: equal ones give the same."""

    unit: TranslationUnit
    block: int
    threads: int
    registers: int | None
    wide_index: bool
    architecture: str

    def text(self, made: list[KernelText], emulation: str) -> GpuText:
        """Of kernels of the unit; ``emulation``: a header where they are compiled for a CPU."""
        flags = (NO_CONTRACTION,) if self.unit.spec.strict else ()
        source = dialect.render(self.unit, made, wide_index=self.wide_index, emulation=emulation)
        return GpuText(source, self.unit.spec.name, flags, self.architecture)


class GpuText(NamedTuple):
    """What a compiler is given: the text, what it is called, how it is compiled, and for which architecture."""

    source: str
    name: str
    flags: tuple[str, ...] = ()
    architecture: str = ""


class GpuCode(NamedTuple):
    """What a compiler gave: something that an engine loads, and what each kernel uses (registers, spills) where that
    is known."""

    content: Any
    resources: dict[str, dict[str, int]]


class CompiledKernels(NamedTuple):
    """Kernels as text and as code."""

    made: list[KernelText]
    code: GpuCode

    def used(self, number: int) -> dict[str, int]:
        """What the kernel of a pass uses."""
        return self.code.resources.get(f"pass{number}", {})


Attempt = Callable[[Sequence[int]], CompiledKernels]  # kernels of which so many blocks fit a multiprocessor


class _NotKnown(Exception):
    """A compiler is needed."""


def known_kernels(
    wanted: WantedKernels, known: Callable[[GpuText], GpuCode | None], emulation: str
) -> CompiledKernels | None:
    """``compiled_kernels`` where all that is compiled on the way there is ``known``; else None."""

    def found(text: GpuText) -> GpuCode:
        code = known(text)
        if code is None:
            raise _NotKnown
        return code

    try:
        return compiled_kernels(wanted, found, emulation)
    except _NotKnown:
        return None


def compiled_kernels(wanted: WantedKernels, compiled: Callable[[GpuText], GpuCode], emulation: str) -> CompiledKernels:
    """With as many registers as they were wished, or as fit each of them."""

    def attempt(resident: Sequence[int]) -> CompiledKernels:
        made = dialect.kernels(wanted.unit, wanted.block, wanted.threads, resident)
        return CompiledKernels(made, compiled(wanted.text(made, emulation)))

    return _as_fits(wanted, attempt) if wanted.registers is None else _with_registers(wanted, wanted.registers, attempt)


def _with_registers(wanted: WantedKernels, registers: int, attempt: Attempt) -> CompiledKernels:
    """All kernels with so many; with more where that would spill and the loop may have them."""
    unit, numbers = wanted.unit, wanted.unit.target.gpu.kernels
    count, most = len(unit.passes), max(1, unit.target.registers // (registers * wanted.threads))
    found = attempt([most] * count)
    while unit.spec.may_use_more_registers and most > numbers.enough_blocks and _spills(found) > numbers.few_spills:
        most -= 1
        found = attempt([most] * count)
    return found


def _as_fits(wanted: WantedKernels, attempt: Attempt) -> CompiledKernels:
    """Each kernel with as many as it likes, unless a few less, with hardly any spilling, let one more block run at a
    time; or more, where few do."""
    threads, count, numbers = wanted.threads, len(wanted.unit.passes), wanted.unit.target.gpu.kernels
    liked = attempt([1] * count)
    used = [liked.used(k) for k in range(count)]
    if not all("registers" in one for one in used):
        return liked
    blocks = [wanted.unit.target.blocks_with(one["registers"], threads) for one in used]
    chosen, trying = [1] * count, set(range(count))
    while trying:
        asked = [blocks[k] + 1 if k in trying else chosen[k] for k in range(count)]
        tight = attempt(asked)
        trying = {k for k in trying if _worth(tight.used(k), used[k], numbers.few_spills)}
        for k in trying:
            chosen[k] = blocks[k] = asked[k]
            used[k] = tight.used(k)
        trying = {k for k in trying if blocks[k] * threads < numbers.few_threads}
    return attempt(chosen) if any(b > 1 for b in chosen) else liked


def _worth(tight: dict[str, int], used: dict[str, int], few_spills: int) -> bool:
    """Is a kernel that was given fewer registers as good as before?"""
    return "registers" in tight and tight["spills"] <= few_spills and tight["registers"] < used["registers"]


def _spills(found: CompiledKernels) -> int:
    """Bytes that the worst of some kernels puts aside for each thread."""
    return max((one.get("spills", 0) for one in found.code.resources.values()), default=0)
