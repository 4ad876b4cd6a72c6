"""Gathering: what ``staged``, ``owner`` and ``tile`` share.

Seen from a target, the loop is a sum over the incident (element, slot) pairs. The increments of an element are its
*columns*: the distinct values up to sign, so that ``res[0] += f; res[1] -= f`` keeps one copy of f and a sign per
slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from meshloom.kernel.access import identity
from meshloom.kernel.emit import literal
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.schedule.code import ElementCode, merged, negated
from meshloom.schedule.declare import (
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    entries,
    holds,
    one_more_than_targets,
    size,
)
from meshloom.schedule.plan import Plan, Topology
from meshloom.schedule.spec import LoopSpec, is_negation
from meshloom.schedule.verify import check_incidence

ColumnName = Callable[[int, int], str]
Keep = Callable[["Columns", str, Sequence[str]], list[str]]  # (columns, place, names of the values) -> statements


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which (element, slot) pairs of a racy map lead to each of its targets."""

    offsets: Offsets = holds(Array(OFFSETS, one_more_than_targets), "where each target's entries begin, and the end")
    entries: Numbers = holds(Array(NUMBERS, entries), "element * arity + slot, ascending for each target")

    @size
    def degree(self) -> int:
        return usual_degree(self.offsets)

    def check(self, plan: Plan, topology: Topology, m: int) -> None:
        """Raise PlanError unless it is that of map ``m``."""
        check_incidence(plan, topology, m, self.offsets, self.entries)


@dataclass(frozen=True)
class Columns:
    """The distinct values one element adds to one parameter. ``use[slot][comp]`` = (column, sign) or None."""

    param: int
    nodes: tuple[Node, ...]
    use: tuple[tuple[tuple[int, int] | None, ...], ...]

    @property
    def uniform(self) -> bool:
        """Every slot uses the same columns, and one sign throughout: the slot decides a factor only."""
        patterns = {tuple(u[0] if u else None for u in slot) for slot in self.use}
        return len(patterns) == 1 and all(len({u[1] for u in slot if u}) <= 1 for slot in self.use)

    @property
    def signs(self) -> tuple[int, ...]:
        """The sign of each slot (uniform columns only)."""
        return tuple(next((u[1] for u in slot if u), 1) for slot in self.use)

    @property
    def components(self) -> tuple[int, ...]:
        """Components that any slot changes."""
        return tuple(c for c in range(len(self.use[0])) if any(slot[c] for slot in self.use))


def columns_of(spec: LoopSpec, map_number: int) -> tuple[Columns, ...]:
    """The columns of each racy parameter behind a map."""
    params = sorted({o.param for o in spec.racy_outputs if spec.params[o.param].map == map_number})
    return tuple(_columns(spec, p, [o for o in spec.racy_outputs if o.param == p]) for p in params)


def _columns(spec: LoopSpec, param: int, outputs: Sequence[Output]) -> Columns:
    described = spec.params[param]
    arity = spec.maps[described.map].arity if described.map is not None else 1
    nodes: list[Node] = []
    use: list[list[tuple[int, int] | None]] = [[None] * described.dim for _ in range(arity)]
    for output in outputs:
        node, sign = is_negation(output.value) if described.mode.combine == "add" else (output.value, 1)
        if node not in nodes:
            nodes.append(node)
        use[output.slot][output.comp] = (nodes.index(node), sign)
    return Columns(param, tuple(nodes), tuple(tuple(slot) for slot in use))


def accumulate(
    spec: LoopSpec,
    groups: Sequence[Columns],
    arity: int,
    name: ColumnName,
    prepare: Callable[[int | None], list[str]] = lambda slot: [],
) -> list[str]:
    """Statements that merge the columns of one incident (element, slot ``s``) into the accumulators.

    ``name(param, column)`` is the C expression of a column's value. ``prepare(slot)`` gives statements that make
    the values of one slot available (slot None: those of all slots, when columns are uniform).
    """
    if arity == 1:
        return [*prepare(None), *(line for g in groups for line in _slot(spec, g, 0, name))]
    if all(g.uniform for g in groups):
        return [*prepare(None), *(line for g in groups for line in _uniform(spec, g, name))]
    lines = ["switch (s) {"]
    for slot in range(arity):
        lines += [f"case {slot}: {{", *prepare(slot)]
        lines += [line for g in groups for line in _slot(spec, g, slot, name)]
        lines.append("} break;")
    return [*lines, "}"]


