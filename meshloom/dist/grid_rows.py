"""Grids in loops through maps: on ranks such a loop sees the rows of a grid as a set, with the owners of their planes.

What is here of a slab is a grid of its own, with ghost planes as far as stencils reach. Maps lead anywhere, and reach
single rows: their halo is that of any set. So a loop from points of a grid to others through a map, or to points, runs
on fields of these rows. Their values are copied out of slabs before it, and back behind it what it has written: by each
rank for itself, since owners are the same. What is exchanged, and when, the pass over the graph sees as it does of any
set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from meshloom.backend.base import Backend
from meshloom.dist.array import DistributedArray
from meshloom.dist.local import OWNERS
from meshloom.dist.slabs import slabs
from meshloom.dist.usage import maps_of
from meshloom.dist.world import World
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Field, Map, Set
from meshloom.operation.call import CalledFunction, called, functions_of
from meshloom.operation.domain import SetElements
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.records import dataclass

KEPT = "rows of the grid"  # where a grid keeps them
Rows = Callable[[Set], Set]  # of a grid its rows, any other set itself


class RowsField(Field):
    """A field of a grid by rows, which copies fill, and nobody else: there is nothing that ranks could be given
    otherwise, and some make loops ready again, and with them this, when others do not."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class GridRows:
    """The rows of a grid as a ``set``, ghosts and padding included. ``fields``: those of the grid by rows. ``maps``:
    those that begin or end at the grid as they lead from or to its rows, each with the version of the indices that it
    has."""

    set: Set
    fields: WeakKeyDictionary[Field, RowsField]
    maps: WeakKeyDictionary[Map, tuple[int, Map]]

    def field_for(self, one: Field) -> RowsField:
        if one not in self.fields:
            self.fields[one] = RowsField(self.set, one.name, one.components, dtype=one.dtype, layout=one.layout,
                                         temporary=False)  # fmt: skip
        return self.fields[one]

    def map_for(self, one: Map, rows: Rows) -> Map:
        version, found = self.maps.get(one, (-1, None))
        if found is None:
            found = Map(rows(one.source), rows(one.target), one.positions, one.name, dtype=one.index_type)
        elif version != one.version:
            found.assign(one.positions)
        self.maps[one] = one.version, found
        return found


@dataclass(frozen=True, eq=False)
class RowsCopy:
    """From a field of a grid to one of its rows, or back."""

    source: Field
    target: Field

    def __call__(self) -> None:
        """Of all rows, as one process does it."""
        self.target.repack(self.source.unpacked())

    def here(self, arrays: Mapping[Field, DistributedArray], inside: Backend) -> Operation:
        """It on this rank, for its own rows, in the memory of the back end that runs loops there."""
        source, target = arrays[self.source], arrays[self.target]
        for one in (source.local, target.local):
            inside.bring(one)
        copy = partial(_copy, source.local, _own(source, inside), target.local, _own(target, inside))
        return called(CalledFunction(copy, (source.local,), (target.local,)), f"copy of {source.local.name}")


def reaches_rows(of: Operation) -> bool:
    """Does a loop go from points of a grid through maps, or to them?"""
    return any(isinstance(end, IndexSpace) for one in maps_of([of]) for end in (one.source, one.target))


def on_rows(operations: Iterable[Operation], world: World) -> list[Operation]:
    """The same operations; loops that go through maps from or to points of a grid run on its rows, between copies."""
    return [one for of in operations for one in (_on_rows(of, world) if reaches_rows(of) else [of])]


def copied(of: Operation, arrays: Mapping[Field, DistributedArray], inside: Backend) -> Operation:
    """A copy between a grid and its rows as it runs on this rank."""
    (copy,) = functions_of([of])
    return cast(RowsCopy, copy).here(arrays, inside)


def _on_rows(of: Operation, world: World) -> list[Operation]:
    rows = partial(_rows, world)
    there = {one: _rows_of(one.set, world).field_for(one) for one in dict.fromkeys(of.storages)
             if isinstance(one, Field) and isinstance(one.set, IndexSpace)}  # fmt: skip

    def moved(one: Operand) -> Operand:
        through, storage = one.pattern.map, one.storage
        pattern = one.pattern if through is None else one.pattern._replace(map=_map(through, rows, world))
        return one._replace(storage=there.get(storage, storage) if isinstance(storage, Field) else storage,
                            pattern=pattern)  # fmt: skip

    loop = Operation(of.name, SetElements(rows(of.set)), tuple(map(moved, of.operands)), of.body, of.policy, of.backend)
    before = [_called(RowsCopy(one, its)) for one, its in there.items() if one in of.reads]
    return [*before, loop, *(_called(RowsCopy(its, one)) for one, its in there.items() if one in of.written)]


def _called(copy: RowsCopy) -> Operation:
    return called(CalledFunction(copy, (copy.source,), (copy.target,)), f"copy of {copy.source.name}")


def _rows(world: World, one: Set) -> Set:
    return _rows_of(one, world).set if isinstance(one, IndexSpace) else one


def _rows_of(grid: IndexSpace, world: World) -> GridRows:
    """Those of a grid, made once."""
    if KEPT not in grid.kept:
        made, cut = Set(grid.total, grid.name), slabs(world, grid)
        planes = [last - first for first, last in map(cut.owned, range(world.size))]
        made.kept[OWNERS] = np.repeat(np.arange(world.size, dtype=np.int32), grid.strides[0] * np.array(planes))
        grid.kept[KEPT] = GridRows(made, WeakKeyDictionary(), WeakKeyDictionary())
    found: GridRows = grid.kept[KEPT]
    return found


def _map(one: Map, rows: Rows, world: World) -> Map:
    """From rows, or to them."""
    grid = next((end for end in (one.source, one.target) if isinstance(end, IndexSpace)), None)
    return one if grid is None else _rows_of(grid, world).map_for(one, rows)


def _own(one: DistributedArray, inside: Backend) -> Any:
    """Where in memory the values of this rank's own rows are, which lie one behind the other: indices, or a slice."""
    own, dim = one.on.mine, one.local.dim
    return slice(int(own[0]), int(own[-1]) + 1) if dim == 1 else inside.place(one.on.memory(one.layout, dim)[own])


def _copy(source: Field, from_places: Any, target: Field, to_places: Any) -> None:
    target.storage[to_places] = source.storage[from_places]
