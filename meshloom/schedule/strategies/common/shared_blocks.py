"""Blocks of elements where the items of a block run at the same time (a GPU): ``block_color`` and ``block_atomic``.

A block keeps the increments of its own targets in memory of its own (shared memory). Four phases, a barrier after each:
clear; evaluate every element into a stage; add the staged values color by color (elements of one color share no
target); merge the block's targets into memory, where the two strategies differ: plainly, because blocks of other colors
wait, or with atomics for the targets that several blocks share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.native.algorithms import thread_colors
from meshloom.native.tiles import block_targets
from meshloom.records import dataclass
from meshloom.schedule.nest.code import BLOCK, BLOCK_SIZE, ITEM, ROUND, TARGET, ElementCode, Phase, Scratch, accumulated
from meshloom.schedule.nest.nodes import Expr, Name, Number, Statement, Store, let
from meshloom.schedule.nest.reduce import negated, nothing
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    Place,
    Table,
    elements,
    holds,
    size,
    spaces,
)
from meshloom.schedule.plan.plan import Plan, Topology, part_of
from meshloom.schedule.plan.schema import demand
from meshloom.schedule.plan.verify import check_offsets, lost_stamps, visited
from meshloom.schedule.spec import LoopSpec, SpecParam
from meshloom.schedule.strategies.common.gather import Columns, columns_of, stage_of, staging
from meshloom.schedule.strategies.common.stage import Stage

Merge = Callable[[SpecParam, Expr, Expr, Expr], Statement]  # (parameter, place, value, target)

LOCAL = Name("l")  # the position of an element in its block


def _slots_into(place: Place) -> int:
    """Slots of all maps into the target set with the last number, where elements give something."""
    topology, space = place.topology, place.numbers[-1]
    return sum(len(topology.slots(m)) for m, into in topology.spaces.items() if into == space)


def _one_more_than_blocks(place: Place) -> int:
    return int(place.objects[0].n_blocks) + 1


@dataclass(frozen=True, eq=False)
class OwnTargets:
    """The targets of each block in one target set."""

    own_offsets: Offsets = holds(
        Array(OFFSETS, _one_more_than_blocks), "where each block begins among them, and the end"
    )
    own: Numbers = holds(Array(NUMBERS, ANY), "targets block by block, ascending in each")
    place: Numbers = holds(
        Array(NUMBERS, elements, _slots_into), "of each position's slots the place of its target in its block"
    )

    @size
    def most(self) -> int:
        return int(np.diff(self.own_offsets).max(initial=0))


@dataclass(frozen=True, eq=False)
class SharedBlocks:
    """What threads of a block share: its targets, once each, the places of its slots among them, and colors of elements
    that may be added at the same time."""

    visit: Numbers = holds(Array(NUMBERS, elements), "the element at each position: block by block, color by color")
    color_starts: Offsets = holds(
        Array(OFFSETS, _one_more_than_blocks), "where each block begins among the color positions, and the end"
    )
    color_positions: Offsets = holds(Array(OFFSETS, ANY), "of each block the positions where its colors begin, its end")
    spaces: dict[int, OwnTargets] = holds(Table(Part(OwnTargets), spaces), "the blocks' targets in each target set")

    def check(self, plan: Plan, topology: Topology, blocks: np.ndarray) -> None:
        """``blocks``: the offsets of the blocks among the positions."""
        visit, block_of = visited(plan, self.visit, topology), block_numbers(blocks)
        color_of = self._checked_colors(plan, blocks)
        for space, rows, targets in zip(sorted(self.spaces), *topology.conflicts(), strict=True):
            slots = _checked_places(plan, self.spaces[space], rows[visit], targets, block_of)
            for color in range(int(color_of.max(initial=-1)) + 1):
                members = np.flatnonzero(color_of == color)
                lost = lost_stamps(members, slots[members], len(self.spaces[space].own))
                demand(not lost.any(), plan, f"two elements of color {color} of a block share a target")

    def _checked_colors(self, plan: Plan, blocks: np.ndarray) -> np.ndarray:
        """The color of each position in its block."""
        starts, positions = self.color_starts, self.color_positions
        check_offsets(plan, "color_starts", starts, len(positions))
        demand((np.diff(starts) > 1).all(), plan, "a block has no colors")
        ends = starts[1:] - 1
        fits = (positions[starts[:-1]] == blocks[:-1]).all() and (positions[ends] == blocks[1:]).all()
        rising = np.diff(positions) >= 0  # from the end of one block to the beginning of the next, too
        demand(fits and rising.all(), plan, "the colors of a block are not its elements")
        lengths = np.diff(positions)
        lengths = np.delete(lengths, ends[:-1]) if len(ends) else lengths
        return np.repeat(_counted(np.diff(starts) - 1), lengths)


def _checked_places(plan: Plan, found: OwnTargets, rows: np.ndarray, targets: int, block_of: np.ndarray) -> np.ndarray:
    """(n, slots): where among all blocks' targets those of each position are; ``rows``: the targets themselves."""
    own, place, first = found.own, found.place, found.own_offsets
    check_offsets(plan, "own_offsets", first, len(own))
    sizes = np.diff(first)
    demand(not len(own) or (own.min() >= 0 and own.max() < targets), plan, "a block has a target out of bounds")
    rising = (np.diff(own) > 0) | (np.diff(np.repeat(np.arange(len(sizes)), sizes)) > 0)
    demand(rising.all(), plan, "a block does not list its targets once, ascending")
    demand((place >= 0).all() and (place < sizes[block_of][:, None]).all(), plan, "a place is out of bounds")
    slots = first[block_of][:, None] + place
    demand(np.array_equal(own[slots], rows), plan, "a place leads to another target than the map")
    return slots


