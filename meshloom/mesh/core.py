"""Set, Map, Field and Global: the nouns of every loop.

A Set is a number of things with a name; a Map says which things of another set belong to each; a Field
holds values on a set; a Global holds values that belong to no set. ``field[map]`` is access through a map.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError
from meshloom.mesh.layout import Layout, parse_layout

FIELD_DTYPES = tuple(np.dtype(t) for t in ("float32", "float64", "int32", "int64"))

#: While a program is being recorded, operations are handed to this recorder instead of being carried out.
recorder: ContextVar[Callable[[Any], None] | None] = ContextVar("recorder", default=None)


class Set:
    """``size`` things of one kind; ``halo`` more are copies owned by another rank.

    ``points`` (total, d), optional: a position for each, used by geometric orderings.
    """

    def __init__(self, size: int, name: str = "set", *, halo: int = 0, points: np.ndarray | None = None):
        if size < 0 or halo < 0:
            raise MeshError(f"set {name}: sizes must not be negative, got size={size}, halo={halo}")
        self.owned, self.halo, self.name, self.points = int(size), int(halo), name, points
        self.loops: dict[tuple[Any, ...], Any] = {}  # loops over this set, kept by their arguments

    @property
    def size(self) -> int:
        """Number of owned elements: what a loop visits."""
        return self.owned

    @property
    def total(self) -> int:
        """Owned and halo elements: the rows of a field."""
        return self.owned + self.halo

    def __len__(self) -> int:
        return self.owned

    @cached_property
    def numbers(self) -> Field:
        """Every element's own number, for kernels that want to know where they are."""
        return Field(self, f"number of {self.name}", dtype=np.int64, data=np.arange(self.total))

    def __repr__(self) -> str:
        return f"Set({self.name}, {self.owned}" + (f" + {self.halo} halo)" if self.halo else ")")

    def field(
        self,
        name: str,
        dim: int = 1,
        *,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        layout: str | Layout | None = None,
        transient: bool = False,
    ) -> Field:
        """A field on this set: zero unless ``data`` (total, dim), or (total,) for dim 1, is given.

        ``transient``: it serves inside a program only. What it holds between two runs is nobody's business, so the
        program may keep its values in registers and never store them. ``layout``: "aos", "soa" or "aosoa" with a width;
        left out, it is "aos", and a program on a GPU may change it to what suits its loops best.
        """
        return Field(self, name, dim, dtype=dtype, data=data, layout=layout, transient=transient)


