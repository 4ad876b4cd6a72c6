"""Domains: what an operation runs over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from enum import Enum
from functools import cached_property

from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.grid import Grid
from meshloom.mesh.offsets import Index
from meshloom.records import dataclass
from meshloom.schedule.lines.spec import LineGeometry, geometry

Part = tuple[Index, Index]  # the first point of a box, and behind its last


class Extent(Enum):
    """How much of a field: what users see of it, or every place in memory, with ghosts and copies of another rank's."""

    INSIDE = "all values but ghosts and halo"
    EVERYWHERE = "all values"


INSIDE, EVERYWHERE = Extent.INSIDE, Extent.EVERYWHERE
Region = Extent | Part  # which values of a field: of a grid those of a box may be named


class Domain(ABC):
    """What an operation visits, and in which steps: elements one by one, whole lines, or plain memory."""

    visits_elements = False  # one element or point after the other, with a body for each
    along_lines = False  # whole lines of a grid
    all_memory = False  # every place of a field or global, ghosts, padding and halo included, in no order
    is_call = False  # none of these: a function of Python's runs, on whole fields
    everything = False  # of which nobody knows on which
    compiled = True  # is there code for it?

    @property
    @abstractmethod
    def set(self) -> Set | None:
        """What the visited elements belong to; None for the memory of a global."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many elements (points, places) are visited."""

    @abstractmethod
    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        """Are all values of a field visited, each at its own element? ``where``: which of them; a part of a grid may be
        one, too."""

    @property
    def box(self) -> Box | None:
        """The box of a grid whose points are visited as such."""
        return None

    @property
    def part(self) -> Part | None:
        """Where the points that are visited begin and end, if they are not all that a grid has in memory."""
        return None

    @property
    @abstractmethod
    def known_by(self) -> Hashable:
        """What tells it from others, without holding any of it."""

    @abstractmethod
    def __str__(self) -> str:
        """What it is, in words."""


@dataclass(frozen=True)
class SetElements(Domain):
    """The elements of a set (or of a part of one), those that are owned, one after the other."""

    of: Set
    visits_elements = True

    @property
    def set(self) -> Set:
        return self.of

    @property
    def size(self) -> int:
        return self.of.owned

    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        return isinstance(one, Field) and one.set is self.of and (where is INSIDE or not self.of.halo)

    @property
    def known_by(self) -> Hashable:
        return self.of.serial

    def __str__(self) -> str:
        return self.of.name


@dataclass(frozen=True, eq=False)
class BoxPoints(Domain):
    """The points of a box of a grid; those of boxes with the same ends are the same domain."""

    of: Box
    visits_elements = True

    @property
    def set(self) -> Set:
        return self.of.grid

    @property
    def box(self) -> Box:
        return self.of

    @property
    def size(self) -> int:
        return self.of.size

    @property
    def part(self) -> Part | None:
        return None if self.of.size == self.of.grid.total else (self.of.low, self.of.high)

    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        if not isinstance(one, Field) or one.set is not self.of.grid:
            return False
        if where is INSIDE:
            return self.of.covers_inside
        return self.part is None or (not isinstance(where, Extent) and contains(self.part, where))

    def _ends(self) -> tuple[object, ...]:
        return self.of.grid, self.of.low, self.of.high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxPoints) and self._ends() == other._ends()

    def __hash__(self) -> int:
        return hash(self._ends())

    @property
    def known_by(self) -> Hashable:
        return self.of.grid.serial, self.of.low, self.of.high

    def __str__(self) -> str:
        return str(self.of)


@dataclass(frozen=True)
class GridLines(Domain):
    """All lines of a grid along an axis, ghosts left out."""

    grid: Grid
    axis: int
    along_lines = True

    @property
    def set(self) -> Grid:
        return self.grid

    @cached_property
    def geometry(self) -> LineGeometry:
        """Where the lines lie."""
        return geometry(self.grid, self.axis)

    @property
    def size(self) -> int:
        return self.geometry.count * self.geometry.length

    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        if not isinstance(one, Field) or one.set is not self.grid:
            return False
        if isinstance(where, Extent):
            return where is INSIDE or self.size == self.grid.total
        return contains(((0,) * self.grid.rank, self.grid.shape), where)

    @property
    def known_by(self) -> Hashable:
        return self.grid.serial, self.axis

    def __str__(self) -> str:
        return f"the lines of {self.grid.name} along axis {self.axis}"


@dataclass(frozen=True)
class AllPlaces(Domain):
    """Every place in memory of a field or global."""

    of: Field | Global
    all_memory, compiled = True, False

    @property
    def set(self) -> Set | None:
        return self.of.set if isinstance(self.of, Field) else None

    @property
    def size(self) -> int:
        return self.of.set.total if isinstance(self.of, Field) else 1

    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        return one is self.of

    @property
    def known_by(self) -> Hashable:
        return None  # what it is, its operand tells

    def __str__(self) -> str:
        return f"all places of {self.of.name}"


@dataclass(frozen=True)
class WholeFields(Domain):
    """Fields and globals as wholes, as a function of Python's uses them. ``ends``: temporary fields that have no values
    afterwards. ``sets``: those that are certainly set, whatever they were before, each with how much of it."""

    everything: bool = True
    ends: frozenset[Field | Global] = frozenset()
    sets: frozenset[tuple[Field | Global, Extent]] = frozenset()
    is_call, compiled = True, False

    @property
    def set(self) -> None:
        return None

    @property
    def size(self) -> int:
        return 0

    def covers(self, one: Field | Global, where: Extent | Part) -> bool:
        return one in self.ends or (one, EVERYWHERE) in self.sets or (where is INSIDE and (one, INSIDE) in self.sets)

    @property
    def known_by(self) -> Hashable:
        return self.everything

    def __str__(self) -> str:
        return "everything" if self.everything else "whole fields"


def contains(outer: Region, inner: Region) -> bool:
    """Are all values, or points of a box, among those of another?"""
    if outer is EVERYWHERE or outer == inner:
        return True
    if isinstance(outer, Extent) or isinstance(inner, Extent):
        return False
    begins = all(a <= b for a, b in zip(outer[0], inner[0], strict=True))
    return begins and all(a >= b for a, b in zip(outer[1], inner[1], strict=True))


def overlap(one: Region, other: Region) -> bool:
    """Is there a value in both?"""
    if isinstance(one, Extent) or isinstance(other, Extent):
        return True
    ends = zip(one[0], one[1], other[0], other[1], strict=True)
    return all(a < d and c < b for a, b, c, d in ends)


def without(part: Part, other: Part) -> Iterator[Part]:
    """What is left of a box where another one is taken out, as boxes."""
    if not overlap(part, other):
        yield part
        return
    low, high = list(part[0]), list(part[1])
    for axis in range(len(low)):
        if low[axis] < other[0][axis]:
            yield tuple(low), (*high[:axis], other[0][axis], *high[axis + 1 :])
            low[axis] = other[0][axis]
        if high[axis] > other[1][axis]:
            yield (*low[:axis], other[1][axis], *low[axis + 1 :]), tuple(high)
            high[axis] = other[1][axis]
