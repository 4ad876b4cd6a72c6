"""Set, Map, Field and Global: the nouns of every loop; with parts of sets, and maps by a formula or of varying arity.

A Set is a number of things with a name; a Map says which things of another set belong to each; a Field
holds values on a set; a Global holds values that belong to no set. ``field[map]`` is access through a map.

An element has a **number**, by which a person knows it, and a **position**, where it lies in memory. They are the same
unless the set carries a ``numbering``. What a person gives and gets is ordered by number: ``data=``, ``assign``,
``numpy()``, ``indices``, ``points``, messages. What loops work on is ordered by position: ``storage``, ``positions``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from math import prod
from typing import Any, ClassVar, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, instance, known_name, whole_number
from meshloom.exclusion import unowned
from meshloom.kernel.expr import written
from meshloom.mesh.assigned import Assignable, ascending, checked_indices, checked_lists, new_positions
from meshloom.mesh.buffer import on_host
from meshloom.mesh.components import Components
from meshloom.mesh.connectivity import NodeLists
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.field import FieldValues
from meshloom.mesh.formula import check_targets, computed_rows, traced_formula
from meshloom.mesh.globals import Global
from meshloom.mesh.html_repr import field_table
from meshloom.mesh.kinds import Kinds, checked_kinds
from meshloom.mesh.layout import Layout
from meshloom.mesh.numbering import Rows, checked_numbering, chosen_rows, part_numbering
from meshloom.mesh.offsets import Offsets
from meshloom.mesh.values import as_array, enough_memory, index_dtype, named
from meshloom.recording import outside_program

__all__ = ["MOST_ELEMENTS", "AnyMap", "Arg", "ComputedMap", "Field", "Global", "Map", "Set", "Subset",
           "VaryingMap", "check_ends", "on_host"]  # fmt: skip
MOST_ELEMENTS = 2**40  # of a set: with any number of components, places in memory are still numbers of 64 bits
M = TypeVar("M", "Map", "VaryingMap")


class Set(Rows):
    """``size`` things of one kind; ``halo`` more are copies owned by another rank, and come last.

    ``points`` (total, d), optional: where each is in space, by number; used by geometric orderings. ``numbering``
    (total,), optional: the number of the element at each position in memory. ``kinds``, optional: where elements differ
    in kind, the numbers of those of each, by name: {"triangle": [0, 2], "quad": [1]}.
    """

    _made_again: ClassVar[tuple[str, ...]] = ("kept",)

    exchanged = False  # does a program bring its halo up to date before a loop looks at it, whoever has written there?

    def __init__(
        self,
        size: int,
        name: str = "set",
        *,
        halo: int = 0,
        points: np.ndarray | None = None,
        numbering: ArrayLike | None = None,
        kinds: Mapping[str, ArrayLike] | None = None,
    ):
        self.name = named("a set", name)
        self.owned = whole_number(f"set {name}: size", size, 0, MOST_ELEMENTS, error=MeshError)
        self.halo = whole_number(f"set {name}: halo", halo, 0, MOST_ELEMENTS - self.owned, error=MeshError)
        self.points = None if points is None else as_array(points, f"set {name}, points")
        self.numbering = None if numbering is None else checked_numbering(numbering, self.name, self.owned, self.total)
        #: The numbers of the elements of each kind, ascending; {} where nothing is said about kinds.
        self.kinds: Kinds = {} if kinds is None else checked_kinds(kinds, self.name, self.owned)
        #: What others make once for this set and keep with it, such as constant fields: it goes with the set.
        self.kept: dict[Hashable, Any] = {}

    def _restored(self) -> None:
        self.kept = {}

    @property
    def size(self) -> int:
        """Number of its elements, without copies of another rank's: of a grid, of its points."""
        return self.owned

    @property
    def total(self) -> int:
        """The rows of a field: the ``owned`` ones, which a loop over all of them visits, and then the halo."""
        return self.owned + self.halo

    def __len__(self) -> int:
        return self.size

    @property
    def choices(self) -> np.ndarray:
        """Among rows by number those that a person may choose, in the shape of a mask of them: (size,)."""
        return np.arange(self.owned)

    @cached_property
    @unowned
    def numbers(self) -> Field:
        """Every element's own number, for kernels that want to know where they are; -1 at ghosts, which have none."""
        with outside_program(), enough_memory(f"set {self.name}", self.total, 8):
            made = Field(self, f"number of {self.name}", dtype=np.int64)
            made.fill(-1)
            made.assign(np.arange(prod(self.array_shape)))
            return made

    def subset(self, which: ArrayLike | Map | VaryingMap, name: str | None = None) -> Subset:
        """A part of this set to loop over: a mask (size,) of its elements, their numbers, in any order, each once, or a
        map, for those that it leads to: ``mesh.nodes.subset(mesh.boundary("wall").nodes)``.

        A loop over it takes fields of this set as they are, fields of its own, and those that its maps lead to.
        """
        called = f"part of {self.name}" if name is None else name
        if isinstance(which, Map | VaryingMap):
            return self.part(self._led_to(which, called), called)
        return self.part(chosen_rows(self, which, called), called)

    def _led_to(self, map_: Map | VaryingMap, name: str) -> np.ndarray:
        """The elements that a map leads to, ascending, each once; ghosts not counted."""
        if map_.target is not self:
            raise MeshError(f"{name}: map {map_.name} leads to {map_.target.name} and not to {self.name}")
        return np.intersect1d(self.choices, map_.entries if isinstance(map_, VaryingMap) else map_.indices)

    def part(self, numbers: np.ndarray, name: str) -> Subset:
        """The part that has these numbers, which are right: they ascend, each once."""
        return Subset(self, numbers, name)

    def of(self, kind: str) -> Subset:
        """The elements of a kind as a set to loop over, with maps and fields of its own; the same at every call. Of the
        cells of a mesh it has the map ``nodes``, whose arity is that of the kind."""
        known_name(f"kind of {self.name}", kind, self.kinds, error=MeshError)
        if ("kind", kind) not in self.kept:
            self.kept["kind", kind] = self._part_of(kind)
        return self.kept["kind", kind]

    @property
    def outermost(self) -> Set:
        """Itself; of a part of a set the set, of a part of a part the one that is no part."""
        return self

    def _part_of(self, kind: str) -> Subset:
        return Subset(self, np.asarray(self.kinds[kind], np.int64), kind)

    def __repr__(self) -> str:
        return f"Set({self.name}, {self.owned}" + (f" + {self.halo} halo)" if self.halo else ")")

    def field(
        self,
        name: str,
        dim: Components = 1,
        *,
        dtype: DTypeLike | None = None,
        data: ArrayLike | Callable[[np.ndarray], ArrayLike] | None = None,
        layout: str | Layout | None = None,
        temporary: bool | None = None,
        wrap: Any = None,
    ) -> Field:
        """A field on this set: zero unless ``data`` (total, dim), or (total,) for dim 1, is given, by number; of a grid
        (*shape, dim) or (*shape,), without its ghosts, which are zero until something is written to them.

        ``dim``: so many values for each element, or their shape, such as (5, 3); ``data`` is (total, 5, 3) then. It may
        be a function of points (n, d): nodes, centroids of cells, centres of faces; each rank asks for its own.

        ``temporary``: it serves inside a program only. What it holds between two runs is nobody's business, so the
        program may keep its values in registers and never store them. Left out, that holds for fields that are made
        inside a program. ``layout``: "aos", "soa" or "aosoa" with a width; left out, it is "aos", and a program on a
        GPU may change it to what suits its loops best; on a Grid it is "soa".

        ``wrap``: an array of yours in the shape of the field, by number, in which it lives from now on, without a copy:
        what loops write is in the array. It is refused where it cannot be used as it lies.
        """
        return Field(self, name, dim, dtype=dtype, data=data, layout=layout, temporary=temporary, wrap=wrap)


