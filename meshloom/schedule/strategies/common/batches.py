"""Batches: the elements of a block, visited one after the other by one thread, are evaluated a few at a time.

What a batch gives waits in arrays of the thread, which stay in its nearest cache, and is then added up element by
element, in the order of before and with the same bits; but what is evaluated goes in vectors. It pays where elements
take much arithmetic. Others are visited one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.kernel.count import arithmetic, flops_by_kind
from meshloom.schedule.nest.code import INDEX, ITEM, ElementCode, updated_rows
from meshloom.schedule.nest.nodes import Body, Expr, For, Name, Number, Room, Statement, Store, least, let
from meshloom.schedule.nest.reduce import negated
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.common.gather import Columns, columns_of, staging

FIRST, LAST, END = (Name(f"batch_{word}") for word in ("first", "last", "end"))


def pays(spec: LoopSpec, least_flops: float) -> bool:
    """Do elements take so much arithmetic, and give something to others alone?"""
    flops = arithmetic(flops_by_kind(o.value for o in spec.racy_outputs))
    return bool(spec.racy_outputs) and not spec.other_outputs and flops >= least_flops


def one_by_one(spec: LoopSpec, element: Expr) -> Body:
    """Statements of position ``i``: all of an element, brought to the targets by their rows."""
    code, roots = ElementCode(spec, ()), [o.value for o in spec.outputs]
    computed, values = code.values(roots)
    rows = code.rows(roots, spec.outputs)
    return (let("e", element), *rows, *computed, *updated_rows(code, spec.outputs, values))


def in_batches(spec: LoopSpec, element: Expr, first: Expr, last: Expr, size: int) -> Body:
    """Statements of a block whose positions ``i`` go from ``first`` up to ``last``; ``element``: the one at ``i``."""
    columns = [c for m in spec.racy_maps for c in columns_of(spec, m)]
    own = let("e", element)
    evaluated = (own, *staging(ElementCode(spec, ()), columns, ITEM - FIRST, _keep))
    added = (own, *ElementCode(spec, ()).rows((), spec.racy_outputs), *_merges(spec, columns))
    batch = (
        let(LAST.name, least(FIRST + size, END)),
        For(ITEM.name, FIRST, LAST, evaluated, INDEX, independent=True),
        For(ITEM.name, FIRST, LAST, added, INDEX),
    )
    rooms = (Room(spec.params[c.param].ctype, _waiting(c.param, k).name, Number(size))
             for c in columns for k in range(len(c.nodes)))  # fmt: skip
    return (*rooms, For(FIRST.name, first, last, batch, INDEX, step=Number(size), bound=END.name))


def _waiting(param: int, column: int) -> Name:
    """What the elements of a batch give of a column."""
    return Name(f"waiting{param}_{column}")


def _keep(columns: Columns, place: Expr, values: Sequence[Expr]) -> list[Statement]:
    return [Store(_waiting(columns.param, k)[place], one) for k, one in enumerate(values)]


def _merges(spec: LoopSpec, columns: Sequence[Columns]) -> list[Statement]:
    """Statements that add up what one element gives, in the order of its outputs."""
    use, values = {c.param: c.use for c in columns}, list[Expr]()
    for o in spec.racy_outputs:
        used = use[o.param][o.slot][o.comp]
        assert used is not None, "an output has a column"
        kept = _waiting(o.param, used[0])[ITEM - FIRST]
        values.append(negated(kept, spec.params[o.param].dtype) if used[1] < 0 else kept)
    return updated_rows(ElementCode(spec, ()), spec.racy_outputs, values)
