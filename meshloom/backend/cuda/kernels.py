"""The kernels of a loop, compiled for as many blocks at a time as pays. No device is asked: any thread may do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meshloom.backend.cuda import dialect
from meshloom.backend.lowering import Compiled, Lowered
from meshloom.backend.translation_unit import make_unit
from meshloom.schedule.plan.plan import Plan, with_arrays
from meshloom.schedule.spec import ElementsPerThread, LoopSpec
from meshloom.target import Target

NO_CONTRACTION = "--fmad=false"  # as NVRTC is told to round every product by itself: the text says what is contracted


class GpuOptions(NamedTuple):
    """What kernels depend on besides the loop: what a thread takes and loads at once, threads of a block for ``block``
    items, registers that were wished for, and whether there may be more where that would spill; the width of an index,
    and where they run."""

    per_thread: ElementsPerThread
    whole_rows: bool
    block: int
    threads: int
    registers: int | None
    may_use_more: bool
    wide_index: bool
    architecture: str
    target: Target


class GpuText(NamedTuple):
    """What a compiler is given: the text, what it is called, how it is compiled, and for which architecture."""

    source: str
    name: str
    flags: tuple[str, ...] = ()
    architecture: str = ""


Attempt = Callable[[tuple[int, ...]], Compiled]  # kernels of which so many blocks fit a multiprocessor


class _NotCompiled(Exception):
    """A compiler is needed."""


def lowered_kernels(spec: LoopSpec, plan: Plan, options: GpuOptions) -> Lowered:
    """As text, for as many registers as kernels like; a plan's indices have 32 bits where these suffice."""
    spec = replace(spec, whole_rows=options.whole_rows, per_thread=options.per_thread)
    unit = make_unit(spec, plan if options.wide_index else with_arrays(plan, narrow, same=True), target=options.target)
    made = dialect.kernels(unit, options.block, options.threads)
    return Lowered(unit, dialect.render(unit, made, wide_index=options.wide_index), options, tuple(made))


def narrow(array: np.ndarray) -> np.ndarray:
    """Indices of 32 bits."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def compiled_kernels(lowered: Lowered, compiled: Callable[[GpuText], Compiled | None], header: str) -> Compiled | None:
    """With as many registers as they were wished, or as fit each of them; behind a header where they are emulated. None
    where a text on the way there is not ``compiled``."""
    unit, options = lowered.unit, lowered.options

    def attempt(resident: tuple[int, ...]) -> Compiled:
        made, source = lowered.kernels, lowered.source
        if any(one > 1 for one in resident):
            made = tuple(dialect.resident_kernels(unit, made, options.threads, resident))
            source = dialect.render(unit, made, wide_index=options.wide_index)
        text = dialect.emulated(source, made, header) if header else source
        found = compiled(GpuText(text, lowered.name, (NO_CONTRACTION,), options.architecture))
        if found is None:
            raise _NotCompiled
        return replace(found, source=source)

    names, registers = lowered.pass_names, options.registers
    try:
        return _with_registers(options, registers, names, attempt) if registers else _as_fits(options, names, attempt)
    except _NotCompiled:
        return None


def _with_registers(options: GpuOptions, registers: int, names: Sequence[str], attempt: Attempt) -> Compiled:
    """All kernels with so many; with more where that would spill and the loop may have them."""
    numbers = options.target.gpu.kernels
    most = max(1, options.target.registers // (registers * options.threads))
    found = attempt((most,) * len(names))
    while options.may_use_more and most > numbers.enough_blocks and _spills(found) > numbers.few_spills:
        most -= 1
        found = attempt((most,) * len(names))
    return found


def _as_fits(options: GpuOptions, names: Sequence[str], attempt: Attempt) -> Compiled:
    """Each kernel with as many as it likes, unless a few less, with hardly any spilling, let one more block run at a
    time; or more, where few do. One that spills with all that it may have would spill more with less."""
    threads, numbers, count = options.threads, options.target.gpu.kernels, len(names)
    likes = (1,) * count
    tried = {likes: attempt(likes)}
    used = [tried[likes].used_by(one) for one in names]
    if not all("registers" in one for one in used):
        return tried[likes]
    blocks = [options.target.blocks_with(one["registers"], threads) for one in used]
    chosen, trying = [1] * count, {k for k in range(count) if used[k].get("spills", 0) <= numbers.few_spills}
    while trying:
        asked = tuple([blocks[k] + 1 if k in trying else chosen[k] for k in range(count)])
        tight = tried[asked] = attempt(asked)
        trying = {k for k in trying if _worth(tight.used_by(names[k]), used[k], numbers.few_spills)}
        for k in trying:
            chosen[k] = blocks[k] = asked[k]
            used[k] = tight.used_by(names[k])
        trying = {k for k in trying if blocks[k] * threads < numbers.few_threads}
    return tried.get(tuple(chosen)) or attempt(tuple(chosen))


def _worth(tight: dict[str, int], used: dict[str, int], few_spills: int) -> bool:
    """Is a kernel that was given fewer registers as good as before?"""
    return "registers" in tight and tight["spills"] <= few_spills and tight["registers"] < used["registers"]


def _spills(found: Compiled) -> int:
    """Bytes that the worst of some kernels puts aside for each thread."""
    return max((one.get("spills", 0) for one in found.resources.values()), default=0)
