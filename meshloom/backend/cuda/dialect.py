"""The dialect of GPUs: passes as kernels. Blocks are thread blocks, items go to threads, phases end with a barrier.

What CUDA and HIP call differently is asked of the target's language.

A global result is reduced by a fixed tree inside each block, then by one block over the blocks' shares: the same
bits every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from meshloom.backend.translation_unit import (
    KernelText,
    Parameter,
    TranslationUnit,
    block_names,
    global_values,
    indent,
    parameters,
    prelude,
    rounding,
    tables,
)
from meshloom.kernel.model import Output
from meshloom.native.names import safe_name
from meshloom.schedule.nest.code import BLOCK_SIZE, Pass, Phase, partial_name
from meshloom.schedule.nest.nodes import Expr, Name, Number, Statement, call, let, variable
from meshloom.schedule.nest.printer import Printer
from meshloom.schedule.nest.walk import names
from meshloom.target import Language, Target

_PRELUDE = Path(__file__).with_name("prelude.cuh")
#: What all languages of GPUs have in common, for a CPU's compiler; and threads as fibres.
_COMMON = prelude(Path(__file__).with_name("language.hpp"))
#: Behind the prelude where a sum must not depend on its order.
_BINNED = prelude(Path(__file__).with_name("binned.cuh"))
FIBRES = Path(__file__).with_name("emulation.hpp").read_text()
FINISH = "ml_finish"
_FINISH_THREADS = 1024
PRINTER = Printer()  # what threads together say is spelled as CUDA and HIP do, unless a printer says otherwise


def _language(target: Target) -> Language:
    assert target.language is not None, "a target without a language has a dialect of its own"
    return target.language


@cache
def prelude_of(language: Language) -> str:
    """What generated text in a language may call."""
    return prelude(_PRELUDE, words=language.words, lanes=language.lanes)


def for_a_cpu(target: Target) -> str:
    """The words of a target's language for a CPU's compiler; how the threads of a block run comes behind them."""
    return f"#define ML_LANES {target.lanes}u\n{_COMMON}{_language(target).emulation}"


def finish_threads(target: Target) -> int:
    """Threads of the block that finishes the reductions."""
    return min(_FINISH_THREADS, target.block_threads)


def kernels(unit: TranslationUnit, block: int, threads: int, resident: Sequence[int] = ()) -> list[KernelText]:
    """The kernels of a unit, one for each pass, and one that finishes the reductions.

    ``block``: the plan's block size; where it is the number of ``threads``, each has just one item.
    ``resident``: for each pass, how many blocks must fit a multiprocessor at a time, whatever that costs in registers.
    """
    made = [_kernel(unit, k, one, threads, block) for k, one in enumerate(unit.passes)]
    made += [_finish(unit)] if unit.spec.reductions else []
    return resident_kernels(unit, made, threads, resident)


def goes_on(unit: TranslationUnit, one: Pass, threads: int, block: int) -> bool:
    """Do threads of a pass take one item after the other, so that no more blocks are needed than run at a time? Where
    all that it reduces may be merged in any order, which takes a block long; and no thread needs its neighbours."""
    if one.blocked or one.colors is not None or one.extra_items or threads != block or len(one.phases) > 1:
        return False
    phase = one.phases[0]
    if phase.repeat is not None or phase.exchanges or phase.of_block or not one.reductions:
        return False
    return all(unit.spec.reduction(output).any_order for output in one.reductions)


def resident_kernels(
    unit: TranslationUnit, made: Sequence[KernelText], threads: int, resident: Sequence[int]
) -> list[KernelText]:
    """Kernels of a unit for other numbers of ``resident`` blocks: their first lines say it, and nothing else does, so
    what follows is not printed again."""
    said = [replace(one, text_lines=(_head(unit, one.name, one.parameters, threads, blocks), *one.text_lines[1:]))
            for one, blocks in zip(made, resident, strict=False)]  # fmt: skip
    return [*said, *made[len(said) :]]


def render(unit: TranslationUnit, made: Sequence[KernelText], *, wide_index: bool) -> str:
    """The whole source."""
    index = "#define ML_INDEX " + ("long long" if wide_index else "int")
    text_lines, words = indent([line for one in made for line in one.text_lines]), prelude_of(_language(unit.target))
    words += _BINNED if unit.spec.binned else ""
    head = ["", *rounding(unit), index, words, f"// loop {safe_name(unit.spec.name)}", *tables(unit, "__device__")]
    return "\n".join([*head, *text_lines, ""])


def emulated(source: str, made: Sequence[KernelText], header: str) -> str:
    """The source for a CPU's compiler, behind a header: each kernel also gets a function that a host can call."""
    return "\n".join([header + source.rstrip("\n"), *indent([line for one in made for line in _entry(one)]), ""])


def _head(unit: TranslationUnit, name: str, wanted: Sequence[Parameter], threads: int, blocks: int) -> str:
    """The first line of the kernel of a pass."""
    bounds = _language(unit.target).bounds(threads, blocks, unit.target)
    return f'extern "C" __global__ void {bounds} {name}({_declared(wanted)}) {{'


