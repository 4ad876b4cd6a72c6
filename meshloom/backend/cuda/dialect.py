"""The dialect of GPUs: passes as kernels. Blocks are thread blocks, items go to threads, phases end with a barrier.

What CUDA and HIP call differently is asked of the target's language.

A global result is reduced by a fixed tree inside each block, then by one block over the blocks' shares: the same
bits every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meshloom.backend.unit import Unit, block_text, global_values, indent, parameters, prelude
from meshloom.kernel.emit import literal
from meshloom.kernel.model import Output
from meshloom.native.names import safe_name
from meshloom.schedule.code import Pass, Phase, merged, neutral, partial_name
from meshloom.target import Language, Target

_PRELUDE = Path(__file__).with_name("prelude.cuh")
#: What all languages of GPUs have in common, for a CPU's compiler; and threads as fibres.
_COMMON = "".join((Path(__file__).parent / name).read_text() for name in ("language.hpp", "../rounded.hpp"))
FIBRES = Path(__file__).with_name("emulation.hpp").read_text()
FINISH = "ml_finish"
_FINISH_THREADS = 1024


@dataclass(frozen=True)
class KernelText:
    """One ``__global__`` function: its parameters (declaration, name) in order, and its text."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


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


def kernels(unit: Unit, block: int, threads: int, resident: Sequence[int] = ()) -> list[KernelText]:
    """The kernels of a unit, one for each pass, and one that finishes the reductions.

    ``block``: the plan's block size; where it is the number of ``threads``, each has just one item.
    ``resident``: for each pass, how many blocks must fit a multiprocessor at a time, whatever that costs in registers.
    """
    least = list(resident) or [1] * len(unit.passes)
    made = [_kernel(unit, k, one, threads, least[k], block) for k, one in enumerate(unit.passes)]
    return [*made, _finish(unit)] if unit.spec.reductions else made


def render(unit: Unit, made: list[KernelText], *, wide_index: bool, emulation: str = "") -> str:
    """The whole source. With a header for ``emulation`` each kernel also gets a function that a host can call."""
    index = "#define ML_INDEX " + ("long long" if wide_index else "int")
    lines = [line for one in made for line in one.lines]
    if emulation:
        lines += [line for one in made for line in _entry(one)]
    text, words = "\n".join(indent(lines)), prelude_of(_language(unit.target))
    return "\n".join([emulation, index, words, f"// loop {safe_name(unit.spec.name)}", text, ""])


def _kernel(unit: Unit, number: int, one: Pass, threads: int, blocks: int, block: int) -> KernelText:
    text = block_text(one) + " " + one.block_number + (" block" if not one.blocked else "")
    text += " " + " ".join(x.size for x in one.scratch)
    known = {name for _, name, _ in global_values(unit)} | {x.name for x in one.scratch}
    wanted = [(d, name) for d, name in parameters(unit, text) if name not in known]
    sources = {s.split("[")[0] for _, name, s in global_values(unit) if name in text}
    have = {name for _, name in wanted}
    wanted += [(f"const {a.ctype}* __restrict__ {a.name}", a.name) for a in unit.pointers if a.name in sources - have]
    wanted += [(f"{unit.spec.params[o.param].ctype}* __restrict__ {partial_name(o)}_parts", f"{partial_name(o)}_parts")
               for o in one.reductions]  # fmt: skip
    places = ("low", "high", "parts", *(("blocks_ahead",) if one.ahead else ()))
    wanted += [(f"const ml_index {name}", name) for name in places]
    declared = ", ".join(d for d, _ in wanted)
    bounds = _language(unit.target).bounds(threads, blocks, unit.target)
    head = f'extern "C" __global__ void {bounds} pass{number}({declared}) {{'
    body = [f"const {ctype} {name} = {source};" for ctype, name, source in global_values(unit) if name in text]
    body += _scratch(one)
    body += _where(one, threads, block)
    body += [f"{unit.spec.params[o.param].ctype} {partial_name(o)} = {neutral(unit.spec, o)};" for o in one.reductions]
    if one.ahead:
        body += ["if (is_ahead) {", *_phase(unit, one, one.ahead[1], threads, block, last=True), "} else {"]
    for position, phase in enumerate(one.phases):
        body += _phase(unit, one, phase, threads, block, last=position == len(one.phases) - 1)
    body += ["}"] if one.ahead else []
    for o in one.reductions:
        store = f"{partial_name(o)}_parts[parts + blockIdx.x] = {partial_name(o)};"
        body += _tree(unit, o, threads, partial_name(o), store)
    return KernelText(f"pass{number}", tuple(wanted), (head, *body, "}"))


def _scratch(one: Pass) -> list[str]:
    lines, start = [], "ml_dynamic_shared()"
    for x in one.scratch:
        lines.append(f"{x.ctype}* {x.name} = ({x.ctype}*)({start});")
        start = f"(unsigned char*){x.name} + ((ml_index)(({x.size}) * sizeof({x.ctype})) + 15) / 16 * 16"
    return lines


