"""Grids over ranks: slabs of whole planes of the first axis, as equal as can be.

What a rank has of a grid is a grid of its own: the planes of its slab are the points inside, and beyond them are ghost
planes. An index of the whole along the first axis is there as it is, counted from the first plane of the slab, so a box
is cut to the slab and shifted, and offsets stay. Ghost planes are

- planes of neighbouring slabs, as many as stencils reach;
- at the ends of the domain the ghosts of the whole, which belong to the rank at that end;
- beyond those, where loops look around the end of a periodic axis, planes of the slab at the other end. Where the grid
  has ghosts of its own, which such loops fill, what lies a whole axis away in the whole is just behind them here.

Planes that are not needed for any of these are there, and nobody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from meshloom.backend.base import Backend
from meshloom.dist.array import DistributedArray
from meshloom.dist.halo import IMPORT
from meshloom.dist.local import ByRank, LocalSet, Messages
from meshloom.dist.partition import even_ends
from meshloom.dist.sums import RankTotal, reduced_here
from meshloom.dist.usage import check_slabs, is_along_cut, maps_of, sets_of
from meshloom.dist.world import World
from meshloom.mesh.box import AXES, Box, IndexSpace
from meshloom.mesh.core import Field, Set
from meshloom.mesh.grid import Grid
from meshloom.mesh.offsets import Offsets
from meshloom.native.algorithms import distinct
from meshloom.operation.body import SameBody
from meshloom.operation.domain import BoxPoints, GridLines
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation
from meshloom.operation.policy import by_strategy
from meshloom.records import dataclass
from meshloom.schedule.strategies import AUTOMATIC, POINTS, serving

KEPT = "slabs"  # where a grid keeps how it is cut


class HaloDepth(NamedTuple):
    """How many planes loops read beyond a slab, ``near``, and beyond the ghosts at the ends of the domain, ``around``
    the end of the axis."""

    near: int = 0
    around: int = 0

    def joined(self, other: HaloDepth) -> HaloDepth:
        return HaloDepth(*map(max, self, other))


class PlaneStep(NamedTuple):
    """What a loop reads along the first axis: ``step`` planes away from those of index ``low`` to ``high`` - 1."""

    low: int
    high: int
    step: int


@dataclass(frozen=True, eq=False)
class Slabs:
    """A grid over ranks, as this rank sees it, for halos so deep. ``first`` (ranks + 1,): the first plane of
    every slab, and behind the last one."""

    grid: IndexSpace
    world: World
    depth: HaloDepth
    first: np.ndarray

    @classmethod
    def of(cls, grid: IndexSpace, world: World, depth: HaloDepth) -> Slabs:
        """UserError where there are too many ranks for that."""
        check_slabs(grid, max(depth.near, depth.around), world.size)
        check_slabs(grid, _width(grid, depth), world.size, "ghosts, with what is copied to them, that reach")
        return cls(grid, world, depth, np.array(even_ends(grid.shape[0], world.size)))

    @property
    def width(self) -> int:
        """Ghost planes here, at each end."""
        return _width(self.grid, self.depth)

    @property
    def origin(self) -> int:
        """The first plane of this slab."""
        return int(self.first[self.world.rank])

    def owned(self, rank: int) -> tuple[int, int]:
        """The planes that a rank owns, ghosts of the whole included: the first, and behind the last."""
        ghosts, last = self.grid.ghosts[0], self.world.size - 1
        return int(self.first[rank]) - ghosts * (rank == 0), int(self.first[rank + 1]) + ghosts * (rank == last)

    @property
    def layers(self) -> tuple[str, ...]:
        """Those of the halo that some rank has."""
        return (IMPORT,) if any(self.depth) else ()

    def serves(self, depth: HaloDepth) -> bool:
        return self.depth.joined(depth) == self.depth

    # ----- what is here ---------------------------------------------------------------------------------------------
    def local(self, one: Set) -> LocalSet:
        """What is here of the grid."""
        assert one is self.grid, f"{self.grid.name} is cut into slabs, not {one.name}"
        return self._local

    @cached_property
    def _local(self) -> LocalSet:
        size, here = self.grid.strides[0], self._rows_of(self._stored(self._planes_here))
        low, high = (plane - self.origin + self.width for plane in self.owned(self.world.rank))
        mine = np.arange(low * size, high * size)
        local = LocalSet.of(self.local_grid, here, mine, self.grid.total)
        return replace(local, sends=self._sends, receives=self._receives, by_rank=self._by_rank)

    def _by_rank(self) -> ByRank:
        """One rank's planes lie behind the other's."""
        ends = np.array([self.owned(rank) for rank in range(self.world.size)])
        rows = self._rows_of(np.arange(ends[0, 0], ends[-1, 1]) + self.grid.ghosts[0])
        return ByRank((ends[:, 1] - ends[:, 0]) * self.grid.strides[0], rows)

    @cached_property
    def local_grid(self) -> Grid:
        """The points of this rank, and ghosts."""
        one = self.grid
        planes = int(self.first[self.world.rank + 1]) - self.origin
        return Grid((planes, *one.shape[1:]), periodic=(False, *one.periodic[1:]),
                    ghosts=(self.width, *one.ghosts[1:]), name=one.name, aligned=one.places != one.stored)  # fmt: skip

    @property
    def _planes_here(self) -> np.ndarray:
        """The indices of all planes that are stored here, in the order of memory."""
        return np.arange(self.origin - self.width, self.first[self.world.rank + 1] + self.width)

    def _stored(self, planes: np.ndarray) -> np.ndarray:
        """Where planes lie in the whole, counted from the first one there; beyond the ghosts comes the other end."""
        n, ghosts = self.grid.shape[0], self.grid.ghosts[0]
        around = np.where(planes < -ghosts, n + ghosts, np.where(planes >= n + ghosts, -n - ghosts, 0))
        return np.clip(planes + around + ghosts, 0, n + 2 * ghosts - 1)

    def _rows_of(self, planes: np.ndarray) -> np.ndarray:
        """The rows of a field in planes that are counted from the first one in memory."""
        size = self.grid.strides[0]
        return (planes[:, None] * size + np.arange(size)).reshape(-1)

    # ----- what is exchanged ----------------------------------------------------------------------------------------
    def halo(self, rank: int) -> np.ndarray:
        """The indices of planes that a rank needs of others, ascending: in the order of messages."""
        first, last, ends = int(self.first[rank]), int(self.first[rank + 1]), self.world.size - 1
        n, ghosts, (near, around) = self.grid.shape[0], self.grid.ghosts[0], self.depth
        low = np.arange(first - near, first) if rank else np.arange(-ghosts - around, -ghosts)
        high = np.arange(last, last + near) if rank < ends else np.arange(n + ghosts, n + ghosts + around)
        return np.concatenate([low, high])

    def _owner(self, planes: np.ndarray) -> np.ndarray:
        """The ranks of planes of a halo, which are no ghosts of the whole."""
        inside = self._stored(planes) - self.grid.ghosts[0]
        return np.searchsorted(self.first, inside, side="right") - 1

    @property
    def _receives(self) -> Messages:
        halo = self.halo(self.world.rank)
        owner = self._owner(halo)
        return self._messages({int(one): halo[owner == one] for one in distinct(owner)})

    @property
    def _sends(self) -> Messages:
        rank, ghosts, found = self.world.rank, self.grid.ghosts[0], dict[int, np.ndarray]()
        for other in range(self.world.size):
            halo = self.halo(other)
            found[other] = self._stored(halo[self._owner(halo) == rank]) - ghosts
        return self._messages({other: planes for other, planes in found.items() if len(planes)})

    def _messages(self, planes: dict[int, np.ndarray]) -> Messages:
        rows = tuple(self._rows_of(one - self.origin + self.width) for one in planes.values())
        return Messages(tuple(planes), rows)

    # ----- loops ----------------------------------------------------------------------------------------------------
    def part(self, box: Box) -> Box | None:
        """What this rank owns of a box, in its own grid; None where that is nothing."""
        begin, end = self.owned(self.world.rank)
        low, high = max(box.low[0], begin), min(box.high[0], end)
        if low >= high:
            return None
        return self.local_grid.box((low - self.origin, *box.low[1:]), (high - self.origin, *box.high[1:]))

    def looks_beyond(self, box: Box | None, offsets: Offsets | None) -> bool:
        """Does a loop over a box, or all points inside, look from some slab into another one?"""
        over = box or self.grid.inside
        steps = {one[0] for one in offsets.offsets} if offsets is not None else set()
        return any(any(_seen(self.grid, self.first, PlaneStep(over.low[0], over.high[0], one))[0]) for one in steps)

    def has_copies(self, box: Box | None) -> bool:
        """Has some rank copies of planes of a box that it does not own?"""
        over = box or self.grid.inside
        copied = np.concatenate([self._stored(self.halo(rank)) for rank in range(self.world.size)])
        at = copied - self.grid.ghosts[0]
        return bool(((at >= over.low[0]) & (at < over.high[0])).any())

    def local_offsets(self, box: Box, offsets: Offsets) -> Offsets:
        """Offsets from the points of a box, in the grid of this rank."""
        steps = {step: _seen(self.grid, self.first, PlaneStep(box.low[0], box.high[0], step))[1]
                 for step in {one[0] for one in offsets.offsets}}  # fmt: skip
        return self.local_grid.offsets(*((steps[one[0]], *one[1:]) for one in offsets.offsets))


def slabs(world: World, grid: IndexSpace, steps: Iterable[PlaneStep] = ()) -> Slabs:
    """How a grid is cut, for loops that read so along the first axis and for all loops before."""
    known: Slabs | None = grid.kept.get(KEPT)
    found = Slabs.of(grid, world, HaloDepth()) if known is None else known
    depth = found.depth
    for one in steps:
        depth = depth.joined(_seen(grid, found.first, one)[0])
    if found is not known or not found.serves(depth):
        found = Slabs.of(grid, world, depth)
        grid.kept[KEPT] = found
    return found


def _width(grid: IndexSpace, depth: HaloDepth) -> int:
    """Ghost planes at each end of a slab."""
    return max(depth.near, grid.ghosts[0] + depth.around)


def _seen(grid: IndexSpace, first: np.ndarray, one: PlaneStep) -> tuple[HaloDepth, int]:
    """How deep halos must be for a loop that reads so, and its step there: from ghosts to the other end of the domain
    it is another one, where that is nearer."""
    if not one.step:
        return HaloDepth(), 0
    n, ghosts, near = grid.shape[0], grid.ghosts[0], _near(grid, first, one)
    if grid.wraps[0]:
        return HaloDepth(near, near), one.step
    low, high = one.low + one.step, one.high + one.step
    around = n - low if one.high <= 0 else high if one.low >= n else n  # planes from the other end that are read
    if low >= 0 and high <= n and ghosts + around < near:
        return HaloDepth(around=around), one.step - (n + ghosts) * (1 if one.step > 0 else -1)
    return HaloDepth(near), one.step


def _near(grid: IndexSpace, first: np.ndarray, one: PlaneStep) -> int:
    """How many planes beyond its slab some rank reads."""
    ghosts, near = grid.ghosts[0], 0
    for rank in range(len(first) - 1):
        begin, end = int(first[rank]), int(first[rank + 1])
        is_first, is_last = rank == 0, rank == len(first) - 2
        low = max(one.low, begin - ghosts * is_first) + one.step
        high = min(one.high, end + ghosts * is_last) + one.step
        if low < high:  # at the ends of the domain ghosts are there anyway
            near = max(near, 0 if is_first and not grid.wraps[0] else begin - low,
                       0 if is_last and not grid.wraps[0] else high - end)  # fmt: skip
    return near


# ----- operations ---------------------------------------------------------------------------------------------------
def grid_of(of: Operation) -> IndexSpace | None:
    """The grid whose points or lines an operation visits."""
    domain = of.domain
    return domain.set if (domain.visits_elements or domain.along_lines) and isinstance(domain.set, IndexSpace) else None


def refusal(of: Operation) -> str:
    """What of an operation on grids does not run over ranks, and what does; '' where all runs."""
    if is_along_cut(of):
        return (f"grids are cut along axis {AXES[0]}, and no loops run along lines that are cut yet, but along other"
                " axes, and over points and boxes, with stencils")  # fmt: skip
    sets = (*sets_of([of]), *(end for one in maps_of([of]) for end in (one.source, one.target)))
    if any(isinstance(one.outermost, IndexSpace) and one.outermost is not one for one in sets):
        return "loops reach points of a grid at offsets, in boxes and through maps, but not in other parts yet"
    return ""


def cut_for(world: World, of: Operation, grid: IndexSpace) -> Slabs:
    """The slabs of an operation over points of a grid."""
    box = of.box or grid.inside
    steps = {offset[0] for one in of.operands if one.pattern.offsets for offset in one.pattern.offsets.offsets}
    return slabs(world, grid, [PlaneStep(box.low[0], box.high[0], step) for step in sorted(steps)])


def on_points(
    of: Operation, cut: Slabs, fields: Mapping[Field, DistributedArray], inside: Backend, totals: list[RankTotal]
) -> Operation | None:
    """An operation over points of a grid on those that are here; None where it visits none. ``totals`` get its Globals
    that are summed up here, with what stands for them."""
    box = of.box or cut.grid.inside

    def local(one: Operand) -> Operand:
        if isinstance(one.storage, Field):
            offsets = one.pattern.offsets and cut.local_offsets(box, one.pattern.offsets)
            return one._replace(storage=fields[one.storage].local, pattern=one.pattern._replace(offsets=offsets))
        return reduced_here(one, totals)

    operands, part = tuple(map(local, of.operands)), cut.part(box)
    if part is None:
        return None
    # A kernel names the offsets that it was written for: where others stand for them, its graph does not.
    body = of.body if _offsets(operands) == _offsets(of.operands) else SameBody(of)
    as_asked = of.box is not None or of.wish.strategy in AUTOMATIC
    policy = of.policy if as_asked else by_strategy(serving(POINTS).name)
    return Operation(of.name, BoxPoints(part), operands, body, policy, inside)


def on_lines(of: Operation, cut: Slabs, fields: Mapping[Field, DistributedArray], inside: Backend) -> Operation:
    """An operation along lines that are not cut on those that are here."""
    operands = [one._replace(storage=fields[one.storage].local) if isinstance(one.storage, Field) else one
                for one in of.operands]  # fmt: skip
    domain = GridLines(cut.local_grid, cast(GridLines, of.domain).axis)
    return Operation(of.name, domain, tuple(operands), SameBody(of), of.policy.over_some(domain), inside)


def _offsets(operands: Sequence[Operand]) -> list[tuple[tuple[int, ...], ...]]:
    return [one.pattern.offsets.offsets for one in operands if one.pattern.offsets is not None]
