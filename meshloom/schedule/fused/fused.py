"""fused: several loops that meet at the elements of one set, as one loop over that set.

Everything that happens to an element of the set happens in one place: what other elements give to it (as in ``owner``),
then what the loops over the set itself do with that. Values that one loop hands to the next stay in registers. Which
loops may be fused, and what the fused one stores, is decided in ``operation/fusion``; here it is turned into code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from meshloom.kernel.expr import Node, topological
from meshloom.kernel.model import Output
from meshloom.records import dataclass
from meshloom.schedule.nest.code import COUNT, ITEM, TARGET, ElementCode, Pass, Phase, row_of
from meshloom.schedule.nest.nodes import Block, Body, Expr, If, Statement, let, variable
from meshloom.schedule.plan.declare import ANY, Array, Part, Table, holds, maybe, racy_maps
from meshloom.schedule.plan.emitter import Emitter
from meshloom.schedule.plan.plan import Plan, part_of
from meshloom.schedule.spec import Address, LoopSpec
from meshloom.schedule.strategies.common.gather import accumulator, visit
from meshloom.schedule.strategies.common.neighbours import OwnRing, SymmetricTables, TabledIncidence
from meshloom.schedule.strategies.common.symmetric_gather import LISTED, SymmetricGather, incident_seen
from meshloom.schedule.strategies.common.vectors import vector_pass
from meshloom.target import CPU, Target


@dataclass(frozen=True)
class FusedSpec(LoopSpec):
    """A fused loop over the targets of all its racy maps.

    Racy outputs are what other elements give. In the other outputs, a load of a racy parameter stands for the sum of
    that. ``own_maps`` lead from the set of the loop. ``buffers`` numbers what the parameters point to: equal numbers,
    equal data. ``joined``: (racy parameter, another one) whose sum it adds to, where there is one for both. ``starts``:
    what the sums of racy parameters begin with, each component; it may be made of sums of maps before.
    """

    own_maps: frozenset[int] = frozenset()
    buffers: tuple[int, ...] = ()
    joined: tuple[tuple[int, int], ...] = ()
    starts: tuple[Output, ...] = ()

    @property
    def racy_maps(self) -> tuple[int, ...]:
        """Maps whose elements give something, each once, in the order of the loops: that of sums over several."""
        return tuple(dict.fromkeys(m for o in self.racy_outputs if (m := self.params[o.param].map) is not None))


@dataclass(frozen=True, eq=False)
class FusedGather(TabledIncidence):
    """How targets take what the elements of one map give: through symmetric tables, or along the incidence."""

    tables: SymmetricTables | None = holds(Part(SymmetricTables), "tables of neighbours, of symmetric kernels", maybe)
    touched: np.ndarray | None = holds(
        Array(("uint32",), ANY), "a bit for each target that has entries, where most have none", maybe
    )
    along: OwnRing | None = holds(Part(OwnRing), "a map in place of the ring", maybe)

    @property
    def read_by_all(self) -> int:
        """Bytes that every target reads."""
        tables = [] if self.tables is None else [self.tables.near, *self.tables.ring.values(),
                                                 *self.tables.rows.values(), self.tables.sorting]  # fmt: skip
        return sum(one.nbytes for one in (*tables, self.touched) if one is not None)


@dataclass(frozen=True, eq=False)
class FusedPlan(Plan):
    """The plan of a fused loop, made of those of its parts by ``owner``."""

    gathers: dict[int, FusedGather] = holds(Table(Part(FusedGather), racy_maps), "what each racy map brings")


class Fused(Emitter):
    """Several loops as one, their values handed on in registers; the plan is made of the plans of its parts."""

    name = "fused"

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(spec, FusedSpec) and isinstance(plan, FusedPlan)
        if spec.per_thread.count > 1:
            return [vector_pass(spec)]
        first = next((m for m in spec.racy_maps if plan.gathers[m].tables is not None), None)
        body = _body(spec, plan, first, ITEM)
        extra_items = None
        if first is not None and (tables := plan.gathers[first].tables) is not None and tables.marked is not None:
            count, marked = (part_of(plan, "gathers", first, "tables", word) for word in ("n_marked", "marked"))
            extra_items = count, Phase(_body(spec, plan, None, marked[ITEM]))
        return [Pass("targets", COUNT, (Phase(body),), reductions=spec.reductions, extra_items=extra_items)]


def _body(spec: FusedSpec, plan: FusedPlan, dense: int | None, target: Expr) -> Body:
    """Statements for one target; map ``dense`` through its tables, all others by following the incidences."""
    known: dict[Node, Expr] = {}
    gather, inside = None, list[Statement]()
    before: list[Statement] = [let("t", target), let("e", TARGET)]
    before += [let(row_of(m, 0).name, TARGET) for m in spec.racy_maps if m != dense]
    if dense is not None:
        gather = SymmetricGather.of(spec, dense, plan, plan.gathers[dense], plan.gathers[dense].along)
        before += gather.loading(known)
    code = FusedElement(spec, gather, known)
    for m in spec.racy_maps:
        made = before if gather and m in spec.racy_maps[: spec.racy_maps.index(gather.m) + 1] else inside
        made += code.starting([o for o in spec.starts if spec.params[o.param].map == m])
        made += gather.adding(known) if gather and m == gather.m else [_visited(spec, plan, m)]
    inside += code.own(code.plain)
    return (*before, If(LISTED, tuple(inside))) if gather else (*before, *inside)


def _visited(spec: FusedSpec, plan: FusedPlan, m: int) -> Statement:
    """What the elements of a map give to the target, where it has any."""
    visits = (visit(incident_seen(spec, m, plan), part_of(plan, "gathers", m, "offsets")),)
    if plan.gathers[m].touched is None:
        return Block(visits)
    return If(part_of(plan, "gathers", m, "touched")[TARGET >> 5] >> (TARGET & 31) & 1, visits)


class FusedElement(ElementCode):
    """What the loops over the set itself do. Values that the gather has loaded are used again."""

    def __init__(self, spec: FusedSpec, gather: SymmetricGather | None, known: dict[Node, Expr]):
        super().__init__(spec, spec.other_outputs)
        self.fused, self.gather, self.known = spec, gather, known
        self.declared = {n.value[:2] for n in known if n.op == "load"}  # (parameter, slot) whose rows are there
        self.named: set[tuple[int, int]] = set()  # (map, slot) whose entries have a name

    def starting(self, starts: Sequence[Output]) -> list[Statement]:
        """Declarations of accumulators that hold what they begin with."""
        roots = [o.value for o in starts]
        rows = self.rows(roots)
        computed, values = self.values(roots)
        params = self.spec.params
        return [*rows, *computed, *(variable(accumulator(o.param, o.comp).name, value, params[o.param].ctype)
                                    for o, value in zip(starts, values, strict=True))]  # fmt: skip

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[Statement]:
        made = super().rows(roots, stored)
        self.declared |= {n.value[:2] for n in _loads(roots)}
        return made

    def values(
        self, roots: Sequence[Node], known: dict[Node, Expr] | None = None
    ) -> tuple[list[Statement], list[Expr]]:
        return super().values(roots, self.known if known is None else known)

    def used_rows(self, addresses: Iterable[Address]) -> list[tuple[int, int]]:
        wanted = {a for a in addresses if self._around(*a) is None}
        used = [(m, slot) for m, slot in super().used_rows(wanted) if m in self.fused.own_maps]
        new = [one for one in used if one not in self.named]
        self.named |= set(new)
        return new

    def whole_rows(self, roots: Sequence[Node]) -> list[Statement]:
        needed = [n for n in _loads(roots) if not self._elsewhere(n)]
        return super().whole_rows(needed)

    def _elsewhere(self, node: Node) -> bool:
        """Is the value of a load at hand already, without its row?"""
        racy, declared = self.spec.params[node.value[0]].racy, node.value[:2] in self.declared
        return racy or declared or self._around(*node.value) is not None

    def leaf(self, node: Node) -> Expr:
        param, slot, comp = node.value
        if self.spec.params[param].racy:
            return accumulator(param, comp)
        found = self._around(param, slot, comp)
        return super().leaf(node) if found is None else found

    def _around(self, param: int, slot: int, comp: int) -> Expr | None:
        """The value, where the ring of the gather goes through the same map."""
        number = self.spec.params[param].map
        along = None if self.gather is None else self.gather.along
        if self.gather is None or along is None or along.ring_of != number:
            return None
        twins = (k for k, b in enumerate(self.fused.buffers) if b == self.fused.buffers[param] and k != param)
        found = (self.gather.fetched.around(k, slot, comp) for k in twins if self.spec.params[k].map is not None)
        return next((value for value in found if value is not None), None)


def _loads(roots: Sequence[Node]) -> list[Node]:
    return [n for n in topological(roots) if n.op == "load"]


def touched_bits(offsets: np.ndarray) -> np.ndarray | None:
    """One bit for each target, set where it has entries; None where most have."""
    some = np.diff(offsets) > 0
    if 2 * np.count_nonzero(some) > len(some):
        return None
    padded = np.zeros(-(-len(some) // 32) * 32, np.uint8)
    padded[: len(some)] = some
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)
