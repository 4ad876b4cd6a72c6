"""Several elements for each thread of a GPU, in loops that do little with each of them.

A thread that moves one number has too little under way, and too many instructions for it. Where a loop looks at its own
elements only and their numbers lie side by side, a thread takes a vector of elements, whose numbers it loads and stores
at once; or several such vectors, far apart, so that neighbouring threads still move neighbouring ones.
"""

from __future__ import annotations

from dataclasses import replace

from meshloom.kernel.access import ReadWrite
from meshloom.kernel.count import loads
from meshloom.kernel.expr import load, operate, topological
from meshloom.kernel.model import Output
from meshloom.mesh.offsets import Index
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.nest.code import COUNT, ITEM, ElementCode, Pass, Phase
from meshloom.schedule.nest.nodes import INT, Expr, For, Grouped, If, Name, Number, least, let, summed
from meshloom.schedule.spec import Address, ElementsPerThread, LoopSpec, SpecParam
from meshloom.schedule.strategies.common.points import VECTOR, PointCode, tiled
from meshloom.target import Target, VectorNumbers

SHARES = Name("shares")  # how many threads have elements


def share_of(spec: LoopSpec, schedule: Schedule, elements: int, target: Target) -> ElementsPerThread:
    """What a thread of a GPU takes: as much as ``schedule.vector`` says, or what is good for this loop."""
    return elements_per_thread(spec, schedule, elements, target)[0].what


def elements_per_thread(
    spec: LoopSpec, schedule: Schedule, elements: int, target: Target
) -> tuple[Candidate[ElementsPerThread], ...]:
    """What a thread of a GPU may take, ranked: several elements where that is possible and pays, else one."""
    fields = [p for p in spec.params if not p.is_global]
    if spec.maps or spec.box is not None or not fields:
        return (Candidate(ElementsPerThread()),)
    wanted = schedule.vector or VECTOR
    vector = max(1, min(wanted, VECTOR) // max(p.dtype.itemsize for p in fields))
    one, several = ElementsPerThread(), ElementsPerThread(vector, max(1, wanted // VECTOR))
    declined = None if all(_side_by_side(p, vector) for p in fields) else "numbers of a vector lie apart"
    if schedule.vector is None and declined is None:
        declined, several = _too_little(spec, several, elements, target), _enough(spec, vector, target.gpu.vectors)
    return rank([*([Candidate(several, declined=declined)] if several != one else []), Candidate(one)])


def in_words(per_thread: ElementsPerThread, elements: int) -> str:
    """The end of a sentence about a loop of so many elements; nothing where a thread takes one."""
    each, vector = min(per_thread.count, elements), per_thread.vector
    together = f", {vector} at once" if vector < each else ""
    return f"; {each} elements for each thread{together}" if each > 1 else ""


def _side_by_side(param: SpecParam, vector: int) -> bool:
    """Do the numbers of a vector's elements lie together, component by component or all of them?"""
    grouped = param.layout.kind == "aosoa" and param.layout.width % vector == 0
    return param.dim == 1 or param.layout.kind in ("aos", "soa") or grouped


def _has_rows(param: SpecParam) -> bool:
    return param.layout.kind == "aos" and param.dim > 1 and not param.is_global


def _too_little(spec: LoopSpec, per_thread: ElementsPerThread, elements: int, target: Target) -> str | None:
    """Why too little would be gained by several elements for each thread; None where it pays."""
    numbers, most = target.gpu.vectors, target.gpu.points.most_nodes
    nodes, values = len(topological(o.value for o in spec.outputs)), len(_loaded(spec)) + len(spec.outputs)
    if elements < numbers.many:
        return f"fewer than {numbers.many:,} elements: too few threads to fill a GPU"
    if values > numbers.most_values or per_thread.count * nodes > most:
        return f"{values} values and {nodes} operations of an element keep a thread busy"
    return "rows of several numbers are moved at once anyway" if any(map(_has_rows, spec.params)) else None


def _loaded(spec: LoopSpec) -> set[Address]:
    """What is loaded for an element, numbers that something is added to included."""
    full = stored_only(spec)
    return {a for a in loads(o.value for o in full.outputs) if not spec.params[a[0]].is_global}


def _enough(spec: LoopSpec, vector: int, numbers: VectorNumbers) -> ElementsPerThread:
    """So many vectors that their loads have enough bytes under way."""
    one = vector * sum(spec.params[param].dtype.itemsize for param, _, _ in _loaded(spec))
    least = numbers.least_reduced if spec.reductions else numbers.least_loaded
    return ElementsPerThread(vector, min(numbers.most_vectors, max(1, least // one)) if one else 1)


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


def stored_only(spec: LoopSpec) -> LoopSpec:
    """The same loop with increments of own elements as loads and stores, which can be done several at a time."""
    params = tuple(replace(p, mode=ReadWrite) if _merges(p) else p for p in spec.params)

    def value(o: Output) -> Output:
        param = spec.params[o.param]
        if not _merges(param):
            return o
        old = load(o.param, o.slot, o.comp, param.dtype)
        return replace(o, value=operate(param.mode.combine, [old, o.value]))

    return replace(spec, params=params, outputs=tuple(map(value, spec.outputs)))


def _merges(param: SpecParam) -> bool:
    return bool(param.mode.combine) and not param.is_global


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
        if not _has_rows(described):
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
