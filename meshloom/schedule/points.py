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
from meshloom.mesh.box import Index
from meshloom.schedule.code import ElementCode, Sink
from meshloom.schedule.plan import identifier
from meshloom.schedule.spec import Address, LoopSpec, SpecParam

NEAR = 16  # steps up to this far are numbers in the text; others are sizes, so that grids of any shape share it
MOST_LOADED = 72  # registers of 4 bytes that the values loaded for a tile may fill: more would leave too few threads
MOST_NODES = 400  # of the expressions of a tile: beyond, compiling takes long
UNROLLED = (4, 2, 1)  # points of a tile along a slow axis, the best first
VECTOR = 16  # bytes
#: Forms of the strategy: points along the slow axis, each a vector long ("single" is one point, "plain" chooses).
VARIANTS = {"plain": 0, "single": 1, "row": 1, "slab2": 2, "slab4": 4, "slab8": 8}


class PointCode(ElementCode):
    """Statements of one point, or of a tile of points whose loads are shared.

    ``wraps``: axes along which some neighbour is at the other end. ``tile``: points along each axis, all of them in the
    grid. Those next to each other along the last axis are loaded and stored at once where their field allows it; the
    first one is where that is aligned. ``ahead``: steps along so many of the first axes are stated before
    (``steps``), for a whole line. ``vector``: points that are moved at once, unless all along the last axis.
    """

    def __init__(
        self, spec: LoopSpec, outputs: Sequence[Output], wraps: tuple[bool, ...], tile: Index = (), ahead: int = 0,
        vector: int = 0,
    ):  # fmt: skip
        super().__init__(spec, outputs)
        self.ahead = ahead
        self.wraps, self.origin, self.tile = wraps, (0,) * len(wraps), tile or (1,) * len(wraps)
        self.vector = vector or self.tile[-1]
        self._loaded = self._pieces(loads(o.value for o in outputs))

    def lines(self, sink: Sink, *, element: str = "") -> tuple[str, ...]:
        """All statements for the point at ``x0``, ``x1``, ..."""
        return super().lines(sink, element=element or position([f"x{a}" for a in range(len(self.wraps))]))

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[str]:
        """Statements that find the neighbours, then load what is loaded at once."""
        lines = self.steps(range(self.ahead, len(self.wraps)))
        for o in filter(any, self._used()):
            row = " + ".join(["e", *(f"by{a}_{self._word(a, d)}" for a, d in enumerate(o) if d)])
            lines.append(f"const ml_index {self._row_name(o)} = {self._safe(row)};")
        return lines + self.whole_rows(roots) + self._vectors()

    def steps(self, axes: Iterable[int]) -> list[str]:
        """Statements of the ways in memory to neighbours along some axes."""
        wanted = sorted({(a, o[a]) for o in self._used() for a in axes if o[a]})
        return [f"const ml_index by{a}_{self._word(a, d)} = {self._step(a, d)};" for a, d in wanted]

    def _used(self) -> list[Index]:
        """The offsets at which anything is loaded or stored."""
        used = loads(o.value for o in self.outputs) | {(o.param, o.slot, o.comp) for o in self.outputs}
        return sorted({self.offset(p, slot) for p, slot, _ in used if not self.spec.params[p].is_global})

    def offset(self, param: int, slot: int) -> Index:
        offsets = self.spec.params[param].offsets
        return offsets[slot] if offsets else self.origin

    def row(self, param: int, slot: int) -> str:
        offset = self.offset(param, slot)
        return self._row_name(offset) if any(offset) else "e"

    def _safe(self, row: str) -> str:
        """The C expression of a row that may be loaded."""
        return row

    def _wraps(self, axis: int, d: int) -> bool:
        """May the neighbour d points along an axis be at the other end? Points of the tile itself are not."""
        return self.wraps[axis] and not 0 <= d < self.tile[axis]

    def _row_name(self, offset: Index) -> str:
        return f"at_{'_'.join(self._word(a, d) for a, d in enumerate(offset))}"

    def _word(self, axis: int, d: int) -> str:
        """A step as part of a name; that of a far one does not tell how far."""
        if abs(d) > NEAR:
            return identifier("axes", axis, "far", far_steps(self.spec, axis).index(d))
        return f"{'m' if d < 0 else 'p' if d else ''}{abs(d)}"

    def _step(self, axis: int, d: int) -> str:
        """C expression of the way in memory to the neighbour d points along an axis."""
        step = str(d) if abs(d) <= NEAR else self._word(axis, d)
        if self._wraps(axis, d):
            n = identifier("axes", axis, "n")
            over, back = (f"x{axis} + {step} >= {n}", "-") if d > 0 else (f"x{axis} + {step} < 0", "+")
            step = f"({over} ? {step} {back} {n} : {step})"
        return step if axis == len(self.wraps) - 1 else f"{step} * {identifier('axes', axis, 'pitch')}"

    # ----- several points at once ---------------------------------------------------------------------------------
    def in_vectors(self, param: int) -> bool:
        """Do ``vector`` neighbouring points of a component lie together, from an aligned point on?"""
        described = self.spec.params[param]
        if self.vector == 1 or described.is_global or not described.offsets:
            return False
        layout, size = described.layout, self.vector * described.dtype.itemsize
        grouped = layout.kind == "aosoa" and layout.width % self.vector == 0
        return size <= VECTOR and (described.dim == 1 or layout.kind == "soa" or grouped)

    def _piece(self, param: int, slot: int, comp: int) -> tuple[Address, ...]:
        """What is moved together with a value, in the order of memory; () where that is it alone."""
        if not self.in_vectors(param):
            return ()
        offsets, o = self.spec.params[param].offsets, self.offset(param, slot)
        first = o[-1] // self.vector * self.vector
        group = [(*o[:-1], first + k) for k in range(self.vector)]
        return tuple((param, offsets.index(g), comp) for g in group) if all(g in offsets for g in group) else ()

    def _pieces(self, used: Iterable[Address]) -> dict[Address, tuple[Address, ...]]:
        """The pieces of which all is used, by each of their values."""
        every = set(used)
        found = {address: self._piece(*address) for address in every}
        return {address: piece for address, piece in found.items() if piece and every.issuperset(piece)}

    def _vectors(self) -> list[str]:
        lines = []
        for piece in sorted(set(self._loaded.values())):
            kind = f"{self.spec.params[piece[0][0]].ctype}, {len(piece)}"
            lines.append(f"const ml_row<{kind}> {_piece_name(piece)} = ml_load<{kind}>(&{self.place(*piece[0])});")
        return lines

    def leaf(self, node: Node) -> str:
        piece = self._loaded.get(node.value)
        return f"{_piece_name(piece)}.v[{piece.index(node.value)}]" if piece else super().leaf(node)

    def sunk(self, names: Sequence[str], sink: Sink) -> list[str]:
        """As for any element; pieces of stored values are stored at once."""
        named = {(o.param, o.slot, o.comp): name for o, name in zip(self.outputs, names, strict=True)}
        plain = [k for k in named if not self.spec.params[k[0]].mode.combine]
        groups = self._pieces(plain)
        lines: list[str] = []
        for piece in sorted(set(groups.values())):
            ctype = self.spec.params[piece[0][0]].ctype
            values = ", ".join(f"({ctype}){named[address]}" for address in piece)
            lines.append(f"ml_store<{ctype}, {len(piece)}>(&{self.place(*piece[0])}, {{{{{values}}}}});")
        pairs = zip(self.outputs, names, strict=True)
        rest = [(o, name) for o, name in pairs if (o.param, o.slot, o.comp) not in groups]
        left = PointCode(self.spec, [o for o, _ in rest], self.wraps)
        return lines + ElementCode.sunk(left, [name for _, name in rest], sink)


