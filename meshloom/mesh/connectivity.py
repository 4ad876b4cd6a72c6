"""The nodes of cells and faces, whose number may differ from one to the next, and the cells of several kinds.

``NodeLists`` holds the nodes of every element one after the other. Work is done on (m, k) arrays all the same:
``sizes`` gives the elements of each number of nodes, ``CellTable.blocks`` the cells of each kind. Where all have the
same number, as in a mesh of one kind, that is the one array that was given, and nothing else is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError
from meshloom.mesh.cell_kinds import KINDS, NAMES, POLYGON, CellKind, kind_name, polygon
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.kinds import Kinds, checked_kinds
from meshloom.mesh.values import whole_numbers
from meshloom.native.algorithms import distinct
from meshloom.records import dataclass

MIXED = "mixed"  # the kind of a mesh that has several
Which = np.ndarray | slice  # some elements by number; a slice: all of a run, so that arrays are looked at, not copied


@dataclass(frozen=True, eq=False)
class SizeBlock:
    """Elements with the same number of nodes: their numbers, and their nodes (m, k)."""

    numbers: Which
    nodes: np.ndarray


class NodeLists(ItsOwnCopy):
    """Element k has the nodes ``entries[starts[k]:starts[k + 1]]``."""

    def __init__(self, starts: np.ndarray, entries: np.ndarray, rows: np.ndarray | None = None):
        self.starts, self.entries, self._rows = starts, entries, rows

    def _sent(self) -> dict[str, Any]:
        known = super()._sent()
        return known if self._rows is None else {"_rows": known["_rows"]}  # the others only look at that one

    def _restored(self) -> None:
        if self._rows is not None and not hasattr(self, "entries"):
            same = NodeLists.of_rows(self._rows)
            self.starts, self.entries = same.starts, same.entries

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> NodeLists:
        """The same number of nodes for each: (n, k)."""
        return cls(np.arange(len(rows) + 1) * rows.shape[1], rows.reshape(-1), rows)

    @classmethod
    def joined(cls, parts: Sequence[NodeLists]) -> NodeLists:
        """The elements of one after those of the other."""
        rows = [one.rows for one in parts if one.rows is not None]
        if len(rows) == len(parts) and len({one.shape[1] for one in rows}) == 1:
            return cls.of_rows(np.concatenate(rows))
        lengths = np.concatenate([one.lengths for one in parts])
        return cls(starts_of(lengths), np.concatenate([one.entries for one in parts]))

    @classmethod
    def of_sizes(cls, count: int, parts: Sequence[SizeBlock]) -> NodeLists:
        """The reverse of ``sizes``: ``count`` elements, each in one of the parts."""
        if len(parts) == 1:
            return cls.of_rows(parts[0].nodes)
        lengths = np.zeros(count, np.int64)
        for part in parts:
            lengths[part.numbers] = part.nodes.shape[1]
        made = cls(starts_of(lengths), np.empty(int(lengths.sum()), np.result_type(*(part.nodes for part in parts))))
        for part in parts:
            places = made._places(part.numbers, part.nodes.shape[1])
            made.entries[places] = part.nodes.reshape(-1) if isinstance(places, slice) else part.nodes
        return made

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        """The nodes of one element."""
        return self.entries[self.starts[number] : self.starts[number + 1]]

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many nodes each has, (n,)."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> np.ndarray | None:
        """All of them as an (n, k) array; None where their numbers differ, or there are no elements to tell."""
        if self._rows is not None:
            return self._rows
        if len(self) == 0 or self.lengths.min() != self.lengths.max():
            return None
        return self.entries.reshape(len(self), -1)

    @property
    def width(self) -> int | None:
        """The number of nodes of each, if they all have the same."""
        return None if self.rows is None else int(self.rows.shape[1])

    @cached_property
    def sizes(self) -> list[SizeBlock]:
        """The elements of each number of nodes, which ascends."""
        if self.rows is not None:
            return [SizeBlock(slice(None), self.rows)]
        return [self._block(np.flatnonzero(self.lengths == size), int(size)) for size in distinct(self.lengths)]

    def of_size(self, size: int) -> SizeBlock:
        """The elements with so many nodes."""
        none = SizeBlock(np.zeros(0, np.int64), np.zeros((0, size), np.int64))
        return next((part for part in self.sizes if part.nodes.shape[1] == size), none)

    def kept(self, map_: Any) -> NodeLists:
        """The same lists; where a map was made of them that has all in one array, in that."""
        return NodeLists.of_rows(map_.indices) if self.rows is not None else self

    def kinds(self, names: Mapping[int, str]) -> Kinds:
        """The numbers of the elements of each size, by the names of sizes."""
        found: Kinds = {}
        for part in self.sizes:
            run = part.numbers.indices(len(self))[:2] if isinstance(part.numbers, slice) else None
            found[names[part.nodes.shape[1]]] = range(*run) if run is not None else np.asarray(part.numbers)
        return found

    def measured(self, measure: Callable[[np.ndarray], np.ndarray], *shape: int) -> np.ndarray:
        """``measure(nodes)`` (m, *shape) of all elements, worked out size by size: (n, *shape)."""
        if self.rows is not None:
            return measure(self.rows)
        found = np.zeros((len(self), *shape))
        for size in self.sizes:
            found[size.numbers] = measure(size.nodes)
        return found

    def padded(self) -> np.ndarray:
        """(n, most): behind the end of a list stands its first node again."""
        if self.rows is not None:
            return self.rows
        most = int(self.lengths.max(initial=1))
        found = np.empty((len(self), most), self.entries.dtype)
        for size in self.sizes:
            here = size.nodes.shape[1]
            found[size.numbers, :here] = size.nodes
            found[size.numbers, here:] = size.nodes[:, :1]
        return found

    def taken(self, numbers: np.ndarray) -> NodeLists:
        """Some elements, in that order."""
        if self.rows is not None:
            return NodeLists.of_rows(self.rows[numbers])
        lengths = self.lengths[numbers]
        starts = starts_of(lengths)
        places = np.arange(starts[-1]) + np.repeat(self.starts[numbers] - starts[:-1], lengths)
        return NodeLists(starts, self.entries[places])

    def between(self, first: int, last: int) -> NodeLists:
        """A run of elements; nothing is copied but where they start."""
        entries = self.entries[self.starts[first] : self.starts[last]]
        return NodeLists(self.starts[first : last + 1] - self.starts[first], entries)

    def mapped(self, new_node: np.ndarray) -> NodeLists:
        """With other numbers for the nodes."""
        if self.rows is not None:
            return NodeLists.of_rows(new_node[self.rows])
        return NodeLists(self.starts, new_node[self.entries])

    def turned(self, which: np.ndarray) -> NodeLists:
        """With the nodes of some elements, a mask (n,), the other way around."""
        parts = []
        for size in self.sizes:
            nodes, here = size.nodes.copy(), which[size.numbers]
            nodes[here] = nodes[here, ::-1]
            parts.append(SizeBlock(size.numbers, nodes))
        return NodeLists.of_sizes(len(self), parts) if parts else self

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))

    def digest(self) -> str:
        """SHA-256 of who has which nodes."""
        state = hashlib.sha256(f"{len(self)}".encode())
        for one in (self.starts, self.entries):
            state.update(np.ascontiguousarray(one, "<i8").data)
        return state.hexdigest()

    def _block(self, numbers: np.ndarray, size: int) -> SizeBlock:
        run = len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1
        which: Which = slice(int(numbers[0]), int(numbers[-1]) + 1) if run else numbers
        return SizeBlock(which, self.entries[self._places(which, size)].reshape(-1, size))

    def _places(self, which: Which, size: int) -> Which:
        """Where the entries of some elements with the same number of nodes are."""
        if isinstance(which, slice):
            first, last, _ = which.indices(len(self))
            return slice(int(self.starts[first]), int(self.starts[last]))
        return self.starts[which][:, None] + np.arange(size)


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Where lists of such lengths (n,) begin, one after the other, and the end of the last, (n + 1,)."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def node_lists(given: Any, what: str, width: int | None = None) -> NodeLists:
    """Nodes of elements as a person gives them: an (n, k) array, a list of such arrays, or rows of changing length.

    ``width``: the number of nodes of elements where none are given.
    """
    if isinstance(given, NodeLists):
        return given
    if isinstance(given, list | tuple) and len(given) and all(isinstance(one, Sequence | np.ndarray) for one in given):
        if all(isinstance(one, np.ndarray) and one.ndim == 2 for one in given):
            return NodeLists.joined([node_lists(one, what) for one in given])
        if len({len(one) for one in given}) > 1:
            rows = [whole_numbers(one, what) for one in given]
            odd = [row.shape for row in rows if row.ndim != 1]
            if odd:
                raise MeshError(f"{what}: expected rows of node numbers, or arrays (n, k), got one of shape {odd[0]}")
            return NodeLists(starts_of(np.array([len(row) for row in rows])), np.concatenate(rows))
    array = whole_numbers(given, what)
    if array.size == 0:
        return NodeLists.of_rows(np.zeros((0, width or (array.shape[1] if array.ndim == 2 else 0)), np.int32))
    if array.ndim != 2:
        raise MeshError(f"{what}: expected node numbers of shape (n, k), got {array.shape}")
    return NodeLists.of_rows(array)


@dataclass(frozen=True, eq=False)
class CellBlock:
    """Cells of one kind, of polygons those with the same number of corners: their numbers, and their nodes (m, k)."""

    kind: CellKind
    numbers: Which
    nodes: np.ndarray

    def listed(self, count: int) -> np.ndarray:
        """The numbers of its cells, among so many of the mesh, as an array (m,)."""
        return np.arange(count)[self.numbers]


class CellTable(ItsOwnCopy):
    """All cells of a mesh: which are of which kind, by number, and the nodes of each."""

    def __init__(self, kinds: Kinds, nodes: NodeLists):
        self.kinds, self.nodes = kinds, nodes

    @classmethod
    def of_kind(cls, kind: str, rows: np.ndarray) -> CellTable:
        """Cells of one kind, (n, k)."""
        return cls({kind: range(len(rows))}, NodeLists.of_rows(rows))

    @classmethod
    def in_turn(cls, parts: Sequence[tuple[str, NodeLists]]) -> CellTable:
        """The cells of one part after those of the other; a kind may come again."""
        found: dict[str, list[range]] = {}
        first = 0
        for kind, nodes in parts:
            if len(nodes):
                found.setdefault(kind_name(kind), []).append(range(first, first + len(nodes)))
            first += len(nodes)
        kinds: Kinds = {kind: runs[0] if len(runs) == 1 else np.concatenate([np.array(run) for run in runs])
                        for kind, runs in found.items()}  # fmt: skip
        filled = [nodes for _, nodes in parts if len(nodes)]
        if not filled:
            raise MeshError("a mesh needs at least one cell")
        return cls(kinds, NodeLists.joined(filled))

    @classmethod
    def by_kind(cls, cell_nodes: object, kind: str | None) -> CellTable:
        """Cells as a person gives them: (n, k) of one kind, or {kind: (n, k)} of several."""
        if not isinstance(cell_nodes, Mapping):
            if kind is None:
                raise MeshError(f"which kind of cell is it? Say one of {', '.join(NAMES)}, or give {{kind: nodes}}")
            cell_nodes = {kind_name(kind): cell_nodes}
        elif kind is not None:
            raise MeshError(f"the cells are given by kind already, {', '.join(map(str, cell_nodes))}; leave out"
                            f" kind={kind!r}")  # fmt: skip
        return cls.in_turn([(name, node_lists(nodes, f"cell nodes of {kind_name(name)} cells"))
                            for name, nodes in cell_nodes.items()])  # fmt: skip

    @classmethod
    def given(cls, kind: str | Mapping[str, ArrayLike], nodes: NodeLists) -> CellTable:
        """Cells of one kind, or of those that are named with the numbers of their cells."""
        if isinstance(kind, str):
            return cls({kind_name(kind): range(len(nodes))}, nodes)
        runs = isinstance(kind, Mapping) and all(isinstance(numbers, range) for numbers in kind.values())
        kinds: Kinds = dict(kind) if runs else checked_kinds(kind, "cells", len(nodes))  # type: ignore[arg-type]
        for name in kinds:
            kind_name(name)
        return cls({name: numbers for name, numbers in kinds.items() if len(numbers)}, nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def name(self) -> str:
        """The kind of all cells, "mixed" where there are several."""
        return next(iter(self.kinds)) if len(self.kinds) == 1 else MIXED

    @property
    def kind(self) -> str | Kinds:
        """As ``given`` takes it."""
        return self.name if len(self.kinds) == 1 else self.kinds

    @cached_property
    def blocks(self) -> list[CellBlock]:
        """The cells, kind by kind; polygons by their numbers of corners, too."""
        found = []
        for name, numbers in self.kinds.items():
            where: Which = slice(numbers.start, numbers.stop) if isinstance(numbers, range) else numbers
            lists = self.nodes
            if len(self.kinds) > 1 and isinstance(numbers, range):
                lists = lists.between(numbers.start, numbers.stop)
            elif len(self.kinds) > 1:
                lists = lists.taken(np.asarray(numbers))
            for part in lists.sizes:
                kind = polygon(part.nodes.shape[1]) if name == POLYGON else KINDS[name]
                single = len(lists.sizes) == 1
                found.append(CellBlock(kind, where if single else np.asarray(numbers)[part.numbers], part.nodes))
        return found

    @property
    def face_sizes(self) -> tuple[int, ...]:
        """The numbers of nodes that faces of such cells have, ascending."""
        return tuple(
            sorted(
                {size for name in self.kinds for size in (polygon(3) if name == POLYGON else KINDS[name]).face_sizes}
            )
        )

    def kept(self, map_: object) -> CellTable:
        """The same cells; where a map was made of their nodes that has all in one array, with that."""
        kept = self.nodes.kept(map_)
        return self if kept is self.nodes else CellTable(self.kinds, kept)

    def with_nodes(self, nodes: Sequence[np.ndarray]) -> CellTable:
        """The same cells with other nodes, block by block."""
        parts = [SizeBlock(block.numbers, rows) for block, rows in zip(self.blocks, nodes, strict=True)]
        return CellTable(self.kinds, NodeLists.of_sizes(len(self), parts))

    def taken(self, numbers: np.ndarray, new_node: np.ndarray) -> CellTable:
        """All cells in another order, with other numbers for the nodes."""
        kinds: Kinds = self.kinds
        if len(kinds) > 1:
            place = np.empty(len(numbers), np.int64)
            place[numbers] = np.arange(len(numbers))
            kinds = {name: np.sort(place[np.asarray(of)]) for name, of in kinds.items()}
        return CellTable(kinds, self.nodes.taken(numbers).mapped(new_node))

    def measured(self, measure: Callable[[CellBlock], np.ndarray], *shape: int) -> np.ndarray:
        """``measure(block)`` (m, *shape) of all cells: (n, *shape)."""
        if len(self.blocks) == 1:
            return measure(self.blocks[0])
        found = np.zeros((len(self), *shape))
        for block in self.blocks:
            found[block.numbers] = measure(block)
        return found

    @cached_property
    def sides(self) -> np.ndarray:
        """Where the sides of each cell begin if all sides of all cells are counted in turn, (n + 1,)."""
        counts = np.zeros(len(self), np.int64)
        for block in self.blocks:
            counts[block.numbers] = len(block.kind.faces)
        return starts_of(counts)

    def __str__(self) -> str:
        return " + ".join(f"{len(numbers)} {name}" for name, numbers in self.kinds.items()) + " cells"


@dataclass(frozen=True, eq=False)
class MeshLists:
    """The nodes of all cells, interior faces and boundary faces of a mesh, by number."""

    cells: CellTable
    faces: NodeLists
    boundary_faces: NodeLists
