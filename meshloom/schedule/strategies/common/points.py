"""Code for the points of a grid: neighbours by arithmetic, small tiles of points with their loads shared.

A point has the coordinates ``x0``, ``x1``, ... in memory (ghosts included). ``pitch`` is the distance of neighbours
along an axis, ``n`` the number of points there; along the last axis the distance is 1. Both are sizes of the plan,
whose ``axes`` the strategy ``box`` declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from meshloom.kernel import passes
from meshloom.kernel.count import loads
from meshloom.kernel.expr import Node, load, topological
from meshloom.kernel.model import Output
from meshloom.mesh.offsets import Index
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.nest.code import ELEMENT, ElementCode, Sink
from meshloom.schedule.nest.nodes import (
    INDEX,
    AddressOf,
    Body,
    Cast,
    Expr,
    Grouped,
    If,
    LoadRow,
    Name,
    Number,
    Piece,
    RowOf,
    Select,
    Statement,
    StoreRow,
    all_of,
    greatest,
    least,
    let,
    summed,
)
from meshloom.schedule.plan.plan import identifier
from meshloom.schedule.spec import VECTOR, Address, LoopSpec, SpecParam

NEAR = 16  # steps up to this far are numbers in the text; others are sizes, so that grids of any shape share it
_TOO_FAR = "its last points reach too far"
#: Forms of the strategy: points along the slow axis, each a vector long ("single" is one point, "plain" chooses).
VARIANTS = {"plain": 0, "single": 1, "row": 1, "slab2": 2, "slab4": 4, "slab8": 8}


class PointCode(ElementCode):
    """Statements of one point, or of a tile of points whose loads are shared.

    ``wraps``: axes along which some neighbour is at the other end. ``tile``: points along each axis, all of them in the
    grid. Those next to each other along the last axis are loaded and stored at once where their field allows it; the
    first one is where that is aligned. ``axes_stated_before``: steps along so many of the first axes are stated before
    (``steps``), for a whole line. ``vector``: points that are moved at once, unless all along the last axis.
    """

    def __init__(
        self, spec: LoopSpec, outputs: Sequence[Output], wraps: tuple[bool, ...], tile: Index = (),
        axes_stated_before: int = 0, vector: int = 0,
    ):  # fmt: skip
        super().__init__(spec, outputs)
        self.axes_stated_before = axes_stated_before
        self.wraps, self.origin, self.tile = wraps, (0,) * len(wraps), tile or (1,) * len(wraps)
        self.vector = vector or self.tile[-1]
        self._loaded = self._pieces(loads(o.value for o in outputs))

    def body(self, sink: Sink, *, element: Expr | None = None) -> Body:
        """All statements for the point at ``x0``, ``x1``, ..."""
        here = position(len(self.wraps)) if element is None else element
        return super().body(sink, element=here)

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[Statement]:
        """Statements that find the neighbours, then load what is loaded at once."""
        made = self.steps(range(self.axes_stated_before, len(self.wraps)))
        for o in filter(any, self._used()):
            row = summed([ELEMENT, *(self._way(a, d) for a, d in enumerate(o) if d)])
            made.append(let(self._row_at(o).name, self._safe(row)))
        return made + self.whole_rows(roots) + self._vectors()

    def steps(self, axes: Iterable[int]) -> list[Statement]:
        """Statements of the ways in memory to neighbours along some axes."""
        wanted = sorted({(a, o[a]) for o in self._used() for a in axes if o[a]})
        return [let(self._way(a, d).name, self._step(a, d)) for a, d in wanted]

    def _way(self, axis: int, d: int) -> Name:
        """The name of a way in memory."""
        return Name(f"by{axis}_{self._word(axis, d)}")

    def _used(self) -> list[Index]:
        """The offsets at which anything is loaded or stored."""
        used = loads(o.value for o in self.outputs) | {(o.param, o.slot, o.comp) for o in self.outputs}
        return sorted({self.offset(p, slot) for p, slot, _ in used if not self.spec.params[p].is_global})

    def offset(self, param: int, slot: int) -> Index:
        offsets = self.spec.params[param].offsets
        return offsets[slot] if offsets else self.origin

    def row(self, param: int, slot: int) -> Expr:
        offset = self.offset(param, slot)
        return self._row_at(offset) if any(offset) else ELEMENT

    def _safe(self, row: Expr) -> Expr:
        """A row that may be loaded."""
        return row

    def _wraps(self, axis: int, d: int) -> bool:
        """May the neighbour d points along an axis be at the other end? Points of the tile itself are not."""
        return self.wraps[axis] and not 0 <= d < self.tile[axis]

    def _row_at(self, offset: Index) -> Name:
        """The name of the row of a neighbour."""
        return Name(f"at_{'_'.join(self._word(a, d) for a, d in enumerate(offset))}")

    def _word(self, axis: int, d: int) -> str:
        """A step as part of a name; that of a far one does not tell how far."""
        if abs(d) > NEAR:
            return identifier("axes", axis, "far", far_steps(self.spec, axis).index(d))
        return f"{'m' if d < 0 else 'p' if d else ''}{abs(d)}"

    def _step(self, axis: int, d: int) -> Expr:
        """The way in memory to the neighbour d points along an axis."""
        step: Expr = Number(d) if abs(d) <= NEAR else Name(self._word(axis, d))
        if self._wraps(axis, d):
            n, there = of_axis(axis, "n"), coordinate(axis) + step
            step = Grouped(Select(there >= n, step - n, step) if d > 0 else Select(there < 0, step + n, step))
        return step if axis == len(self.wraps) - 1 else step * of_axis(axis, "pitch")

    # ----- several points at once ---------------------------------------------------------------------------------
    def in_vectors(self, param: int) -> bool:
        """Do ``vector`` neighbouring points of a component lie together, from an aligned point on?"""
        described = self.spec.params[param]
        if self.vector == 1 or described.is_global or not described.offsets:
            return False
        layout, size = described.layout, self.vector * described.dtype.itemsize
        grouped = layout.kind == "aosoa" and layout.width % self.vector == 0
        return size <= VECTOR and (described.dim == 1 or layout.kind == "soa" or grouped)

    def _rows_together(self, param: int) -> bool:
        """Do the rows of ``vector`` neighbouring points lie one after the other, and are not loaded one by one?"""
        described = self.spec.params[param]
        if self.vector == 1 or described.is_global or not described.offsets or self.in_whole_row(param):
            return False
        size = self.vector * described.dtype.itemsize
        return size <= VECTOR and described.dim > 1 and described.layout.kind == "aos"

    def _piece(self, param: int, slot: int, comp: int) -> tuple[Address, ...]:
        """What is moved together with a value, in the order of memory; () where that is it alone."""
        in_rows = self._rows_together(param)
        if not in_rows and not self.in_vectors(param):
            return ()
        offsets, o = self.spec.params[param].offsets, self.offset(param, slot)
        first = o[-1] // self.vector * self.vector
        group = [(*o[:-1], first + k) for k in range(self.vector)]
        if not all(g in offsets for g in group):
            return ()
        slots = [offsets.index(g) for g in group]
        if not in_rows:
            return tuple((param, one, comp) for one in slots)
        every = [(param, one, c) for one in slots for c in range(self.spec.params[param].dim)]
        start = every.index((param, slot, comp)) // self.vector * self.vector
        return tuple(every[start : start + self.vector])

    def _pieces(self, used: Iterable[Address]) -> dict[Address, tuple[Address, ...]]:
        """The pieces of which all is used, by each of their values."""
        every = set(used)
        found = {address: self._piece(*address) for address in every}
        return {address: piece for address, piece in found.items() if piece and every.issuperset(piece)}

    def _vectors(self) -> list[Statement]:
        made: list[Statement] = []
        for piece in sorted(set(self._loaded.values())):
            ctype, width = self.spec.params[piece[0][0]].ctype, len(piece)
            loaded = LoadRow(ctype, width, AddressOf(self.place(*piece[0])))
            made.append(let(_piece_row(piece).name, loaded, RowOf(ctype, width)))
        return made

    def leaf(self, node: Node) -> Expr:
        piece = self._loaded.get(node.value)
        return Piece(_piece_row(piece), Number(piece.index(node.value))) if piece else super().leaf(node)

    def stores(self, values: Sequence[Expr], sink: Sink) -> list[Statement]:
        """As for any element; pieces of stored values are stored at once."""
        valued = {(o.param, o.slot, o.comp): value for o, value in zip(self.outputs, values, strict=True)}
        plain = [k for k in valued if not self.spec.params[k[0]].mode.combine]
        groups = self._pieces(plain)
        made: list[Statement] = []
        for piece in sorted(set(groups.values())):
            ctype = self.spec.params[piece[0][0]].ctype
            converted = tuple(Cast(ctype, valued[address]) for address in piece)
            made.append(StoreRow(ctype, self.place(*piece[0]), converted))
        pairs = zip(self.outputs, values, strict=True)
        rest = [(o, value) for o, value in pairs if (o.param, o.slot, o.comp) not in groups]
        left = PointCode(self.spec, [o for o, _ in rest], self.wraps)
        return made + ElementCode.stores(left, [value for _, value in rest], sink)


OWN = Name("own")  # the point, or a place that is stored


class EdgeCode(PointCode):
    """A tile of which some points are outside of the box: they are computed from anything, and left at that.

    All loads are made, each from a place that is stored, so that they are under way together as in the middle of the
    box; stores and reductions ask whether their point is inside.
    """

    def __init__(self, spec: LoopSpec, wraps: tuple[bool, ...], tile: Index):
        super().__init__(spec, spec.outputs, wraps, tile)
        self.vector, self._loaded = 1, {}

    def _safe(self, row: Expr) -> Expr:
        return least(greatest(row, Cast(INDEX, Number(0))), Name(identifier("most")))

    def _wraps(self, axis: int, d: int) -> bool:
        return self.wraps[axis]

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[Statement]:
        return [let(OWN.name, self._safe(ELEMENT)), *super().rows(roots, stored)]

    def row(self, param: int, slot: int) -> Expr:
        found = super().row(param, slot)
        return OWN if found == ELEMENT else found

    def stores(self, values: Sequence[Expr], sink: Sink) -> list[Statement]:
        """Point by point, in the order in which ``tiled`` lists them."""
        made: list[Statement] = []
        shifts = list(_points(self.tile))
        count = len(self.outputs) // len(shifts)
        for k, shift in enumerate(shifts):
            ends = ((coordinate(a) + d >= of_axis(a, "low"), coordinate(a) + d < of_axis(a, "end"))
                    for a, d in enumerate(shift))  # fmt: skip
            part = PointCode(self.spec, self.outputs[k * count : (k + 1) * count], self.wraps)
            stores = part.stores(values[k * count : (k + 1) * count], sink)
            made.append(If(all_of(one for pair in ends for one in pair), tuple(stores)))
        return made


def coordinate(axis: int) -> Name:
    """A coordinate of the point, in memory."""
    return Name(f"x{axis}")


def of_axis(axis: int, word: str) -> Name:
    """A number of an axis, of a plan that has ``axes``."""
    return Name(identifier("axes", axis, word))


def position(rank: int) -> Expr:
    """The position in memory of the point at ``x0``, ``x1``, ..."""
    *slow, last = map(coordinate, range(rank))
    return summed([*(x * of_axis(a, "pitch") for a, x in enumerate(slow)), last])


def far_steps(spec: LoopSpec, axis: int) -> list[int]:
    """Steps along an axis that are sizes, not numbers in the text."""
    return sorted({o[axis] for o in spec.offsets if abs(o[axis]) > NEAR})


def _piece_row(piece: tuple[Address, ...]) -> Name:
    """The name of a piece that was loaded."""
    return Name("u{}_{}_{}".format(*piece[0]))


# ----- tiles ------------------------------------------------------------------------------------------------------
def tile_of(spec: LoopSpec) -> Index:
    """How many points along each axis a thread of a GPU takes together."""
    return tiles(spec)[0].what


def tiles(spec: LoopSpec) -> tuple[Candidate[Index], ...]:
    """What a thread of a GPU may take together, ranked.

    Along the last axis as many as a vector load has; along the slow axis where the stencil is widest some more, since
    each of them loads what the others need, too. Fewer where the kernel is long. A variant says otherwise.
    """
    assert spec.box is not None and spec.box.numbers is not None
    last, numbers = spec.box.rank - 1, spec.box.numbers
    if spec.box.variant == "single" or any(far_steps(spec, a) for a in range(last + 1)):
        return (Candidate((1,) * (last + 1)),)
    width = [len({o[a] for o in spec.offsets}) for a in range(last)]
    slow = int(np.argmax(width)) if last and max(width) > 1 else None
    sizes = [p.dtype.itemsize for p in spec.params if not p.is_global]
    long_lines = spec.box.lengths[last] >= numbers.long_lines
    vector = min(VECTOR // max(sizes, default=VECTOR), spec.box.grain) if long_lines else 1

    def tile(along: int, across: int) -> Index:
        return tuple(along if a == last else across if a == slow else 1 for a in range(last + 1))

    most = 1 if slow is None else spec.box.lengths[slow]
    if spec.box.variant != "plain":
        asked = tile(vector, min(VARIANTS[spec.box.variant], most))
        return rank([Candidate(asked, declined=None if _near(spec, asked) else _TOO_FAR), Candidate(tile(1, 1))])
    nodes = len(topological(o.value for o in spec.outputs))
    stored = sum(not spec.params[o.param].is_global for o in spec.outputs)
    most = most if stored <= numbers.most_stored else 1
    most_loaded = numbers.most_loaded if stored else numbers.most_to_reduce
    most_nodes = numbers.most_nodes if stored else numbers.most_nodes_to_reduce

    def declined(along: int, across: int) -> str | None:
        chosen, room = tile(along, across), most_loaded if across > 1 else numbers.most_in_a_row
        if across > most:
            return f"{across} points next to each other, not {most}: lines are short, or much is stored"
        if along * across * nodes > most_nodes:
            return f"{along * across * nodes} operations, more than {most_nodes}"
        if not _near(spec, chosen):
            return _TOO_FAR
        return f"{filled} registers, more than {room}" if (filled := _loaded(spec, chosen)) > room else None

    rows = numbers.unrolled if slow is not None else (1,)
    found = {tile(along, across): declined(along, across) for along, across in product((vector, 1), rows)}
    found[tile(1, 1)] = None  # whatever it loads
    return rank(Candidate(one, declined=why) for one, why in found.items())


def takes_single_points(spec: LoopSpec) -> bool:
    """Does a point load so much that a thread takes it alone?"""
    assert spec.box is not None and spec.box.numbers is not None
    alone = (1,) * spec.box.rank
    return _loaded(spec, alone) > spec.box.numbers.long and tile_of(spec) == alone


def _near(spec: LoopSpec, tile: Index) -> bool:
    """Are all steps of a tile's points numbers in the text? Those of its last points reach further than a single one's,
    and the plan has sizes for the far steps of single points alone."""
    return all(o[a] + size - 1 <= NEAR for o in spec.offsets for a, size in enumerate(tile))


def _loaded(spec: LoopSpec, tile: Index) -> int:
    """Registers for all that a tile loads, each value once."""
    found, origin = set(), (0,) * len(tile)
    for param, slot, comp in loads(o.value for o in spec.outputs):
        described = spec.params[param]
        if not described.is_global:
            offset = described.offsets[slot] if described.offsets else origin
            found |= {(param, comp, _plus(offset, shift)) for shift in _points(tile)}
    return sum(spec.params[param].dtype.itemsize // 4 for param, _, _ in found)


def tiled(spec: LoopSpec, tile: Index) -> LoopSpec:
    """The loop with all points of a tile as one: what was one offset is one for each of them, each loaded once."""
    shifts = list(_points(tile))
    origin = (0,) * len(tile)
    params = tuple(_shifted(p, shifts, origin) for p in spec.params)

    def slot_at(param: int, slot: int, shift: Index) -> int:
        if spec.params[param].is_global:
            return slot
        old = spec.params[param].offsets[slot] if spec.params[param].offsets else origin
        return params[param].offsets.index(_plus(old, shift))

    outputs = []
    for shift in shifts:

        def moved(node: Node, shift: Index = shift) -> Node:
            param, slot, comp = node.value
            return load(param, slot_at(param, slot, shift), comp, node.dtype)

        values = passes.substitute([o.value for o in spec.outputs], moved)
        outputs += [Output(o.param, slot_at(o.param, o.slot, shift), o.comp, v)
                    for o, v in zip(spec.outputs, values, strict=True)]  # fmt: skip
    return replace(spec, params=params, outputs=tuple(outputs))


def _points(tile: Index) -> Iterable[Index]:
    """The points of a tile, as offsets from its corner."""
    return product(*(range(t) for t in tile))


def _shifted(param: SpecParam, shifts: list[Index], origin: Index) -> SpecParam:
    if param.is_global:
        return param
    offsets = {_plus(o, s) for o in param.offsets or (origin,) for s in shifts}
    return replace(param, offsets=tuple(sorted(offsets)))


def _plus(a: Index, b: Index) -> Index:
    return tuple(x + y for x, y in zip(a, b, strict=True))
