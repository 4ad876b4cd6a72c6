"""What NumPy and other libraries see of fields and globals: copies of their values, or the memory itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, shown
from meshloom.mesh.layout import Layout
from meshloom.mesh.numbering import Rows
from meshloom.mesh.values import FIELD_DTYPES, same_kind

_tracing: ContextVar[bool] = ContextVar("tracing", default=False)
_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
_ON_RANKS = "numpy() of all values and local() of a rank's own do, which are copies"
_INCOMPARABLE = "does not compare by itself; compare its numpy(), or a Global's value"


@contextmanager
def hidden_values() -> Iterator[None]:
    """While a kernel is traced: a value that it took from a field or global by itself would be the same for ever."""
    before = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(before)


class ArrayInterop:
    """What Field and Global are to NumPy: NumPy's functions and operators take a copy of their values and give plain
    arrays. They have no truth and no order of their own, and change by ``assign``, ``value`` and loops alone."""

    __slots__ = ()  # no other attributes: a misspelt dt.val = 0.1 must not pass for a new one
    name: str
    _kind = "field"
    _change = "assign(array)"
    __hash__ = object.__hash__

    @abstractmethod
    def numpy(self) -> np.ndarray:
        """A copy of the values by number."""

    def _refuse(self, why: str) -> NoReturn:
        raise MeshError(f"{self._kind} {self.name} {why}")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            self._refuse("cannot become an array without a copy; use np.asarray, or memory() to share what a field has")
        self.check_visible()
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def check_visible(self) -> None:
        """Not while a kernel is traced."""
        if _tracing.get():
            self._refuse("is used inside a kernel, which would see its present value for ever; pass it as an argument")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(_handles_ufuncs(one) for one in inputs):
            return NotImplemented
        if ufunc in _COMPARISONS:
            return self._compared_by(ufunc, inputs)
        results = options.get("out", ())
        if method == "at" or any(isinstance(one, ArrayInterop) for one in results):
            self._refuse(f"cannot be changed by NumPy; use a loop, or {self.name}.{self._change}")
        plain = [np.asarray(one) if isinstance(one, ArrayInterop) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def _compared_by(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        """NumPy's functions, and its numbers on the left of an operator, ask in this way."""
        self._refuse(_INCOMPARABLE)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, np.ndarray | np.generic | int | float):
            self._refuse(_INCOMPARABLE)
        return self is other

    def __bool__(self) -> bool:
        self._refuse("is neither true nor false; ask its values, as in numpy().any()")

    def __setitem__(self, index: object, value: object) -> None:
        self._refuse(f"cannot be changed by an index; use a loop, or {self.name}.{self._change}")

    def __iter__(self) -> Iterator[Any]:
        self._refuse("cannot be iterated over; iterate over its numpy()")


def _handles_ufuncs(value: object) -> bool:
    """Is it something else that has its own meaning of NumPy's functions, such as a symbol of a kernel?"""
    known = (None, np.ndarray.__array_ufunc__, ArrayInterop.__array_ufunc__)
    return getattr(type(value), "__array_ufunc__", None) not in known


def _operators(name: str, ufunc: np.ufunc) -> None:
    def forward(self: ArrayInterop, other: Any) -> Any:
        return NotImplemented if _handles_ufuncs(other) else ufunc(self, other)

    def backward(self: ArrayInterop, other: Any) -> Any:
        return NotImplemented if _handles_ufuncs(other) else ufunc(other, self)

    def in_place(self: ArrayInterop, other: Any) -> Any:
        self._refuse(f"cannot be changed by an operator; use a loop, or {self.name}.{self._change}")

    for prefix, method in (("", forward), ("r", backward), ("i", in_place)):
        setattr(ArrayInterop, f"__{prefix}{name}__", method)


def _refuse_comparison(self: ArrayInterop, other: Any) -> NoReturn:
    self._refuse(_INCOMPARABLE)


for _name, _ufunc in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
                      "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power,
                      "matmul": np.matmul}.items():  # fmt: skip
    _operators(_name, _ufunc)
for _name, _ufunc in {"neg": np.negative, "pos": np.positive, "abs": np.absolute}.items():
    setattr(ArrayInterop, f"__{_name}__", lambda self, ufunc=_ufunc: ufunc(self))
for _name in ("lt", "le", "gt", "ge"):
    setattr(ArrayInterop, f"__{_name}__", _refuse_comparison)


#: Arrays of NumPy's that are their values and nothing else; others may be masked, have units, or multiply otherwise.
_PLAIN_ARRAYS = (np.ndarray, np.memmap)


def wrapped(field: SharedMemory, array: Any) -> Any:
    """An array of somebody else's as the flat buffer of a field; MeshError where it cannot be that as it lies."""
    on, expected = field.set, (*field.set.array_shape, *field.components)
    if not (isinstance(array, np.ndarray) or hasattr(array, "__cuda_array_interface__")):
        field._refuse(f"wraps NumPy's and CuPy's arrays, got {shown(array)}; others give one, as in tensor.numpy()")
    if isinstance(array, np.ndarray) and type(array) not in _PLAIN_ARRAYS:
        field._refuse(f"cannot wrap a {type(array).__name__}, whose values may mean something else, or nothing where"
                      " one is masked; np.asarray(array) is the values as they lie")  # fmt: skip
    reasons = {
        f"it has the shape {array.shape}, expected {expected}": tuple(array.shape) != expected,
        f"it is of {array.dtype}, allowed: {', '.join(map(str, FIELD_DTYPES))}": array.dtype not in FIELD_DTYPES,
        "its values do not lie one after the other: np.ascontiguousarray copies them": not array.flags.c_contiguous,
        "it is read-only": isinstance(array, np.ndarray) and not array.flags.writeable,
        "its memory is not aligned": isinstance(array, np.ndarray) and not array.flags.aligned,
        f"{on.name} is arranged otherwise in memory": on.numbering is not None,
        f"{on.name} has ghosts or padding, which an array of its points lacks": on.total != prod(on.array_shape),
    }
    for why, holds in reasons.items():
        if holds:
            field._refuse(f"cannot wrap that array: {why}; data= takes a copy")
    return array.reshape(-1)


