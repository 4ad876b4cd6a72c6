"""Global: values that belong to no set; and a condition: a comparison of one that a program can ask for after each of
its runs. Comparing Globals makes a condition, which holds them, so they are one module."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError, ProgramError
from meshloom.mesh.array_interop import ArrayInterop
from meshloom.mesh.buffer import Buffered, on_host, overwrite
from meshloom.mesh.values import field_dtype, named, same_kind
from meshloom.recording import MAKE_BEFORE, READ_LATER, not_in_program, recorder, refuse_in_program

#: The comparisons, in the order in which compiled code counts them.
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: As NumPy's functions are asked for the same.
UFUNCS = {np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">="}


class Comparison(NamedTuple):
    """The same in memory: two buffers that hold one number each, wherever they are, and the sign between them."""

    left: Any
    sign: str
    right: Any

    def holds(self) -> bool:
        """Whole numbers compare as such, all others in double precision, on every back end."""
        pair = [on_host(one)[0].item() for one in (self.left, self.right)]
        numbers = pair if all(isinstance(one, int) for one in pair) else map(float, pair)
        return SIGNS[self.sign](*numbers)


class Condition:
    """``left`` sign ``right``, such as ``residual < 1e-6``: evaluated lazily. Not a number is
    neither less than anything nor greater. Made by comparing a Global with a number or with another Global."""

    __slots__ = ("left", "right", "sign")

    def __init__(self, left: Global, sign: str, right: Global | float):
        self.left, self.sign, self.right = left, sign, right

    def __bool__(self) -> bool:
        refuse_in_program(f"asking whether {self}", READ_LATER)
        return self.in_memory().holds()

    def __and__(self, other: object) -> Condition:
        raise ProgramError(f"{self}: a condition is one comparison; join several in a kernel that sets one Global")

    __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __and__

    def __invert__(self) -> Condition:
        raise ProgramError(f"{self}: a condition is one comparison; turn its sign around instead of ~")

    @property
    def globals(self) -> tuple[Global, ...]:
        """Those that it looks at."""
        return (self.left,) if isinstance(self.right, int | float) else (self.left, self.right)

    @property
    def known_by(self) -> tuple[object, ...]:
        """What tells it from others: equal for those that compare the same."""
        return self.left.serial, self.sign, repr(self.right) if len(self.globals) == 1 else self.globals[1].serial

    def in_memory(self) -> Comparison:
        """As it is until one of its Globals moves."""
        right = self.right
        return Comparison(
            self.left.storage, self.sign, np.array([right]) if isinstance(right, int | float) else right.storage
        )

    def __repr__(self) -> str:
        right = self.right if isinstance(self.right, int | float) else self.right.name
        return f"{self.left.name} {self.sign} {right}"


def plain_number(value: object) -> int | float | None:
    """A number to compare with, as one that buffers hold; None for what is no single real number."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) or -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class Global(Buffered, ArrayInterop):
    """A scalar or a short vector that belongs to no set: a constant that is read, or a reduction.

    Compared with one number, or with another Global, it makes a condition.
    """

    __slots__ = ("given", "shape")
    _kind, _change = "global", "value = ..."

    def __init__(self, value: ArrayLike, name: str = "global", *, dtype: DTypeLike | None = None):
        self.name, self.dtype = named("a global", name), field_dtype(dtype, value, f"global {name}")
        array = same_kind(value, self.dtype, f"global {name}")
        if array.ndim > 1 or not array.size:
            raise MeshError(f"global {name}: a scalar or a vector, got shape {array.shape}")
        super().__init__(np.array(array, ndmin=1))
        self.shape = array.shape
        self.given = True  # has a value come from outside since whoever compares these has looked?
        record = recorder.get()
        if record is not None:  # a new global has this value at every replay
            record.make(self)
            self._record(self._storage)

    @property
    def dim(self) -> int:
        """How many values it has."""
        return int(self._storage.size)

    @property
    def value(self) -> Any:
        """A Python number, or a copy of the vector."""
        values = self.numpy()
        return values.item() if self.shape == () else values

    @value.setter
    def value(self, value: ArrayLike) -> None:
        self.assign(value)

    def _record(self, value: ArrayLike) -> None:
        values = np.broadcast_to(np.asarray(value, self.dtype), self._storage.shape)
        if any(one.tobytes() != values[0].tobytes() for one in values):
            raise MeshError(f"global {self.name}: inside a program it can be set to one number only; set it before")
        record = recorder.get()
        assert record is not None
        record.fill(self, values[0].item())

    @not_in_program("reading global {}", READ_LATER)
    def numpy(self) -> np.ndarray:
        """A copy of the values, shape () or (dim,)."""
        return np.array(on_host(self.storage)).reshape(self.shape)

    def __bool__(self) -> bool:
        raise MeshError(f"global {self.name} is neither true nor false: ask for its .value, outside of programs")

    def saved(self) -> np.ndarray:
        """The same: what a checkpoint holds."""
        return self.numpy()

    def restore(self, saved: ArrayLike) -> None:
        """Take back what ``saved()`` gave."""
        self.assign(saved)

    def assign(self, data: ArrayLike) -> None:
        """Take new values; a scalar fills, and only that can be recorded."""
        values = same_kind(data, self.dtype, f"global {self.name}")
        if values.shape not in ((), (self.dim,)):
            raise MeshError(f"global {self.name}: expected {self.dim} values or one, got shape {values.shape}")
        if recorder.get() is not None:
            self._record(values)
            return
        storage = self.storage
        overwrite(storage, np.broadcast_to(values, storage.shape) if values.size != self.dim else values.reshape(-1))
        self.given = True
        self.changed()

    @not_in_program("copying global {}", MAKE_BEFORE)
    def __copy__(self) -> Global:
        return Global(self.numpy(), self.name, dtype=self.dtype)

    def __float__(self) -> float:
        return float(self._one())

    def __int__(self) -> int:
        return int(self._one())

    def _one(self) -> Any:
        refuse_in_program(f"reading global {self.name}", READ_LATER)
        self.check_visible()
        if self.dim != 1:
            raise MeshError(f"global {self.name} has {self.dim} values, so it is not one number; use its value")
        return on_host(self.storage)[0].item()

    def rows(self) -> np.ndarray:
        """A copy of the values as one row, (1, dim): what a loop over a single element sees."""
        return self.numpy().reshape(1, -1)

    def unpacked(self) -> np.ndarray:
        """The same for the engine."""
        return np.array(on_host(self.storage)).reshape(1, -1)

    def assign_rows(self, rows: np.ndarray) -> None:
        """Take new values, (1, dim)."""
        self.assign(rows.reshape(-1))

    def repack(self, rows: np.ndarray) -> None:
        """The same for the engine."""
        overwrite(self.storage, rows.reshape(-1))
        self.changed()

    def _compared(self, sign: str, other: object) -> Condition:
        self.check_visible()
        number = other if isinstance(other, Global) else plain_number(other)
        if number is None:
            self._refuse("compares with a number or another Global; for arrays, compare its value")
        for one in (self, other):
            if isinstance(one, Global) and one.dim != 1:
                one._refuse(f"has {one.dim} values, so it does not compare; reduce them to one number in a kernel")
        return Condition(self, sign, number)

    def _compared_by(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
        if ufunc not in UFUNCS or len(inputs) != 2:
            return super()._compared_by(ufunc, inputs)
        sign = UFUNCS[ufunc]
        return self._compared(sign, inputs[1]) if inputs[0] is self else self._compared(MIRRORED[sign], inputs[0])

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    def __repr__(self) -> str:
        return f"Global({self.name} = {self.value})" if recorder.get() is None else f"Global({self.name})"
