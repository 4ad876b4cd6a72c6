"""The C++/OpenMP dialect: passes as text. Blocks go to threads; items of a block are a plain loop.

Each pass becomes a function for one block with ``restrict`` parameters: compilers lose that promise for pointers
captured by an OpenMP region, and keep it for parameters.
"""

from __future__ import annotations

from pathlib import Path

from meshloom.backend.translation_unit import (
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
from meshloom.native.names import safe_name
from meshloom.schedule.nest import nodes
from meshloom.schedule.nest.binned import in_chunks
from meshloom.schedule.nest.code import Pass, Phase, partial_name
from meshloom.schedule.nest.nodes import Block, Deposit, For, Let, Name, Number, Statement, variable
from meshloom.schedule.nest.printer import Printer
from meshloom.schedule.nest.walk import everything
from meshloom.schedule.spec import LoopSpec

PRELUDE = prelude(Path(__file__).with_name("cpu_prelude.hpp"))

#: Behind it where a sum must not depend on its order.
BINNED = prelude(Path(__file__).with_name("cpu_binned.hpp"))

INT64 = "int64_t"
ENTRY = "ml_loop"


class CppPrinter(Printer):
    """C++ for one thread of a CPU, which is a block of its own. ``clauses``: what a loop of independent turns merges
    into globals."""

    def __init__(self, clauses: list[str] | None = None):
        self.clauses = clauses or []

    def advice(self, node: For) -> list[str]:
        return [*([" ".join(["#pragma omp simd", *self.clauses])] if node.independent else []), *super().advice(node)]

    def for_(self, node: For) -> list[str]:
        if node.independent and any(isinstance(one, Deposit) for one in everything(node.body)):
            return self.statement(in_chunks(node))
        return super().for_(node)

    def barrier(self, node: nodes.Barrier) -> list[str]:
        return []

    def shared_array(self, node: nodes.SharedArray) -> list[str]:
        return self.room(nodes.Room(node.ctype, node.name, node.size))

    def thread(self, node: nodes.Thread) -> str:
        return "(ml_index)0"

    def unsigned_thread(self, node: nodes.UnsignedThread) -> str:
        return "0u"

    def threads(self, node: nodes.Threads) -> str:
        return "(ml_index)1"

    def shuffle(self, node: nodes.Shuffle) -> str:
        raise ValueError("a thread of a CPU has no lanes next to it")


PRINTER = CppPrinter()


def render(unit: TranslationUnit, *, contract: bool = True) -> str:
    """C++ source with ``extern "C" void ml_loop(void* const* p, const int64_t* s)``; ``contract``: with fma."""
    passes = (*unit.passes, *([] if unit.serial is None else [unit.serial]))
    received = [_received(unit, one) for one in passes]
    blocks = [_block_function(unit, k, one, received[k]) for k, one in enumerate(passes)]
    launches = [_launch(k, one, received[k]) for k, one in enumerate(passes)]
    if unit.serial is not None:
        *several, alone = launches
        launches = [["if (threads == 1) {"], alone, ["} else {"], *several, ["}"]]
    globals_read = PRINTER.text_lines(one.declaration for one in global_values(unit))
    body = [
        *(f"{a.pointer_type} {a.name} = ({a.pointer_type})p[{k}];" for k, a in enumerate(unit.pointers)),
        *(f"const int64_t {name} = s[{k}];" for k, name in enumerate(unit.sizes)),
        "const int threads = (int)threads_in_use[0];",
        *globals_read,
        *(["int64_t parts = 0;"] if unit.spec.reductions else []),
        *(line for one in launches for line in one),
        *_finish(unit),
    ]
    entry = [f'extern "C" void {ENTRY}(void* const* p, const int64_t* s) {{', *body, "(void)threads;", "}"]
    text_lines = indent([*(x for b in blocks for x in b), *entry])
    head = [PRELUDE, *([BINNED] if unit.spec.binned else []), f"// loop {safe_name(unit.spec.name)}"]
    return "\n".join([*rounding(unit, contract=contract), *head, *tables(unit, "static"), *text_lines, ""])


def _block_function(unit: TranslationUnit, number: int, one: Pass, received: list[Parameter]) -> list[str]:
    """The function that executes one block of a pass."""
    declared = [x.declaration for x in received]
    declared += [f"{PRINTER.type_name(x.ctype)}* __restrict__ {x.name}" for x in one.scratch]
    shares = [(partial_name(o), unit.spec.reduction(o)) for o in one.reductions]
    declared += [f"{by.ctype}& out_{name}" for name, by in shares]
    where = ["const int64_t b"] if one.blocked else ["const int64_t first", "const int64_t last"]
    text_lines = [f"static __attribute__((noinline)) void pass{number}({', '.join(where + declared)}) {{"]
    text_lines += PRINTER.text_lines(variable(name, by.start, by.ctype) for name, by in shares)
    for phase in one.phases:
        text_lines += _phase(unit.spec, one, phase)
    text_lines += [f"out_{name} = {name};" for name, _ in shares]
    return [*text_lines, "}"]


def _received(unit: TranslationUnit, one: Pass) -> list[Parameter]:
    """What a block of a pass is given, besides its scratch and its shares of globals."""
    scratch = {x.name for x in one.scratch}
    return [x for x in parameters(unit, block_names(one)) if x.name not in scratch]


def _phase(spec: LoopSpec, one: Pass, phase: Phase) -> list[str]:
    """The items of a phase, one after the other."""
    printer = CppPrinter(_clauses(spec, one))
    if phase.of_block:
        return printer.statement(Block(phase.body))
    items = For("i", Name("first"), Name("last"), phase.body, INT64, independent=phase.independent)
    body: tuple[Statement, ...] = (items,)
    if one.blocked and phase.first is not None and phase.last is not None:
        body = (Let(INT64, (("first", phase.first), ("last", phase.last))), items)
    if phase.repeat is None:
        return printer.statement(Block(body))
    return printer.statement(For("c", Number(0), phase.repeat, body, INT64, bound="times"))


def _clauses(spec: LoopSpec, one: Pass) -> list[str]:
    """``reduction(...)`` for every way in which a pass merges values into globals."""
    names: dict[str, list[str]] = {}
    for o in one.reductions:
        if operator := spec.reduction(o).operator:
            names.setdefault(operator, []).append(partial_name(o))
    return [f"reduction({operator} : {', '.join(merged)})" for operator, merged in names.items()]


def _launch(number: int, one: Pass, received: list[Parameter]) -> list[str]:
    """The parallel loop over the blocks of a pass, repeated for each color."""
    color = Name("color")
    low, high = (Number(0), one.count) if one.colors is None else (one.colors[color], one.colors[color + 1])
    text_lines = ["{"]
    if one.n_colors is not None:
        text_lines.append(f"for (int64_t color = 0; color < {one.n_colors.name}; ++color) {{")
    text_lines += PRINTER.let(Let(INT64, (("low", low), ("high", high))))
    text_lines.append(f"const int64_t blocks = {'high - low' if one.blocked else '(high - low + block - 1) / block'};")
    arguments = [x.name for x in received]
    arguments += [x.name for x in one.scratch]
    arguments += [f"{partial_name(o)}_parts[parts + j]" for o in one.reductions]
    if one.blocked:
        where = f"const int64_t k = low + j, b = {PRINTER.expression(one.block_number)}; (void)k;"
        call = ["b", *arguments]
    else:
        where = "const int64_t first = low + j * block, last = ml_min(first + block, high);"
        call = ["first", "last", *arguments]
    text_lines += ["#pragma omp parallel num_threads(threads) if (blocks > 1 && threads > 1)", "{"]
    text_lines += [
        f"{t}* {x.name} = ml_scratch<{t}, {k}>({PRINTER.expression(x.size)});"
        for k, x in enumerate(one.scratch)
        for t in (PRINTER.type_name(x.ctype),)
    ]
    text_lines += [
        "#pragma omp for schedule(static)",
        "for (int64_t j = 0; j < blocks; ++j) {",
        where,
        f"pass{number}({', '.join(call)});",
        "}",
        "}",
    ]
    if one.reductions:
        text_lines.append("parts += blocks;")
    return [*text_lines, *([] if one.colors is None else ["}"]), "}"]


def _finish(unit: TranslationUnit) -> list[str]:
    """Merge the blocks' shares of the globals, in the order of the blocks: the same bits for any number of threads."""
    text_lines, starts_from = [], dict(unit.spec.starts_from)
    for o in unit.spec.reductions:
        by, to = unit.spec.reduction(o), Name(unit.spec.access(o.param).pointer)
        total, part = Name("total"), Name(f"{partial_name(o)}_parts")[Name("j")]
        each = For("j", Number(0), Name("parts"), (by.merged(total, part),), INT64, bare=True)
        before = Number(starts_from[o.param], by.dtype) if o.param in starts_from else None
        stored = by.finished(to, o.comp, before, total)
        start = variable(total.name, by.start, by.ctype)
        first, *rest, last = PRINTER.text_lines((start, each, stored))
        text_lines += [f"{{ {first}", *rest, f"{last} }}"]
    return text_lines
