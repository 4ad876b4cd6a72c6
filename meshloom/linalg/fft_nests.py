"""The steps around a batched FFT as operations with nests of their own: cells to another order, and pairs of waves.

Where a number goes follows from its indices, so nothing is stored for it: a step reads every number once and writes it
once, 16 bytes in double, and neighbouring threads are at neighbouring places both ways. Loops through maps by a formula
would find the same places from the number of an element, by divisions in 64 bits and with the shape in their text, one
for each grid. And none of them transposes: without shared memory, a thread that takes 8 bytes of each sector of 32
would move four times as much of one of the two arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from meshloom.backend import current
from meshloom.kernel.access import Mode, Read, ReadWrite, Write
from meshloom.kernel.count import arithmetic, flops_by_kind, instructions, repeated
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output, Param
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.layout import Layout
from meshloom.operation.body import Body, BodyGraph
from meshloom.operation.calls import remembered
from meshloom.operation.domain import Domain, Extent, Part
from meshloom.operation.loop import Kernel
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.operation.policy import ExecutionPolicy
from meshloom.schedule.choice.explain import amount
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.nest.code import BLOCK, COUNT, ITEM, ElementCode, Pass, Phase, Scratch
from meshloom.schedule.nest.nodes import (
    INDEX,
    INT,
    UNSIGNED,
    Cast,
    Expr,
    For,
    Grouped,
    If,
    Name,
    Select,
    Statement,
    Store,
    all_of,
    let,
    summed,
    value,
)
from meshloom.schedule.plan.declare import Listed, PlanNumber, holds
from meshloom.schedule.plan.declare import Part as PlanPart
from meshloom.schedule.plan.plan import Plan, part_of
from meshloom.schedule.spec import LoopSpec, SpecParam
from meshloom.schedule.strategies import ELEMENTS, serving
from meshloom.schedule.strategies.base import Emitter

Statements = tuple[Statement, ...]
EDGE, ROWS = 32, 8  # cells along the sides of a square, and rows of it that the threads of a block take at a time
FOLDED, SIGNED = ("cosines", "sines"), "sines"  # axes in another order, and those where every second sign is turned


# ----- an operation by a nest that is given -----------------------------------------------------------------------
@dataclass(frozen=True)
class WholeArrays(Domain):
    """Fields as wholes, each in an order of its own; so many numbers, or pairs of them, are visited."""

    visits: int

    @property
    def set(self) -> None:
        return None

    @property
    def size(self) -> int:
        return self.visits

    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        return False

    @property
    def known_by(self) -> int:
        return self.visits

    def __str__(self) -> str:
        return "whole fields"


@dataclass(frozen=True)
class NestBody(Body):
    """What the nest says."""

    strict: bool = False

    def graph(self, of: Operation) -> BodyGraph:
        return BodyGraph(())

    def loaded(self, of: Operation) -> range:
        return range(len(of.operands))


@dataclass(frozen=True)
class NestPolicy(ExecutionPolicy):
    """By a nest that is known: there is nothing to choose. ``moved``: bytes, each of them read once and written
    once."""

    made: LoopSpec
    planned: Plan
    moved: int

    def spec(self, of: Operation) -> LoopSpec:
        return self.made

    def plan(self, of: Operation, schedule: Schedule | None = None) -> Plan:
        return self.planned

    def chosen(self, of: Operation) -> tuple[Schedule, str]:
        return Schedule(self.planned.strategy, block=self.planned.block), "places computed from indices"

    def compulsory(self, of: Operation) -> int:
        return 2 * self.moved

    def flops(self, of: Operation) -> float:
        return float(of.elements * arithmetic(flops_by_kind(o.value for o in self.made.outputs)))

    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        return repeated(of.elements, instructions(o.value for o in self.made.outputs))

    def explain(self, of: Operation) -> str:
        took = f", {of.seconds * 1e3:.4g} ms" if of.seconds else ""
        return f"{of.name}: {of.schedule}, {of.reason}; back end {of.backend.name}, {amount(of.compulsory)}{took}"


def _operation(spec: LoopSpec, plan: Plan, fields: Sequence[Field], visits: int, numbers: int) -> Operation:
    """``numbers``: so many are read, and written."""
    operands = tuple(Operand(one, p.mode, name=p.name) for one, p in zip(fields, spec.params, strict=True))
    policy = NestPolicy(spec, plan, numbers * fields[0].dtype.itemsize)
    return Operation(spec.name, WholeArrays(visits), operands, NestBody(spec.strict), policy)


def _param(field: Field, name: str, mode: type[Mode], dim: int) -> SpecParam:
    """So many numbers of a field side by side as one."""
    return SpecParam(name, mode, dim, field.dtype, Layout("aos"), None)


def _indices(number: Expr, lengths: Sequence[Expr], named: Sequence[Name]) -> list[Statement]:
    """Names for the indices of a number in C order, the first of which has no end; unsigned, as that divides faster."""
    made: list[Statement] = [let("number", Cast(UNSIGNED, number), UNSIGNED)]
    left = Name("number")
    for k in range(len(named) - 1, 0, -1):
        length, rest = Cast(UNSIGNED, lengths[k]), Name(f"above{k}")
        made += [let(named[k].name, Cast(INDEX, Grouped(left % length))), let(rest.name, left / length, UNSIGNED)]
        left = rest
    return [*made, let(named[0].name, Cast(INDEX, left))]


# ----- cells in order ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CellOrder:
    """Cells (*shape,) of a field: places in memory from one to the next along each axis, and where the first one lies.
    ``kinds``: "cosines" or "sines" of axes whose even cells come first, ascending, then the odd ones, descending;
    along sines every second one has its sign turned."""

    shape: tuple[int, ...]
    pitches: tuple[int, ...]
    origin: int
    kinds: tuple[str, ...]

    @property
    def transposed(self) -> bool:
        """Are cells contiguous along the first axis? In order they are along the last one."""
        return self.pitches[-1] != 1


@dataclass(frozen=True)
class OrderSpec(LoopSpec):
    """``into`` order, or out of it."""

    kinds: tuple[str, ...] = ()
    into: bool = True


@dataclass(frozen=True, eq=False)
class OrderAxis:
    n: int = holds(PlanNumber(), "cells along it")
    pitch: int = holds(PlanNumber(), "places in memory from cell to cell")


@dataclass(frozen=True, eq=False)
class OrderPlan(Plan):
    """Cell after cell."""

    axes: tuple[OrderAxis, ...] = holds(Listed(PlanPart(OrderAxis)), "the axes, that of contiguous numbers last")
    origin: int = holds(PlanNumber(), "where the first cell lies in memory")


@dataclass(frozen=True, eq=False)
class TransposedPlan(OrderPlan):
    """Squares of cells, each by a block of threads."""

    across: int = holds(PlanNumber(), "squares along the first axis")
    along: int = holds(PlanNumber(), "squares along the last axis")
    squares: int = holds(PlanNumber(), "squares in all")


class FFTOrder(Emitter):
    """Cells into order, and out of it, on every target alike."""

    name = "fft_order"

    def passes(self, spec: LoopSpec, plan: Plan, **_: Any) -> list[Pass]:
        assert isinstance(spec, OrderSpec) and isinstance(plan, OrderPlan)
        code = OrderCode(spec, plan)
        return [code.by_squares(plan) if isinstance(plan, TransposedPlan) else code.by_cells()]


class OrderCode:
    """Statements for the cell at ``j0``, ``j1``, ..."""

    def __init__(self, spec: OrderSpec, plan: OrderPlan):
        self.spec, self.plan, self.last = spec, plan, len(spec.kinds) - 1
        self.j = [Name(f"j{a}") for a in range(self.last + 1)]
        self.n = [part_of(plan, "axes", a, "n") for a in range(self.last + 1)]

    def by_cells(self) -> Pass:
        """A thread for each cell."""
        body = (*_indices(ITEM, self.n, self.j), Store(self._target(self.last), self._source(self.last)))
        return Pass("cells", COUNT, (Phase(body, independent=True),))

    def by_squares(self, plan: TransposedPlan) -> Pass:
        """A square for each block, through shared memory: its threads go along the axis that is contiguous where they
        load, then along that which is where they store."""
        along = (0, self.last) if self.spec.into else (self.last, 0)
        square = Name("square")[Name(f"x{self.last}") * (EDGE + 1) + Name("x0")]  # one more: columns in other banks
        loaded = self._visited(plan, along[0], Store(square, self._source(0)))
        stored = self._visited(plan, along[1], Store(self._target(0), square))
        phases = tuple(Phase(body, value(0), value(EDGE * ROWS)) for body in (loaded, stored))
        room = Scratch(self.spec.params[0].ctype, "square", value(EDGE * (EDGE + 1)))
        return Pass("squares", part_of(plan, "squares"), phases, blocked=True, scratch=(room,))

    def _visited(self, plan: TransposedPlan, along: int, done: Statement) -> Statements:
        """What is ``done`` at the cells of square b, neighbouring threads at neighbours ``along`` an axis; ``x``: where
        a cell is in its square."""
        first, last, other = 0, self.last, self.last - along
        which, turn = {a: Name(f"square{a}") for a in (first, last)}, Name("turn")
        # in C order: what is between the two axes, if anything, squares along the last one, squares along the first one
        middle = self.j[1:last]
        named = [*middle, which[last], which[first]]
        lengths = [*self.n[1:last], part_of(plan, "along"), part_of(plan, "across")]
        place = {a: let(f"x{a}", at) for a, at in ((along, ITEM % EDGE), (other, ITEM / EDGE + turn * ROWS))}
        index = {a: let(self.j[a].name, which[a] * EDGE + Name(f"x{a}")) for a in (first, last)}
        inside = all_of(self.j[a] < self.n[a] for a in (first, last))
        rows = For(turn.name, value(0), value(EDGE // ROWS),
                   (place[other], index[other], If(inside, (done,))), INT, unroll=0)  # fmt: skip
        return (*_indices(BLOCK, lengths, named), place[along], index[along], rows)

    def _source(self, contiguous: int) -> Expr:
        """What is loaded, with its sign in order; ``contiguous``: the axis along which cells are."""
        found = self._cell(contiguous) if self.spec.into else self._ordered()
        turned = [self.j[a] for a, kind in enumerate(self.spec.kinds) if kind == SIGNED]
        return Select(summed(turned) & 1, -found, found) if turned else found

    def _target(self, contiguous: int) -> Expr:
        return self._ordered() if self.spec.into else self._cell(contiguous)

    def _cell(self, contiguous: int) -> Expr:
        steps = [j if a == contiguous else j * part_of(self.plan, "axes", a, "pitch") for a, j in enumerate(self.j)]
        return self.spec.access(0).at(summed([part_of(self.plan, "origin"), *steps]), 0)

    def _ordered(self) -> Expr:
        place = self._along(0)
        for a in range(1, self.last + 1):
            place = place * self.n[a] + self._along(a)
        return self.spec.access(1).at(place, 0)

    def _along(self, a: int) -> Expr:
        """Which one the cell is along an axis, in order."""
        j = self.j[a]
        return Select(j & 1, self.n[a] - 1 - (j >> 1), j >> 1) if self.spec.kinds[a] in FOLDED else j


def order_operation(cells: Field, ordered: Field, order: CellOrder, into: bool) -> Operation:
    """The cells of a field ``into`` order, or out of it."""
    modes = (Read, Write) if into else (Write, Read)
    params = _param(cells, "cells", modes[0], 1), _param(ordered, "ordered", modes[1], 1)
    name = "into_order" if into else "out_of_order"
    spec = OrderSpec(name, params, (), (), kinds=order.kinds, into=into)
    axes = tuple(OrderAxis(n, pitch) for n, pitch in zip(order.shape, order.pitches, strict=True))
    count = prod(order.shape)
    if order.transposed:
        across, along = (-(-order.shape[a] // EDGE) for a in (0, -1))
        squares = across * along * prod(order.shape[1:-1])
        plan: OrderPlan = TransposedPlan(FFTOrder.name, EDGE * ROWS, axes, order.origin, across, along, squares)
    else:
        plan = OrderPlan(FFTOrder.name, _block(count), axes, order.origin)
    return _operation(spec, plan, (cells, ordered), count, count)


def _block(visits: int) -> int:
    return serving(ELEMENTS).block(current().target, visits)


def reorder(cells: Field, ordered: Field, order: CellOrder, *, into: bool) -> None:
    """Run it; what is needed for the next call with the same fields is kept."""
    _run(ordered.set, order_operation, cells, ordered, order, into)


def _run(on: Set, make: Callable[..., Operation], *given: Any) -> None:
    key = tuple(one.serial if isinstance(one, Field) else one for one in given)
    remembered(on, (make, current().key, *key), (), make, *given)


# ----- pairs of waves ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WavePairs:
    """Waves k and n - k along an axis of ``length``, at the same place of all axes before and the ``inner`` ones behind
    it, the last of which has ``last`` waves. ``paired``: is there such an axis at all?"""

    outer: int
    length: int
    inner: int
    last: int
    paired: bool

    @property
    def half(self) -> int:
        """Waves of which none is in the pair of another."""
        return self.length // 2 + 1

    @property
    def visits(self) -> int:
        return self.outer * self.half * self.inner


@dataclass(frozen=True)
class PairKernels:
    """What is done with a pair; with a wave that goes no way, k = 0; and with one for which both ways are the same,
    2k = n. Of the last two only what becomes of the first wave counts."""

    pair: Kernel
    constant: Kernel
    shortest: Kernel


@dataclass(frozen=True)
class PairSpec(LoopSpec):
    """``outputs``: of a pair; the others as the kernels of ``PairKernels``."""

    constant: tuple[Output, ...] = ()
    shortest: tuple[Output, ...] = ()
    paired: bool = True

    @property
    def formulas(self) -> tuple[Node, ...]:
        return (*super().formulas, *(o.value for o in (*self.constant, *self.shortest)))


@dataclass(frozen=True, eq=False)
class PairPlan(Plan):
    """Pair after pair."""

    length: int = holds(PlanNumber(), "waves along the axis of the pairs")
    half: int = holds(PlanNumber(), "of which none is in the pair of another")
    inner: int = holds(PlanNumber(), "waves at each of these")
    waves: int = holds(PlanNumber(), "waves along the last axis")


PARAMETERS = ("shares", "turn", "phase")
HERE, OTHER, K, LAST = map(Name, ("here", "there", "wave", "last_wave"))


class PairCode(ElementCode):
    """The statements of a pair, or of a wave ``alone``."""

    def __init__(self, spec: PairSpec, outputs: tuple[Output, ...], *, alone: bool):
        super().__init__(spec, [o for o in outputs if not (alone and o.slot)])
        self.alone = alone

    def row(self, param: int, slot: int) -> Expr:
        here = HERE if self.alone or slot == 0 else OTHER
        return {"shares": here, "turn": K, "phase": LAST}[PARAMETERS[param]]

    def statements(self) -> Statements:
        return tuple(self.own(self.plain))


class FFTPairs(Emitter):
    """Pairs of waves, in place, on every target alike."""

    name = "fft_pairs"

    def passes(self, spec: LoopSpec, plan: Plan, **_: Any) -> list[Pass]:
        assert isinstance(spec, PairSpec)
        length, half, inner, waves = (part_of(plan, word) for word in ("length", "half", "inner", "waves"))
        pair = PairCode(spec, spec.outputs, alone=False).statements()
        constant, shortest = (PairCode(spec, o, alone=True).statements() for o in (spec.constant, spec.shortest))
        if not spec.paired:
            body: Statements = (let(HERE.name, ITEM), let(LAST.name, ITEM % waves), *constant)
            return [Pass("waves", COUNT, (Phase(body),))]
        before, r = Name("before"), Name("r")
        alone = constant if constant == shortest else (If(K.equals(0), constant, shortest),)
        to_other = let(OTHER.name, HERE + (length - 2 * K) * inner)
        body = (
            *_indices(ITEM, (COUNT, half, inner), (before, K, r)),
            let(HERE.name, (before * length + K) * inner + r),
            let(LAST.name, r % waves),
            If(all_of((K > 0, length > 2 * K)), (to_other, *pair), alone),
        )
        return [Pass("pairs", COUNT, (Phase(body),))]


def pairs_operation(
    shares: Field, turn: Field, phase: Field, name: str, pairs: WavePairs, kernels: PairKernels
) -> Operation:
    """Pairs of waves, numbers of ``shares`` in twos, by their kernels; ``turn`` and ``phase`` as these say."""
    strict, fields = current().strict, (shares, turn, phase)
    modes, arity = (ReadWrite, Read, Read), (2, 0, 0)
    params = tuple(_param(*one, 2) for one in zip(fields, PARAMETERS, modes, strict=True))
    seen = tuple(Param(p.name, p.mode, (n, 2) if n else (2,), p.dtype, n, 2)
                 for p, n in zip(params, arity, strict=True))  # fmt: skip
    pair, *alone = (one.outputs(seen, strict=strict) for one in (kernels.pair, kernels.constant, kernels.shortest))
    spec = PairSpec(name, params, (), pair, constant=alone[0], shortest=alone[1], paired=pairs.paired, strict=strict)
    visits = pairs.visits
    plan = PairPlan(FFTPairs.name, _block(visits), pairs.length, pairs.half, pairs.inner, pairs.last)
    return _operation(spec, plan, fields, visits, 2 * pairs.outer * pairs.length * pairs.inner)


def change_pairs(
    shares: Field, turn: Field, phase: Field, name: str, pairs: WavePairs, kernels: PairKernels
) -> None:
    """Run it; what is needed for the next call with the same fields is kept."""
    _run(shares.set, pairs_operation, shares, turn, phase, name, pairs, kernels)
