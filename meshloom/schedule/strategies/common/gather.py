"""Gathering: what ``staged``, ``owner`` and ``tile`` share.

Seen from a target, the loop is a sum over the incident (element, slot) pairs. The increments of an element are its
*columns*: the distinct values up to sign, so that ``res[0] += f; res[1] -= f`` keeps one copy of f and a sign per
slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.records import dataclass
from meshloom.schedule.nest.code import ITEM, TARGET, ElementCode, accumulated
from meshloom.schedule.nest.contraction import fma
from meshloom.schedule.nest.nodes import (
    INDEX,
    INT,
    UNSIGNED,
    Body,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Name,
    Number,
    Piece,
    Select,
    Statement,
    Store,
    StoreRow,
    Switch,
    call,
    let,
    variable,
)
from meshloom.schedule.nest.reduce import negated
from meshloom.schedule.plan.declare import (
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    Table,
    entries,
    holds,
    one_more_than_targets,
    racy_maps,
    size,
)
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.verify import check_incidence
from meshloom.schedule.spec import LoopSpec, SpecParam, is_negation
from meshloom.schedule.strategies.common.visits import VisitPlan

ColumnValue = Callable[[int, int], Expr]
Keep = Callable[["Columns", Expr, Sequence[Expr]], list[Statement]]  # (columns, place, values) -> statements

MOST_IN_ROW = 8  # entries that a thread keeps under way at once: what they load stays in registers
MOST_BEYOND = 0.005  # share of the targets that may have more entries than a row of mixed lengths holds
MOST_ROOM = 1.3  # length of such rows by what they hold: 5 by 4 where a few prisms are among tetrahedra

#: An entry of a target's incidence, where it stands among them, and its slot.
ENTRY, AT, SLOT = Name("entry"), Name("x"), Name("s")


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
    of: ColumnValue,
    prepare: Callable[[int | None], list[Statement]] = lambda slot: [],
) -> Body:
    """Statements that merge the columns of one incident (element, slot ``s``) into the accumulators.

    ``of(param, column)`` is a column's value. ``prepare(slot)`` gives statements that make the values of one slot
    available (slot None: those of all slots, when columns are uniform).
    """
    if arity == 1:
        return (*prepare(None), *(one for g in groups for one in _slot(spec, g, 0, of)))
    if all(g.uniform for g in groups):
        return (*prepare(None), *(one for g in groups for one in _uniform(spec, g, of)))
    each = ((*prepare(slot), *(one for g in groups for one in _slot(spec, g, slot, of))) for slot in range(arity))
    return (Switch(SLOT, tuple(each)),)


def _uniform(spec: LoopSpec, group: Columns, of: ColumnValue) -> list[Statement]:
    param = spec.params[group.param]
    signs, weight = group.signs, Name(f"w{group.param}")
    made: list[Statement] = []
    if len(set(signs)) == 2:
        made.append(let(weight.name, _sign_of_slot(signs, param.dtype), param.ctype))
    for comp, used in enumerate(group.use[0]):
        if used:
            value = of(group.param, used[0])
            if len(set(signs)) == 2 and param.dtype.kind == "f":  # exact: the weight is 1 or -1
                place = accumulator(group.param, comp)
                made.append(Store(place, fma(weight, value, place)))
                continue
            if len(set(signs)) == 2:
                value = call("ml_wrapped_mul", weight, value, of_types=(param.ctype,))
            elif set(signs) == {-1}:
                value = negated(value, param.dtype)
            made.append(_merge(spec, group.param, comp, value))
    return made


def _sign_of_slot(signs: tuple[int, ...], dtype: np.dtype) -> Expr:
    """The factor of slot ``s``."""
    negative = [k for k, sign in enumerate(signs) if sign < 0]
    mask = call("UINT64_C", sum(1 << k for k in negative))
    test: Expr = SLOT.equals(negative[0]) if len(negative) == 1 else Grouped(mask >> SLOT) & 1
    return Select(Grouped(test), Number(-1, dtype), Number(1, dtype))


def _slot(spec: LoopSpec, group: Columns, slot: int, of: ColumnValue) -> list[Statement]:
    made, dtype = [], spec.params[group.param].dtype
    for comp, used in enumerate(group.use[slot]):
        if used:
            value = of(group.param, used[0])
            made.append(_merge(spec, group.param, comp, negated(value, dtype) if used[1] < 0 else value))
    return made


def _merge(spec: LoopSpec, param: int, comp: int, value: Expr) -> Statement:
    return accumulated(spec.params[param], accumulator(param, comp), value)


def accumulator(param: int, comp: int) -> Name:
    return Name(f"a{param}_{comp}")


def over_targets(
    spec: LoopSpec,
    groups: Sequence[Columns],
    incident: Body,
    offsets: Expr,
    unrolled: If | None = None,
    target: Expr = ITEM,
) -> Body:
    """Statements for a target: load the accumulators, visit the incident entries ``x``, store.

    ``unrolled``: serves targets with the usual number of entries (``unroll``), where others are visited one by one.
    """
    before, after = load_accumulators(spec, groups), store_accumulators(spec, groups)
    own, visits = let("t", target), visit(incident, offsets)
    if unrolled is not None:
        return (own, *before, replace(unrolled, otherwise=(visits,)), *after)
    some = offsets[TARGET] < offsets[TARGET + 1]  # others need not be loaded and stored
    return (own, If(some, (*before, visits, *after)))


def visit(incident: Body, offsets: Expr) -> For:
    """All incident entries ``x`` of target ``t``, one after the other."""
    return For(AT.name, offsets[TARGET], offsets[TARGET + 1], incident, bound="end_x")


def unroll(incident: Body, offsets: Expr, degree: int) -> If | None:
    """The visit of targets with exactly ``degree`` entries, unrolled, so that all their loads are under way at once."""
    if degree < 2:
        return None
    at = let(AT.name, offsets[TARGET] + Name("u"))
    loop = For("u", Number(0), Number(degree), (at, *incident), INT, unroll=0)
    return If((offsets[TARGET + 1] - offsets[TARGET]).equals(degree), (loop,))


def usual_degree(offsets: np.ndarray) -> int:
    """The number of entries that at least three quarters of the targets have, from 2 to 8; 0 if there is none."""
    return _usual(_targets_by_entries(offsets))


def _usual(counts: np.ndarray) -> int:
    """The same of how many targets have 0, 1, ... entries."""
    best = int(counts.argmax())
    return best if 2 <= best <= MOST_IN_ROW and 4 * counts[best] >= 3 * counts.sum() else 0


def roomy_degree(offsets: np.ndarray) -> int:
    """The usual number of entries, or a larger one where cells of several kinds meet: what all but a few targets stay
    within, if rows of that length are not much longer than the entries that they hold. 0 if there is none."""
    counts = _targets_by_entries(offsets)
    usual = _usual(counts)
    within = np.cumsum(counts) >= (1.0 - MOST_BEYOND) * (len(offsets) - 1)
    most = int(within.argmax())
    held = int(offsets[-1] - offsets[0])
    fits = max(usual + 1, 2) <= most <= MOST_IN_ROW and most * (len(offsets) - 1) <= MOST_ROOM * held
    return most if fits else usual


def _targets_by_entries(offsets: np.ndarray) -> np.ndarray:
    """How many targets have 0, 1, ... entries; the last: more than fit in a row."""
    return np.bincount(np.minimum(np.diff(offsets), MOST_IN_ROW + 1), minlength=MOST_IN_ROW + 2)


def _in_whole_rows(spec: LoopSpec, group: Columns) -> bool:
    complete = len(group.components) == spec.params[group.param].dim
    return spec.whole_rows and spec.access(group.param).whole_row and complete


def load_accumulators(spec: LoopSpec, groups: Sequence[Columns]) -> list[Statement]:
    """Declarations of accumulators that start from what the target ``t`` holds."""
    return [one for g in groups for one in _load(spec, g)]


def store_accumulators(spec: LoopSpec, groups: Sequence[Columns]) -> list[Statement]:
    return [one for g in groups for one in _store(spec, g)]


def _load(spec: LoopSpec, group: Columns) -> list[Statement]:
    param, access = spec.params[group.param], spec.access(group.param)
    if not _in_whole_rows(spec, group):
        return [_started(param, group, c, access.at(TARGET, c)) for c in group.components]
    old = Name(f"old{group.param}")
    pieces = [_started(param, group, c, Piece(old, Number(c))) for c in group.components]
    return [let(old.name, access.load_row(TARGET), access.row_type), *pieces]


def _started(param: SpecParam, group: Columns, comp: int, value: Expr) -> Statement:
    return variable(accumulator(group.param, comp).name, value, param.ctype)


def _store(spec: LoopSpec, group: Columns) -> list[Statement]:
    param, access = spec.params[group.param], spec.access(group.param)
    if _in_whole_rows(spec, group):
        values = tuple(accumulator(group.param, c) for c in group.components)
        return [StoreRow(param.ctype, access.at(TARGET, 0), values)]
    return [Store(access.at(TARGET, c), accumulator(group.param, c)) for c in group.components]


def split_entry(entries: Expr, arity: int, element: str = "e") -> list[Statement]:
    """Statements that take the entry at ``x`` apart into element and slot ``s``."""
    return [let(element, entries[AT])] if arity == 1 else entry_parts(entries[AT], arity, element)


def entry_parts(entry: Expr, arity: int, element: str = "e") -> list[Statement]:
    """The same of an entry of a map with several slots; unsigned, for cheap division."""
    return [
        let(ENTRY.name, Cast(UNSIGNED, entry), UNSIGNED),
        let(element, Cast(INDEX, ENTRY / arity)),
        let(SLOT.name, Cast("unsigned", ENTRY % arity), "unsigned"),
    ]


def stage_of(columns: Columns) -> Name:
    """The array that keeps the columns of a parameter."""
    return Name(f"stage{columns.param}")


def stage_at(columns: Columns, element: Expr, column: int) -> Expr:
    """Where a column of an element is kept."""
    width = len(columns.nodes)
    return stage_of(columns)[element * width + column if width > 1 else element]


def staging(code: ElementCode, columns: Sequence[Columns], place: Expr, keep: Keep) -> list[Statement]:
    """Statements of element ``e`` that keep its columns at ``place`` and send ``code``'s outputs where they belong."""
    known: dict[Node, Expr] = {}
    roots, others = [n for c in columns for n in c.nodes], [o.value for o in code.outputs]
    computed, values = code.values(roots, known)
    more, other_values = code.values(others, known)
    left = iter(values)
    stores = [one for c in columns for one in keep(c, place, [next(left) for _ in c.nodes])]
    other_stores = [one for o, value in zip(code.outputs, other_values, strict=True) for one in code.plain(o, value)]
    return [*code.rows(roots + others, code.outputs), *computed, *more, *stores, *other_stores]