def _kernel(unit: TranslationUnit, number: int, one: Pass, threads: int, block: int) -> KernelText:
    used = block_names(one) | names([one.block_number, *(x.size for x in one.scratch)])
    used |= set() if one.blocked else {BLOCK_SIZE.name}
    values = [x for x in global_values(unit) if x.name in used]
    wanted = _received(unit, one, used, {x.array for x in values})
    body = PRINTER.text_lines(x.declaration for x in values)
    body += _scratch(one)
    body += _where(one, threads, block)
    body += PRINTER.text_lines(_started(unit, o) for o in one.reductions)
    if one.extra_items:
        body += ["if (is_ahead) {", *_phase(unit, one, one.extra_items[1], threads, block, last=True), "} else {"]
    for position, phase in enumerate(one.phases):
        body += _phase(unit, one, phase, threads, block, last=position == len(one.phases) - 1)
    body += ["}"] if one.extra_items else []
    for o in one.reductions:
        body += _tree(unit, o, threads, f"{partial_name(o)}_parts[parts + blockIdx.x] = {partial_name(o)};")
    name = f"pass{number}"
    return KernelText(name, tuple(wanted), (_head(unit, name, wanted, threads, 1), *body, "}"))


def _received(unit: TranslationUnit, one: Pass, used: set[str], sources: set[str]) -> list[Parameter]:
    """What the kernel of a pass is given; ``sources``: arrays of globals that it reads."""
    known = {x.name for x in global_values(unit)} | {x.name for x in one.scratch}
    wanted = [x for x in parameters(unit, used) if x.name not in known]
    have = {x.name for x in wanted}
    wanted += [Parameter(f"const {a.ctype}*", a.name) for a in unit.pointers if a.name in sources - have]
    wanted += [Parameter(f"{unit.spec.reduction(o).ctype}*", f"{partial_name(o)}_parts") for o in one.reductions]
    places = ("low", "high", "parts", *(("blocks_ahead",) if one.extra_items else ()))
    return wanted + [Parameter("const ml_index", name) for name in places]


def _declared(wanted: Sequence[Parameter]) -> str:
    return ", ".join(x.declaration for x in wanted)


def _started(unit: TranslationUnit, output: Output) -> Statement:
    """The thread's share of a global, nothing yet."""
    by = unit.spec.reduction(output)
    return variable(partial_name(output), by.start, by.ctype)


def _scratch(one: Pass) -> list[str]:
    text_lines, start = [], "ml_dynamic_shared()"
    for x in one.scratch:
        ctype = PRINTER.type_name(x.ctype)
        text_lines.append(f"{ctype}* {x.name} = ({ctype}*)({start});")
        size = PRINTER.expression(x.size)
        start = f"(unsigned char*){x.name} + ((ml_index)(({size}) * sizeof({ctype})) + 15) / 16 * 16"
    return text_lines


def _where(one: Pass, threads: int, block: int) -> list[str]:
    """Which items are this block's: [begin, end), or ``mine`` < ``limit`` where every thread has just one."""
    if one.blocked:
        return ["const ml_index k = low + (ml_index)blockIdx.x;", *PRINTER.let(let("b", one.block_number)),
                "(void)k; (void)b;"]  # fmt: skip
    text_lines, number, limit = [], "(ml_index)blockIdx.x", "high"
    if one.extra_items:
        text_lines = ["const bool is_ahead = (ml_index)blockIdx.x < blocks_ahead;",
                 "const ml_index number = (ml_index)blockIdx.x - (is_ahead ? 0 : blocks_ahead);",
                 f"const ml_index limit = is_ahead ? {PRINTER.expression(one.extra_items[0])} : high;"]  # fmt: skip
        number, limit = "number", "limit"
    start = number if one.colors is None else f"low + {number}"
    if threads == block:
        text_lines.append(f"const ml_index mine = {start} * {threads} + (ml_index)threadIdx.x;")
        return text_lines if one.extra_items else [*text_lines, "const ml_index limit = high;"]
    end = f"const ml_index end = ml_min(begin + block, {limit});"
    return [*text_lines, f"const ml_index begin = {start} * block;", end]


def _phase(unit: TranslationUnit, one: Pass, phase: Phase, threads: int, block: int, *, last: bool) -> list[str]:
    """The items of a phase, given to the threads of the block, and a barrier unless it is the last."""
    body = PRINTER.text_lines(phase.body)
    if phase.of_block:
        return ["{", *body, "}", *([] if last else ["__syncthreads();"])]
    alone = not one.blocked and threads == block  # one item for each thread
    first, end = _range(phase) if one.blocked else ("begin", "end")
    if phase.exchanges:
        # All threads of the block stay until the last one is through: those without an item take another's along.
        head = ["{", "const ml_index at = mine, last = limit;"] if alone else [
            f"for (ml_index start = {first}, last = {end}; start < last; start += (ml_index)blockDim.x) {{",
            "const ml_index at = start + (ml_index)threadIdx.x;"]  # fmt: skip
        head += [f"const int own_lane = (int)(threadIdx.x % {unit.target.lanes});", "const bool inside = at < last;",
                 f"const bool followed = own_lane < {unit.target.lanes - 1} && at + 1 < last;",
                 "const ml_index i = inside ? at : last - 1;"]  # fmt: skip
    elif goes_on(unit, one, threads, block):
        head = [f"for (ml_index i = mine; i < limit; i += (ml_index)gridDim.x * {threads}) {{"]
    elif alone:
        head = ["if (const ml_index i = mine; i < limit) {"]
    else:
        head = [f"for (ml_index i = {first} + (ml_index)threadIdx.x, last = {end}; i < last;"
                " i += (ml_index)blockDim.x) {"]  # fmt: skip
    loop = [*head, *body, "}"]
    if phase.repeat is not None:
        times = PRINTER.expression(phase.repeat)
        return [f"for (ml_index c = 0, times = {times}; c < times; ++c) {{", *loop, "__syncthreads();", "}"]
    return loop if last else [*loop, "__syncthreads();"]


