"""block_staged: partial sums of blocks of elements. A block evaluates its elements once into memory of its own and adds
up what each of its targets gets, in the order of elements. A target that no other block leads to is written at once;
what several blocks have for a target goes to neighbouring rows of a temporary array, which a second pass over these
targets adds up in the order of blocks.

No races, deterministic; no element is evaluated twice, and only partial sums wait in memory. They are associated by
blocks, so targets do not take their terms in the order of elements.
"""

from __future__ import annotations

import numpy as np

from meshloom.native.tiles import block_sums, shared_targets, wrong_sums
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import Cost, Work
from meshloom.schedule.nest.code import (
    BLOCK,
    BLOCK_SIZE,
    COUNT,
    ITEM,
    TARGET,
    ElementCode,
    Pass,
    Phase,
    Scratch,
    accumulated,
)
from meshloom.schedule.nest.nodes import (
    AddressOf,
    Expr,
    For,
    Grouped,
    If,
    LoadRow,
    Name,
    Number,
    Piece,
    RowOf,
    Statement,
    Store,
    StoreRow,
    least,
    let,
    variable,
)
from meshloom.schedule.nest.reduce import nothing
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    Table,
    entries,
    holds,
    racy_maps,
    size,
)
from meshloom.schedule.plan.emitter import Temporary
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_offsets, lost_stamps
from meshloom.schedule.spec import LoopSpec, in_few_pieces
from meshloom.schedule.strategies.base import Strategy
from meshloom.schedule.strategies.common.blocks import block_offsets
from meshloom.schedule.strategies.common.gather import (
    AT,
    Columns,
    accumulator,
    load_accumulators,
    split_entry,
    stage_of,
    staging,
    store_accumulators,
)
from meshloom.schedule.strategies.common.shared_blocks import LOCAL, block_numbers
from meshloom.schedule.strategies.common.stage import Stage, staged_columns
from meshloom.schedule.strategies.common.visits import VisitPlan, visiting
from meshloom.target import CPU, Target

#: Numbers inside a block: of 16 bits wherever these are enough.
NARROW = np.dtype(np.uint16)
IN_BLOCK = (NARROW.name, *NUMBERS)