def _uniform(spec: LoopSpec, group: Columns, name: ColumnName) -> list[str]:
    param = spec.params[group.param]
    signs, weight = group.signs, f"w{group.param}"
    lines = []
    if len(set(signs)) == 2:
        lines.append(f"const {param.ctype} {weight} = {_sign_of_slot(signs, param.dtype)};")
    for comp, used in enumerate(group.use[0]):
        if used:
            value = name(group.param, used[0])
            if len(set(signs)) == 2:
                whole = param.dtype.kind == "i"
                value = f"ml_wrapped_mul<{param.ctype}>({weight}, {value})" if whole else f"{weight} * {value}"
            elif set(signs) == {-1}:
                value = negated(value, param.dtype)
            lines.append(_merge(spec, group.param, comp, value))
    return lines


def _sign_of_slot(signs: tuple[int, ...], dtype: np.dtype) -> str:
    """C expression of the factor of slot ``s``."""
    plus, minus = literal(1, dtype), literal(-1, dtype)
    negative = [k for k, sign in enumerate(signs) if sign < 0]
    mask = sum(1 << k for k in negative)
    test = f"s == {negative[0]}" if len(negative) == 1 else f"(UINT64_C({mask}) >> s) & 1"
    return f"({test}) ? {minus} : {plus}"


def _slot(spec: LoopSpec, group: Columns, slot: int, name: ColumnName) -> list[str]:
    lines, dtype = [], spec.params[group.param].dtype
    for comp, used in enumerate(group.use[slot]):
        if used:
            value = name(group.param, used[0])
            lines.append(_merge(spec, group.param, comp, negated(value, dtype) if used[1] < 0 else value))
    return lines


def _merge(spec: LoopSpec, param: int, comp: int, value: str) -> str:
    target, described = accumulator(param, comp), spec.params[param]
    return f"{target} = {merged(described, target, value)};"


def accumulator(param: int, comp: int) -> str:
    return f"a{param}_{comp}"


def over_targets(
    spec: LoopSpec,
    groups: Sequence[Columns],
    incident: Sequence[str],
    offsets: str,
    unrolled: Sequence[str] = (),
    target: str = "i",
) -> tuple[str, ...]:
    """Statements for a target: load the accumulators, visit the incident entries ``x``, store.

    ``unrolled``: the start of an ``if`` whose body serves targets with the usual number of entries (``unroll``).
    """
    before, after = load_accumulators(spec, groups), store_accumulators(spec, groups)
    visits = visit(incident, offsets)
    if unrolled:
        visits = [*unrolled, "else {", *visits, "}"]
    some = [] if unrolled else [f"if ({offsets}[t] < {offsets}[t + 1]) {{"]  # others need not be loaded and stored
    return (f"const ml_index t = {target};", *some, *before, *visits, *after, *("}" for _ in some))


def visit(incident: Sequence[str], offsets: str) -> list[str]:
    """All incident entries ``x`` of target ``t``, one after the other."""
    return [f"for (ml_index x = {offsets}[t], end_x = {offsets}[t + 1]; x < end_x; ++x) {{", *incident, "}"]


def unroll(incident: Sequence[str], offsets: str, degree: int) -> list[str]:
    """The visit of targets with exactly ``degree`` entries, unrolled, so that all their loads are under way at once."""
    if degree < 2:
        return []
    loop = [f"for (int u = 0; u < {degree}; ++u) {{", f"const ml_index x = {offsets}[t] + u;", *incident, "}"]
    return [f"if ({offsets}[t + 1] - {offsets}[t] == {degree}) {{", "#pragma unroll", *loop, "}"]