def block_numbers(offsets: np.ndarray) -> np.ndarray:
    """The block of each position."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def check_blocks(plan: Plan, offsets: np.ndarray, topology: Topology) -> None:
    """Blocks cover the positions, and none is larger than it may be."""
    check_offsets(plan, "block_offsets", offsets, topology.elements)
    demand(np.diff(offsets).max(initial=0) <= plan.block, plan, f"a block has more than {plan.block} elements")


def _counted(lengths: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... for each of some lengths, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def shared_blocks(topology: Topology, offsets: np.ndarray) -> SharedBlocks:
    """Elements of each block sorted by thread color, and the targets of each block."""
    rows, counts = topology.conflicts()
    colors = thread_colors(offsets, topology.visit, rows, counts)[topology.visit]
    block_of = block_numbers(offsets)
    visit = np.ascontiguousarray(topology.visit[np.lexsort((colors, block_of))]).astype(topology.index_type)
    starts, positions = _color_ranges(colors, block_of, offsets)
    found = {}
    for space, one, targets in zip(sorted(set(topology.spaces.values())), rows, counts, strict=True):
        made = block_targets(offsets, visit, one, targets)
        found[space] = OwnTargets(made.offsets, made.targets, made.local)
    return SharedBlocks(visit, starts, positions, found)


def _color_ranges(colors: np.ndarray, block_of: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``starts[b] .. starts[b+1]`` are the entries of ``positions`` that belong to block b: its color boundaries."""
    blocks = len(offsets) - 1
    per_block = np.zeros(blocks, np.int64)
    np.maximum.at(per_block, block_of, colors.astype(np.int64) + 1)
    starts = np.concatenate([[0], np.cumsum(per_block + 1)]).astype(np.int64)
    positions = np.zeros(starts[-1], np.int64)
    np.add.at(positions, starts[block_of] + colors + 1, 1)
    positions[starts[:-1]] = offsets[:-1]
    for_each = np.cumsum(positions)  # running sums restart at each block: subtract what came before it
    before = for_each[starts[:-1]] - offsets[:-1] if blocks else np.zeros(0, np.int64)
    return starts, for_each - np.repeat(before, per_block + 1)


def phases_together(spec: LoopSpec, plan: Plan, merge: Merge) -> tuple[tuple[Phase, ...], tuple[Scratch, ...]]:
    """The four phases and the memory they share; the plan's blocks are ``inside``."""
    named = Named(spec, plan)
    columns = [c for m in spec.racy_maps for c in columns_of(spec, m)]
    spaces = sorted({spec.maps[m].target for m in spec.racy_maps})
    inside = {s: [c for c in columns if _space(spec, c) == s] for s in spaces}
    phases = [_clear(named, s, inside[s]) for s in spaces]
    phases.append(_evaluate(named, columns))
    phases.append(_accumulate(named, columns))
    phases += [_merge_phase(named, s, inside[s], merge) for s in spaces]
    scratch = [Scratch(spec.params[c.param].ctype, _sum_of(c).name, named.most(c) * len(c.components)) for c in columns]
    scratch += [Scratch(spec.params[c.param].ctype, stage_of(c).name, BLOCK_SIZE * len(c.nodes)) for c in columns]
    return tuple(phases), tuple(scratch)


