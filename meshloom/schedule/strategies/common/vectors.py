"""Several elements for each thread of a GPU, in loops that do little with each of them.

A thread that moves one number has too little under way, and too many instructions for it. Where a loop looks at its own
elements only and their numbers lie side by side, a thread takes a vector of elements, whose numbers it loads and stores
at once; or several such vectors, far apart, so that neighbouring threads still move neighbouring ones.
"""

from __future__ import annotations

from meshloom.mesh.offsets import Index
from meshloom.schedule.choice.per_thread import has_rows, stored_only
from meshloom.schedule.nest.code import COUNT, ITEM, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import INT, Expr, For, Grouped, If, Name, Number, least, let, summed
from meshloom.schedule.spec import Address, LoopSpec
from meshloom.schedule.strategies.common.points import PointCode, tiled

SHARES = Name("shares")  # how many threads have elements


def vector_pass(spec: LoopSpec) -> Pass:
    """A pass whose items are what a thread takes; what is not whole is done element by element."""
    vector, unroll = spec.per_thread.vector, spec.per_thread.unroll
    plain = stored_only(spec)
    full, single = VectorCode(tiled(plain, (spec.per_thread.count,)), vector), ElementCode(plain, plain.outputs)
    first, turn, x = Name("first"), Name("k"), Name("x")
    start = first if unroll == 1 else first + turn * (SHARES * vector)
    rest = For(x.name, start, least(x + vector, COUNT), single.body(single.plain, element=x), bound="stop", unroll=1)
    if unroll > 1:  # not a step further: positions may have just enough bits
        rest = For(turn.name, Number(0), Number(unroll), (rest,), INT, unroll=1, bare=True)
    last = summed([first, *_way(spec.per_thread.count - 1, vector)])
    body = (let(first.name, ITEM * vector), If(last < COUNT, full.body(full.plain, element=first), (rest,)))
    return Pass("shares", SHARES, (Phase(body),), reductions=spec.reductions)


def _way(d: int, vector: int) -> list[Expr]:
    """The way in memory from the first to element d of a thread, in steps; neighbouring vectors of a thread have one of
    every other thread between them."""
    number, lane = divmod(d, vector)
    far: list[Expr] = [SHARES * (number * vector)] if number else []
    return [*far, *([Number(lane)] if lane or not number else [])]


class VectorCode(PointCode):
    """Statements of all elements of a thread: offset d is element d % vector of vector number d // vector."""

    def __init__(self, spec: LoopSpec, vector: int):
        count = len({o for p in spec.params for o in p.offsets})
        super().__init__(spec, spec.outputs, (False,), (count,), vector=vector)

    def in_whole_row(self, param: int) -> bool:
        return False

    def _piece(self, param: int, slot: int, comp: int) -> tuple[Address, ...]:
        """Rows of a vector's elements lie one after the other in ``aos``: all of them are one piece."""
        described, first = self.spec.params[param], slot - slot % self.vector
        if not has_rows(described):
            return super()._piece(param, slot, comp)
        return tuple((param, first + k, c) for k in range(self.vector) for c in range(described.dim))

    def row(self, param: int, slot: int) -> Expr:
        lane = slot % self.vector
        first = super().row(param, slot - lane)
        return Grouped(first + lane) if lane else first

    def _used(self) -> list[Index]:
        """The first element of each vector stands for all of it."""
        return [o for o in super()._used() if o[-1] % self.vector == 0]

    def _step(self, axis: int, d: int) -> Expr:
        return summed(_way(d, self.vector))