class EdgeCode(PointCode):
    """A tile of which some points are outside of the box: they are computed from anything, and left at that.

    All loads are made, each from a place that is stored, so that they are under way together as in the middle of the
    box; stores and reductions ask whether their point is inside.
    """

    def __init__(self, spec: LoopSpec, wraps: tuple[bool, ...], tile: Index):
        super().__init__(spec, spec.outputs, wraps, tile)
        self.vector, self._loaded = 1, {}

    def _safe(self, row: str) -> str:
        return f"ml_min(ml_max({row}, (ml_index)0), most)"

    def _wraps(self, axis: int, d: int) -> bool:
        return self.wraps[axis]

    def rows(self, roots: Sequence[Node], stored: Sequence[Output] = ()) -> list[str]:
        return [f"const ml_index own = {self._safe('e')};", *super().rows(roots, stored)]

    def row(self, param: int, slot: int) -> str:
        found = super().row(param, slot)
        return "own" if found == "e" else found

    def sunk(self, names: Sequence[str], sink: Sink) -> list[str]:
        """Point by point, in the order in which ``tiled`` lists them."""
        lines, shifts = [], list(_points(self.tile))
        count = len(self.outputs) // len(shifts)
        for k, shift in enumerate(shifts):
            inside = " && ".join(
                f"x{a} + {d} >= {identifier('axes', a, 'low')} && x{a} + {d} < {identifier('axes', a, 'end')}"
                for a, d in enumerate(shift)
            )
            part = PointCode(self.spec, self.outputs[k * count : (k + 1) * count], self.wraps)
            lines += [f"if ({inside}) {{", *part.sunk(names[k * count : (k + 1) * count], sink), "}"]
        return lines


