"""fused_chunks: a fused loop on a CPU. A thread takes a chunk of consecutive targets; every element that touches them
is evaluated once and added up in memory of the thread's own, which stays in its cache; then the loops over the targets
themselves use that.

Elements between two chunks are evaluated by both. Evaluating each element for every target it touches, as ``fused``
does on a GPU, would cost a CPU more arithmetic than it saves traffic. How chunks are cut does not depend on threads, so
the result has the same bits for any number of them. A fused loop that nothing is gathered for is one plain loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.records import dataclass
from meshloom.schedule.fused.fused import FusedElement, FusedSpec
from meshloom.schedule.nest.code import (
    BLOCK,
    BLOCK_SIZE,
    COUNT,
    ELEMENT,
    ITEM,
    ElementCode,
    Pass,
    Phase,
    Scratch,
    accumulated,
    row_of,
)
from meshloom.schedule.nest.nodes import Body, Cast, Expr, Grouped, If, Name, Statement, Store, least, let, offset_by
from meshloom.schedule.nest.reduce import negated
from meshloom.schedule.plan.declare import (
    ANY,
    NUMBERS,
    OFFSETS,
    Array,
    Numbers,
    Offsets,
    Part,
    Table,
    holds,
    racy_maps,
    size,
)
from meshloom.schedule.plan.emitter import Emitter
from meshloom.schedule.plan.plan import Plan, part_of
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.common.gather import Columns, columns_of, stage_at, stage_of, staging
from meshloom.target import CPU, ChunkNumbers, Target

START = BLOCK * BLOCK_SIZE  # the first target of a chunk
SIZE = least(BLOCK_SIZE, COUNT - START)


class Chunking(NamedTuple):
    """Targets of a chunk, and how often an element is evaluated then, on average."""

    size: int
    evaluations: float


def chunking(rows: np.ndarray, targets: int, numbers: ChunkNumbers) -> Chunking:
    """Chunks of a set with so many targets, where elements have such rows (elements, arity) of them: as small as leave
    hardly any element between two chunks. The threads in use do not enter: it decides how sums are rounded."""
    low, high = numbers.least_targets, numbers.most_targets
    most = max(low, min(high, targets // numbers.fewest))
    chunk = max(low, min(high, targets // numbers.many))
    while (found := listed_again(rows, chunk)) > numbers.enough and chunk < most:
        chunk = min(2 * chunk, most)
    return Chunking(chunk, found)


@dataclass(frozen=True, eq=False)
class Touching:
    """The elements of one map that touch each chunk of its targets."""

    tile_offsets: Offsets = holds(Array(OFFSETS, ANY), "where each chunk's elements begin, and the end")
    tile_elements: Numbers = holds(Array(NUMBERS, ANY), "elements chunk by chunk, ascending in each")

    @property
    def read_by_all(self) -> int:
        """Bytes that all chunks together read of it."""
        return int(self.tile_elements.nbytes)


@dataclass(frozen=True, eq=False)
class StagedTouching(Touching):
    """The same for elements that are all evaluated before any is added up, so that evaluating them is vectorised."""

    @size
    def largest(self) -> int:
        return int(np.diff(self.tile_offsets).max(initial=0))


@dataclass(frozen=True, eq=False)
class ChunkPlan(Plan):
    """The plan of a fused loop on a CPU, made of those of its parts by ``tile``."""

    gathers: dict[int, Touching] = holds(
        Table(Part(Touching, StagedTouching), racy_maps), "what touches the targets of each racy map"
    )


class FusedChunks(Emitter):
    """Chunks of targets: first what others give them, into scratch, then what their own loops do."""

    name = "fused_chunks"

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(spec, FusedSpec) and isinstance(plan, ChunkPlan)
        code = ChunkElement(spec)
        own = code.body(code.plain)
        if not spec.racy_maps:
            return [Pass("elements", COUNT, (Phase(own, independent=True),), reductions=spec.reductions)]
        phases = [*_start(code, [o for o in spec.starts if not _of_sums(spec, o)])]
        for m in spec.racy_maps:
            phases += _start(code, [o for o in spec.starts if _of_sums(spec, o) and spec.params[o.param].map == m])
            phases += _gather(spec, plan, code, m)
        phases.append(_over_targets(own))
        scratch = [Scratch(spec.params[k].ctype, f"sum{k}", BLOCK_SIZE * spec.params[k].dim) for k in sums(spec)]
        scratch += [_stage(spec, plan, m, one) for m in _staged(plan) for one in columns_of(spec, m)]
        chunks = (COUNT + BLOCK_SIZE - 1) / BLOCK_SIZE
        return [Pass("chunks", chunks, tuple(phases), blocked=True, scratch=tuple(scratch),
                     reductions=spec.reductions)]  # fmt: skip


def sums(spec: FusedSpec) -> tuple[int, ...]:
    """The racy parameters that have sums of their own."""
    joined = dict(spec.joined)
    return tuple(sorted({o.param for o in spec.racy_outputs if o.param not in joined}))


def _of_sums(spec: FusedSpec, start: Output) -> bool:
    """Does a sum begin with what is made of sums of maps before?"""
    return any(spec.params[param].racy for param, _, _ in loads([start.value]))


def _start(code: ChunkElement, starts: Sequence[Output]) -> list[Phase]:
    """Sums set to what they begin with."""
    if not starts:
        return []
    roots = [o.value for o in starts]
    computed, values = code.values(roots, {})
    stores = [Store(code.sum(o.param, o.comp), value) for o, value in zip(starts, values, strict=True)]
    return [_over_targets((let("e", ITEM), *ChunkElement(code.fused).rows(roots), *computed, *stores))]


def _over_targets(body: Body) -> Phase:
    return Phase(body, START, least(START + BLOCK_SIZE, COUNT), independent=True)


def _gather(spec: FusedSpec, plan: ChunkPlan, code: ChunkElement, m: int) -> list[Phase]:
    """The elements of map ``m`` that touch the chunk, one after the other; each adds to those of its targets inside."""
    offsets, elements = (part_of(plan, "gathers", m, word) for word in ("tile_offsets", "tile_elements"))
    first, last, own = offsets[BLOCK], offsets[BLOCK + 1], let("e", elements[ITEM])
    outputs = [o for o in spec.racy_outputs if spec.params[o.param].map == m]
    element, roots = ElementCode(spec, outputs), [o.value for o in outputs]
    if m not in _staged(plan):
        computed, values = element.values(roots)
        adding = _adding(spec, code, m, list(zip(outputs, values, strict=True)))
        return [Phase((own, *element.rows(roots, outputs), *computed, *adding), first, last)]
    kept, here = columns_of(spec, m), let("l", ITEM - first)
    evaluating = staging(ElementCode(spec, ()), kept, Name("l"), _keep)
    adding = _adding(spec, code, m, [(o, _staged_value(spec, kept, o)) for o in outputs])
    return [
        Phase((own, here, *evaluating), first, last, independent=True),
        Phase((own, here, *element.rows([], outputs), *adding), first, last),
    ]


def _adding(spec: FusedSpec, code: ChunkElement, m: int, given: list[tuple[Output, Expr]]) -> list[Statement]:
    """Statements that add values to the sums of those targets of an element that are inside the chunk."""
    made: list[Statement] = []
    for slot in sorted({o.slot for o, _ in given}):
        place = Name(f"place{slot}")
        adding = [accumulated(spec.params[o.param], code.sum(o.param, o.comp, place), value)
                  for o, value in given if o.slot == slot]  # fmt: skip
        inside = Cast("uint64_t", place) < Cast("uint64_t", Grouped(SIZE))
        made += [let(place.name, row_of(m, slot) - START, "int64_t"), If(inside, tuple(adding))]
    return made


# ----- values kept until all elements of a chunk are evaluated ------------------------------------------------------
def _staged(plan: ChunkPlan) -> list[int]:
    return [m for m, one in plan.gathers.items() if isinstance(one, StagedTouching)]


def _stage(spec: LoopSpec, plan: ChunkPlan, m: int, kept: Columns) -> Scratch:
    room = part_of(plan, "gathers", m, "largest") * len(kept.nodes)
    return Scratch(spec.params[kept.param].ctype, stage_of(kept).name, room)


def _keep(kept: Columns, place: Expr, values: Sequence[Expr]) -> list[Statement]:
    return [Store(stage_at(kept, place, k), value) for k, value in enumerate(values)]


def _staged_value(spec: LoopSpec, kept: Sequence[Columns], output: Output) -> Expr:
    """The kept value of an output, with its sign."""
    columns = next(one for one in kept if one.param == output.param)
    used = columns.use[output.slot][output.comp]
    assert used is not None
    value = stage_at(columns, Name("l"), used[0])
    return negated(value, spec.params[output.param].dtype) if used[1] < 0 else value


class ChunkElement(FusedElement):
    """What the loops over the set itself do; what others gave is in the chunk's sums."""

    def __init__(self, spec: FusedSpec):
        super().__init__(spec, None, {})

    def sum(self, param: int, comp: int, place: Expr = ELEMENT - START) -> Expr:
        """The sum at a target, by its place in the chunk."""
        param = dict(self.fused.joined).get(param, param)
        dim = self.spec.params[param].dim
        return Name(f"sum{param}")[offset_by(place * dim, comp) if dim > 1 else place]

    def leaf(self, node: Node) -> Expr:
        param, _, comp = node.value
        return self.sum(param, comp) if self.spec.params[param].racy else super().leaf(node)


def listed_again(rows: np.ndarray, chunk: int) -> float:
    """How many chunks of targets an element with one of these rows (elements, arity) touches on average."""
    if not len(rows):
        return 1.0
    blocks = np.sort(rows // chunk, axis=1)
    return 1.0 + float(np.count_nonzero(np.diff(blocks, axis=1))) / len(blocks)
