"""The shape of generated code: passes of blocks of phases of items.

A loop runs as a list of passes. A pass covers a range of items, cut into blocks; blocks are independent of each
other, so the CPU gives them to threads and a GPU to thread blocks. Inside a block, phases follow each other (on a GPU
with a barrier between), and the items of a phase are independent or run in order as the phase says. With ``colors``
the pass is repeated for each color, one after the other. These are the outer levels of a nest; what is done with an
item is the rest of it (``nest/``). A dialect (one per back end) turns passes into text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from itertools import groupby

from meshloom.kernel.count import loads
from meshloom.kernel.expr import C_TYPES, Node
from meshloom.kernel.model import Output
from meshloom.records import dataclass
from meshloom.schedule.nest import graph
from meshloom.schedule.nest.nodes import (
    INDEX,
    Accumulate,
    AddressOf,
    Atomic,
    Body,
    Cast,
    Expr,
    LoadRow,
    Name,
    Number,
    PairOf,
    Piece,
    RowOf,
    Statement,
    Store,
    StoreRow,
    let,
    offset_by,
)
from meshloom.schedule.nest.reduce import combined
from meshloom.schedule.spec import LoopSpec, SpecParam, in_few_pieces

Sink = Callable[[Output, Expr], list[Statement]]
Entry = Callable[[int, int], Expr]  # (map, slot) -> the map's entry for the element

#: What the dialects call the item of a phase, the block, the color of a repeated phase, and how many items there are.
ITEM, BLOCK, ROUND, COUNT = Name("i"), Name("b"), Name("c"), Name("n")
#: The position of a block in a launch, and how many items a block may have.
POSITION, BLOCK_SIZE = Name("k"), Name("block")
#: In a phase of threads that stay ``together``: the thread's item, its lane, has it an item at all, has the next lane.
AT, LANE, INSIDE, FOLLOWED = Name("at"), Name("own_lane"), Name("inside"), Name("followed")
#: What strategies call the element, and the target that it gives something to.
ELEMENT, TARGET = Name("e"), Name("t")


@dataclass(frozen=True)
class Phase:
    """Statements for each item ``i`` of [first, last), values that may use the block number ``b``; of the items that
    the pass gives it where there are none."""

    body: Body
    first: Expr | None = None
    last: Expr | None = None
    independent: bool = False  # no item writes what another touches: may be vectorised
    repeat: Expr | None = None  # the phase is repeated so often, numbered by ``c``, with a barrier after each
    of_block: bool = False  # the body is that of a whole block: said once, on a GPU by every thread, barriers included
    exchanges: bool = False  # threads exchange values, so all stay, also those without an item (``AT`` and so on)


@dataclass(frozen=True)
class Scratch:
    """Memory private to a block: ``size`` entries, the same for every block."""

    ctype: str | PairOf
    name: str
    size: Expr


@dataclass(frozen=True)
class Pass:
    """See the module's docstring.

    Without ``blocked`` the items [0, count) are cut into blocks of the schedule's size and ``phases`` has one phase,
    whose range is filled in by the dialect. With it, ``count`` blocks are numbered by ``b`` and phases give their own
    ranges. ``extra_items`` run at the same time as the others, and begin first.
    """

    name: str
    count: Expr
    phases: tuple[Phase, ...]
    blocked: bool = False
    colors: Name | None = None  # plan array of offsets into the items or blocks, one more than there are colors
    block_number: Expr = POSITION  # b, from the position k in the launch
    scratch: tuple[Scratch, ...] = ()
    reductions: tuple[Output, ...] = field(default=())
    #: A count of other items and what is done with them, in blocks of their own.
    extra_items: tuple[Expr, Phase] | None = None

    @property
    def n_colors(self) -> Name | None:
        """What generated code calls the number of colors."""
        return None if self.colors is None else Name(f"colors_of_{self.colors.name}")


class ElementCode:
    """Statements of one element: rows of the maps, loads, arithmetic, and sinks for the outputs.

    ``entry(map, slot)`` is a map's entry for the element, that of the map itself unless given.
    """

    def __init__(self, spec: LoopSpec, outputs: Sequence[Output], entry: Entry | None = None):
        self.spec, self.outputs, self.entry = spec, tuple(outputs), entry or self._in_map

    def body(self, sink: Sink, *, element: Expr = ITEM) -> Body:
        """All statements for an element."""
        return (let("e", element), *self.own(sink))

    def own(self, sink: Sink) -> list[Statement]:
        """The same, where the element has its name."""
        roots = [o.value for o in self.outputs]
        computed, values = self.values(roots)
        rows = self.rows(roots, self.outputs)
        return [*rows, *computed, *self.stores(values, sink)]

    def stores(self, values: Sequence[Expr], sink: Sink) -> list[Statement]:
        """Statements that bring the outputs' values where they belong: whole rows at once, the rest by ``sink``."""
        valued = {(o.param, o.slot, o.comp): value for o, value in zip(self.outputs, values, strict=True)}
        made: list[Statement] = []
        for o, value in zip(self.outputs, values, strict=True):
            param = self.spec.params[o.param]
            found = [valued.get((o.param, o.slot, c)) for c in range(param.dim)]
            row = [one for one in found if one is not None]
            if not self.in_whole_row(o.param) or param.mode.combine or len(row) < param.dim:
                made += sink(o, value)
            elif o.comp == 0:
                converted = tuple(Cast(param.ctype, one) for one in row)
                made.append(StoreRow(param.ctype, self.place(o.param, o.slot, 0), converted))
        return made

    def values(
        self, roots: Sequence[Node], known: dict[Node, Expr] | None = None
    ) -> tuple[list[Statement], list[Expr]]:
        """Statements for some nodes, and their values."""
        return graph.statements(roots, self.leaf, known=known, arrays=self.array_of)

    def array_of(self, param: int) -> Expr | None:
        """The array of a Global that is read; the values of others are loaded one by one."""
        return Name(self.spec.access(param).pointer) if self.spec.params[param].is_global else None

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[Statement]:
        """Statements that read the entries of the maps that these values and stores need, then whole rows of fields."""
        used = self.used_rows(loads(roots) | {(o.param, o.slot, o.comp) for o in stored})
        return [*self._entries(used), *self.whole_rows(roots)]

    def _entries(self, used: Sequence[tuple[int, int]]) -> list[Statement]:
        """Statements that name entries of maps; where most of a map's row is needed it is loaded in wide pieces."""
        vector_rows = {m for m, _ in used if self._is_vector_row(m, sum(n == m for n, _ in used))}
        made: list[Statement] = []
        for m in sorted(vector_rows):
            ctype, width = C_TYPES[self.spec.maps[m].dtype], self.spec.maps[m].arity
            made.append(let(f"n{m}", LoadRow(ctype, width, AddressOf(self._in_map(m, 0))), RowOf(ctype, width)))
        for m, slot in used:
            entry = Piece(Name(f"n{m}"), Number(slot)) if m in vector_rows else self.entry(m, slot)
            made.append(let(row_of(m, slot).name, entry))
        return made

    def _is_vector_row(self, number: int, needed: int) -> bool:
        one = self.spec.maps[number]
        row_bytes = one.arity * one.entry_bytes
        own = self.entry == self._in_map and not one.formula
        return self.spec.whole_rows and own and in_few_pieces(row_bytes) and 2 * needed > one.arity > 1

    def _in_map(self, number: int, slot: int) -> Expr:
        if formula := self.spec.maps[number].formula:
            return Cast(INDEX, graph.formula(formula[slot], lambda _: Cast("int64_t", ELEMENT)))
        return Name(f"m{number}")[offset_by(ELEMENT * self.spec.maps[number].arity, slot)]

    def used_rows(self, addresses: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """(map, slot) pairs behind some (parameter, slot, component)."""
        return sorted({(m, slot) for param, slot, _ in addresses if (m := self.spec.params[param].map) is not None})

    def whole_rows(self, roots: Sequence[Node]) -> list[Statement]:
        """Statements that load whole rows of fields, where the loop is to do so."""
        made: list[Statement] = []
        for param, slot in sorted({(p, s) for p, s, _ in loads(roots) if self.in_whole_row(p)}):
            access = self.spec.access(param)
            made.append(let(_row_values(param, slot).name, access.load_row(self.row(param, slot)), access.row_type))
        return made

    def leaf(self, node: Node) -> Expr:
        param, slot, comp = node.value
        if self.spec.params[param].is_global:
            return Name(f"g{param}_{comp}")
        return Piece(_row_values(param, slot), Number(comp)) if self.in_whole_row(param) else self.place(*node.value)

    def in_whole_row(self, param: int) -> bool:
        """Are the rows of a parameter loaded as a whole?"""
        return self.spec.whole_rows and not self.spec.params[param].is_global and self.spec.access(param).whole_row

    def row(self, param: int, slot: int) -> Expr:
        """The row of a field that a slot of a parameter names."""
        number = self.spec.params[param].map
        return ELEMENT if number is None else row_of(number, slot)

    def place(self, param: int, slot: int, comp: int) -> Expr:
        """The entry that a slot and component of a field parameter name."""
        return self.spec.access(param).at(self.row(param, slot), comp)

    def plain(self, output: Output, value: Expr) -> list[Statement]:
        """Store, add or offer, with nobody else around; globals go to the block's partial result."""
        param = self.spec.params[output.param]
        if param.is_global:
            return [param.reduction.added(Name(partial_name(output)), value)]
        return [accumulated(param, self.place(output.param, output.slot, output.comp), value)]

    def atomic(self, output: Output, value: Expr) -> list[Statement]:
        """As ``plain``, but hardware makes the update of a racy output indivisible."""
        param = self.spec.params[output.param]
        if not param.racy:
            return self.plain(output, value)
        return [Atomic(self.place(output.param, output.slot, output.comp), param.mode.combine, value)]


def row_of(map_number: int | None, slot: int) -> Name:
    """The name of a map's entry for the element."""
    return Name(f"c{map_number}_{slot}")


def _row_values(param: int, slot: int) -> Name:
    """The name of a row of a field that was loaded as a whole."""
    return Name(f"w{param}_{slot}")


def partial_name(output: Output) -> str:
    """The variable that collects a block's share of a global."""
    return f"r{output.param}_{output.comp}"


def merged(param: SpecParam, old: Expr, new: Expr) -> Expr:
    """A new value merged into an old one, in a parameter's mode and type."""
    return combined(param.mode.combine, old, new, param.dtype)


def accumulated(param: SpecParam, place: Expr, value: Expr) -> Statement:
    """The same at its place."""
    return Accumulate(place, param.mode.combine, value, param.dtype)


def updated_rows(code: ElementCode, outputs: Sequence[Output], values: Sequence[Expr]) -> list[Statement]:
    """Store, add or offer as ``plain`` does, with nobody else around; but where outputs that follow each other are
    merged into one row of a field, all of it is loaded before any of it is stored, so that a compiler can move and
    merge several at a time. The same bits: entries of a row are different ones."""
    made: list[Statement] = []
    for (number, slot), run in groupby(zip(outputs, values, strict=True), lambda one: (one[0].param, one[0].slot)):
        row, param = list(run), code.spec.params[number]
        if param.is_global or not param.mode.combine or len({o.comp for o, _ in row}) < len(row):
            made += [one for o, value in row for one in code.plain(o, value)]
            continue
        places = [code.place(number, slot, o.comp) for o, _ in row]
        old = [Name(f"old{number}_{slot}_{o.comp}") for o, _ in row]
        made += [let(name.name, place, param.ctype) for name, place in zip(old, places, strict=True)]
        new = [merged(param, name, value) for name, (_, value) in zip(old, row, strict=True)]
        made += [Store(place, one) for place, one in zip(places, new, strict=True)]
    return made


def serial_pass(spec: LoopSpec) -> Pass:
    """A pass over all elements in their order, for one thread: nothing is protected. A target that an element has in
    several slots takes what they give in the order of slots, as wherever terms are added in the order of elements."""
    code = ElementCode(spec, sorted(spec.outputs, key=lambda one: one.slot))
    return Pass("serial", COUNT, (Phase(code.body(code.plain, element=ITEM)),))
