"""What the loops of a program ask of sets over ranks: which sets there are, through which maps and offsets elements
reach each other, and which values ranks have to exchange.

A grid is cut into slabs along its first axis: as far as ranks are concerned its elements are the planes across it, and
ghosts belong to the plane at their end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from meshloom.dist.ownership import Link
from meshloom.dist.partition import PartitionTask
from meshloom.errors import UserError
from meshloom.mesh.assigned import guide_of
from meshloom.mesh.box import AXES, IndexSpace
from meshloom.mesh.core import Field, Map, RestrictedMap, Set, Subset, VaryingMap
from meshloom.mesh.mesh import Mesh, mesh_of
from meshloom.native.algorithms import distinct
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.records import dataclass


@dataclass(frozen=True, eq=False)
class Usage:
    """``sizes``: how many elements of each set have owners, of a grid its planes. ``links``: through which loops reach.
    ``guides``: through which sets follow others, those of loops included. ``tasks``: the cells of meshes, which are
    partitioned. ``radius``: how many planes loops inside a grid look around. ``due``: bytes of an element of the exec
    and of the import halo that one exchange carries. ``across``: the loops along lines that are cut."""

    sizes: dict[Set, int]
    links: tuple[Link, ...]
    guides: tuple[Link, ...]
    tasks: dict[Set, PartitionTask]
    radius: dict[Set, int]
    due: dict[Set, tuple[int, int]]
    across: tuple[str, ...]

    def check(self, ranks: int) -> None:
        """UserError where a grid has fewer planes than ranks, or slabs would be thinner than its stencils."""
        for grid, radius in self.radius.items():
            assert isinstance(grid, IndexSpace)
            check_slabs(grid, radius, ranks)


def usage(loops: Iterable[Operation]) -> Usage:
    """Of the loops of a program, as they are recorded."""
    listed = list(loops)
    return usage_of(sets_of(listed), with_origins(maps_of(listed)), listed)


def usage_of(
    some: Iterable[Set], reached: Mapping[Map, bool], listed: Sequence[Operation] = (), known: Collection[Set] = ()
) -> Usage:
    """Of sets that are reached through maps, each with whether anything is written through it; ``listed``: and of the
    loops that do so, which look around on grids. ``known``: cells that need no partition any more."""
    sets = all_sets(some, reached)
    grids = [one for one in sets if isinstance(one, IndexSpace)]
    meshes = meshes_of(sets)
    sizes = {one: _planes(one) if isinstance(one, IndexSpace) else one.total for one in sets}
    followed = [Link(one, by.target, _rows(by), as_member=isinstance(one, Subset), guide=not isinstance(one, Subset))
                for one in sets if (by := _followed(one)) is not None]  # fmt: skip
    links = [link_of(one, updated) for one, updated in reached.items()]
    steps = {grid: list(_steps(grid, listed)) for grid in grids}
    stencils = [Link(grid, grid, rows) for grid in grids if (rows := _stencil_rows(grid, steps[grid])) is not None]
    of_meshes = [Link(one.source, one.target, _rows(one)) for mesh in meshes for one in _maps_of(mesh)
                 if one.source in sizes and one.target in sizes]  # fmt: skip
    return Usage(
        sizes,
        (*links, *stencils),
        (*followed, *of_meshes, *links),
        {mesh.cells: _task(mesh) for mesh in meshes if mesh.cells not in known},
        {grid: max((abs(step) for first, last, step in steps[grid] if first < grid.shape[0] and last > 0), default=0)
         for grid in grids},
        _due(listed),
        tuple(dict.fromkeys(one.name for one in listed if is_along_cut(one))),
    )  # fmt: skip


def check_slabs(grid: IndexSpace, radius: int, ranks: int, what: str = "stencils that look") -> None:
    """UserError where slabs would be thinner than so many planes; ``what``: for which they are needed, in words."""
    planes = _planes(grid)
    most = max(planes // max(radius, 1), 1)
    if ranks > most:
        reached = f" and {what} {radius} planes far" if radius > 1 else ""
        raise UserError(f"{ranks} ranks are too many for {grid.name}: it is cut into slabs along axis {AXES[0]}, and"
                        f" has {planes} planes there{reached}; at most {most}")  # fmt: skip


def slab_points(one: Set) -> int:
    """The points of a plane of a grid across its first axis, ghosts not counted; 1 for any other set."""
    return prod(one.shape[1:]) if isinstance(one, IndexSpace) else 1


# ----- sets and maps ------------------------------------------------------------------------------------------------
def maps_of(loops: Iterable[Operation]) -> dict[Map, bool]:
    """The maps through which loops reach, and whether some loop writes through them."""
    found: dict[Map, bool] = {}
    for one in (operand for loop in loops for operand in loop.operands):
        if one.pattern.map is not None:
            found[one.pattern.map] = found.get(one.pattern.map, False) or one.mode.writes
    return found


def with_origins(maps: Mapping[Map, bool]) -> dict[Map, bool]:
    """These maps, and those of which some are the rows of a part: all that a part demands of halos they do, too, so
    that no halo depends on the part, which one rank forgets before another."""
    found = dict(maps)
    for one, updated in maps.items():
        while isinstance(one, RestrictedMap):
            one = one.origin
            found[one] = found.get(one, False) or updated
    return found


def sets_of(loops: Sequence[Operation]) -> list[Set]:
    """Those of loops and of their fields."""
    named = [one.domain.set for one in loops if one.domain.set is not None]
    return [*named, *(one.storage.set for loop in loops for one in loop.operands if isinstance(one.storage, Field))]


def all_sets(some: Iterable[Set], maps: Iterable[Map]) -> list[Set]:
    """Every set once that is cut with some, which maps connect: these, those at the ends of the maps, what they follow,
    and the cells of their meshes."""
    found = dict.fromkeys([*some, *(end for one in maps for end in (one.source, one.target))])
    for one in list(found):
        while (by := _followed(one)) is not None:
            one = by.target
            found[one] = None
    return list(found | dict.fromkeys(mesh.cells for mesh in meshes_of(found)))


def _followed(one: Set) -> Map | None:
    """The map by which a set follows another one, whatever loops there are: a part what it is a part of, the entries of
    a matrix its rows."""
    if isinstance(one, Subset):
        return one.members
    guide = guide_of(one)
    return None if guide is None or guide.target.total == 1 else guide  # one element may live on every rank


def sets_of_meshes(some: Iterable[Set]) -> list[Set]:
    """All sets of the meshes of which some are, or are parts."""
    return [one for mesh in meshes_of(some) for one in (mesh.cells, mesh.faces, mesh.boundary_faces, mesh.nodes)]


def meshes_of(sets: Iterable[Set]) -> list[Mesh]:
    return list(dict.fromkeys(mesh for one in sets if (mesh := mesh_of(one)) is not None))


def link_of(map_: Map, updated: bool) -> Link:
    """A map through which loops reach."""
    return Link(map_.source, map_.target, _rows(map_), updated, _is_membership(map_))


def _is_membership(map_: Map) -> bool:
    """Does it lead from the elements of a part to themselves?"""
    return isinstance(map_.source, Subset) and map_.source.members_of(map_.target) is map_


def _maps_of(mesh: Mesh) -> Iterator[Map]:
    """The maps by which nodes and faces follow cells."""
    yield mesh.face_cells
    yield mesh.boundary_cells
    nodes = mesh.cell_nodes
    yield nodes.padded if isinstance(nodes, VaryingMap) else nodes


def _task(mesh: Mesh) -> PartitionTask:
    """The cells of a mesh; one costs as much as it has faces, which is what its kind decides."""
    cells, joined = mesh.cells, mesh.face_cells.positions
    assert cells.points is not None, "cells of a mesh know where they are"
    faces = [np.bincount(one.reshape(-1), minlength=cells.total) for one in (joined, mesh.boundary_cells.positions)]
    weights = np.maximum(faces[0] + faces[1], 1)
    return PartitionTask(cells.by_position(cells.points), weights, joined)


def _rows(map_: Map) -> np.ndarray:
    """A map by position, (elements, arity): of a grid the elements are its planes."""
    rows = map_.positions
    if isinstance(map_.target, IndexSpace):
        grid = map_.target
        rows = np.clip(rows // grid.strides[0] - grid.first[0], 0, _planes(grid) - 1)
    if isinstance(map_.source, IndexSpace):
        grid = map_.source
        rows = rows.reshape(grid.places[0], -1)[grid.first[0] :][: _planes(grid)]
    return rows


# ----- grids --------------------------------------------------------------------------------------------------------
def _planes(grid: IndexSpace) -> int:
    return grid.shape[0]


def _steps(grid: IndexSpace, loops: Iterable[Operation]) -> Iterator[tuple[int, int, int]]:
    """(first plane, behind the last one, step) of what loops read along the first axis of a grid; ghosts have planes
    below 0 and from n."""
    for loop in loops:
        for one in loop.operands:
            if one.pattern.offsets is not None and one.pattern.offsets.grid is grid:
                box = loop.box or grid.inside
                for step in dict.fromkeys(offset[0] for offset in one.pattern.offsets.offsets):
                    yield box.low[0], box.high[0], step


def _stencil_rows(grid: IndexSpace, steps: Iterable[tuple[int, int, int]]) -> np.ndarray | None:
    """For every plane those that are read from it, (planes, most): a plane itself fills its row. None: nothing else."""
    n = _planes(grid)
    pairs = [np.zeros(0, np.int64)]
    for first, last, step in dict.fromkeys(steps):
        at = np.arange(first, last)
        seen = (at + step) % n if grid.wraps[0] else np.clip(at + step, 0, n - 1)
        pairs.append(np.clip(at, 0, n - 1) * n + seen)
    at, seen = np.divmod(distinct(np.concatenate(pairs)), n)
    at, seen = at[at != seen], seen[at != seen]
    if not len(at):
        return None
    counts = np.bincount(at, minlength=n)
    rows = np.repeat(np.arange(n)[:, None], counts.max(), axis=1)
    rows[at, np.arange(len(at)) - (np.cumsum(counts) - counts)[at]] = seen
    return rows


def is_along_cut(loop: Operation) -> bool:
    """Does it solve along lines that are cut?"""
    return loop.domain.along_lines and getattr(loop.domain, "axis", None) == 0


# ----- values -------------------------------------------------------------------------------------------------------
def _due(loops: Iterable[Operation]) -> dict[Set, tuple[int, int]]:
    """For every set the bytes of an element of its exec and of its import halo that one exchange carries: fields that
    some loop changes, and some loop reads where it reaches, or where it runs on the exec halo."""
    written: set[Field] = set()
    reached: dict[Field, None] = {}
    at_own: dict[Field, None] = {}
    for loop in loops:
        runs_on_halo = writes_elsewhere(loop)
        for one in loop.operands:
            if not isinstance(one.storage, Field):
                continue
            if one.mode.writes and not loop.domain.all_memory:  # what is filled is filled on halos, too
                written.add(one.storage)
            if one.mode.reads and (reaches(one) or (runs_on_halo and one.pattern.as_member)):
                reached[one.storage] = None
            elif one.mode.reads and runs_on_halo:
                at_own[one.storage] = None
    found: dict[Set, tuple[int, int]] = {}
    for field in (reached | at_own).keys() & written:
        size, (on_exec, on_import) = field.dim * field.dtype.itemsize, found.get(field.set, (0, 0))
        found[field.set] = on_exec + size, on_import + size * (field in reached)
    return found


def reaches(one: Operand) -> bool:
    """Does it lead to other elements than the own?"""
    return one.pattern.looks_around or (one.pattern.map is not None and not one.pattern.as_member)


def writes_elsewhere(of: Operation) -> bool:
    """Does it write to other elements than its own, so that ranks execute it for elements of others, too?"""
    return any(one.mode.writes and reaches(one) for one in of.operands)


def reduces(of: Operation) -> bool:
    """Does it reduce to a Global, so that every rank executes it for its own elements alone?"""
    return any(one.is_global and one.mode.combine for one in of.operands)
