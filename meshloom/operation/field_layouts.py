"""Which layouts the fields of some operations should have, where nobody has said it: on a GPU, by votes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache

from meshloom.mesh.core import Field, Global
from meshloom.operation.operation import Operation
from meshloom.schedule.choice.layouts import ranked_layouts


def layouts_by_votes(operations: Sequence[Operation]) -> dict[Field, str]:
    """Fields whose layout is free and should be another one, by the sum of times over the operations that use them."""
    loops = [o for o in operations if o.domain.visits_elements and o.backend.target.is_simt]
    users: dict[Field, list[Operation]] = {}
    for loop in loops:
        for one in dict.fromkeys(s for s in loop.storages if isinstance(s, Field)):
            users.setdefault(one, []).append(loop)
    seconds = cache(lambda loop: loop.estimate)  # of a loop, for each of its fields
    chosen: dict[Field, str] = {}
    for one, using in users.items():
        if one.layout_is_free and one.dim > 1 and not one.lent and not any(o.wish.layout for o in using):
            votes = [loop.policy.vote(loop, one, seconds(loop)) for loop in using]
            best = ranked_layouts(votes, using[0].backend.target)[0].what
            if best != str(one.layout):
                chosen[one] = best
    return chosen


def open_to(layouts: Mapping[Field, str], voted: Container[Field]) -> dict[Field, str]:
    """Those of some layouts that fields may get: nobody has said theirs, and none was ``voted`` for before."""
    return {one: layout for one, layout in layouts.items() if one.layout_is_free and one not in voted}


def relayout(layouts: Mapping[Field, str]) -> None:
    """Give fields these layouts, which stay free."""
    for one, layout in layouts.items():
        one.relayout(layout, free=True)


def chosen_for(operations: Sequence[Operation], storages: Iterable[Field | Global]) -> set[Field]:
    """The fields among these; on a GPU, loops that run by themselves leave them as they are from now on."""
    fields = {one for one in storages if isinstance(one, Field)}
    if any(o.backend.target.is_simt for o in operations):
        for one in fields:
            one.layout_is_chosen = True
    return fields
