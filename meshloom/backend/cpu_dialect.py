"""The C++/OpenMP dialect: passes as text. Blocks go to threads; items of a block are a plain loop.

Each pass becomes a function for one block with ``restrict`` parameters: compilers lose that promise for pointers
captured by an OpenMP region, and keep it for parameters.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from meshloom.backend.unit import Unit, block_text, global_values, indent, parameters, prelude
from meshloom.kernel.emit import literal
from meshloom.native.names import safe_name
from meshloom.schedule.code import Line, Pass, Phase, combined, neutral, partial_name
from meshloom.schedule.spec import LoopSpec

PRELUDE = prelude(Path(__file__).with_name("cpu_prelude.hpp")) + Path(__file__).with_name("rounded.hpp").read_text()


def render(unit: Unit) -> str:
    """C++ source with ``extern "C" void ml_loop(void* const* p, const int64_t* s)``."""
    blocks = [_block_function(unit, k, one) for k, one in enumerate(unit.passes)]
    globals_read = [f"const {ctype} {name} = {source};" for ctype, name, source in global_values(unit)]
    body = [
        *(f"{a.pointer_type} {a.name} = ({a.pointer_type})p[{k}];" for k, a in enumerate(unit.pointers)),
        *(f"const int64_t {name} = s[{k}];" for k, name in enumerate(unit.sizes)),
        "const int threads = (int)threads_in_use[0];",
        *globals_read,
        *(["int64_t parts = 0;"] if unit.spec.reductions else []),
        *(line for k, one in enumerate(unit.passes) for line in _launch(unit, k, one)),
        *_finish(unit),
    ]
    entry = ['extern "C" void ml_loop(void* const* p, const int64_t* s) {', *body, "(void)threads;", "}"]
    lines = indent([*(x for b in blocks for x in b), *entry])
    return "\n".join([PRELUDE, f"// loop {safe_name(unit.spec.name)}", *lines, ""])


def _block_function(unit: Unit, number: int, one: Pass) -> list[str]:
    """The function that executes one block of a pass."""
    scratch_names = {x.name for x in one.scratch}
    declared = [d for d, name in parameters(unit, block_text(one)) if name not in scratch_names]
    declared += [f"{x.ctype}* __restrict__ {x.name}" for x in one.scratch]
    declared += [f"{unit.spec.params[o.param].ctype}& out_{partial_name(o)}" for o in one.reductions]
    where = ["const int64_t b"] if one.blocked else ["const int64_t first", "const int64_t last"]
    lines = [f"static __attribute__((noinline)) void pass{number}({', '.join(where + declared)}) {{"]
    lines += [f"{unit.spec.params[o.param].ctype} {partial_name(o)} = {neutral(unit.spec, o)};" for o in one.reductions]
    for phase in one.phases:
        lines += _phase(unit.spec, one, phase)
    lines += [f"out_{partial_name(o)} = {partial_name(o)};" for o in one.reductions]
    return [*lines, "}"]


def _phase(spec: LoopSpec, one: Pass, phase: Phase) -> list[str]:
    if phase.whole:
        return ["{", *phase.body, "}"]
    first, last = (phase.first, phase.last) if one.blocked else ("first", "last")
    lines = [f"const int64_t first = {first}, last = {last};"] if one.blocked else []
    if phase.independent:
        lines.append(" ".join(["#pragma omp simd", *_clauses(spec, one)]))
    lines += ["for (int64_t i = first; i < last; ++i) {", *phase.body, *_line(spec, one, phase.line), "}"]
    return [f"for (int64_t c = 0, times = {phase.repeat}; c < times; ++c) {{" if phase.repeat else "{", *lines, "}"]


def _line(spec: LoopSpec, one: Pass, line: Line | None) -> list[str]:
    if line is None:
        return []
    x = line.variable
    loop = f"for (int64_t {x} = {line.first}; {x} < {line.last}; ++{x}) {{"
    return [" ".join(["#pragma omp simd", *_clauses(spec, one)]), loop, *line.body, "}"]


def _clauses(spec: LoopSpec, one: Pass) -> list[str]:
    """``reduction(...)`` for every way in which a pass merges values into globals."""
    names: dict[str, list[str]] = {}
    for o in one.reductions:
        combine, kind = spec.params[o.param].mode.combine, spec.params[o.param].dtype.kind
        names.setdefault("+" if combine == "add" and kind == "f" else f"ml_{combine}", []).append(partial_name(o))
    return [f"reduction({operator} : {', '.join(merged)})" for operator, merged in names.items()]


def _launch(unit: Unit, number: int, one: Pass) -> list[str]:
    """The parallel loop over the blocks of a pass, repeated for each color."""
    low, high = (f"{one.colors}[color]", f"{one.colors}[color + 1]") if one.colors else ("0", one.count)
    lines = ["{"]
    if one.colors:
        lines.append("for (int64_t color = 0; color < n_colors; ++color) {")
    lines.append(f"const int64_t low = {low}, high = {high};")
    lines.append(f"const int64_t blocks = {'high - low' if one.blocked else '(high - low + block - 1) / block'};")
    scratch_names = {x.name for x in one.scratch}
    arguments = [name for _, name in parameters(unit, block_text(one)) if name not in scratch_names]
    arguments += [x.name for x in one.scratch]
    arguments += [f"{partial_name(o)}_parts[parts + j]" for o in one.reductions]
    if one.blocked:
        where = f"const int64_t k = low + j, b = {one.block_number}; (void)k;"
        call = ["b", *arguments]
    else:
        where = "const int64_t first = low + j * block, last = ml_min(first + block, high);"
        call = ["first", "last", *arguments]
    lines += ["#pragma omp parallel num_threads(threads) if (blocks > 1 && threads > 1)", "{"]
    lines += [f"{x.ctype}* {x.name} = ml_scratch<{x.ctype}, {k}>({x.size});" for k, x in enumerate(one.scratch)]
    lines += [
        "#pragma omp for schedule(static)",
        "for (int64_t j = 0; j < blocks; ++j) {",
        where,
        f"pass{number}({', '.join(call)});",
        "}",
        "}",
    ]
    if one.reductions:
        lines.append("parts += blocks;")
    return [*lines, *(["}"] if one.colors else []), "}"]


def _finish(unit: Unit) -> list[str]:
    """Merge the blocks' shares of the globals, in the order of the blocks: the same bits for any number of threads."""
    lines, fresh = [], dict(unit.spec.fresh)
    for o in unit.spec.reductions:
        param, place = unit.spec.params[o.param], f"{unit.spec.access(o.param).pointer}[{o.comp}]"
        merge = partial(combined, param.mode.combine, dtype=param.dtype)
        before = literal(fresh[o.param], param.dtype) if o.param in fresh else place
        lines += [
            f"{{ {param.ctype} total = {neutral(unit.spec, o)};",
            f"for (int64_t j = 0; j < parts; ++j) total = {merge('total', f'{partial_name(o)}_parts[j]')};",
            f"{place} = {merge(before, 'total')}; }}",
        ]
    return lines
