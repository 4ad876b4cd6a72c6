"""Set, Map, Field and Global: the nouns of every loop.

A Set is a number of things with a name; a Map says which things of another set belong to each; a Field
holds values on a set; a Global holds values that belong to no set. ``field[map]`` is access through a map.

An element has a **number**, by which a person knows it, and a **position**, where it lies in memory. They are the same
unless the set carries a ``numbering``. What a person gives and gets is ordered by number: ``data=``, ``assign``,
``numpy()``, ``indices``, ``points``, messages. What loops work on is ordered by position: ``storage``, ``positions``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, ProgramError, instance, known_name, whole, yes_or_no
from meshloom.mesh.box import Offsets
from meshloom.mesh.components import Components, component_shape
from meshloom.mesh.copies import ItsOwnCopy
from meshloom.mesh.globals import Global
from meshloom.mesh.kinds import Kinds, checked_kinds
from meshloom.mesh.layout import Layout, parse_layout
from meshloom.mesh.recording import (
    MAKE_BEFORE,
    READ_LATER,
    not_in_program,
    outside_program,
    recorder,
    refuse_in_program,
)
from meshloom.mesh.rows import Rows, checked_numbering
from meshloom.mesh.sharing import SharedMemory
from meshloom.mesh.stored import Stored, on_host, overwrite
from meshloom.mesh.ties import Kept
from meshloom.mesh.values import as_array, enough_memory, field_dtype, index_dtype, named, one_number, same_kind
from meshloom.mesh.values import whole_numbers as whole_array

if TYPE_CHECKING:
    from meshloom.mesh.subset import Subset
    from meshloom.mesh.varying import VaryingMap

__all__ = ["MOST_ELEMENTS", "Arg", "Field", "Global", "Map", "Set", "check_ends", "on_host"]
MOST_ELEMENTS = 2**40  # of a set: with any number of components, places in memory are still numbers of 64 bits


class Set(ItsOwnCopy, Rows):
    """``size`` things of one kind; ``halo`` more are copies owned by another rank, and come last.

    ``points`` (total, d), optional: where each is in space, by number; used by geometric orderings. ``numbering``
    (total,), optional: the number of the element at each position in memory. ``kinds``, optional: where elements differ
    in kind, the numbers of those of each, by name: {"triangle": [0, 2], "quad": [1]}.
    """

    usual_layout: ClassVar[str] = "aos"  # of fields that are given none
    layout_is_free: ClassVar[bool] = True  # may a program change that?

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
        self.owned = whole(f"set {name}: size", size, 0, MOST_ELEMENTS, error=MeshError)
        self.halo = whole(f"set {name}: halo", halo, 0, MOST_ELEMENTS - self.owned, error=MeshError)
        self.points = None if points is None else as_array(points, f"set {name}, points")
        self.numbering = None if numbering is None else checked_numbering(numbering, self.name, self.owned, self.total)
        #: The numbers of the elements of each kind, ascending; {} where nothing is said about kinds.
        self.kinds: Kinds = {} if kinds is None else checked_kinds(kinds, self.name, self.owned)
        #: Loops over this set that programs have recorded, found by their arguments.
        self.loops: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
        #: What is kept of loops that were called, in the same way: see ``operation/calls.py``.
        self.calls: Kept[tuple[Any, ...], Any] = Kept()
        self.kept: dict[tuple[Any, ...], Any] = {}  # what is made once for this set, such as constant fields

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
    def numbers(self) -> Field:
        """Every element's own number, for kernels that want to know where they are; -1 at ghosts, which have none."""
        with outside_program(), enough_memory(f"set {self.name}", self.total, 8):
            made = Field(self, f"number of {self.name}", dtype=np.int64)
            made.fill(-1)
            made.assign(np.arange(prod(self.array_shape)))
            return made

    def subset(self, which: ArrayLike, name: str | None = None) -> Subset:
        """A part of this set to loop over: a mask (size,) of its elements, or their numbers, in any order, each once.

        A loop over it takes fields of this set as they are, fields of its own, and those that its maps lead to.
        """
        from meshloom.mesh.subset import chosen

        return chosen(self, which, f"part of {self.name}" if name is None else name)

    def of(self, kind: str) -> Subset:
        """The elements of a kind as a set to loop over, with maps and fields of its own; the same at every call. Of the
        cells of a mesh it has the map ``nodes``, whose arity is that of the kind."""
        known_name(f"kind of {self.name}", kind, self.kinds, error=MeshError)
        if ("kind", kind) not in self.kept:
            self.kept["kind", kind] = self._part_of(kind)
        return self.kept["kind", kind]

    def _part_of(self, kind: str) -> Subset:
        from meshloom.mesh.subset import Subset

        return Subset(self, np.asarray(self.kinds[kind], np.int64), kind)

    def __repr__(self) -> str:
        return f"Set({self.name}, {self.owned}" + (f" + {self.halo} halo)" if self.halo else ")")

    def field(
        self,
        name: str,
        dim: Components = 1,
        *,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        layout: str | Layout | None = None,
        transient: bool | None = None,
    ) -> Field:
        """A field on this set: zero unless ``data`` (total, dim), or (total,) for dim 1, is given, by number; of a grid
        (*shape, dim) or (*shape,), without its ghosts, which are zero until something is written to them.

        ``dim``: so many values for each element, or their shape, such as (5, 3); ``data`` is (total, 5, 3) then.

        ``transient``: it serves inside a program only. What it holds between two runs is nobody's business, so the
        program may keep its values in registers and never store them. Left out, that holds for fields that are made
        inside a program. ``layout``: "aos", "soa" or "aosoa" with a width; left out, it is "aos", and a program on a
        GPU may change it to what suits its loops best; on a Grid it is "soa".
        """
        return Field(self, name, dim, dtype=dtype, data=data, layout=layout, transient=transient)


