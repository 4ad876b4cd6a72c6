"""How the stage of ``staged`` and ``tile`` is laid out: the array that keeps increments between evaluation and gather.

Slots that share values (``res[0] += f; res[1] -= f``) share them in the stage too: a row of columns for each element.
Where every slot has values of its own, as the corners of a hexahedron, the stage holds a row for each (slot, element),
slot by slot: neighbouring elements then write, and neighbouring targets read, side by side, which lets a CPU vectorise
the evaluation and keeps the threads of a GPU off each other's memory banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshloom.schedule.code import combined
from meshloom.schedule.gather import Columns, accumulate, accumulator, columns_of, stage_at
from meshloom.schedule.spec import LoopSpec


def has_own_rows(columns: Columns) -> bool:
    """Does every slot add a value of its own to every component, so that nothing is shared?"""
    slots, dim = len(columns.use), len(columns.use[0])
    return slots > 1 and len(columns.nodes) == slots * dim and all(used for slot in columns.use for used in slot)


def staged_columns(spec: LoopSpec, map_number: int) -> tuple[Columns, ...]:
    """The columns to stage. Those in rows of their own carry their sign, so all slots are read alike."""
    return tuple(_signed(spec, c) if has_own_rows(c) else c for c in columns_of(spec, map_number))


def _signed(spec: LoopSpec, columns: Columns) -> Columns:
    slots, dim = len(columns.use), len(columns.use[0])
    values = {(o.slot, o.comp): o.value for o in spec.racy_outputs if o.param == columns.param}
    nodes = tuple(values[slot, comp] for slot in range(slots) for comp in range(dim))
    return Columns(columns.param, nodes, tuple(tuple((s * dim + c, 1) for c in range(dim)) for s in range(slots)))


def by_slot(rows: str) -> Callable[[Columns, str, int], str]:
    """Where a column of an element is kept; ``rows`` is the C expression of the number of rows of each slot."""

    def place(columns: Columns, element: str, column: int) -> str:
        if not has_own_rows(columns):
            return stage_at(columns, element, column)
        slot, comp = divmod(column, len(columns.use[0]))
        return _entry(columns, element, str(slot), comp, rows)

    return place


def _entry(columns: Columns, element: str, slot: str, comp: int, rows: str) -> str:
    dim = len(columns.use[0])
    row = f"({slot} * {rows} + {element})"
    return f"stage{columns.param}[{row} * {dim} + {comp}]" if dim > 1 else f"stage{columns.param}[{row}]"


def merge_staged(spec: LoopSpec, groups: Sequence[Columns], arity: int, element: str, rows: str) -> list[str]:
    """Statements that merge what is staged for an incident element and its slot ``s`` into the accumulators."""
    own, shared = [g for g in groups if has_own_rows(g)], [g for g in groups if not has_own_rows(g)]
    lines = []
    for columns in own:
        combine = spec.params[columns.param].mode.combine
        for comp in range(len(columns.use[0])):
            target, value = accumulator(columns.param, comp), _entry(columns, element, "(ml_index)s", comp, rows)
            lines.append(f"{target} = {combined(combine, target, value)};")
    if shared:
        by_param = {g.param: g for g in shared}
        lines += accumulate(spec, shared, arity, lambda p, k: stage_at(by_param[p], element, k))
    return lines