@dataclass(frozen=True, eq=False)
class PartialSums:
    """Of one racy map the targets of each block with their entries, and which partial sums make up a shared target."""

    own_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each block begins among the places, and the end")
    place: Numbers = holds(
        Array(NUMBERS, ANY), "targets block by block, ascending in each; a shared one as -1 - row of its partial sum"
    )
    starts: Numbers = holds(
        Array(IN_BLOCK, ANY), "where each place's entries begin in those of its block; after each block their end"
    )
    local: Numbers = holds(
        Array(IN_BLOCK, entries), "entries, ascending for each place: place of the element in its block * arity + slot"
    )
    summed: Numbers = holds(Array(NUMBERS, ANY), "targets with partial sums, ascending")
    row_offsets: Offsets = holds(Array(OFFSETS, ANY), "where the rows of each of these begin, by blocks, and the end")

    @size
    def n_blocks(self) -> int:
        return len(self.own_offsets) - 1

    @size
    def n_summed(self) -> int:
        return len(self.summed)

    @size
    def n_rows(self) -> int:
        return int(np.count_nonzero(self.place < 0))

    def check(self, plan: Plan, topology: Topology, m: int, met: np.ndarray) -> None:
        """Raise PlanError unless it is right for map ``m``; ``met``: which targets several blocks lead to."""
        indices, targets = topology.maps[m]
        lengths = np.diff(block_offsets(topology.elements, plan.block))
        check_offsets(plan, "own_offsets", self.own_offsets, len(self.place))
        demand(self.n_blocks == len(lengths), plan, "the number of blocks does not fit the elements")
        block_of = block_numbers(self.own_offsets)
        listed = self._checked_targets(plan, targets, block_of)
        demand(not met[listed[self.place >= 0]].any(), plan, "a target of two blocks has no partial sums")
        rising = (np.diff(listed) > 0) | (np.diff(block_of) > 0)
        demand(rising.all(), plan, "a block does not list its targets once, ascending")
        counts = self._checked_counts(plan, lengths * len(topology.slots(m)))
        wrong = wrong_sums(topology.visit, indices[: topology.elements], plan.block, self.own_offsets, listed, counts,
                           self.local, topology.packed(m, np.arange(indices.shape[1])))  # fmt: skip
        demand(not wrong, plan, wrong)

    def _checked_targets(self, plan: Plan, targets: int, block_of: np.ndarray) -> np.ndarray:
        """The target at each place; rows of partial sums are those of one target by blocks, each once."""
        summed, place = self.summed.astype(np.int64), self.place.astype(np.int64)
        demand((np.diff(summed) > 0).all(), plan, "shared targets are not ascending")
        inside = not len(summed) or (summed[0] >= 0 and summed[-1] < targets)
        demand(inside and (place < targets).all(), plan, "a target is out of bounds")
        demand(len(self.row_offsets) == len(summed) + 1, plan, "row_offsets does not have one row per shared target")
        check_offsets(plan, "row_offsets", self.row_offsets, self.n_rows)
        rows = -1 - place[place < 0]
        demand((rows < self.n_rows).all(), plan, "a row of partial sums is out of bounds")
        block_of_row = np.full(self.n_rows, -1)
        block_of_row[rows] = block_of[place < 0]
        demand((block_of_row >= 0).all(), plan, "a row of partial sums is missing or doubled")
        number = np.repeat(np.arange(len(summed)), np.diff(self.row_offsets))
        in_order = (np.diff(block_of_row) > 0) | (np.diff(number) > 0)
        demand(in_order.all(), plan, "partial sums of a target are not in the order of blocks")
        listed = place.copy()
        listed[place < 0] = summed[number[rows]]
        return listed

    def _checked_counts(self, plan: Plan, lengths: np.ndarray) -> np.ndarray:
        """How many entries there are at each place; ``lengths``: in each block."""
        starts, ends = self.starts.astype(np.int64), self.own_offsets[1:] + np.arange(self.n_blocks)
        fits = len(starts) == len(self.place) + self.n_blocks and (starts[ends] == lengths).all()
        demand(fits, plan, "starts does not end with the entries of a block")
        firsts = self.own_offsets[:-1] + np.arange(self.n_blocks)
        demand((starts[firsts] == 0).all(), plan, "starts does not begin with the entries of a block")
        counts = np.delete(np.diff(starts), ends[:-1]) if len(ends) else np.zeros(0, np.int64)
        demand((counts > 0).all(), plan, "starts is not ascending")
        return counts


@dataclass(frozen=True, eq=False)
class PartialSumsPlan(VisitPlan):
    """For each racy map the partial sums of its blocks."""

    sums: dict[int, PartialSums] = holds(Table(Part(PartialSums), racy_maps), "the partial sums of each racy map")

    def check(self, topology: Topology) -> None:
        super().check(topology)
        block_of, met = np.empty(topology.elements, topology.index_type), {}
        block_of[topology.visit] = np.arange(topology.elements, dtype=topology.index_type) // self.block
        for space, rows, targets in zip(sorted(set(topology.spaces.values())), *topology.conflicts(), strict=True):
            met[space] = np.zeros(targets, bool)
            met[space][rows[lost_stamps(block_of, rows, targets)]] = True
        for m, one in self.sums.items():
            one.check(self, topology, m, met[topology.spaces[m]])