def check_ends(name: str, source: object, target: object) -> None:
    """MeshError unless a map of this name can lead from one to the other."""
    for one, which in ((source, "source"), (target, "target")):
        instance(f"map {named('a map', name)}: {which}", one, Set, error=MeshError)


class AnyMap(ItsOwnCopy):
    """From every element of ``source`` to some of ``target``: a Map to as many each, a VaryingMap to lists of them."""

    source: Set
    target: Set
    name: str


class Map(AnyMap):
    """For every element of ``source``, the numbers of ``arity`` elements of ``target``: ``indices``, by number.

    ``positions`` holds the same by position: row k belongs to the element at position k of ``source``, and its entries
    are positions in ``target``. Both are kept in 32 bits where they fit unless ``dtype`` asks for int64, and are
    read-only: plans are cached by their content.
    """

    formula: tuple[Any, ...] = ()  # of a map that is computed: see ``meshloom.mesh.computed``

    def __init__(
        self, source: Set, target: Set, indices: ArrayLike, name: str = "map", *, dtype: DTypeLike | None = None
    ):
        check_ends(name, source, target)
        array = whole_array(indices, f"map {name}: indices")
        if array.ndim == 1:
            array = array.reshape(-1, 1)
        if array.ndim != 2 or len(array) != source.total or array.shape[1] < 1:
            raise MeshError(
                f"map {name}: indices have shape {array.shape}, but {source.name} has {source.total} elements:"
                f" expected ({source.total}, arity)"
            )
        self._check_range(array, target, name)
        self.source, self.target, self.name = source, target, name
        rows = source.by_position(array)
        rows = rows if target.position is None else target.position[rows]
        self.positions = np.array(rows, dtype=index_dtype(target.total, dtype, name), order="C")
        self.positions.flags.writeable = False

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
        from meshloom.mesh.computed import ComputedMap

        return ComputedMap(source, target, formula, name)

    @staticmethod
    def varying(source: Set, target: Set, starts: ArrayLike, entries: ArrayLike, name: str = "map") -> VaryingMap:
        """A map whose arity differs from element to element: that of number k has ``entries[starts[k]:starts[k + 1]]``.

        A kernel that reads ``field[map]`` sees an array of as many elements, and reduces it: ``np.sum(q)``,
        ``np.min(q, initial=np.inf)``, ``np.sum(w * q[:, 0])``; ``q.shape[0]`` is their number, which may be 0.
        """
        from meshloom.mesh.varying import VaryingMap

        return VaryingMap(source, target, starts, entries, name)

    @staticmethod
    def _check_range(array: np.ndarray, target: Set, name: str, first: int = 0) -> None:
        if array.size and (array.min() < 0 or array.max() >= target.total):
            row, slot = np.argwhere((array < 0) | (array >= target.total))[0]
            raise MeshError(
                f"map {name}: index {array[row, slot]} at row {first + row}, slot {slot} is out of range;"
                f" {target.name} has {target.total} elements (0 to {target.total - 1})"
            )

    @property
    def arity(self) -> int:
        return int(self.positions.shape[1])

    @property
    def index_type(self) -> np.dtype:
        return self.positions.dtype

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