@dataclass(frozen=True)
class Named:
    """A loop, and what its nest speaks of: the targets of blocks, and where blocks begin."""

    spec: LoopSpec
    plan: Plan

    def of(self, space: int, word: str) -> Expr:
        return part_of(self.plan, "inside", "spaces", space, word)

    def most(self, columns: Columns) -> Expr:
        """The most targets that a block has for some columns."""
        return self.of(_space(self.spec, columns), "most")

    def count(self, space: int) -> Expr:
        """How many targets block ``b`` has."""
        first = self.of(space, "own_offsets")
        return first[BLOCK + 1] - first[BLOCK]

    @property
    def first(self) -> Expr:
        """Where each block begins among the positions."""
        return part_of(self.plan, "block_offsets")

    @property
    def local(self) -> Statement:
        """The position in its block."""
        return let(LOCAL.name, ITEM - self.first[BLOCK])


def _space(spec: LoopSpec, columns: Columns) -> int:
    number = spec.params[columns.param].map
    assert number is not None
    return spec.maps[number].target


def _stage(spec: LoopSpec) -> Stage:
    return Stage(spec, BLOCK_SIZE, apart=True)


def _sum_of(columns: Columns) -> Name:
    """The array of sums of a parameter."""
    return Name(f"sum{columns.param}")


def _sum_at(named: Named, columns: Columns, place: Expr, comp: int) -> Expr:
    """Where a component of a target's sum is kept: components apart, so that threads use different memory banks."""
    number = columns.components.index(comp)
    return _sum_of(columns)[number * named.most(columns) + place if number else place]


def _clear(named: Named, space: int, columns: list[Columns]) -> Phase:
    body = []
    for c in columns:
        param = named.spec.params[c.param]
        zero = nothing(param.mode.combine, param.dtype)
        body += [Store(_sum_at(named, c, ITEM, comp), zero) for comp in c.components]
    return Phase(tuple(body), Number(0), named.count(space), independent=True)


def _evaluate(named: Named, columns: list[Columns]) -> Phase:
    spec, first = named.spec, named.first
    staged = staging(ElementCode(spec, spec.other_outputs), columns, LOCAL, _stage(spec).stores)
    element = let("e", part_of(named.plan, "inside", "visit")[ITEM])
    return Phase((element, named.local, *staged), first[BLOCK], first[BLOCK + 1], independent=True)


def _accumulate(named: Named, columns: list[Columns]) -> Phase:
    """Elements of color ``c`` of the block: no two of them share a target."""
    spec = named.spec
    body = [named.local]
    for c in columns:
        param = spec.params[c.param]
        stands_at, width = _columns_of_map(spec, param.map)
        for slot, uses in enumerate(c.use):
            if not any(uses):
                continue
            place = Name(f"p{c.param}_{slot}")
            body.append(let(place.name, named.of(_space(spec, c), "place")[ITEM * width + stands_at[slot]]))
            for comp, use in enumerate(uses):
                if use:
                    value = _stage(spec).at(c, LOCAL, use[0])
                    value = negated(value, param.dtype) if use[1] < 0 else value
                    body.append(accumulated(param, _sum_at(named, c, place, comp), value))
    starts, positions = (part_of(named.plan, "inside", word) for word in ("color_starts", "color_positions"))
    color = starts[BLOCK] + ROUND
    colors = starts[BLOCK + 1] - starts[BLOCK] - 1
    return Phase(tuple(body), positions[color], positions[color + 1], repeat=colors)


def _columns_of_map(spec: LoopSpec, number: int | None) -> tuple[dict[int, int], int]:
    """Where a map's slots stand among those of all racy maps into its target set, and how many there are in all."""
    assert number is not None
    into = spec.maps[number].target
    places = [(m, slot) for m in spec.racy_maps if spec.maps[m].target == into for slot in spec.written_slots(m)]
    return {slot: k for k, (m, slot) in enumerate(places) if m == number}, len(places)


def _merge_phase(named: Named, space: int, columns: list[Columns], merge: Merge) -> Phase:
    spec = named.spec
    body: list[Statement] = [let("t", named.of(space, "own")[named.of(space, "own_offsets")[BLOCK] + ITEM])]
    for c in columns:
        access = spec.access(c.param)
        body += [merge(spec.params[c.param], access.at(TARGET, comp), _sum_at(named, c, ITEM, comp), TARGET)
                 for comp in c.components]  # fmt: skip
    return Phase(tuple(body), Number(0), named.count(space), independent=True)
