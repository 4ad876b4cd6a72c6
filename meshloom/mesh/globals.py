"""Global: values that belong to no set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from meshloom.errors import MeshError
from meshloom.mesh.condition import Compared
from meshloom.mesh.stored import Stored, on_host, overwrite
from meshloom.mesh.values import field_dtype, named, same_kind
from meshloom.recording import MAKE_BEFORE, READ_LATER, not_in_program, recorder, refuse_in_program


class Global(Stored, Compared):
    """A scalar or a short vector that belongs to no set: a constant that is read, or a reduction."""

    __slots__ = ("shape",)
    _kind, _change = "global", "value = ..."

    def __init__(self, value: ArrayLike, name: str = "global", *, dtype: DTypeLike | None = None):
        self.name, self.dtype = named("a global", name), field_dtype(dtype, value, f"global {name}")
        array = same_kind(value, self.dtype, f"global {name}")
        if array.ndim > 1 or not array.size:
            raise MeshError(f"global {name}: a scalar or a vector, got shape {array.shape}")
        super().__init__(np.array(array, ndmin=1))
        self.shape = array.shape
        record = recorder.get()
        if record is not None:  # a new global has this value at every replay
            record.make(self)
            self._record(self._storage)

    @property
    def dim(self) -> int:
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

    def __repr__(self) -> str:
        return f"Global({self.name} = {self.value})" if recorder.get() is None else f"Global({self.name})"