class Map:
    """For every element of ``source``, the numbers of ``arity`` elements of ``target``.

    Indices are kept in 32 bits where they fit unless ``dtype`` asks for int64. The array is read-only:
    plans are cached by its content.
    """

    def __init__(
        self, source: Set, target: Set, indices: ArrayLike, name: str = "map", *, dtype: DTypeLike | None = None
    ):
        array = np.asarray(indices)
        if not np.issubdtype(array.dtype, np.integer):
            raise MeshError(f"map {name}: indices must be integers, got {array.dtype}")
        if array.ndim == 1:
            array = array.reshape(-1, 1)
        if array.ndim != 2 or len(array) != source.total or array.shape[1] < 1:
            raise MeshError(
                f"map {name}: indices have shape {np.shape(indices)}, but {source.name} has {source.total} elements:"
                f" expected ({source.total}, arity)"
            )
        self._check_range(array, target, name)
        self.source, self.target, self.name = source, target, name
        self.indices = np.array(array, dtype=_index_dtype(target.total, dtype, name), order="C")
        self.indices.flags.writeable = False

    @staticmethod
    def _check_range(array: np.ndarray, target: Set, name: str) -> None:
        if array.size and (array.min() < 0 or array.max() >= target.total):
            row, slot = np.argwhere((array < 0) | (array >= target.total))[0]
            raise MeshError(
                f"map {name}: index {array[row, slot]} at row {row}, slot {slot} is out of range;"
                f" {target.name} has {target.total} elements (0 to {target.total - 1})"
            )

    @property
    def arity(self) -> int:
        return int(self.indices.shape[1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape, sizes and indices: the identity of the map in the plan cache."""
        head = f"{self.indices.shape} {self.indices.dtype} {self.target.total} {self.source.owned}".encode()
        return hashlib.sha256(head + self.indices.data).hexdigest()

    def __repr__(self) -> str:
        return f"Map({self.name}: {self.source.name} -> {self.arity} {self.target.name})"


def _index_dtype(target_size: int, dtype: DTypeLike | None, name: str) -> np.dtype:
    if dtype is None:
        return np.dtype(np.int32 if target_size < 2**31 else np.int64)
    chosen = np.dtype(dtype)
    if chosen not in (np.dtype(np.int32), np.dtype(np.int64)):
        raise MeshError(f"map {name}: index type {chosen} is not supported; allowed: int32, int64")
    return chosen


class Stored:
    """Values in a flat buffer that may move: to another layout, to a device and back."""

    def __init__(self, storage: Any):
        #: A flat array: NumPy's on the host, CuPy's on a device.
        self.storage = storage
        self._watchers: weakref.WeakSet[Any] = weakref.WeakSet()

    def move(self, storage: Any) -> None:
        """Continue with another buffer of the same values; loops that use it notice."""
        if storage is not self.storage:
            self.storage = storage
            for watcher in list(self._watchers):
                watcher.invalidate()

    def watch(self, watcher: Any) -> None:
        """``watcher.invalidate()`` is called when the storage moves."""
        self._watchers.add(watcher)


class Field(Stored):
    """``dim`` values per element of a set, in a layout that nobody but the engine sees."""

    def __init__(
        self,
        on: Set,
        name: str,
        dim: int = 1,
        *,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        layout: str | Layout | None = None,
        transient: bool = False,
    ):
        if int(dim) != dim or dim < 1:
            raise MeshError(f"field {name}: dim must be a whole number from 1, got {dim}")
        self.set, self.name, self.dim, self.transient = on, name, int(dim), transient
        self.dtype = _field_dtype(name, dtype, data)
        self.layout, self.layout_is_free = parse_layout(layout or "aos"), layout is None
        super().__init__(np.zeros(self.layout.stride(on.total) * self.dim, self.dtype))
        self._through: dict[Map, Arg] = {}
        self.direct = Arg(self, None)
        if data is not None:
            self.assign(data)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) for dim 1, else (n, dim)."""
        return (self.set.total,) if self.dim == 1 else (self.set.total, self.dim)

    def numpy(self) -> np.ndarray:
        """A copy of the values in logical order, shape (n,) or (n, dim), whatever the layout."""
        return self.layout.unpack(on_host(self.storage), self.set.total, self.dim).reshape(self.shape)

    def assign(self, data: ArrayLike) -> None:
        """Take new values, shape (n,) or (n, dim); a scalar fills."""
        values = np.asarray(data)
        if values.ndim == 0:
            self.fill(values.item())
            return
        if values.shape not in (self.shape, (self.set.total, self.dim)):
            raise MeshError(
                f"field {self.name} on {self.set.name}: data has shape {values.shape}, expected {self.shape}"
            )
        rows = values.reshape(self.set.total, self.dim).astype(self.dtype, copy=False)
        _overwrite(self.storage, self.layout.pack(rows))

    def fill(self, value: float) -> None:
        """Set every value; inside a program this is recorded."""
        record = recorder.get()
        if record is not None:
            record(Fill(self, self.dtype.type(value).item()))
        else:
            self.storage.fill(value)

    def relayout(self, layout: str | Layout, *, free: bool = False) -> None:
        """Change the layout in place; loops that use the field notice. ``free``: a program may change it again."""
        new, self.layout_is_free = parse_layout(layout), free
        if new != self.layout:
            values = self.layout.unpack(on_host(self.storage), self.set.total, self.dim)
            self.layout = new
            self.move(new.pack(values))

    def __getitem__(self, through: Map) -> Arg:
        """Access through a map: one row of the map gives ``arity`` elements of this field's set."""
        arg = self._through.get(through)
        if arg is None:
            if not isinstance(through, Map):
                raise MeshError(
                    f"field {self.name}: index it with a Map, got {type(through).__name__}; use .numpy() to read values"
                )
            if through.target is not self.set:
                raise MeshError(
                    f"field {self.name} lives on {self.set.name}, but map {through.name} leads to {through.target.name}"
                )
            arg = self._through[through] = Arg(self, through)
        return arg

    # Sharing with other libraries, without copies: the buffer as it lies, or (n, dim) where the layout allows it.
    def _shared(self) -> Any:
        if self.layout.kind == "aosoa" and self.dim > 1:
            raise MeshError(
                f"field {self.name}: layout {self.layout} cannot be shared as one array; relayout to aos or soa"
            )
        if self.dim == 1:
            return self.storage[: self.set.total]
        if self.layout.kind == "soa":
            return self.storage.reshape(self.dim, -1).T[: self.set.total]
        return self.storage.reshape(-1, self.dim)[: self.set.total]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if isinstance(self.storage, np.ndarray):
            raise AttributeError(f"field {self.name} is in host memory")
        return self._shared().__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return self._shared().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.storage.__dlpack_device__()

    def __repr__(self) -> str:
        return f"Field({self.name}: {self.set.name} x {self.dim}, {self.dtype}, {self.layout})"


def _field_dtype(name: str, dtype: DTypeLike | None, data: ArrayLike | None) -> np.dtype:
    """The given type, else that of the data where supported, else float64."""
    if dtype is None:
        found = np.asarray(data).dtype if data is not None else np.dtype(np.float64)
        return found if found in FIELD_DTYPES else np.dtype(np.float64)
    chosen = np.dtype(dtype)
    if chosen not in FIELD_DTYPES:
        raise MeshError(f"field {name}: type {chosen} is not supported; allowed: float32, float64, int32, int64")
    return chosen


def on_host(storage: Any) -> np.ndarray:
    """The values of a buffer in host memory, itself if it is there."""
    return storage if isinstance(storage, np.ndarray) else storage.get()


def _overwrite(storage: Any, values: np.ndarray) -> None:
    if isinstance(storage, np.ndarray):
        storage[:] = values
    else:
        storage.set(values)


class Global(Stored):
    """A scalar or a short vector that belongs to no set: a constant that is read, or a reduction."""

    def __init__(self, value: ArrayLike, name: str = "global", *, dtype: DTypeLike | None = None):
        array = np.asarray(value)
        if array.ndim > 1:
            raise MeshError(f"global {name}: a scalar or a vector, got shape {array.shape}")
        self.name, self.dtype = name, _field_dtype(name, dtype, value)
        super().__init__(np.atleast_1d(array).astype(self.dtype))
        self.shape = array.shape

    @property
    def dim(self) -> int:
        return int(self.storage.size)

    @property
    def value(self) -> Any:
        """A Python number, or a copy of the vector."""
        values = on_host(self.storage)
        return values[0].item() if self.shape == () else values.copy()

    @value.setter
    def value(self, value: ArrayLike) -> None:
        record = recorder.get()
        if record is None:
            self.assign(value)
        elif np.ndim(value) == 0:
            record(Fill(self, self.dtype.type(value).item()))
        else:
            raise MeshError(f"global {self.name}: inside a program it can be set to one number only")

    def numpy(self) -> np.ndarray:
        """A copy of the values, shape () or (dim,)."""
        return np.array(on_host(self.storage)).reshape(self.shape)

    def assign(self, data: ArrayLike) -> None:
        """Take new values, now, also while a program is being recorded; a scalar fills."""
        _overwrite(self.storage, np.broadcast_to(np.asarray(data, self.dtype), self.storage.shape))

    def __repr__(self) -> str:
        return f"Global({self.name} = {self.value})"


@dataclass(frozen=True, eq=False)
class Fill:
    """A recorded assignment of one number to a whole field or global."""

    target: Field | Global
    value: float | int

    @property
    def name(self) -> str:
        return f"{self.target.name} = {self.value:g}"

    @property
    def writes(self) -> tuple[Field | Global, ...]:
        return (self.target,)

    def __call__(self) -> None:
        self.target.storage.fill(self.value)


@dataclass(frozen=True, eq=False)
class Arg:
    """A field as a loop sees it: directly (``map`` None) or through a map."""

    field: Field
    map: Map | None

    def __repr__(self) -> str:
        return self.field.name if self.map is None else f"{self.field.name}[{self.map.name}]"
