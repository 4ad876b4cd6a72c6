"""Exchanges: what brings halos up to date, all fields that are due in one message to each neighbour.

Its messages are the same at every replay, so their memory and MPI's requests are made once, and started each time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from meshloom.backend.base import Backend
from meshloom.dist.array import DistributedArray
from meshloom.dist.messages import PersistentMessages
from meshloom.dist.world import world
from meshloom.kernel.recent import Recent
from meshloom.mesh.core import on_host
from meshloom.operation.call import CalledFunction
from meshloom.records import dataclass
from meshloom.schedule.choice.explain import amount

MOST_PREPARED = 8  # of what may be left out of an exchange: programs in turn leave halos valid in few ways


def neighbours(arrays: Iterable[DistributedArray]) -> list[int]:
    """The ranks with which this one exchanges halos of arrays."""
    return sorted({rank for one in arrays for side in (one.on.sends, one.on.receives) for rank in side.neighbours})


def sent_bytes(arrays: Iterable[DistributedArray]) -> int:
    """That this rank sends when it does."""
    return sum(len(rows) * one.local.dim * one.dtype.itemsize for one in arrays for rows in one.on.sends.rows)


def traffic(arrays: Sequence[DistributedArray]) -> str:
    """Both, in words."""
    *others, last = [str(rank) for rank in neighbours(arrays)] or ["no rank"]
    ranks = f"ranks {', '.join(others)} and {last}" if others else f"{'rank ' * last.isdecimal()}{last}"
    return f"with {ranks}: {amount(sent_bytes(arrays))} from here"


@dataclass(frozen=True)
class RankMessages(CalledFunction):
    """What all ranks do together, for a body: an exchange or a reduction."""

    what = "messages between ranks"
    timed_as = "messages"


class Parcel(NamedTuple):
    """What one message has of one array: values (rows, columns), so many ``bytes``, at ``places`` of its memory, which
    are indices, or a slice for each column."""

    array: DistributedArray
    places: Any
    shape: tuple[int, ...]
    bytes: int

    @property
    def row_bytes(self) -> int:
        return self.array.local.dim * self.array.dtype.itemsize

    @classmethod
    def of(cls, array: DistributedArray, at: np.ndarray, inside: Backend) -> Parcel:
        """``at``: where its values (rows, dim) are in memory."""
        size, slices = at.size * array.dtype.itemsize, slices_of(at)
        if slices and (len(slices) == 1 or not inside.target.is_simt):  # there each is a transfer of its own
            return cls(array, slices, (at.size // len(slices), len(slices)), size)
        return cls(array, inside.place(at), at.shape, size)

    def read(self, message: np.ndarray) -> None:
        """Its part of a message that is sent, from memory."""
        storage, values = self.array.local.storage, message.view(self.array.dtype).reshape(self.shape)
        if not isinstance(self.places, tuple):
            values[...] = on_host(storage[self.places])
            return
        for column, part in zip(values.T, self.places, strict=True):
            column[...] = on_host(storage[part])

    def write(self, message: np.ndarray, inside: Backend) -> None:
        """Its part of a message that has come, to memory."""
        storage, values = self.array.local.storage, message.view(self.array.dtype).reshape(self.shape)
        if not isinstance(self.places, tuple):
            storage[self.places] = inside.place(values)
            return
        for column, part in zip(values.T, self.places, strict=True):
            storage[part] = inside.place(column)


def slices_of(at: np.ndarray) -> tuple[slice, ...] | None:
    """Where values (rows, dim) lie in memory that are one run of it, such as planes of a grid, or one in each column;
    None where they are scattered."""
    for columns in (at.reshape(-1, 1), at):
        if at.size and (np.diff(columns, axis=0) == 1).all():
            return tuple(slice(int(one[0]), int(one[-1]) + 1) for one in columns.T)
    return None


class Prepared(NamedTuple):
    """Messages that may be started any number of times, and what is in each by rank, sent and received."""

    messages: PersistentMessages
    sends: dict[int, list[Parcel]]
    receives: dict[int, list[Parcel]]


class Travelling(NamedTuple):
    """``messages`` under way, and what is in each that comes, by rank; how many bytes each that is sent has, None where
    nothing need be sent."""

    messages: PersistentMessages
    receives: Mapping[int, list[Parcel]]
    sizes: list[int] | None


class Exchange:
    """Brings the halos of some fields up to date: one message to each neighbour, with all of them. All ranks call it,
    or ``start`` it, and ``finish`` it before somebody looks at halos. ``inside``: the back end in whose memory values
    are; what is sent is picked out there. ``left_out``: what is valid when it is started next, and is not sent then."""

    def __init__(self, arrays: Sequence[DistributedArray], inside: Backend):
        self.arrays = tuple(arrays)
        self.left_out: frozenset[DistributedArray] = frozenset()
        self._inside = inside
        self._travels: Travelling | None = None
        self._prepared: Recent[frozenset[DistributedArray], Prepared] = Recent(MOST_PREPARED)  # by what is left out
        self._sends: dict[int, list[Parcel]] = {}  # by rank
        self._receives: dict[int, list[Parcel]] = {}
        for one in arrays:
            inside.bring(one.local)
            both = (one.on.sends, self._sends), (one.on.receives, self._receives)
            for (messages, listed), places in zip(both, one.on.places(one.layout, one.local.dim), strict=True):
                for rank, at in zip(messages.neighbours, places, strict=True):
                    listed.setdefault(rank, []).append(Parcel.of(one, at, inside))
        self._leaving, self._coming = ({rank: np.empty(_size(parcels), np.uint8) for rank, parcels in side.items()}
                                       for side in (self._sends, self._receives))  # fmt: skip
        self.name = f"exchange of {', '.join(one.local.name for one in arrays)}"

    @cached_property
    def _names(self) -> dict[int, str]:
        """What is exchanged with each rank: neighbours of one field need not be those of another."""
        both = {one: [*self._sends.get(one, ()), *self._receives.get(one, ())] for one in neighbours(self.arrays)}
        return {one: "halos of " + ", ".join(sorted({parcel.array.local.name for parcel in parcels}))
                for one, parcels in both.items()}  # fmt: skip

    def _without(self, left_out: frozenset[DistributedArray]) -> Prepared:
        """What travels but for some arrays, in the memory of whole messages: all of it in every replay, but for the
        first of some runs, of which a time loop in Python has many."""
        sides = [_without(left_out, parcels) for parcels in (self._sends, self._receives)]
        sent, received = ({rank: _in_rows(memory[rank], parcels) for rank, parcels in side.items()}
                          for side, memory in zip(sides, (self._leaving, self._coming), strict=True))  # fmt: skip
        return Prepared(world().messages(sent, received, self._names), *sides)

    def __call__(self) -> None:
        self.start()
        self.finish()

    def start(self) -> None:
        """Send what there is now. The memory of messages is kept: none of them may be under way."""
        before, self._travels = self._travels, None
        if before is not None:  # an error came before it was finished
            before.messages.wait()
        left_out, self.left_out = self.left_out, frozenset()
        messages, sends, receives = self._prepared.find_or_make(left_out, lambda: self._without(left_out))
        for rank, parcels in sends.items():
            for one, part in _parts(self._leaving[rank], parcels):
                one.read(part)
        counts = len(left_out) < len(self.arrays)  # on every rank, whatever it has of them
        sizes = [_size(parcels) for parcels in sends.values()] if counts else None
        messages.start()
        self._travels = Travelling(messages, receives, sizes)

    def progress(self) -> None:
        """Let messages that travel do so."""
        assert self._travels is not None, "what makes progress was started"
        self._travels.messages.progress()

    def finish(self) -> None:
        """Wait for messages, and put what they bring into halos."""
        assert self._travels is not None, "what is finished was started"
        since, (travels, self._travels) = time.perf_counter(), (self._travels, None)
        travels.messages.wait()
        if travels.sizes is not None:
            world().count(self.name, travels.sizes, since)
        for rank, parcels in travels.receives.items():
            for one, part in _parts(self._coming[rank], parcels):
                one.write(part, self._inside)


def _size(parcels: Iterable[Parcel]) -> int:
    """The bytes of a message."""
    return sum(one.bytes for one in parcels)


def _parts(message: np.ndarray, parcels: Iterable[Parcel]) -> Iterator[tuple[Parcel, np.ndarray]]:
    """Each parcel with its part of a message."""
    first = 0
    for one in parcels:
        yield one, message[first : first + one.bytes]
        first += one.bytes


def _in_rows(memory: np.ndarray, parcels: Sequence[Parcel]) -> np.ndarray:
    """What a message has of its memory, in rows of as many bytes as there are whole ones in each of its parcels."""
    return memory[: _size(parcels)].reshape(-1, gcd(*(one.row_bytes for one in parcels)))


def _without(some: Collection[DistributedArray], parcels: dict[int, list[Parcel]]) -> dict[int, list[Parcel]]:
    """By rank, what messages have of other arrays."""
    if not some:
        return parcels
    rest = {rank: [one for one in listed if one.array not in some] for rank, listed in parcels.items()}
    return {rank: listed for rank, listed in rest.items() if listed}