class BlockStaged(Strategy):
    name = "block_staged"
    plan_has_blocks = True
    deterministic = True
    summary = "blocks of elements add up what their targets get; what blocks share is added up by target"
    evaluates_first = True
    plans = PartialSumsPlan

    def plan(self, topology: Topology, block: int, *, target: Target = CPU) -> Plan:
        visit, offsets = topology.visit, block_offsets(topology.elements, block)
        into = sorted(set(topology.spaces.values()))
        shared = {space: shared_targets(offsets, visit, rows, targets)
                  for space, rows, targets in zip(into, *topology.conflicts(), strict=True)}  # fmt: skip
        sums = {m: _partial_sums(topology, m, block, shared[topology.spaces[m]]) for m in topology.maps}
        return PartialSumsPlan(self.name, block, visiting(topology), sums)

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(plan, PartialSumsPlan)
        groups = {m: staged_columns(spec, m) for m in spec.racy_maps}
        return [_block_pass(spec, groups, plan, target.is_simt), *(_row_pass(spec, m, groups[m], plan) for m in groups)]

    def temporaries(self, spec: LoopSpec, plan: Plan) -> list[Temporary]:
        return [
            (_partial_of(c).name, spec.params[c.param].dtype, part_of(plan, "sums", m, "n_rows") * len(c.components))
            for m in spec.racy_maps
            for c in staged_columns(spec, m)
        ]

    def cost(self, spec: LoopSpec, work: Work, *, target: Target = CPU) -> Cost:
        # ``loads`` is for larger blocks; smaller ones share more targets with others.
        rows = self.fitted(target, "partial") * max(work.loads - 1.0, 0.0) * work.touched
        waiting = self.fitted(target, "waiting")  # at the barrier nobody asks for anything, nor computes
        moved = work.compulsory + 2 * work.incidences + 8 * work.touched
        moved += work.reload_reads + self.fitted(target, "row") * rows * _row_bytes(spec)
        shared = target.numbers.block(self.name) * work.staged / max(work.elements, 1)
        return Cost(waiting * moved, waiting * work.flops, launches=2, shared=shared, visits=work.touched + rows,
                    requests=waiting * work.requested, passed=work.staged)  # fmt: skip


def _partial_sums(topology: Topology, m: int, block: int, shared: np.ndarray) -> PartialSums:
    """Of one map; ``shared``: which targets several blocks lead to, by this map or another one."""
    indices, targets = topology.maps[m]
    rows, arity = topology.written_rows(m).astype(topology.index_type, copy=False), indices.shape[1]
    made = block_sums(topology.visit, rows, targets, block, shared)
    begins, local = np.append(0, made.row_ends), topology.entries(m, made.local.reshape(-1))
    with_rows = np.flatnonzero(np.diff(begins))
    fits = block * arity <= np.iinfo(NARROW).max
    starts, local = (one.astype(NARROW) if fits else one for one in (made.starts, local))
    return PartialSums(made.offsets, made.place, starts, local, with_rows.astype(rows.dtype),
                       np.append(0, made.row_ends[with_rows]))  # fmt: skip


def _row_bytes(spec: LoopSpec) -> float:
    """Of a row of partial sums, with all parameters that it is for; of several maps the mean."""
    columns = [c for m in spec.racy_maps for c in staged_columns(spec, m)]
    return sum(len(c.components) * spec.params[c.param].dtype.itemsize for c in columns) / len(spec.racy_maps)


def _partial_of(columns: Columns) -> Name:
    """The array of partial sums of a parameter: a row of its components for each block that shares a target."""
    return Name(f"partial{columns.param}")


def _block_pass(spec: LoopSpec, groups: dict[int, tuple[Columns, ...]], plan: PartialSumsPlan, is_simt: bool) -> Pass:
    """The pass over blocks: evaluate, then for each map what every target of the block gets."""
    stage, columns = Stage(spec, BLOCK_SIZE, apart=is_simt), [c for members in groups.values() for c in members]
    own = (let("e", plan.element), let(LOCAL.name, ITEM - BLOCK * BLOCK_SIZE))
    staged = staging(ElementCode(spec, spec.other_outputs), columns, LOCAL, stage.stores)
    last = least((BLOCK + 1) * BLOCK_SIZE, COUNT)
    evaluate = Phase((*own, *staged), BLOCK * BLOCK_SIZE, last, independent=plan.visit is None)
    gathers = tuple(_gather(spec, m, members, plan, stage) for m, members in groups.items())
    scratch = tuple(Scratch(spec.params[c.param].ctype, stage_of(c).name, BLOCK_SIZE * len(c.nodes)) for c in columns)
    count = part_of(plan, "sums", spec.racy_maps[0], "n_blocks")
    return Pass("blocks", count, (evaluate, *gathers), blocked=True, scratch=scratch, reductions=spec.reductions)