def usual_degree(offsets: np.ndarray) -> int:
    """The number of entries that at least three quarters of the targets have, from 2 to 8; 0 if there is none."""
    counts = np.bincount(np.minimum(np.diff(offsets), 9), minlength=10)
    best = int(counts.argmax())
    return best if 2 <= best <= 8 and 4 * counts[best] >= 3 * (len(offsets) - 1) else 0


def _whole(spec: LoopSpec, group: Columns) -> bool:
    return spec.wide and spec.access(group.param).whole_row and len(group.components) == spec.params[group.param].dim


def load_accumulators(spec: LoopSpec, groups: Sequence[Columns]) -> list[str]:
    """Declarations of accumulators that start from what the target ``t`` holds."""
    return [line for g in groups for line in _load(spec, g)]


def store_accumulators(spec: LoopSpec, groups: Sequence[Columns]) -> list[str]:
    return [line for g in groups for line in _store(spec, g)]


def _load(spec: LoopSpec, group: Columns) -> list[str]:
    param, access = spec.params[group.param], spec.access(group.param)
    names = [(c, accumulator(group.param, c)) for c in group.components]
    if _whole(spec, group):
        row = f"const ml_row<{param.ctype}, {param.dim}> old{group.param} = {access.load_row('t')};"
        return [row, *(f"{param.ctype} {name} = old{group.param}.v[{c}];" for c, name in names)]
    return [f"{param.ctype} {name} = {access.at('t', c)};" for c, name in names]


def _store(spec: LoopSpec, group: Columns) -> list[str]:
    param, access = spec.params[group.param], spec.access(group.param)
    if _whole(spec, group):
        values = ", ".join(accumulator(group.param, c) for c in group.components)
        return [f"ml_store<{param.ctype}, {param.dim}>(&{access.at('t', 0)}, {{{{{values}}}}});"]
    return [f"{access.at('t', c)} = {accumulator(group.param, c)};" for c in group.components]


def start_accumulators(spec: LoopSpec, groups: Sequence[Columns]) -> list[str]:
    """Declarations of accumulators that hold nothing yet."""
    lines = []
    for g in groups:
        param = spec.params[g.param]
        nothing = literal(identity(param.mode.combine, param.dtype), param.dtype)
        lines += [f"{param.ctype} {accumulator(g.param, c)} = {nothing};" for c in g.components]
    return lines


def split_entry(entries: str, arity: int, element: str = "e") -> list[str]:
    """Statements that take the entry at ``x`` apart into element and slot ``s``; unsigned, for cheap division."""
    if arity == 1:
        return [f"const ml_index {element} = {entries}[x];"]
    return [
        f"const ml_unsigned entry = (ml_unsigned){entries}[x];",
        f"const ml_index {element} = (ml_index)(entry / {arity});",
        f"const unsigned s = (unsigned)(entry % {arity});",
    ]


def stage_at(columns: Columns, element: str, column: int) -> str:
    """Where a column of an element is kept."""
    width = len(columns.nodes)
    return f"stage{columns.param}[{element} * {width} + {column}]" if width > 1 else f"stage{columns.param}[{element}]"


def staging(code: ElementCode, columns: Sequence[Columns], place: str, keep: Keep) -> list[str]:
    """Statements of element ``e`` that keep its columns at ``place`` and send ``code``'s outputs where they belong."""
    known: dict[Node, str] = {}
    roots, others = [n for c in columns for n in c.nodes], [o.value for o in code.outputs]
    text, names = code.values(roots, known)
    more, other_names = code.values(others, known)
    left = iter(names)
    stores = [line for c in columns for line in keep(c, place, [next(left) for _ in c.nodes])]
    sunk = [line for o, name in zip(code.outputs, other_names, strict=True) for line in code.plain(o, name)]
    return [*code.rows(roots + others, code.outputs), *text, *more, *stores, *sunk]
