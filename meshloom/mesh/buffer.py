"""Values in a flat buffer: what fields and globals have in common."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from copy import copy
from itertools import count
from typing import Any, TypeVar

import numpy as np

from meshloom.errors import MeshError
from meshloom.exclusion import owner
from meshloom.mesh.copies import Sent
from meshloom.native.threads import check_device
from meshloom.recording import not_in_program, recorder, refuse_in_program

T = TypeVar("T")
#: One count for all: versions of different fields differ, and threads that write at the same time lose none.
_versions = count(1)


class Buffered(Sent):
    """Values in a flat buffer that may move: to another layout, to a device and back.

    Loops refer to it, and it refers to loops weakly: a field, which is large, goes at once when nobody wants it.
    """

    __slots__ = ("__weakref__", "_storage", "_version", "_watchers", "dtype", "lent", "mutex", "name",
                 "stays", "storage_version", "undefined_after", "untouched")  # fmt: skip
    name: str
    dtype: np.dtype

    def __init__(self, storage: Any):
        self._storage, self._version = storage, next(_versions)
        self.storage_version = self._version  # which buffer it is: no other one, of any field, has had this number
        self.stays = False  # may it not move, because somebody else looks at the same memory?
        self.lent = False  # has anybody got its memory, who may write to it unseen?
        self.untouched = False  # is it zero, as it was made, and has nobody had its memory since?
        self.undefined_after = ""  # the program that ran last, if it leaves no values: those of temporary fields
        self._watchers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.mutex = owner()  # of the object whose work space it is: who uses it holds that

    @abstractmethod
    def __copy__(self: T) -> T:
        """Another one with the same values, on the host."""

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return copy(self)

    def _sent(self) -> dict[str, Any]:
        own = {"__weakref__", "_storage", "_version", "_watchers", "mutex", "serial", "storage_version", "untouched"}
        names = [name for one in type(self).__mro__ for name in getattr(one, "__slots__", ()) if name not in own]
        return {name: getattr(self, name) for name in names} | {
            "_storage": on_host(self._storage), "stays": False, "lent": False
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._watchers, self.mutex, self.untouched = weakref.WeakSet(), None, False
        self.storage_version = self.changed()

    @property
    def version(self) -> int:
        """A whole number that grows whenever values may have changed: every write of Meshloom's, whoever asked for it.

        What others write through ``memory()`` or DLPack cannot be seen: it grows when they are given the memory, and
        when they say ``changed()``. A run of a program is one write, however many replays it has.
        """
        return self._version

    def changed(self) -> int:
        """Values were written, or may have been: a new version, which is returned."""
        self._version = version = next(_versions)
        return version

    def _lend(self) -> None:
        """Somebody gets the memory, and may write to it from now on."""
        self.lent = True
        self.changed()

    @property
    def storage(self) -> Any:
        """A flat array: NumPy's on the host, CuPy's on a device. Compiled code works on it."""
        if recorder.get() is not None:
            refuse_in_program(f"using the memory of {self.name}", "use it in a kernel, or after program.run()")
        self.untouched = False
        return self._storage

    @storage.setter
    def storage(self, storage: Any) -> None:
        self.move(storage)

    @not_in_program("another buffer for {}", "give it before")
    def move(self, storage: Any) -> None:
        """Continue with another buffer of the same values; loops that use it notice."""
        if storage is not self._storage:
            self.check_movable()
            _check_buffer(self.name, storage, self.dtype, self._places)
            self._storage, self.untouched = storage, False
            self.storage_version = self.changed()  # whoever gives another buffer may be wrong that it holds the same
            for watcher in list(self._watchers):
                watcher.invalidate()

    def placement(self) -> dict[str, Any]:
        """Where the values are and how they lie, for ``put_back``."""
        return {"_storage": self._storage, "storage_version": self.storage_version, "_version": self._version}

    def put_back(self, before: dict[str, Any]) -> bool:
        """Be where it was, and as it was: values have not changed since. Did anything differ?"""
        differs = any(getattr(self, name) is not value for name, value in before.items() if name != "_version")
        if differs:
            for name, value in before.items():
                setattr(self, name, value)
            for watcher in list(self._watchers):
                watcher.invalidate()
        return differs

    def check_movable(self) -> None:
        """MeshError where it lives in memory that others look at: there would be two."""
        if self.stays:
            raise MeshError(
                f"{self.name} wraps an array that others look at, so it can neither move to another memory nor change"
                " its layout: run its loops where the array is, or take a copy()"
            )

    @property
    def _places(self) -> int:
        """How many values the storage has to have."""
        return int(self._storage.size)

    def watch(self, watcher: Any) -> None:
        """``watcher.invalidate()`` is called when the storage moves."""
        self._watchers.add(watcher)


class OverRanks(ABC):
    """Memory whose values are on several ranks; arrays on devices are used in the same way: ``get``, ``set``, ``fill``.
    ``local``: what this rank has of it."""

    local: Buffered

    @abstractmethod
    def owned(self) -> tuple[np.ndarray, np.ndarray]:
        """Of this rank's own elements the positions in the whole, ascending, and a copy of the rows (n, dim)."""

    @abstractmethod
    def assign_owned(self, rows: np.ndarray) -> None:
        """Take other rows (n, dim) for them; all ranks must, since copies that others have are stale then."""


def sharing_memory(storages: Iterable[Buffered], written: Collection[Buffered]) -> tuple[Buffered, Buffered] | None:
    """Two of some fields and globals whose values lie, in part at least, at the same places, one of them written."""
    found = sorted(((*_extent(one._storage), one) for one in set(storages)), key=lambda entry: entry[:2])
    reach: list[tuple[int, Buffered]] = []  # those that may not have ended yet
    for start, end, one in found:
        reach = [(last, other) for last, other in reach if last > start]
        for _, other in reach:
            if one in written or other in written:
                return other, one
        reach += [(end, one)] if end > start else []
    return None


def _extent(storage: Any) -> tuple[int, int]:
    """The addresses at which a buffer begins and ends; those of a device are others than the host's."""
    if isinstance(storage, OverRanks):
        return _extent(storage.local._storage)
    on_host = isinstance(storage, np.ndarray)
    described = storage.__array_interface__ if on_host else storage.__cuda_array_interface__
    start = int(described["data"][0])
    return start, start + int(storage.nbytes)


def _check_buffer(name: str, storage: Any, dtype: np.dtype, size: int) -> None:
    """MeshError unless compiled code can work on a buffer: flat, of a type and size, in one piece, writable."""
    on_device = hasattr(storage, "__cuda_array_interface__")
    if not (isinstance(storage, np.ndarray | OverRanks) or on_device):
        raise MeshError(f"{name}: its storage is a NumPy or CuPy array, got {type(storage).__name__}")
    flags = storage.flags
    fits = storage.ndim == 1 and storage.size == size and storage.dtype == dtype and flags.c_contiguous
    if not fits or (isinstance(storage, np.ndarray) and not (flags.aligned and flags.writeable)):
        raise MeshError(
            f"{name}: its storage must be {size} values of {dtype} in one piece, writable, got shape {storage.shape} of"
            f" {storage.dtype}; to give it other values use assign"
        )


def on_host(storage: Any) -> np.ndarray:
    """The values of a buffer in host memory, itself if it is there."""
    if isinstance(storage, np.ndarray):
        return storage
    check_device()
    return storage.get()


def overwrite(storage: Any, values: np.ndarray) -> None:
    """Put other values into a buffer, wherever it is."""
    if isinstance(storage, np.ndarray):
        storage[:] = values
    else:
        check_device()
        storage.set(values)