@dataclass(frozen=True, eq=False)
class GatherPlan(VisitPlan):
    """For each racy map the entries of each target."""

    gathers: Mapping[int, Incidence] = holds(Table(Part(Incidence), racy_maps), "what leads to the targets of each map")

    def check(self, topology: Topology) -> None:
        super().check(topology)
        for m, one in self.gathers.items():
            one.check(self, topology, m)


def incidences(topology: Topology) -> dict[int, Incidence]:
    """The incidence of every racy map."""
    return {m: Incidence(*topology.incidence(m)) for m in topology.maps}


def incident(spec: LoopSpec, m: int, plan: Plan) -> Body:
    """Statements that merge the entry at ``x`` of map ``m``'s incidence into the accumulators."""
    groups, arity, code = columns_of(spec, m), spec.maps[m].arity, ElementCode(spec, ())
    rows = code.rows([n for g in groups for n in g.nodes])
    return (*split_entry(part_of(plan, "gathers", m, "entries"), arity), *rows, *slices(spec, code, groups, arity))


def slices(spec: LoopSpec, code: ElementCode, groups: tuple[Columns, ...], arity: int) -> Body:
    """For each slot the slice of the kernel that feeds it, merged into the accumulators."""
    values: dict[tuple[int, int], Expr] = {}

    def evaluate(slot: int | None) -> list[Statement]:
        wanted = [(g.param, k, g.nodes[k]) for g in groups for k in _needed(g, slot)]
        computed, found = code.values([node for _, _, node in wanted])
        values.update({(param, k): one for (param, k, _), one in zip(wanted, found, strict=True)})
        return computed

    return accumulate(spec, groups, arity, lambda p, k: values[p, k], evaluate)


def _needed(group: Columns, slot: int | None) -> list[int]:
    slots = group.use if slot is None else (group.use[slot],)
    return sorted({used[0] for comps in slots for used in comps if used})
