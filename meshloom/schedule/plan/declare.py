"""How a plan is declared: a dataclass each of whose fields says what it holds.

``holds(Array(OFFSETS, ANY), "where each color begins")`` is an array of 64-bit numbers of any length, in words and for
the machine. Everything that is known about a plan next to its meaning follows from that: which arrays it has, of which
type and shape, which may be missing (``schema.py``); how it is kept on disk (``plan_cache.py``); what generated code
calls its arrays and numbers (``plan.py``). Fields may hold arrays, numbers, pairs of slots, other such dataclasses, and
tables of these by the number of a map or of a target set. What follows from the arrays, such as how many blocks there
are, is not kept next to them: it is a ``size``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from meshloom.records import dataclass
from meshloom.schedule.plan.topology import Topology

T = TypeVar("T")

Offsets = NDArray[np.int64]
Numbers = NDArray[np.integer]  # of elements, targets or entries
Flags = NDArray[np.uint8]
Reals = NDArray[np.floating]

OFFSETS, NUMBERS, FLAGS, REALS = ("int64",), ("int32", "int64"), ("uint8",), ("float32", "float64")


class Pair(NamedTuple):
    """Two slots of a map that often lead to the same target, at elements next to each other or one after the other."""

    slot: int
    other: int


class size(cached_property[T]):
    """A whole number that generated code may name, and that follows from the arrays; None where there is none."""


@dataclass(frozen=True)
class Place:
    """Where in a plan a field stands: the objects around it, the innermost last, and the numbers on the way there."""

    topology: Topology
    objects: tuple[Any, ...]
    numbers: tuple[int, ...] = ()

    def inside(self, kind: type[T]) -> T:
        """The nearest object of that type around the field."""
        return next(one for one in reversed(self.objects) if isinstance(one, kind))

    @property
    def rows(self) -> np.ndarray:
        """The rows of the map with the last number."""
        return self.topology.rows()[self.numbers[-1]]


# ----- what a field may hold ----------------------------------------------------------------------------------------
Dimension = int | None | Callable[[Place], int]  # None: any length
Needed = Callable[[Place], bool | None]  # must it be there? None: it may be


class Array:
    """An array of one of some types, with as many dimensions as are named."""

    def __init__(self, types: tuple[str, ...], *shape: Dimension):
        self.types, self.shape = types, shape


@dataclass(frozen=True)
class PlanNumber:
    """A whole number, at least ``low``."""

    low: int = 0


class Part:
    """An object of one of some dataclasses that are declared as a plan is."""

    def __init__(self, *kinds: type):
        self.kinds = kinds


@dataclass(frozen=True)
class Table:
    """A dictionary with a value for each number of ``keys``, or for ``some`` of them."""

    of: Holding
    keys: Callable[[Place], Collection[int]]
    some: bool = False


@dataclass(frozen=True)
class Listed:
    """A tuple of values, as many as there are."""

    of: Holding


@dataclass(frozen=True)
class Pairs:
    """A tuple of pairs of slots."""


Holding = Array | PlanNumber | Part | Table | Listed | Pairs


@dataclass(frozen=True)
class Declared:
    """A field of a plan: what it holds, what that is in words, and when it must be there."""

    name: str
    holding: Holding
    words: str
    needed: Needed


def always(place: Place) -> bool | None:
    return True


def maybe(place: Place) -> bool | None:
    return None


def holds(holding: Holding, words: str, needed: Needed = always) -> Any:
    """A field of a dataclass that holds that; where it need not be there it may be None."""
    return field(metadata={"declared": (holding, words, needed)})


def declared(kind: type) -> tuple[Declared, ...]:
    """The declarations of a dataclass, in order; fields without one are not part of the plan."""
    return tuple(Declared(f.name, *f.metadata["declared"]) for f in fields(kind) if "declared" in f.metadata)


def sizes_of_type(kind: type) -> tuple[str, ...]:
    """The names of the sizes of a dataclass."""
    known = {name: one for base in reversed(kind.__mro__) for name, one in vars(base).items()}
    return tuple(name for name, one in known.items() if isinstance(one, size))


# ----- lengths and numbers that many plans use ----------------------------------------------------------------------
ANY = None


def elements(place: Place) -> int:
    return place.topology.elements


def targets(place: Place) -> int:
    """Of the map with the first number."""
    return place.topology.maps[place.numbers[0]][1]


def one_more_than_targets(place: Place) -> int:
    return targets(place) + 1


def entries(place: Place) -> int:
    """The entries of the map with the first number through which something is given."""
    return place.topology.elements * len(place.topology.slots(place.numbers[0]))


def racy_maps(place: Place) -> Collection[int]:
    return place.topology.maps.keys()


def all_maps(place: Place) -> Collection[int]:
    return place.topology.rows().keys()


def spaces(place: Place) -> Collection[int]:
    """The target sets of the racy maps."""
    return set(place.topology.spaces.values())


def ordered(place: Place) -> bool | None:
    """Is another order of visit asked for than the elements' own?"""
    return place.topology.order is not None
