"""Rows of fields on a set: where they lie in memory, and what a person sees of them.

A row has a position, where it lies in memory, and a number, by which a person knows its element. On most sets a person
sees all of them, by number; a grid shows its points in its own shape, and neither ghosts nor padding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property, wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from meshloom.errors import MeshError, PartitionError, known_name
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.values import as_array, named, whole_numbers
from meshloom.order.partition import partitioners

T = TypeVar("T")
P = ParamSpec("P")


class OneRank:
    """Whose the elements of a set are: here all of them are this process's own. Where there are several, ``dist`` puts
    another one in its place. ``cutting``: what cuts cells of meshes over ranks, by name, or the rank of every cell by
    number, (cells,). ``shape_hint``: what is to be said behind an array of a wrong shape."""

    cutting: str | np.ndarray = partitioners()[0]
    shape_hint: ClassVar[str] = ""

    def cut_by(self, how: str | ArrayLike) -> None:
        """Meshes that are cut over ranks from now on are cut so; here none is. PartitionError as by
        ``checked_partition``."""
        checked_partition(how)

    def mine(self, on: Rows) -> np.ndarray:
        """The numbers of the elements that this rank owns, ascending."""
        return np.arange(on.size)

    def asked(self, function: Callable[[np.ndarray], ArrayLike], points: np.ndarray) -> ArrayLike:
        """What a function of points gives for those of this rank's own elements (n, d)."""
        return function(points)

    def collected(self, on: Rows, values: np.ndarray, what: str) -> np.ndarray:
        """Values (size, ...) of all elements by number, of which every rank has given its own, or one for all of them;
        all must ask. ``what`` they are: for messages."""
        return values

    def made_once(self, make: Callable[[], T], *given: object) -> T:
        """What ``make`` makes, which is large, and decided by its name and arguments, ``given``: where there are
        several ranks, all must ask, and one of each node makes it for the others."""
        return make()

    def check_alone(self, what: str, others: str = "") -> None:
        """An error where there are several ranks, on which something does not run; ``others``: "loops over sets do"."""
        return


def checked_partition(how: str | ArrayLike) -> str | np.ndarray:
    """The name of a partitioner, or ranks (cells,) of a whole-number type; PartitionError where there
    is no such partitioner, or what is given are no ranks."""
    if isinstance(how, str):
        return known_name("partitioner", how, partitioners(), error=PartitionError)
    found = as_array(how, "partition")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise PartitionError(f"partition must be one of {', '.join(partitioners())}, or a rank for each cell, got"
                             f" {found.dtype} of shape {found.shape}")  # fmt: skip
    return found


class Rows(ItsOwnCopy):
    """A set as far as rows are concerned: all that fields and maps need of one."""

    placement: ClassVar[OneRank] = OneRank()
    name: str
    numbering: np.ndarray | None
    owned: int  # rows that are not copies of another rank's
    kept: dict[Hashable, Any]  # what others make once for it: see ``Set``
    usual_layout: ClassVar[str] = "aos"  # of fields that are given none
    layout_is_free: ClassVar[bool] = True  # may a program change that?

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of its elements."""

    @property
    @abstractmethod
    def total(self) -> int:
        """The rows of a field."""

    @property
    @abstractmethod
    def choices(self) -> np.ndarray:
        """Among rows by number those that a person may choose, in the shape of a mask of them."""

    @property
    def mine(self) -> np.ndarray:
        """The numbers of the elements that this rank owns, ascending: ``field.local()`` has their values. All of them,
        where there is one rank."""
        return self.placement.mine(self)

    @property
    def padding(self) -> np.ndarray:
        """Numbers of rows of fields that belong to no element: they fill memory, and nobody looks at them."""
        return np.empty(0, np.int64)

    @cached_property
    def position(self) -> np.ndarray | None:
        """The inverse of ``numbering``: where in memory the element of each number lies, (total,)."""
        if self.numbering is None:
            return None
        place = np.empty_like(self.numbering)
        place[self.numbering] = np.arange(len(place))
        place.flags.writeable = False
        return place

    def by_position(self, rows: np.ndarray) -> np.ndarray:
        """Rows (total, ...) ordered by number, in the order of memory."""
        return rows if self.numbering is None else rows[self.numbering]

    def by_number(self, rows: np.ndarray) -> np.ndarray:
        """Rows (total, ...) in the order of memory, ordered by number."""
        return rows if self.position is None else rows[self.position]

    def numbers_at(self, positions: np.ndarray) -> np.ndarray:
        """The numbers of the elements at some positions in memory; -1 where there is nothing that a person sees."""
        return positions if self.numbering is None else self.numbering[positions]

    # What a person sees of rows: those of all elements, by number. A grid shows its points in its own shape.
    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of what a person gives and gets, components apart."""
        return (self.total,)

    @property
    def shows_all(self) -> bool:
        """Is there no row besides padding that a person does not see?"""
        return True

    def shown(self, rows: np.ndarray) -> np.ndarray:
        """Of rows (total, dim) by position what a person sees, (*array_shape, dim)."""
        return self.by_number(rows)

    def points_of(self, memory: Any) -> Any:
        """The part of a field's memory (total, ...) that a person sees, as it lies: no copy."""
        return memory

    def with_shown(self, values: np.ndarray, rows: Callable[[], np.ndarray]) -> np.ndarray:
        """Rows (total, dim) by position that show ``values`` (*array_shape, dim); others stay as in ``rows()``."""
        return self.by_position(values)