def position(coordinates: Sequence[str]) -> str:
    """C expression of the position in memory of a point."""
    *slow, last = coordinates
    return " + ".join([*(f"{x} * {identifier('axes', a, 'pitch')}" for a, x in enumerate(slow)), last])


def far_steps(spec: LoopSpec, axis: int) -> list[int]:
    """Steps along an axis that are sizes, not numbers in the text."""
    return sorted({o[axis] for o in spec.offsets if abs(o[axis]) > NEAR})


def _piece_name(piece: tuple[Address, ...]) -> str:
    return "u{}_{}_{}".format(*piece[0])


# ----- tiles ------------------------------------------------------------------------------------------------------
def tile_of(spec: LoopSpec) -> Index:
    """How many points along each axis a thread of a GPU takes together.

    Along the last axis as many as a vector load has; along the slow axis where the stencil is widest some more, since
    each of them loads what the others need, too. Fewer where the kernel is long. A variant says otherwise.
    """
    assert spec.box is not None
    last = spec.box.rank - 1
    if spec.box.variant == "single" or any(far_steps(spec, a) for a in range(last + 1)):
        return (1,) * (last + 1)
    width = [len({o[a] for o in spec.offsets}) for a in range(last)]
    slow = int(np.argmax(width)) if last and max(width) > 1 else None
    sizes = [p.dtype.itemsize for p in spec.params if not p.is_global]
    long_lines = spec.box.lengths[last] >= 4 * VECTOR
    vector = min(VECTOR // max(sizes, default=VECTOR), spec.box.grain) if long_lines else 1

    def tile(along: int, beside: int) -> Index:
        return tuple(along if a == last else beside if a == slow else 1 for a in range(last + 1))

    most = 1 if slow is None else spec.box.lengths[slow]
    if spec.box.variant != "plain":
        return tile(vector, min(VARIANTS[spec.box.variant], most))
    nodes = sum(1 for _ in topological(o.value for o in spec.outputs))
    for along, beside in product((vector, 1), UNROLLED):
        chosen = tile(along, beside)
        if beside <= most and along * beside * nodes <= MOST_NODES and _loaded(spec, chosen) <= MOST_LOADED:
            return chosen
    return tile(1, 1)


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
            if node.op != "load":
                return node
            param, slot, comp = node.value
            return load(param, slot_at(param, slot, shift), comp, node.dtype)

        values = passes.rewrite([o.value for o in spec.outputs], moved)
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