class AnyMap(ItsOwnCopy):
    """From every element of ``source`` to some of ``target``: a Map to as many each, a VaryingMap to lists of them."""

    source: Set
    target: Set
    name: str


def check_ends(name: str, source: object, target: object) -> None:
    """MeshError unless a map of this name can lead from one to the other."""
    for one, which in ((source, "source"), (target, "target")):
        instance(f"map {named('a map', name)}: {which}", one, Set, error=MeshError)


class Map(Assignable[Set], AnyMap):
    """For every element of ``source``, the numbers of ``arity`` elements of ``target``: ``indices``, by number;
    ``assign`` gives it others.

    ``positions`` holds the same by position: row k belongs to the element at position k of ``source``, and its entries
    are positions in ``target``. Both are kept in 32 bits where they fit unless ``dtype`` asks for int64, and are
    read-only: plans are cached by their content.
    """

    formula: tuple[Any, ...] = ()  # of a map that is computed: see ``ComputedMap``

    def __init__(
        self, source: Set, target: Set, indices: ArrayLike, name: str = "map", *, dtype: DTypeLike | None = None
    ):
        check_ends(name, source, target)
        self.source, self.target, self.name = source, target, name
        rows = checked_indices(indices, source, target, name)
        self.positions = new_positions(source, target, rows, dtype, name)

    @cached_property
    def indices(self) -> np.ndarray:
        """(source.total, arity): row k holds the numbers of the targets of element number k."""
        if self.source.numbering is None and self.target.numbering is None:
            return self.positions
        numbers = self.positions if self.target.numbering is None else self.target.numbering[self.positions]
        rows = self.source.by_number(numbers).astype(self.positions.dtype, copy=False)
        rows.flags.writeable = False
        return rows

    @staticmethod
    def computed(source: Set, target: Set, formula: Callable[[Any], Any], name: str = "map") -> Map:
        """A map given by a formula: ``formula(e)`` gives the numbers of the targets of element number e, by integer
        arithmetic. Nothing is stored; loops compute it."""
        return ComputedMap(source, target, formula, name)

    @staticmethod
    def varying(source: Set, target: Set, starts: ArrayLike, entries: ArrayLike, name: str = "map") -> VaryingMap:
        """A map whose arity differs from element to element: that of number k has ``entries[starts[k]:starts[k + 1]]``.

        A kernel that reads ``field[map]`` sees an array of as many elements, and reduces it: ``np.sum(q)``,
        ``np.min(q, initial=np.inf)``, ``np.sum(w * q[:, 0])``; ``q.shape[0]`` is their number, which may be 0.
        """
        return VaryingMap(source, target, starts, entries, name)

    @property
    def arity(self) -> int:
        return int(self.positions.shape[1])

    @property
    def index_type(self) -> np.dtype:
        return self.positions.dtype

    def rows(self, first: int, last: int) -> np.ndarray:
        """The targets of some elements by number, (last - first, arity)."""
        return self.indices[first:last]

    @cached_property
    def ascends(self) -> bool:
        """Does each element lead to one target, which comes after that of the element before? Then no two lead to the
        same one; copies of another rank's do not count."""
        return self.arity == 1 and ascending(self.rows, self.source.owned)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape, sizes and positions: the identity of the map in the plan cache."""
        return self._digest(self.positions)

    @property
    def indices_digest(self) -> str:
        """The same of indices: the identity of the map for a person, whatever its arrangement in memory."""
        return self.digest if self.indices is self.positions else self._digest(self.indices)

    def _digest(self, rows: np.ndarray) -> str:
        head = f"{rows.shape} {rows.dtype} {self.target.total} {self.source.owned}".encode()
        return hashlib.sha256(head + np.ascontiguousarray(rows).data).hexdigest()

    def __repr__(self) -> str:
        return f"Map({self.name}: {self.source.name} -> {self.arity} {self.target.name})"


class ComputedMap(Map):
    """``formula``: the element's targets, integer expressions of its number. ``positions`` and ``indices`` are made
    lazily, for plans, and go when nobody holds them."""

    held_by = "it is given by a formula"

    def __init__(self, source: Set, target: Set, function: Callable[[Any], Any], name: str = "map"):
        check_ends(name, source, target)
        self.source, self.target, self.name = source, target, name
        for one in (source, target):
            if one.numbering is not None:
                raise MeshError(f"map {name}: a formula needs sets that lie in memory by number, and {one.name} does"
                                " not; give the indices, ml.Map(...)")  # fmt: skip
        self.formula = traced_formula(function, name)
        self._made: ref[np.ndarray] | None = None
        check_targets(self.formula, source, target, name)

    def rows(self, first: int, last: int) -> np.ndarray:
        """The targets of some elements, (last - first, arity)."""
        return computed_rows(self.formula, first, last)

    @property
    def positions(self) -> np.ndarray:  # type: ignore[override]
        """All of them, as a stored map has them."""
        made = self._made() if self._made is not None else None
        if made is None:
            made = np.ascontiguousarray(self.rows(0, self.source.total), dtype=self.index_type)
            made.flags.writeable = False
            self._made = ref(made)
        return made

    @property
    def indices(self) -> np.ndarray:
        return self.positions

    @property
    def arity(self) -> int:
        return len(self.formula)

    @property
    def index_type(self) -> np.dtype:
        return index_dtype(self.target.total, None, self.name)

    @property
    def digest(self) -> str:
        text = [written([one]) for one in self.formula]
        sizes = self.source.total, self.source.owned, self.target.total
        return hashlib.sha256(f"{text} {sizes}".encode()).hexdigest()


class RestrictedMap(Map):
    """A map for the elements of a part of its source, of these numbers there: it follows where ``origin`` is given
    other indices."""

    def __init__(self, source: Set, origin: Map, numbers: np.ndarray, name: str):
        super().__init__(source, origin.target, origin.indices[numbers], name, dtype=origin.index_type)
        self.held_by = f"it follows map {origin.name}, of which it is a part"
        self.origin, self._numbers = origin, numbers
        origin.watch(self)

    def _restored(self) -> None:
        self.origin.watch(self)

    def invalidate(self) -> None:
        """There are other indices."""
        self._replace(self.origin.indices[self._numbers])


class VaryingMap(AnyMap):
    """``ml.Map.varying(source, target, starts, entries)``: see there. ``starts`` (source.total + 1,) and ``entries``
    are by number, and read-only.

    Loops see it as two things that they know: ``padded``, a map with a slot for each element of the longest list, and
    ``counts``, a field of ``source`` that says how many of them there are.
    """

    def __init__(self, source: Set, target: Set, starts: ArrayLike, entries: ArrayLike, name: str = "map"):
        check_ends(name, source, target)
        self.source, self.target, self.name = source, target, name
        self.starts, self.entries = checked_lists(starts, entries, source, target, name)

    @property
    def indices(self) -> np.ndarray:
        """There is no such array: MeshError, which says what there is."""
        raise MeshError(
            f"map {self.name} leads to numbers of {self.target.name} that differ: it has starts, entries, no indices;"
            " in a mesh cells.of(kind).nodes and faces.of(kind).nodes have them"
        )

    def assign(self, indices: ArrayLike) -> None:
        """MeshError: how many each element leads to would change the kernels of its loops."""
        raise MeshError(f"map {self.name} has lists of different lengths, which stay as they are; make another one,"
                        " ml.Map.varying(...), or give a map of one arity other indices")  # fmt: skip

    @cached_property
    def indices_digest(self) -> str:
        """SHA-256 of sizes, starts and entries: the identity of the map for a person."""
        state = hashlib.sha256(f"{self.target.total} {self.source.owned}".encode())
        for one in (self.starts, self.entries):
            state.update(one.astype("<i8", copy=False).data)
        return state.hexdigest()

    @cached_property
    def padded(self) -> Map:
        """(total, most): behind the end of a list stands its first element, or 0, which nobody looks at."""
        counts = np.diff(self.starts)
        most = max(int(counts.max(initial=0)), 1)
        with enough_memory(f"map {self.name}", len(counts) * most, 8):
            there = np.arange(most) < counts[:, None]
            rows = np.zeros(there.shape, np.int64)
            rows[there] = self.entries
        return Map(self.source, self.target, np.where(there, rows, rows[:, :1]), self.name)

    @cached_property
    @unowned
    def counts(self) -> Field:
        """How many each element leads to."""
        with outside_program():
            made = Field(self.source, f"count of {self.name}", dtype=np.int32)
            made.assign_rows(self.source.by_position(np.diff(self.starts).astype(np.int32).reshape(-1, 1)))
            return made

    def __repr__(self) -> str:
        return f"Map({self.name}: {self.source.name} -> 0 to {np.diff(self.starts).max(initial=0)} {self.target.name})"


class Subset(Set):
    """Some elements of another set, ``whole``, in the order of their numbers there.

    ``members`` leads from each of them to itself in the whole. Fields of the whole can be handed to loops over the part
    as they are; the part has fields and maps of its own, too.
    """

    def __init__(self, whole: Set, numbers: np.ndarray, name: str):
        points = None if whole.points is None else whole.points[numbers]
        super().__init__(len(numbers), name, points=points, numbering=part_numbering(whole, numbers))
        self.whole = whole
        self.members = Map(self, whole, numbers, f"members of {self.name}").kept_for(f"it makes {self.name} a part")
        self._members_of = {whole: self.members}
        self._restricted: dict[Map | VaryingMap, Map | VaryingMap] = {}

    @property
    def outermost(self) -> Set:
        return self.whole.outermost

    def members_of(self, other: Set) -> Map | None:
        """From each element to itself in a set that this is a part of, or a part of a part; None for any other set."""
        instance(f"{self.name}: what it may be a part of", other, Set, error=MeshError)
        if other not in self._members_of and isinstance(self.whole, Subset):
            further = self.whole.members_of(other)
            if further is not None:
                numbers = further.indices[self.members.indices[:, 0]]
                found = Map(self, other, numbers, f"members of {self.name} in {other.name}")
                self._members_of[other] = found.kept_for(f"it makes {self.name} a part")
        return self._members_of.get(other)

    def restricted(self, map_: M) -> M:
        """A map of a set that this is a part of, for its elements alone; made once."""
        if not isinstance(map_, VaryingMap):
            instance(f"{self.name}: what is restricted to it", map_, Map, error=MeshError)
        if map_ not in self._restricted:
            members = self.members_of(map_.source)
            if members is None:
                raise MeshError(f"map {map_.name} starts at {map_.source.name}, of which {self.name} is no part")
            numbers, name = members.indices[:, 0], f"{map_.name} of {self.name}"
            if isinstance(map_, Map):
                self._restricted[map_] = RestrictedMap(self, map_, numbers, name)
            else:
                lists = NodeLists(map_.starts, map_.entries).taken(numbers)
                self._restricted[map_] = VaryingMap(self, map_.target, lists.starts, lists.entries, name)
        return self._restricted[map_]  # type: ignore[return-value]


class Field(FieldValues[Set]):
    """``dim`` values per element of a set, in a layout that nobody but the engine sees.

    ``components`` is their shape at one element: () for a number, (d,) for a vector, (5, 3) for a matrix. In memory
    they are ``dim`` values one after the other, the last axis fastest.
    """

    __slots__ = ()

    @property
    def direct(self) -> Arg:
        """The field as a loop over its own set sees it."""
        return Arg(self, None)

    def __getitem__(self, through: AnyMap | Offsets) -> Arg:
        """Access through a map (a row of it gives ``arity`` elements of this field's set), or at offsets of a grid."""
        if isinstance(through, AnyMap):
            if through.target is not self.set:
                what = f"map {through.name} leads to {through.target.name}"
                raise MeshError(f"field {self.name} lives on {self.set.name}, but {what}")
            return Arg(self, through)
        if not isinstance(through, Offsets):
            raise MeshError(
                f"field {self.name}: index it with a Map or a grid's offsets, got {type(through).__name__};"
                " use .numpy() to read values"
            )
        if through.grid is not self.set:
            what = f"the offsets are of {through.grid.name}"
            raise MeshError(f"field {self.name} lives on {self.set.name}, but {what}")
        return Arg(self, None, through)

    def _repr_html_(self) -> str:
        return field_table(self)


class Arg:
    """A field as a loop sees it: directly, through a map, or at offsets of its grid. Made anew whenever it is asked
    for: if the field kept it, the two would keep each other.

    ``as_member``: in a loop over a part of the field's set, the map leads from each element to itself in the whole.
    ``slots``: the shape in which a kernel sees the map's entries where that is not (arity,): those of a matrix.
    """

    __slots__ = ("as_member", "field", "map", "offsets", "slots")

    def __init__(self, field: Field, map: Any, offsets: Offsets | None = None, *, as_member: bool = False,
                 slots: tuple[int, ...] = ()):  # fmt: skip
        self.field, self.map, self.offsets, self.as_member, self.slots = field, map, offsets, as_member, slots

    def __repr__(self) -> str:
        if self.offsets is not None:
            return f"{self.field.name}[{self.offsets.name}]"
        return self.field.name if self.map is None else f"{self.field.name}[{self.map.name}]"
