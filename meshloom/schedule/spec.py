"""What a loop is, without its data: parameters, layouts, maps and the optimised program of one element.

Everything that generates code depends on a ``LoopSpec`` alone, so the same text comes out for the same loop on any
mesh. ``Access`` is the only place that writes an index expression.
"""

from __future__ import annotations

import numpy as np

from meshloom.kernel.access import Mode
from meshloom.kernel.expr import C_TYPES, Node, topological
from meshloom.kernel.model import Output
from meshloom.kernel.table import LookupTable
from meshloom.mesh.layout import Layout
from meshloom.mesh.offsets import Index
from meshloom.native.names import safe_name
from meshloom.records import dataclass
from meshloom.schedule.nest.binned import BinnedSum, OpenBinnedSum
from meshloom.schedule.nest.nodes import AddressOf, Expr, Grouped, LoadRow, Name, RowOf, offset_by
from meshloom.schedule.nest.reduce import Reduction
from meshloom.target import PointNumbers

Address = tuple[int, int, int]  # parameter, slot, component
VECTOR = 16  # bytes that a thread of a GPU moves by one instruction, at most
_PIECE, _MOST_PIECES = 8, 8  # bytes of the smallest such piece, and how many of them a row has that is moved as a whole


@dataclass(frozen=True)
class SpecParam:
    """A parameter: ``map`` is None for direct access; ``is_global`` for a Global that is read or reduced.

    A Global that is set (in a loop over one element) is described like a field of that element. ``offsets``: where a
    field of a grid is read, slot by slot; () for the point itself. ``as_member``: the map leads from an element of a
    part of a set to itself in the whole, so no two elements meet.
    """

    name: str
    mode: type[Mode]
    dim: int
    dtype: np.dtype
    layout: Layout
    map: int | None
    is_global: bool = False
    offsets: tuple[Index, ...] = ()
    as_member: bool = False

    @property
    def ctype(self) -> str:
        return C_TYPES[self.dtype]

    @property
    def reduction(self) -> Reduction:
        """How the values that elements give to a Global become one."""
        kind = OpenBinnedSum if self.mode.open else BinnedSum if self.mode.binned else Reduction
        return kind(self.mode.combine, self.dtype)

    @property
    def racy(self) -> bool:
        """Several elements may meet at one entry: the schedule has to do something about it."""
        return self.map is not None and bool(self.mode.combine) and not self.as_member


@dataclass(frozen=True)
class SpecMap:
    """A map: ``target`` numbers the sets that the loop's maps lead to; ``formula``: of one that is not stored, each
    slot as an expression of the element's number."""

    arity: int
    dtype: np.dtype
    target: int
    formula: tuple[Node, ...] = ()

    @property
    def entry_bytes(self) -> int:
        """Bytes that a loop reads for one entry."""
        return 0 if self.formula else self.dtype.itemsize


@dataclass(frozen=True)
class SpecBox:
    """A box of a grid: ``wraps`` says on which axes some neighbour lies at the other end of the grid.

    ``lengths`` are its points along each axis; ``grain`` (1, 2 or 4) divides the points that a line of the grid has in
    memory, so lines begin aligned for that many. ``numbers``: by which a thread of a GPU takes points; on a CPU None.
    """

    wraps: tuple[bool, ...]
    lengths: Index
    grain: int = 1
    variant: str = "plain"  # of the strategy: how many points a thread of a GPU takes
    numbers: PointNumbers | None = None

    @property
    def rank(self) -> int:
        return len(self.wraps)


@dataclass(frozen=True)
class ElementsPerThread:
    """What a thread of a GPU takes: ``vector`` elements side by side, moved at once, ``unroll`` times."""

    vector: int = 1
    unroll: int = 1

    @property
    def count(self) -> int:
        return self.vector * self.unroll