def _gather(spec: LoopSpec, m: int, groups: tuple[Columns, ...], plan: PartialSumsPlan, stage: Stage) -> Phase:
    """What each target of a block gets: its own value and more, or a partial sum from nothing."""

    def named(word: str) -> Expr:
        return part_of(plan, "sums", m, word)

    arity, base, starts = spec.maps[m].arity, Name("base"), named("starts")
    incident = (*split_entry(named("local"), arity, LOCAL.name), *stage.merge(groups, arity, LOCAL))
    first, end = (base + starts[offset] for offset in (ITEM + BLOCK, ITEM + BLOCK + 1))
    row, alone = Grouped(-1 - TARGET), TARGET >= 0
    sums = [variable(a.name, nothing(spec.params[c.param].mode.combine, spec.params[c.param].dtype),
                     spec.params[c.param].ctype) for c in groups for a in _accumulators(c)]  # fmt: skip
    body = (
        let(TARGET.name, named("place")[ITEM]),
        let(base.name, BLOCK * BLOCK_SIZE * len(spec.written_slots(m))),
        *sums,
        If(alone, tuple(_started(spec, groups))),
        For(AT.name, first, end, incident, bound="end_x"),
        If(alone, tuple(store_accumulators(spec, groups)), tuple(_stored(spec, groups, row))),
    )
    return Phase(body, named("own_offsets")[BLOCK], named("own_offsets")[BLOCK + 1])


def _row_pass(spec: LoopSpec, m: int, groups: tuple[Columns, ...], plan: PartialSumsPlan) -> Pass:
    """The pass over the shared targets of a map: each takes its partial sums in the order of blocks."""
    offsets, merges = part_of(plan, "sums", m, "row_offsets"), list[Statement]()
    for c in groups:
        param, kept, parts, width = spec.params[c.param], Name(f"kept{c.param}"), _partial_of(c), len(c.components)
        in_rows = _in_whole_rows(spec, c)
        if in_rows:
            row = LoadRow(param.ctype, width, AddressOf(parts[AT * width]))
            merges.append(let(kept.name, row, RowOf(param.ctype, width)))
        for k, a in enumerate(_accumulators(c)):
            merges.append(accumulated(param, a, Piece(kept, Number(k)) if in_rows else _at(c, AT, k)))
    body = (
        let(TARGET.name, part_of(plan, "sums", m, "summed")[ITEM]),
        *load_accumulators(spec, groups),
        For(AT.name, offsets[ITEM], offsets[ITEM + 1], tuple(merges), bound="end_x"),
        *store_accumulators(spec, groups),
    )
    return Pass(f"rows{m}", part_of(plan, "sums", m, "n_summed"), (Phase(body),))


def _accumulators(columns: Columns) -> list[Name]:
    return [accumulator(columns.param, comp) for comp in columns.components]


def _started(spec: LoopSpec, groups: tuple[Columns, ...]) -> list[Statement]:
    """Statements that make accumulators start from what the target holds."""
    return [Store(a, spec.access(c.param).at(TARGET, comp))
            for c in groups for a, comp in zip(_accumulators(c), c.components, strict=True)]  # fmt: skip


def _in_whole_rows(spec: LoopSpec, columns: Columns) -> bool:
    """Are rows of partial sums moved as a whole?"""
    width = len(columns.components)
    return spec.whole_rows and width > 1 and in_few_pieces(width * spec.params[columns.param].dtype.itemsize)


def _at(columns: Columns, row: Expr, number: int) -> Expr:
    """Where a row keeps one of its components."""
    width = len(columns.components)
    return _partial_of(columns)[row * width + number if width > 1 else row]


def _stored(spec: LoopSpec, groups: tuple[Columns, ...], row: Expr) -> list[Statement]:
    """Statements that keep the accumulators as a row of partial sums."""
    made: list[Statement] = []
    for c in groups:
        if _in_whole_rows(spec, c):
            made.append(StoreRow(spec.params[c.param].ctype, _at(c, row, 0), tuple(_accumulators(c))))
        else:
            made += [Store(_at(c, row, k), a) for k, a in enumerate(_accumulators(c))]
    return made