def _range(phase: Phase) -> tuple[str, str]:
    """Where the items of a phase begin and end, as the phase says."""
    assert phase.first is not None and phase.last is not None
    return PRINTER.expression(phase.first), PRINTER.expression(phase.last)


def _tree(unit: TranslationUnit, output: Output, threads: int, *store: str) -> list[str]:
    """Reduce one value per thread by a fixed tree, within warps and then over them; thread 0 does the ``store``."""
    by, lanes, mine = unit.spec.reduction(output), unit.target.lanes, Name(partial_name(output))
    room, warps = f"tree_{mine.name}", threads // lanes

    def merge(share: Expr, other: Expr) -> str:
        return "".join(PRINTER.statement(by.merged(share, other)))

    if by.any_order:
        over_lanes = f"{mine.name} = ml_merged_lanes<{lanes}>({mine.name});"
        own, partner = (Name(room)[Name(place)] for place in ("threadIdx.x", "threadIdx.x + half"))
        over_warps = [f"for (unsigned left = {warps}, half; left > 1; left = half) {{", "half = (left + 1) / 2;",
                      f"if (threadIdx.x < left / 2) {merge(own, partner)}", "__syncthreads();", "}",
                      "if (threadIdx.x == 0) {", f"{mine.name} = {room}[0];"]  # fmt: skip
    else:
        over_lanes = f"for (int h = {lanes // 2}; h > 0; h >>= 1) {merge(mine, call('ml_lane', mine, Name('h')))}"
        over_warps = ["if (threadIdx.x == 0) {",
                      f"for (int w = 1; w < {warps}; ++w) {merge(mine, Name(room)[Name('w')])}"]  # fmt: skip
    return [
        f"__shared__ {by.ctype} {room}[{warps}];",
        over_lanes,
        f"if (threadIdx.x % {lanes} == 0) {room}[threadIdx.x / {lanes}] = {mine.name};",
        "__syncthreads();",
        *over_warps,
        *store,
        "}",
    ]


def _finish(unit: TranslationUnit) -> KernelText:
    """One block that merges the blocks' shares into the globals."""
    wanted: list[Parameter] = []
    body: list[str] = []
    threads = finish_threads(unit.target)
    for o in unit.spec.reductions:
        by, name, pointer = unit.spec.reduction(o), partial_name(o), unit.spec.access(o.param).pointer
        wanted.append(Parameter(f"const {by.ctype}*", f"{name}_parts"))
        if all(x.name != pointer for x in wanted):
            wanted.append(Parameter(f"{unit.spec.params[o.param].ctype}*", pointer))
        starts_from = dict(unit.spec.starts_from)
        before = Number(starts_from[o.param], by.dtype) if o.param in starts_from else None
        stored = by.finished(Name(pointer), o.comp, before, Name(name))
        share = by.merged(Name(name), Name(f"{name}_parts")[Name("j")])
        body += ["{", *PRINTER.statement(_started(unit, o)),
                 f"#pragma unroll {by.unroll}",
                 f"for (ml_index j = (ml_index)threadIdx.x; j < parts; j += {threads})",
                 *(f"  {line}" for line in PRINTER.statement(share)),
                 *_tree(unit, o, threads, *PRINTER.statement(stored)),
                 "}"]  # fmt: skip
    wanted.append(Parameter("const ml_index", "parts"))
    # Bins take so many registers that a block of all threads must be told to keep to its own.
    bounds = f"{_language(unit.target).bounds(threads, 1, unit.target)} " if unit.spec.binned else ""
    head = f'extern "C" __global__ void {bounds}{FINISH}({_declared(wanted)}) {{'
    return KernelText(FINISH, tuple(wanted), (head, *body, "}"))


def _entry(one: KernelText) -> list[str]:
    """``run_<name>(grid, threads, shared bytes, addresses of the arguments)`` for the emulation."""
    values = ", ".join(
        f"*({x.ctype} const*)a[{k}]" if x.is_pointer else f"*({x.ctype}*)a[{k}]" for k, x in enumerate(one.parameters)
    )
    return [f'extern "C" void run_{one.name}(int64_t grid, int64_t threads, int64_t shared, void** a) {{',
            f"ml_emulate(grid, threads, shared, [&]() {{ {one.name}({values}); }});", "}"]  # fmt: skip