def _where(one: Pass, threads: int, block: int) -> list[str]:
    """Which items are this block's: [begin, end), or ``mine`` < ``limit`` where every thread has just one."""
    if one.blocked:
        return ["const ml_index k = low + (ml_index)blockIdx.x;", f"const ml_index b = {one.block_number};",
                "(void)k; (void)b;"]  # fmt: skip
    lines, number, limit = [], "(ml_index)blockIdx.x", "high"
    if one.ahead:
        lines = ["const bool is_ahead = (ml_index)blockIdx.x < blocks_ahead;",
                 "const ml_index number = (ml_index)blockIdx.x - (is_ahead ? 0 : blocks_ahead);",
                 f"const ml_index limit = is_ahead ? {one.ahead[0]} : high;"]  # fmt: skip
        number, limit = "number", "limit"
    start = f"low + {number}" if one.colors else number
    if threads == block:
        lines.append(f"const ml_index mine = {start} * {threads} + (ml_index)threadIdx.x;")
        return lines if one.ahead else [*lines, "const ml_index limit = high;"]
    return [*lines, f"const ml_index begin = {start} * block;", f"const ml_index end = ml_min(begin + block, {limit});"]


def _phase(unit: Unit, one: Pass, phase: Phase, threads: int, block: int, *, last: bool) -> list[str]:
    """The items of a phase, given to the threads of the block, and a barrier unless it is the last."""
    if phase.whole:
        return ["{", *phase.body, "}", *([] if last else ["__syncthreads();"])]
    alone = not one.blocked and threads == block  # one item for each thread
    first, end = (phase.first, phase.last) if one.blocked else ("begin", "end")
    if phase.together:
        # All threads of the block stay until the last one is through: those without an item take another's along.
        head = ["{", "const ml_index at = mine, last = limit;"] if alone else [
            f"for (ml_index start = {first}, last = {end}; start < last; start += (ml_index)blockDim.x) {{",
            "const ml_index at = start + (ml_index)threadIdx.x;"]  # fmt: skip
        head += [f"const int own_lane = (int)(threadIdx.x % {unit.target.lanes});", "const bool inside = at < last;",
                 f"const bool followed = own_lane < {unit.target.lanes - 1} && at + 1 < last;",
                 "const ml_index i = inside ? at : last - 1;"]  # fmt: skip
    elif alone:
        head = ["if (const ml_index i = mine; i < limit) {"]
    else:
        head = [f"for (ml_index i = {first} + (ml_index)threadIdx.x, last = {end}; i < last;"
                " i += (ml_index)blockDim.x) {"]  # fmt: skip
    loop = [*head, *phase.body, "}"]
    if phase.repeat:
        return [f"for (ml_index c = 0, times = {phase.repeat}; c < times; ++c) {{", *loop, "__syncthreads();", "}"]
    return loop if last else [*loop, "__syncthreads();"]


def _tree(unit: Unit, output: Output, threads: int, value: str, store: str) -> list[str]:
    """Reduce one value per thread by a fixed tree, within warps and then over them; thread 0 does the ``store``."""
    param, name, lanes = unit.spec.params[output.param], f"tree_{partial_name(output)}", unit.target.lanes

    def merge(a: str, b: str) -> str:
        return merged(param, a, b)

    return [
        f"__shared__ {param.ctype} {name}[{threads // lanes}];",
        f"for (int h = {lanes // 2}; h > 0; h >>= 1) {value} = {merge(value, f'ml_lane({value}, h)')};",
        f"if (threadIdx.x % {lanes} == 0) {name}[threadIdx.x / {lanes}] = {value};",
        "__syncthreads();",
        "if (threadIdx.x == 0) {",
        f"for (int w = 1; w < {threads // lanes}; ++w) {value} = {merge(value, f'{name}[w]')};",
        store,
        "}",
    ]


def _finish(unit: Unit) -> KernelText:
    """One block that merges the blocks' shares into the globals."""
    wanted, body, threads = [], [], finish_threads(unit.target)
    for o in unit.spec.reductions:
        param, name, pointer = unit.spec.params[o.param], partial_name(o), unit.spec.access(o.param).pointer
        wanted.append((f"const {param.ctype}* __restrict__ {name}_parts", f"{name}_parts"))
        if all(n != pointer for _, n in wanted):
            wanted.append((f"{param.ctype}* __restrict__ {pointer}", pointer))
        place, fresh = f"{pointer}[{o.comp}]", dict(unit.spec.fresh)
        before = literal(fresh[o.param], param.dtype) if o.param in fresh else place
        block, whole = merged(param, name, f"{name}_parts[j]"), merged(param, before, name)
        body += ["{", f"{param.ctype} {name} = {neutral(unit.spec, o)};",
                 "#pragma unroll 16",
                 f"for (ml_index j = (ml_index)threadIdx.x; j < parts; j += {threads})",
                 f"  {name} = {block};",
                 *_tree(unit, o, threads, name, f"{place} = {whole};"),
                 "}"]  # fmt: skip
    wanted.append(("const ml_index parts", "parts"))
    head = f'extern "C" __global__ void {FINISH}({", ".join(d for d, _ in wanted)}) {{'
    return KernelText(FINISH, tuple(wanted), (head, *body, "}"))


def _entry(one: KernelText) -> list[str]:
    """``run_<name>(grid, threads, shared bytes, addresses of the arguments)`` for the emulation."""
    types = [declaration.replace("__restrict__", "").rsplit(" ", 1)[0].strip() for declaration, _ in one.parameters]
    values = ", ".join(f"*({t} const*)a[{k}]" if "*" in t else f"*({t}*)a[{k}]" for k, t in enumerate(types))
    return [f'extern "C" void run_{one.name}(int64_t grid, int64_t threads, int64_t shared, void** a) {{',
            f"ml_emulate(grid, threads, shared, [&]() {{ {one.name}({values}); }});", "}"]  # fmt: skip