class Field(Stored, SharedMemory):
    """``dim`` values per element of a set, in a layout that nobody but the engine sees.

    ``components`` is their shape at one element: () for a number, (d,) for a vector, (5, 3) for a matrix. In memory
    they are ``dim`` values one after the other, the last axis fastest.
    """

    __slots__ = ("components", "dim", "layout", "layout_is_free", "set", "transient")

    def __init__(
        self,
        on: Set,
        name: str,
        dim: Components = 1,
        *,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        layout: str | Layout | None = None,
        transient: bool | None = None,
    ):
        self.name = named("a field", name)
        self.set = instance(f"field {name}: what it lives on", on, Set, error=MeshError)
        own = recorder.get() is not None if transient is None else transient
        self.transient = yes_or_no(f"field {name}: transient", own, error=MeshError)
        self.components = component_shape(dim, f"field {name}")
        self.dim = prod(self.components)
        self.dtype = field_dtype(dtype, data, f"field {name}")
        self.layout = parse_layout(on.usual_layout if layout is None else layout)
        self.layout_is_free = layout is None and on.layout_is_free
        size = self.layout.stride(on.total) * self.dim
        with enough_memory(f"field {name} on {on.name}", size, self.dtype.itemsize):
            super().__init__(np.zeros(size, self.dtype))
        if data is not None:
            self.assign(data)
        elif recorder.get() is not None:  # a new field is zero, at every replay
            self.fill(0)

    @property
    def direct(self) -> Arg:
        """The field as a loop over its own set sees it."""
        return Arg(self, None)

    @property
    def _places(self) -> int:
        return self.layout.stride(self.set.total) * self.dim

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) for one value each, (n, dim) for vectors, (n, 5, 3) for matrices: that of ``numpy()``. A grid has its
        own shape, without ghosts, in place of n."""
        return (*self.set.array_shape, *self.components)

    def numpy(self) -> np.ndarray:
        """A copy of the values by number, in the field's shape, whatever the layout and the order in memory."""
        return np.ascontiguousarray(self.set.shown(self.rows()).reshape(self.shape))

    def rows(self) -> np.ndarray:
        """A copy of the values by position, (total, dim), whatever the layout."""
        self.check_readable()
        return self.unpacked()

    def unpacked(self) -> np.ndarray:
        """The same for the engine: whatever is in memory."""
        return self.layout.unpack(on_host(self.storage), self.set.total, self.dim)

    def like(self, name: str) -> Field:
        """Another field on the same set, zero, with the same components, type of numbers and layout."""
        made = Field(self.set, name, self.components, dtype=self.dtype, layout=self.layout)
        made.layout_is_free = self.layout_is_free
        return made

    @not_in_program("copying field {}", MAKE_BEFORE)
    def __copy__(self) -> Field:
        made = Field(self.set, self.name, self.components, dtype=self.dtype, layout=self.layout)
        made.transient = self.transient
        made.layout_is_free, made.undefined_after = self.layout_is_free, self.undefined_after
        made.repack(self.unpacked())
        return made

    def check_readable(self, who: str = "") -> None:
        """ProgramError while a program is recorded, or where a program has left nothing to be read in the field."""
        refuse_in_program(f"reading field {self.name}", READ_LATER)
        if self.undefined_after:
            raise ProgramError(
                f"{who}field {self.name} is transient and has no values after program {self.undefined_after} ran: make"
                " it outside, an ordinary field, to read it, or write all of it first"
            )

    def assign(self, data: ArrayLike) -> None:
        """Take new values by number, in the field's shape; ghosts of a grid stay as they are. One number serves all
        elements, and only that can be recorded."""
        values = same_kind(data, self.dtype, f"field {self.name}")
        if values.ndim == 0 and self.set.shows_all:
            self.fill(values.item())
            return
        if values.ndim == 0:
            refuse_in_program(f"assigning to field {self.name}, but not to its ghosts,", "fill() it, or use a loop")
            values = np.broadcast_to(values, self.shape)
        places, each = self.set.array_shape, self.components
        shapes = (each,) if len(each) > 1 else (each, (self.dim,))  # a number may come as a vector of one
        fitting = [(*where, *what) for where in (places, (prod(places),)) for what in shapes]
        if values.shape not in fitting:
            raise MeshError(
                f"field {self.name} on {self.set.name}: data has shape {values.shape}, expected {self.shape}"
            )
        self.assign_rows(self.set.with_shown(values.reshape(*places, self.dim), self.unpacked))

    @not_in_program("assigning an array to field {}", "assign it before, or fill() it with one number")
    def assign_rows(self, rows: np.ndarray) -> None:
        """Take new values by position, (total, dim)."""
        self.repack(rows)
        self.undefined_after = ""

    def repack(self, rows: np.ndarray) -> None:
        """The same for the engine: it need not have written all of them."""
        overwrite(self.storage, self.layout.pack(rows))
        self.changed()

    def fill(self, value: float) -> None:
        """Set every value; inside a program this is recorded."""
        number, record = one_number(value, self.dtype, f"field {self.name}"), recorder.get()
        if record is not None:
            record.fill(self, number)
        else:
            self.storage.fill(number)
            self.undefined_after = ""
            self.changed()

    @not_in_program("a new layout of field {}", "give it the layout before")
    def relayout(self, layout: str | Layout, *, free: bool = False) -> None:
        """Change the layout in place; loops that use the field notice. ``free``: a program may change it again."""
        new, self.layout_is_free = parse_layout(layout), yes_or_no(f"field {self.name}: free", free, error=MeshError)
        if new != self.layout:
            values = self.unpacked()
            self.layout = new
            self.move(new.pack(values))

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

    def __repr__(self) -> str:
        each = self.components if len(self.components) > 1 else self.dim
        return f"Field({self.name}: {self.set.name} x {each}, {self.dtype}, {self.layout})"


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