@dataclass(frozen=True)
class LoopSpec:
    """A loop without data. ``outputs`` hold the optimised program."""

    name: str
    params: tuple[SpecParam, ...]
    maps: tuple[SpecMap, ...]
    outputs: tuple[Output, ...]
    may_use_more_registers: bool = False  # than it was wished for, where more than a few values would spill
    whole_rows: bool = False  # load and store whole rows of array-of-structures fields at once (GPUs like it)
    starts_from: tuple[tuple[int, float], ...] = ()  # Globals (by parameter) whose sum starts from a number of its own
    box: SpecBox | None = None  # of a loop over a box of a grid
    per_thread: ElementsPerThread = ElementsPerThread()  # of loops where no element looks at another
    strict: bool = False  # the formula as written, every operation rounded by itself
    reproducible: bool = False  # do targets add up in the order of elements, on any number of ranks?

    @property
    def in_order(self) -> bool:
        """Must targets take their terms in the order of elements?"""
        return self.strict or self.reproducible

    @property
    def formulas(self) -> tuple[Node, ...]:
        """Everything that generated code computes by a graph."""
        return (*(o.value for o in self.outputs), *(node for one in self.maps for node in one.formula))

    @property
    def tables(self) -> tuple[LookupTable, ...]:
        """The constants that it looks something up in, each once."""
        return tuple(dict.fromkeys(n.value for n in topological(self.formulas) if isinstance(n.value, LookupTable)))

    @property
    def racy_outputs(self) -> tuple[Output, ...]:
        return tuple(o for o in self.outputs if self.params[o.param].racy)

    @property
    def other_outputs(self) -> tuple[Output, ...]:
        """Direct, one-to-one and global outputs: no two elements meet there."""
        return tuple(o for o in self.outputs if not self.params[o.param].racy)

    @property
    def racy_maps(self) -> tuple[int, ...]:
        """Maps through which elements meet, each once, ascending."""
        return tuple(sorted({m for o in self.racy_outputs if (m := self.params[o.param].map) is not None}))

    def written_slots(self, number: int) -> tuple[int, ...]:
        """The slots of a racy map through which elements give something, ascending."""
        return tuple(sorted({o.slot for o in self.racy_outputs if self.params[o.param].map == number}))

    @property
    def one_to_one_maps(self) -> tuple[int, ...]:
        """Maps written through without combining: no target may be hit twice."""
        written = {p.map for p in self.params if p.mode.writes and not p.mode.combine and p.map is not None}
        return tuple(sorted(written))

    @property
    def offsets(self) -> tuple[Index, ...]:
        """All offsets at which a loop over a grid reads, each once."""
        return tuple(dict.fromkeys(o for p in self.params for o in p.offsets))

    @property
    def reductions(self) -> tuple[Output, ...]:
        """Outputs to globals."""
        return tuple(o for o in self.outputs if self.params[o.param].is_global)

    @property
    def binned(self) -> bool:
        """Is some Global added up so that the order does not matter?"""
        return any(p.mode.binned for p in self.params)

    def reduction(self, output: Output) -> Reduction:
        """How the values of such an output become one."""
        return self.params[output.param].reduction

    def access(self, param: int) -> Access:
        return Access(f"f{param}_{identifier(self.params[param].name)}", f"stride{param}", self.params[param])


@dataclass(frozen=True)
class Access:
    """Index expressions of one parameter's buffer, by layout."""

    pointer: str
    stride: str
    param: SpecParam

    @property
    def whole_row(self) -> bool:
        """A row lies together, is short, and can be moved in pieces of 8 or 16 bytes."""
        size = self.param.dim * self.param.dtype.itemsize
        return self.param.layout.kind == "aos" and self.param.dim > 1 and in_few_pieces(size)

    @property
    def row_type(self) -> RowOf:
        return RowOf(self.param.ctype, self.param.dim)

    def load_row(self, row: Expr) -> Expr:
        """A whole row; its components are pieces of it."""
        return LoadRow(self.param.ctype, self.param.dim, AddressOf(self.at(row, 0)))

    def at(self, row: Expr, comp: int) -> Expr:
        """The entry of a component at a row."""
        return Name(self.pointer)[self.index(row, comp)]

    def index(self, row: Expr, comp: int) -> Expr:
        dim, layout = self.param.dim, self.param.layout
        if dim == 1:
            return row
        if layout.kind == "aos":
            return offset_by(row * dim, comp)
        if layout.kind == "soa":
            apart = Name(self.stride)
            return row + (comp * apart if comp > 1 else apart) if comp else row
        width = layout.width
        if width & (width - 1) == 0:
            group, lane = row >> (width.bit_length() - 1), row & (width - 1)
        else:
            group, lane = row / width, row % width
        return offset_by(Grouped(group) * (dim * width) + Grouped(lane), comp * width)


def in_few_pieces(row_bytes: int) -> bool:
    """Can a row be moved as a whole, in pieces of 8 or 16 bytes?"""
    return row_bytes % _PIECE == 0 and row_bytes <= _MOST_PIECES * _PIECE


def identifier(name: str) -> str:
    """A name as a C identifier."""
    return safe_name(name)


def is_negation(node: Node) -> tuple[Node, int]:
    """(node, 1), or (inner, -1) for a negated node: staged values are shared up to their sign."""
    return (node.args[0], -1) if node.op == "neg" else (node, 1)
