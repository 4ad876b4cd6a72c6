"""How the stage of ``staged`` and ``tile`` is laid out: the array that keeps increments between evaluation and gather.

Slots that share values (``res[0] += f; res[1] -= f``) share them in the stage too: a row of columns for each element.
Where every slot has values of its own, as the corners of a hexahedron, the stage holds a row for each (slot, element),
slot by slot: neighbouring elements then write, and neighbouring targets read, side by side, which lets a CPU vectorise
the evaluation and keeps the threads of a GPU off each other's memory banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.schedule.code import merged
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


@dataclass(frozen=True)
class Stage:
    """Where increments are kept: ``rows`` (a C expression) of them, for each slot where slots have rows of their own.

    ``apart``: components lie apart, for shared memory, where neighbouring threads then use neighbouring banks. Else
    rows lie together, and a GPU moves them in pieces of 16 bytes.
    """

    spec: LoopSpec
    rows: str
    apart: bool = False

    def at(self, columns: Columns, element: str, column: int) -> str:
        """The place of a column of an element."""
        if has_own_rows(columns):
            slot, comp = divmod(column, len(columns.use[0]))
            return self._own(columns, element, str(slot), comp)
        if self.apart and len(columns.nodes) > 1:
            return f"stage{columns.param}[{column} * {self.rows} + {element}]"
        return stage_at(columns, element, column)

    def _own(self, columns: Columns, element: str, slot: str, comp: int) -> str:
        dim = len(columns.use[0])
        if self.apart and dim > 1:
            return f"stage{columns.param}[({slot} * {dim} + {comp}) * {self.rows} + {element}]"
        row = f"({slot} * {self.rows} + {element})"
        return f"stage{columns.param}[{row} * {dim} + {comp}]" if dim > 1 else f"stage{columns.param}[{row}]"

    def _whole(self, columns: Columns) -> bool:
        """Is a row moved as a whole?"""
        size = len(columns.nodes) * self.spec.params[columns.param].dtype.itemsize
        return self.spec.wide and not self.apart and not has_own_rows(columns) and size % 16 == 0 and size <= 64

    def stores(self, columns: Columns, element: str, names: Sequence[str]) -> list[str]:
        """Statements that keep the columns of an element."""
        if not self._whole(columns):
            return [f"{self.at(columns, element, k)} = {name};" for k, name in enumerate(names)]
        ctype, width = self.spec.params[columns.param].ctype, len(names)
        values = ", ".join(f"({ctype}){name}" for name in names)
        return [f"ml_store<{ctype}, {width}>(&{self.at(columns, element, 0)}, {{{{{values}}}}});"]

    def merge(self, groups: Sequence[Columns], arity: int, element: str) -> list[str]:
        """Statements that merge what is kept for an incident element and its slot ``s`` into the accumulators."""
        own, shared = [g for g in groups if has_own_rows(g)], [g for g in groups if not has_own_rows(g)]
        lines = []
        for columns in own:
            described = self.spec.params[columns.param]
            for comp in range(len(columns.use[0])):
                target, value = accumulator(columns.param, comp), self._own(columns, element, "(ml_index)s", comp)
                lines.append(f"{target} = {merged(described, target, value)};")
        if not shared:
            return lines
        by_param = {g.param: g for g in shared}
        for columns in shared:
            if self._whole(columns):
                ctype, width = self.spec.params[columns.param].ctype, len(columns.nodes)
                source = f"ml_load<{ctype}, {width}>(&{self.at(columns, element, 0)})"
                lines.append(f"const ml_row<{ctype}, {width}> kept{columns.param} = {source};")

        def kept(param: int, column: int) -> str:
            whole = self._whole(by_param[param])
            return f"kept{param}.v[{column}]" if whole else self.at(by_param[param], element, column)

        return lines + accumulate(self.spec, shared, arity, kept)
