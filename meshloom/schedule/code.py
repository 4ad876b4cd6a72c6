"""The shape of generated code: passes of blocks of phases of items.

A loop runs as a list of passes. A pass covers a range of items, cut into blocks; blocks are independent of each
other, so the CPU gives them to threads and a GPU to thread blocks. Inside a block, phases follow each other (on a GPU
with a barrier between), and the items of a phase are independent or run in order as the phase says. With ``colors``
the pass is repeated for each color, one after the other. A dialect (one per back end) turns passes into text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshloom.kernel import emit
from meshloom.kernel.access import identity
from meshloom.kernel.count import loads
from meshloom.kernel.emit import literal
from meshloom.kernel.expr import C_TYPES, Node
from meshloom.kernel.model import Output
from meshloom.schedule.spec import LoopSpec, SpecParam

Sink = Callable[[Output, str], list[str]]


@dataclass(frozen=True)
class Line:
    """Statements for each ``variable`` of [first, last): points of a line that are independent of each other."""

    variable: str
    first: str
    last: str
    body: tuple[str, ...]


@dataclass(frozen=True)
class Phase:
    """Statements for each item ``i`` of [first, last); C expressions that may use the block number ``b``."""

    first: str
    last: str
    body: tuple[str, ...]
    independent: bool = False  # no item writes what another touches: may be vectorised
    repeat: str = ""  # C expression: the phase is repeated so often, numbered by ``c``, with a barrier after each
    whole: bool = False  # the body is that of a whole block: said once, on a GPU by every thread, barriers included
    line: Line | None = None  # after the statements of an item, a line of points (on a CPU)
    together: bool = False  # threads exchange values, so all stay; ``inside``, ``followed``: this, the next has an item


@dataclass(frozen=True)
class Scratch:
    """Memory private to a block: ``size`` entries (a C expression), the same for every block."""

    ctype: str
    name: str
    size: str


@dataclass(frozen=True)
class Pass:
    """See the module's docstring.

    Without ``blocked`` the items [0, count) are cut into blocks of the schedule's size and ``phases`` has one phase,
    whose range is filled in by the dialect. With it, ``count`` blocks are numbered by ``b`` and phases give their own
    ranges. Items ``ahead`` run at the same time as the others, and begin first.
    """

    name: str
    count: str
    phases: tuple[Phase, ...]
    blocked: bool = False
    colors: str | None = None  # plan array of offsets into the items or blocks, length n_colors + 1
    block_number: str = "k"  # C expression of b from the position k in the launch
    scratch: tuple[Scratch, ...] = ()
    reductions: tuple[Output, ...] = field(default=())
    ahead: tuple[str, Phase] | None = None  # a count of other items and what is done with them, in blocks of their own


class ElementCode:
    """Statements of one element: rows of the maps, loads, arithmetic, and sinks for the outputs.

    ``entry(map, slot)`` is the C expression of a map's entry for the element, that of the map itself unless given.
    """

    def __init__(self, spec: LoopSpec, outputs: Sequence[Output], entry: Callable[[int, int], str] | None = None):
        self.spec, self.outputs, self.entry = spec, tuple(outputs), entry or self._in_map

    def lines(self, sink: Sink, *, element: str = "i") -> tuple[str, ...]:
        """All statements for the element numbered by the C expression ``element``."""
        roots = [o.value for o in self.outputs]
        text, names = self.values(roots)
        return (f"const ml_index e = {element};", *self.rows(roots, self.outputs), *text, *self.sunk(names, sink))

    def sunk(self, names: Sequence[str], sink: Sink) -> list[str]:
        """Statements that bring the outputs' values where they belong: whole rows at once, the rest by ``sink``."""
        named = {(o.param, o.slot, o.comp): name for o, name in zip(self.outputs, names, strict=True)}
        lines = []
        for o, name in zip(self.outputs, names, strict=True):
            param = self.spec.params[o.param]
            row = [named.get((o.param, o.slot, c)) for c in range(param.dim)]
            if not self.in_whole_row(o.param) or param.mode.combine or None in row:
                lines += sink(o, name)
            elif o.comp == 0:
                place, values = self.place(o.param, o.slot, 0), ", ".join(f"({param.ctype}){value}" for value in row)
                lines.append(f"ml_store<{param.ctype}, {param.dim}>(&{place}, {{{{{values}}}}});")
        return lines

    def values(self, roots: Sequence[Node], known: dict[Node, str] | None = None) -> tuple[list[str], list[str]]:
        """Statements for some nodes, and the names of their values."""
        return emit.statements(roots, self.leaf, known=known)

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[str]:
        """Statements that read the entries of the maps that these values and stores need, then whole rows of fields."""
        used = self.used_rows(loads(roots) | {(o.param, o.slot, o.comp) for o in stored})
        return [*self._entries(used), *self.whole_rows(roots)]

    def _entries(self, used: Sequence[tuple[int, int]]) -> list[str]:
        """Statements that name entries of maps; where most of a map's row is needed it is loaded in wide pieces."""
        lines, at_once = [], {m for m, _ in used if self._row_at_once(m, sum(n == m for n, _ in used))}
        for m in sorted(at_once):
            row = f"{C_TYPES[self.spec.maps[m].dtype]}, {self.spec.maps[m].arity}"
            lines.append(f"const ml_row<{row}> n{m} = ml_load<{row}>(&{self._in_map(m, 0)});")
        entries = {(m, s): f"n{m}.v[{s}]" if m in at_once else self.entry(m, s) for m, s in used}
        return lines + [f"const ml_index {row_name(m, s)} = {text};" for (m, s), text in entries.items()]

    def _row_at_once(self, number: int, needed: int) -> bool:
        one = self.spec.maps[number]
        wide = one.arity * one.entry_bytes
        own = self.entry == self._in_map and not one.formula
        return self.spec.wide and own and wide % 8 == 0 and wide <= 64 and 2 * needed > one.arity > 1

    def _in_map(self, number: int, slot: int) -> str:
        if formula := self.spec.maps[number].formula:
            return f"(ml_index){emit.nested(formula[slot], lambda _: '(int64_t)e')}"
        return f"m{number}[{index_of(f'e * {self.spec.maps[number].arity}', slot)}]"

    def used_rows(self, addresses: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """(map, slot) pairs behind some (parameter, slot, component)."""
        return sorted({(m, slot) for param, slot, _ in addresses if (m := self.spec.params[param].map) is not None})

    def whole_rows(self, roots: Sequence[Node]) -> list[str]:
        """Statements that load whole rows of fields, where the loop is to do so."""
        lines, read = [], loads(roots)
        for param, slot in sorted({(p, s) for p, s, _ in read if self.in_whole_row(p)}):
            described = self.spec.params[param]
            source = self.spec.access(param).load_row(self.row(param, slot))
            lines.append(f"const ml_row<{described.ctype}, {described.dim}> w{param}_{slot} = {source};")
        return lines

    def leaf(self, node: Node) -> str:
        param, slot, comp = node.value
        if self.spec.params[param].is_global:
            return f"g{param}_{comp}"
        return f"w{param}_{slot}.v[{comp}]" if self.in_whole_row(param) else self.place(*node.value)

    def in_whole_row(self, param: int) -> bool:
        """Are the rows of a parameter loaded as a whole?"""
        return self.spec.wide and not self.spec.params[param].is_global and self.spec.access(param).whole_row

    def row(self, param: int, slot: int) -> str:
        """The C expression of the row of a field that a slot of a parameter names."""
        number = self.spec.params[param].map
        return "e" if number is None else row_name(number, slot)

    def place(self, param: int, slot: int, comp: int) -> str:
        """The lvalue that a slot and component of a field parameter name."""
        return self.spec.access(param).at(self.row(param, slot), comp)

    def plain(self, output: Output, value: str) -> list[str]:
        """Store, add or offer, with nobody else around; globals go to the block's partial result."""
        param = self.spec.params[output.param]
        target = partial_name(output) if param.is_global else self.place(output.param, output.slot, output.comp)
        return [f"{target} = {merged(param, target, value)};"]

    def atomic(self, output: Output, value: str) -> list[str]:
        """As ``plain``, but hardware makes the update of a racy output indivisible."""
        param = self.spec.params[output.param]
        if not param.racy:
            return self.plain(output, value)
        return [f"ml_atomic_{param.mode.combine}(&{self.place(output.param, output.slot, output.comp)}, {value});"]


def row_name(map_number: int | None, slot: int) -> str:
    return f"c{map_number}_{slot}"


def index_of(start: str, offset: int) -> str:
    return f"{start} + {offset}" if offset else start


def partial_name(output: Output) -> str:
    """The variable that collects a block's share of a global."""
    return f"r{output.param}_{output.comp}"


def neutral(spec: LoopSpec, output: Output) -> str:
    """The literal a reduction starts from."""
    param = spec.params[output.param]
    return literal(identity(param.mode.combine, param.dtype), param.dtype)


def combined(combine: str, old: str, new: str, dtype: np.dtype) -> str:
    """C expression that merges a new value into an old one; just the new one without a combining mode."""
    if not combine:
        return new
    if combine != "add":
        return f"ml_{combine[:3]}({old}, {new})"
    return f"ml_wrapped_add<{C_TYPES[dtype]}>({old}, {new})" if dtype.kind == "i" else f"{old} + {new}"


def merged(param: SpecParam, old: str, new: str) -> str:
    """The same for a parameter, in its mode and type."""
    return combined(param.mode.combine, old, new, param.dtype)


def negated(value: str, dtype: np.dtype) -> str:
    """C expression of the value with the other sign; the smallest integer has none, and wraps round."""
    return f"ml_wrapped_neg<{C_TYPES[dtype]}>({value})" if dtype.kind == "i" else f"-{value}"
