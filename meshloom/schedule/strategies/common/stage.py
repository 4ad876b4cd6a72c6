"""How the stage of ``staged`` and ``tile`` is laid out: the array that keeps increments between evaluation and gather.

Slots that share values (``res[0] += f; res[1] -= f``) share them in the stage too: a row of columns for each element.
Where every slot has values of its own, as the corners of a hexahedron, the stage holds a row for each (slot, element),
slot by slot: neighbouring elements then write, and neighbouring targets read, side by side, which lets a CPU vectorise
the evaluation and keeps the threads of a GPU off each other's memory banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.records import dataclass
from meshloom.schedule.nest.code import accumulated
from meshloom.schedule.nest.nodes import (
    INDEX,
    AddressOf,
    Body,
    Cast,
    Expr,
    Grouped,
    LoadRow,
    Name,
    Number,
    Piece,
    RowOf,
    Statement,
    Store,
    StoreRow,
    Value,
    let,
    value,
)
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.common.gather import (
    SLOT,
    Columns,
    accumulate,
    accumulator,
    columns_of,
    stage_at,
    stage_of,
)


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


@dataclass(frozen=True)
class Stage:
    """Where increments are kept: ``rows`` of them, for each slot where slots have rows of their own.

    ``apart``: components lie apart, for shared memory, where neighbouring threads then use neighbouring banks. Else
    rows lie together, and a GPU moves them in pieces of 16 bytes.
    """

    spec: LoopSpec
    rows: Expr
    apart: bool = False

    def at(self, columns: Columns, element: Expr, column: int) -> Expr:
        """The place of a column of an element."""
        if has_own_rows(columns):
            slot, comp = divmod(column, len(columns.use[0]))
            return self._own(columns, element, slot, comp)
        if self.apart and len(columns.nodes) > 1:
            return stage_of(columns)[column * self.rows + element]
        return stage_at(columns, element, column)

    def _own(self, columns: Columns, element: Expr, slot: Value, comp: int) -> Expr:
        dim, slot = len(columns.use[0]), value(slot)
        if self.apart and dim > 1:
            return stage_of(columns)[(slot * dim + comp) * self.rows + element]
        row = Grouped(slot * self.rows + element)
        return stage_of(columns)[row * dim + comp if dim > 1 else row]

    def _in_whole_rows(self, columns: Columns) -> bool:
        """Is a row moved as a whole?"""
        size = len(columns.nodes) * self.spec.params[columns.param].dtype.itemsize
        return self.spec.whole_rows and not self.apart and not has_own_rows(columns) and size % 16 == 0 and size <= 64

    def stores(self, columns: Columns, element: Expr, values: Sequence[Expr]) -> list[Statement]:
        """Statements that keep the columns of an element."""
        if not self._in_whole_rows(columns):
            return [Store(self.at(columns, element, k), one) for k, one in enumerate(values)]
        ctype = self.spec.params[columns.param].ctype
        return [StoreRow(ctype, self.at(columns, element, 0), tuple(Cast(ctype, one) for one in values))]

    def merge(self, groups: Sequence[Columns], arity: int, element: Expr) -> Body:
        """Statements that merge what is kept for an incident element and its slot ``s`` into the accumulators."""
        own, shared = [g for g in groups if has_own_rows(g)], [g for g in groups if not has_own_rows(g)]
        made: list[Statement] = []
        for columns in own:
            for comp in range(len(columns.use[0])):
                kept_there = self._own(columns, element, Cast(INDEX, SLOT), comp)
                made.append(accumulated(self.spec.params[columns.param], accumulator(columns.param, comp), kept_there))
        if not shared:
            return tuple(made)
        by_param = {g.param: g for g in shared}
        for columns in shared:
            if self._in_whole_rows(columns):
                ctype, width = self.spec.params[columns.param].ctype, len(columns.nodes)
                source = LoadRow(ctype, width, AddressOf(self.at(columns, element, 0)))
                made.append(let(f"kept{columns.param}", source, RowOf(ctype, width)))

        def kept(param: int, column: int) -> Expr:
            in_row = self._in_whole_rows(by_param[param])
            return Piece(Name(f"kept{param}"), Number(column)) if in_row else self.at(by_param[param], element, column)

        return (*made, *accumulate(self.spec, shared, arity, kept))
