"""The values of a field: as many for each row of a set, in one buffer and a layout that nobody but the engine sees."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from math import prod
from threading import RLock
from typing import Any, Generic, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, ProgramError, yes_or_no
from meshloom.exclusion import Mutex
from meshloom.mesh.array_interop import SharedMemory, wrapped
from meshloom.mesh.buffer import Buffered, OverRanks, on_host, overwrite
from meshloom.mesh.components import Components, component_shape
from meshloom.mesh.layout import Layout, parse_layout
from meshloom.mesh.numbering import Rows, S_co
from meshloom.mesh.reduced import Reduced
from meshloom.mesh.values import as_array, enough_memory, field_dtype, named, one_number, same_kind
from meshloom.recording import MAKE_BEFORE, READ_LATER, not_in_program, recorder, refuse_in_program

#: Held while a layout and its buffer change together, and while both are read: another thread may look at values.
_CHANGING = RLock()


class FieldValues(Buffered, SharedMemory, Reduced, Generic[S_co]):
    """A field as far as its values are concerned, whatever loops make of them: see ``Field``."""

    __slots__ = ("components", "dim", "layout", "layout_is_chosen", "layout_is_free", "set", "temporary")
    set: S_co

    def __init__(
        self,
        on: S_co,
        name: str,
        dim: Components = 1,
        *,
        dtype: DTypeLike | None = None,
        data: ArrayLike | Callable[[np.ndarray], ArrayLike] | None = None,
        layout: str | Layout | None = None,
        temporary: bool | None = None,
        wrap: Any = None,
    ):
        self.name = named("a field", name)
        if not isinstance(on, Rows):
            raise MeshError(f"field {name}: what it lives on must be a Set, got {type(on).__name__}")
        self.set = on
        own = recorder.get() is not None if temporary is None else temporary
        self.temporary = yes_or_no(f"field {name}: temporary", own, error=MeshError)
        self.layout_is_chosen = False  # by the loops or the programs that use it
        self.components = component_shape(dim, f"field {name}")
        self.dim = prod(self.components)
        if wrap is not None:
            self._wrap(wrap, dtype, data, layout)
            return
        if callable(data):
            data = _evaluated(data, on, name)
        self.dtype = field_dtype(dtype, data, f"field {name}")
        self.layout = parse_layout(on.usual_layout if layout is None else layout)
        self.layout_is_free = layout is None and on.layout_is_free
        size = self.layout.stride(on.total) * self.dim
        with enough_memory(f"field {name} on {on.name}", size, self.dtype.itemsize):
            super().__init__(np.zeros(size, self.dtype))
        self.untouched = True
        record = recorder.get()
        if record is not None:
            record.make(self)
        if self.temporary and self.mutex is None:  # room of a program, or of several
            self.mutex = Mutex(f"field {name}")
        if data is not None:
            self.assign(data)
        elif record is not None:  # a new field is zero, at every replay
            self.fill(0)

    def _wrap(self, array: Any, *others: Any) -> None:
        """Live in an array that somebody else has."""
        refuse_in_program(f"wrapping an array by field {self.name}", MAKE_BEFORE)
        Rows.placement.check_alone("wrapping an array", "data= does, which takes a copy")
        if self.temporary or any(one is not None for one in others):
            self._refuse("wraps an array, so it is not temporary, and has its values, its type and its order")
        self.layout, self.layout_is_free = parse_layout("aos"), False
        flat = wrapped(self, array)
        self.dtype = flat.dtype
        super().__init__(flat)
        self.stays = self.lent = True

    def placement(self) -> dict[str, Any]:
        return {**super().placement(), "layout": self.layout, "layout_is_free": self.layout_is_free}

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

    def local(self) -> np.ndarray:
        """A copy of the values of this rank's own elements, whose numbers are ``set.mine``: (n, *components). All of
        them where there is one rank; no rank waits for another."""
        self.check_readable()
        storage = self.storage
        if not isinstance(storage, OverRanks):
            return self.numpy().reshape(-1, *self.components)[self.set.mine]
        positions, rows = storage.owned()
        numbers = self.set.numbers_at(positions)
        order = np.argsort(numbers, kind="stable")[np.count_nonzero(numbers < 0) :]
        return rows[order].reshape(-1, *self.components)

    def rows(self) -> np.ndarray:
        """A copy of the values by position, (total, dim), whatever the layout."""
        self.check_readable()
        return self.unpacked()

    def unpacked(self) -> np.ndarray:
        """The same for the engine: whatever is in memory."""
        with _CHANGING:
            layout, storage = self.layout, self.storage
        return layout.unpack(on_host(storage), self.set.total, self.dim)

    def like(self, name: str) -> Self:
        """Another field on the same set, zero, with the same components, type of numbers and layout."""
        made = type(self)(self.set, name, self.components, dtype=self.dtype, layout=self.layout)
        made.layout_is_free, made.layout_is_chosen = self.layout_is_free, self.layout_is_chosen
        return made

    def copy(self, name: str | None = None) -> Self:
        """Another field on the same set with the same values, under another name where one is given."""
        made = copy(self)
        made.name = self.name if name is None else named("a field", name)
        return made

    @not_in_program("copying field {}", MAKE_BEFORE)
    def __copy__(self) -> Self:
        made = type(self)(self.set, self.name, self.components, dtype=self.dtype, layout=self.layout)
        made.temporary, made.undefined_after = self.temporary, self.undefined_after
        made.layout_is_free, made.layout_is_chosen = self.layout_is_free, self.layout_is_chosen
        made.repack(self.unpacked())
        return made

    def _sent(self) -> dict[str, Any]:
        Rows.placement.check_alone("pickling a field", "ml.save and ml.load do")
        return super()._sent()

    def check_readable(self, who: str = "") -> None:
        """ProgramError while a program is recorded, or where a program has left nothing to be read in the field."""
        refuse_in_program(f"reading field {self.name}", READ_LATER)
        if self.undefined_after:
            raise ProgramError(
                f"{who}field {self.name} is temporary and has no values after program {self.undefined_after} ran: make"
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
                f"{Rows.placement.shape_hint}"
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
        new, is_free = parse_layout(layout), yes_or_no(f"field {self.name}: free", free, error=MeshError)
        if new != self.layout:
            self.check_movable()
        self.layout_is_free = is_free
        if new != self.layout:
            values = new.pack(self.unpacked())
            with _CHANGING:
                self.layout = new
                self.move(values)

    def _lay_apart(self) -> None:
        before = self.storage
        self.relayout("soa")
        if hasattr(before, "__cuda_array_interface__"):
            there = np.empty_like(before, shape=self.storage.shape)  # on its device
            overwrite(there, self.storage)
            self.move(there)

    def __repr__(self) -> str:
        each = self.components if len(self.components) > 1 else self.dim
        return f"Field({self.name}: {self.set.name} x {each}, {self.dtype}, {self.layout})"


def _evaluated(function: Callable[[np.ndarray], ArrayLike], on: Rows, name: str) -> np.ndarray:
    """The values of a function of points (n, d), which is asked for those of this rank's own elements."""
    points, mine = getattr(on, "points", None), on.mine
    if points is None:
        raise MeshError(f"field {name}: {on.name} does not know where its elements are, so no function of points gives"
                        " its values; give an array")  # fmt: skip
    nothing = len(mine) == 0 < on.total  # a rank without elements: there is nothing to ask
    values = np.zeros(0) if nothing else as_array(on.placement.asked(function, points[mine]), f"field {name}")
    if values.ndim and len(values) != len(mine):
        raise MeshError(f"field {name}: its function of {len(mine)} points gave values of shape {values.shape}")
    return on.placement.collected(on, values, f"field {name}")
