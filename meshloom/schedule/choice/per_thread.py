"""What a thread of a GPU takes in loops that look at their own elements only: one, or several where that pays.

A thread that moves one number has too little under way, and too many instructions for it. How several are moved at once
is said in ``strategies/common/vectors.py``.
"""

from __future__ import annotations

from dataclasses import replace

from meshloom.kernel.access import ReadWrite
from meshloom.kernel.count import loads
from meshloom.kernel.expr import load, operate, topological
from meshloom.kernel.model import Output
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.spec import VECTOR, Address, ElementsPerThread, LoopSpec, SpecParam
from meshloom.target import Target, VectorNumbers


def chosen_per_thread(spec: LoopSpec, schedule: Schedule, elements: int, target: Target) -> ElementsPerThread:
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


def has_rows(param: SpecParam) -> bool:
    return param.layout.kind == "aos" and param.dim > 1 and not param.is_global


def _too_little(spec: LoopSpec, per_thread: ElementsPerThread, elements: int, target: Target) -> str | None:
    """Why too little would be gained by several elements for each thread; None where it pays."""
    numbers, most = target.gpu.vectors, target.gpu.points.most_nodes
    nodes, values = len(topological(o.value for o in spec.outputs)), len(_loaded(spec)) + len(spec.outputs)
    if elements < numbers.many:
        return f"fewer than {numbers.many:,} elements: too few threads to fill a GPU"
    if values > numbers.most_values or per_thread.count * nodes > most:
        return f"{values} values and {nodes} operations of an element keep a thread busy"
    return "rows of several numbers are moved at once anyway" if any(map(has_rows, spec.params)) else None


def _loaded(spec: LoopSpec) -> set[Address]:
    """What is loaded for an element, numbers that something is added to included."""
    full = stored_only(spec)
    return {a for a in loads(o.value for o in full.outputs) if not spec.params[a[0]].is_global}


def _enough(spec: LoopSpec, vector: int, numbers: VectorNumbers) -> ElementsPerThread:
    """So many vectors that their loads have enough bytes under way."""
    one = vector * sum(spec.params[param].dtype.itemsize for param, _, _ in _loaded(spec))
    least = numbers.least_reduced if spec.reductions else numbers.least_loaded
    return ElementsPerThread(vector, min(numbers.most_vectors, max(1, least // one)) if one else 1)


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