class SharedMemory(ArrayInterop):
    """A field as others see it: rows that are taken for elements are those of its elements, by number."""

    __slots__ = ()
    set: Rows
    dim: int
    components: tuple[int, ...]
    dtype: np.dtype
    layout: Layout
    layout_is_free: bool
    storage: Any

    @abstractmethod
    def _lay_apart(self) -> None:
        """Have components apart, for good, in the memory where they are."""

    @abstractmethod
    def check_readable(self, who: str = "") -> None:
        """An error where there are no values to be read."""

    @abstractmethod
    def rows(self) -> np.ndarray:
        """A copy of the values by position, (total, dim)."""

    @abstractmethod
    def assign_rows(self, rows: np.ndarray) -> None:
        """Take new values by position, (total, dim)."""

    @abstractmethod
    def _lend(self) -> None:
        """Somebody may write from now on."""

    def __len__(self) -> int:
        return self.set.array_shape[0]

    # All there is, for checkpoints and messages.
    def numbered(self) -> np.ndarray:
        """A copy of all rows by number, (total, dim): of a grid with ghosts and padding."""
        return self.set.by_number(self.rows())

    def saved(self) -> np.ndarray:
        """A copy by number, (n, *components), ghosts included: what a checkpoint holds, and ``restore`` takes back."""
        rows = np.delete(self.numbered(), self.set.padding, axis=0)
        return rows.reshape(len(rows), *self.components)

    def restore(self, saved: ArrayLike) -> None:
        """Take back what ``saved()`` gave, ghosts included."""
        values, padding = same_kind(saved, self.dtype, f"field {self.name}"), self.set.padding
        rows = np.zeros((self.set.total, self.dim), self.dtype)
        known = np.delete(np.arange(self.set.total), padding)
        expected = (len(known), *self.components)
        if values.shape not in (expected, (len(known), self.dim) if len(self.components) < 2 else expected):
            raise MeshError(
                f"field {self.name} on {self.set.name}: what was saved has shape {values.shape}, expected {expected},"
                " ghosts included"
            )
        rows[known] = values.reshape(-1, self.dim)
        self.assign_rows(self.set.by_position(rows))

    # Sharing with other libraries, without copies.
    @staticmethod
    def _check_alone(what: str) -> None:
        """UserError where values are spread over ranks, so that no array has all of them."""
        Rows.placement.check_alone(what, _ON_RANKS)

    def memory(self) -> Any:
        """The buffer as it lies, of the field's ``shape``: NumPy's array on the host, CuPy's on a device, no copy.

        Rows are ordered by position: row k is the element of number ``set.numbering[k]`` where there is a numbering.
        Nobody sees what is written to it: say ``field.changed()`` where its ``version`` matters to somebody.
        """
        self.check_readable()
        self._check_alone("the memory of a field")
        if self.layout.kind == "aosoa" and self.layout_is_free:  # nobody asked for groups: a loop chose them
            self._lay_apart()
        self._lend()
        if self.layout.kind == "aosoa" and self.dim > 1:
            raise MeshError(
                f"field {self.name}: layout {self.layout} cannot be shared as one array; relayout to aos or soa"
            )
        if not self.components:
            return self.storage[: self.set.total]
        axes = len(self.components)
        if self.dim > 1 and self.layout.kind == "soa":
            return self.storage.reshape(*self.components, -1).transpose(axes, *range(axes))[: self.set.total]
        return self.storage.reshape(-1, *self.components)[: self.set.total]

    def view(self) -> np.ndarray:
        """The values by number as NumPy's array, in the field's ``shape``, without a copy: what is written to one is in
        the other, as long as the field neither moves to a GPU nor changes its layout.

        MeshError where there is no such array: in the memory of a GPU, on a mesh that is arranged otherwise in memory,
        in groups of elements. Nobody sees what is written: say ``changed()`` where its ``version`` matters to somebody.
        """
        self._check_alone("a view of a field")
        if not isinstance(self.storage, np.ndarray):
            self._refuse("lies in the memory of a GPU, so NumPy has no view of it; use numpy(), a copy, or memory()")
        return self._shared()

    def _shared(self) -> Any:
        """The same for those who take row k for element k: of a grid its points in its shape."""
        if self.set.numbering is not None:
            raise MeshError(
                f"field {self.name}: {self.set.name} is arranged in memory, so sharing it would show another numbering;"
                " use numpy(), a copy by number, or share memory(), whose row k is element set.numbering[k]"
            )
        return self.set.points_of(self.memory())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if isinstance(self.storage, np.ndarray):
            raise AttributeError(f"field {self.name} is in host memory")
        return self._shared().__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        self._check_alone("DLPack")
        return self._shared().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._check_alone("DLPack")
        return self.storage.__dlpack_device__()