#: The set of a field or map, which is more than rows to whoever uses it.
S_co = TypeVar("S_co", bound=Rows, covariant=True)


def once_on_node(function: Callable[P, T]) -> Callable[P, T]:
    """A function that makes a mesh, of its arguments alone: where there are several ranks, one of each node does."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        return Rows.placement.made_once(lambda: function(*args, **named), function.__qualname__, args, named)

    return call


def checked_numbering(numbering: ArrayLike, name: str, owned: int, total: int) -> np.ndarray:
    """The numbering of a set as a read-only int64 array, after checking that it names every element once, halo last."""
    numbers = whole_numbers(numbering, f"set {name}: numbering")
    if numbers.shape != (total,):
        raise MeshError(f"set {name}: numbering must be {total} integers, got shape {numbers.shape}")
    for first, last, what in ((0, owned, "owned"), (owned, total, "halo")):
        part, seen = numbers[first:last], np.zeros(last - first, bool)
        seen[part[(part >= first) & (part < last)] - first] = True
        if not seen.all():
            raise MeshError(
                f"set {name}: numbering must name each of its {what} elements, {first} to {last - 1}, once at"
                f" positions {first} to {last - 1}; number {first + int(np.argmin(seen))} is missing there"
            )
    numbers = numbers.astype(np.int64)
    numbers.flags.writeable = False
    return numbers


def chosen_rows(of: Rows, which: ArrayLike, name: str) -> np.ndarray:
    """The rows by number, ascending, that a mask (size,) or numbers of elements choose for a part called ``name``; of a
    grid a mask of its shape, or numbers of its points, ghosts not counted."""
    what, choices = f"{named('a part of a set', name)}: numbers of {of.name}", of.choices
    given = as_array(which, what)
    if given.dtype == bool:
        if given.shape != choices.shape:
            raise MeshError(f"{name}: a mask of {of.name} has the shape {choices.shape}, got {given.shape}"
                            f"{Rows.placement.shape_hint}")  # fmt: skip
        return choices[given]
    numbers = whole_numbers(given, what)
    if numbers.ndim != 1:
        raise MeshError(f"{name}: expected a mask or a list of numbers of {of.name}, got shape {numbers.shape}")
    outside = numbers[(numbers < 0) | (numbers >= choices.size)]
    if outside.size:
        raise MeshError(f"{name}: {of.name} has no element {outside[0]}; its {choices.size} are counted from 0")
    ascending, times = np.unique(numbers, return_counts=True)
    if (times > 1).any():
        raise MeshError(f"{name}: element {ascending[times > 1][0]} of {of.name} is named twice")
    return choices.reshape(-1)[ascending]


def part_numbering(of: Rows, numbers: np.ndarray) -> np.ndarray | None:
    """A numbering that lays out a part, whose elements have these numbers in the set that it is a part ``of``, in the
    order in which that one's lie."""
    return None if of.position is None else np.argsort(of.position[numbers], kind="stable")
