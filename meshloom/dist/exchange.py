"""Exchanges: where a program needs halos, and what brings them up to date.

One pass over the data-flow graph decides where. A halo has two layers (``halo.py``); each is valid, for a field, until
an operation writes to the field elsewhere. Before an operation that looks at a layer which is not valid the field is
exchanged, with all others that are due there. The graph is a cycle: what is valid at the end of a replay need not be
exchanged at the beginning of the next one, and what no operation writes is exchanged once before the first, if at all.
What other programs have left valid is known when a run begins: its first replay leaves out what need not be sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from meshloom.backend.base import Backend
from meshloom.dist.array import DistributedArray
from meshloom.dist.halo import EXEC, LAYERS
from meshloom.dist.slabs import Slabs
from meshloom.dist.usage import writes_elsewhere
from meshloom.dist.world import MessagesInFlight, world
from meshloom.mesh.core import Field, on_host
from meshloom.operation.call import CalledFunction
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from meshloom.schedule.choice.explain import amount

Halo = tuple[Field, str]  # a layer of the halo of a field
#: The layers that the set of a field has, on any rank: all ranks must come to the same exchanges.
Layers = Callable[[Field], Collection[str]]


#: How the grid is cut whose points or lines an operation visits; None: it visits none.
SlabsOf = Callable[[Operation], Slabs | None]

#: Layers that are valid at some place of a program, each with those that must have been so when it began
Valid = dict[Halo, frozenset[Halo]]


class Exchanges(NamedTuple):
    """``first``: layers that a program asks for as they are before it runs. ``before``: by position, the fields that
    are exchanged before the operation there, in every replay; ``unless``: which of them need not be in a replay that
    begins with these layers valid. ``written``: the fields that it writes; ``valid``: what of them is valid when a
    replay has ended. ``stale``: by position, what the operation there leaves behind that is not valid."""

    first: tuple[Halo, ...]
    before: dict[int, tuple[Field, ...]]
    unless: dict[int, dict[Field, frozenset[Halo]]]
    written: frozenset[Field]
    valid: Valid
    stale: dict[int, tuple[Halo, ...]]

    def due_first(self, valid: Collection[Halo]) -> tuple[Field, ...]:
        """The fields that are exchanged before a run that finds these layers valid."""
        return tuple(dict.fromkeys(halo[0] for halo in self.first if halo not in valid))

    def left_out(self, valid: Collection[Halo]) -> dict[int, frozenset[Field]]:
        """By position, what the first replay of a run does not exchange that begins with these layers valid."""
        return {position: frozenset(field for field, since in unless.items() if all(one in valid for one in since))
                for position, unless in self.unless.items()}  # fmt: skip

    def valid_after(self, began: frozenset[Halo], replays: int) -> frozenset[Halo]:
        """What is valid of the fields that it writes behind so many replays, one at least, of which the first began
        with these layers valid: each begins with what the one before has left."""
        kept = frozenset(halo for halo in began if halo[0] not in self.written)
        found = [began]
        while len(found) <= replays:
            now = kept.union(halo for halo, since in self.valid.items() if since <= found[-1])
            if now in found:  # from here on they come again in turn
                first = found.index(now)
                return found[first + (replays - first) % (len(found) - first)]
            found.append(now)
        return found[replays]


class Walk(NamedTuple):
    """One replay: its exchanges, what is valid at its end, what it asks for of what was valid when it began, and
    ``unless`` and ``stale`` of ``Exchanges``."""

    before: dict[int, tuple[Field, ...]]
    valid: Valid
    asked: set[Halo]
    unless: dict[int, dict[Field, frozenset[Halo]]]
    stale: dict[int, tuple[Halo, ...]]


def place_exchanges(graph: Dataflow, layers: Layers, slabs_of: SlabsOf = lambda of: None) -> Exchanges:
    """The exchanges of a program."""
    there = {one: tuple(layers(one)) for one in graph.storages if isinstance(one, Field)}
    halos = {(one, layer) for one, its in there.items() for layer in its}
    cuts = [slabs_of(one) for one in graph.operations]
    start = set(halos)
    while not start <= (walk := _walked(graph, there, cuts, start)).valid.keys():
        start &= walk.valid.keys()  # what a replay leaves stale the next one finds stale
    asked = walk.asked
    while not (more := {halo for one in asked for halo in walk.valid[one]}) <= asked:  # for the replays after the first
        asked |= more
    first = tuple((one, layer) for one, its in there.items() for layer in its if (one, layer) in asked)
    known = _walked(graph, there, cuts, halos, walk.before)  # a run may begin with more than a replay leaves
    written = frozenset(one for one in graph.written if isinstance(one, Field))
    valid = {halo: since for halo, since in known.valid.items() if halo[0] in written}
    return Exchanges(first, walk.before, known.unless, written, valid, known.stale)


def _walked(
    graph: Dataflow, layers: Mapping[Field, Collection[str]], cuts: Sequence[Slabs | None], start: Collection[Halo],
    placed: Mapping[int, tuple[Field, ...]] | None = None,
) -> Walk:  # fmt: skip
    """A replay that begins with some layers valid; with exchanges where they are ``placed``, or due."""
    valid: Valid = {one: frozenset([one]) for one in start}
    walk = Walk({}, {}, set(), {}, {})
    for position, (one, cut) in enumerate(zip(graph.operations, cuts, strict=True)):
        needed = [halo for halo in needs(one, cut) if halo[1] in layers[halo[0]]]
        stale = tuple(dict.fromkeys(halo[0] for halo in needed if halo not in valid))
        if due := stale if placed is None else placed.get(position, ()):
            walk.before[position] = due
            halos = {field: [(field, layer) for layer in layers[field]] for field in due}
            walk.unless[position] = {field: frozenset(since for halo in its for since in valid[halo])
                                     for field, its in halos.items() if all(halo in valid for halo in its)}  # fmt: skip
            valid |= {halo: frozenset() for its in halos.values() for halo in its}
        walk.asked.update(since for halo in needed for since in valid[halo])
        valid = _after(one, valid, cut, layers)
        walk.stale[position] = _left_stale(one, valid, layers)
    return walk._replace(valid=valid)


def needs(of: Operation, cut: Slabs | None = None) -> Iterator[Halo]:
    """What an operation looks at of halos: through maps, in planes of a grid, ``cut`` so, that are other ranks', and at
    its own elements where it is executed for others'."""
    if of.domain.all_memory:
        return
    for_others = writes_elsewhere(of)
    for one in of.operands:
        if not isinstance(one.storage, Field) or not one.mode.reads:
            continue
        through = one.pattern.map is not None and (for_others or not one.pattern.as_member)
        reaches = through or (cut is not None and cut.looks_beyond(of.box, one.pattern.offsets))
        yield from [(one.storage, layer) for layer in (LAYERS if reaches else (EXEC,) if for_others else ())]


def _after(of: Operation, valid: Valid, cut: Slabs | None, layers: Mapping[Field, Collection[str]]) -> Valid:
    """What is valid behind an operation. One that fills memory fills halos, too. A loop visits the exec halo of its
    set, so what it writes there at its own elements is valid where all that it looks at was. Of planes of a grid, which
    is ``cut`` so, that are in no halo there are no copies."""
    if cut is not None and not cut.has_copies(of.box):
        return valid
    written = [one for one in of.written if isinstance(one, Field)]
    left = {halo: since for halo, since in valid.items() if halo[0] not in written}
    if of.domain.all_memory:
        return left | {(one, layer): frozenset() for one in written for layer in layers[one]}
    if of.domain.is_call:  # which copies a rank's own rows
        return left
    looked_at = [(one.storage, layer) for one in of.operands
                 if isinstance(one.storage, Field) and (one.mode.reads or one.mode.combine)
                 for layer in (LAYERS if one.pattern.map is not None else (EXEC,))
                 if layer in layers[one.storage]]  # fmt: skip
    if not all(halo in valid for halo in looked_at):
        return left
    since = frozenset(one for halo in looked_at for one in valid[halo])
    through_maps = {one.storage for one in of.operands if one.mode.writes and one.pattern.map is not None}
    return left | {(one, EXEC): since for one in written if one not in through_maps and EXEC in layers[one]}


def _left_stale(of: Operation, valid: Valid, layers: Mapping[Field, Collection[str]]) -> tuple[Halo, ...]:
    """What of the fields that an operation has written is not valid behind it."""
    halos = ((one, layer) for one in of.written if isinstance(one, Field) for layer in layers[one])
    return tuple(halo for halo in halos if halo not in valid)


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


class Travelling(NamedTuple):
    """Messages under way: what waits for them, those that come, ``received``, with what is in each, and how many bytes
    each that is sent has; None where nothing need be sent."""

    ended: MessagesInFlight
    received: list[np.ndarray]
    parcels: list[list[Parcel]]
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

    def __call__(self) -> None:
        self.start()
        self.finish()

    def start(self) -> None:
        """Send what there is now. The memory of messages is kept: none of them may be under way."""
        if self._travels is not None:  # an error came before it was finished
            self._travels.ended()
        left_out, self.left_out = self.left_out, frozenset()
        sends, receives = (_without(left_out, parcels) for parcels in (self._sends, self._receives))
        sent = [_written(self._leaving[rank], parcels) for rank, parcels in sends.items()]
        received = [self._coming[rank][: _size(parcels)] for rank, parcels in receives.items()]
        sizes = [len(one) for one in sent]
        counts = len(left_out) < len(self.arrays)  # on every rank, whatever it has of them
        ended = world().begin_exchange(sent, received, [*sends], [*receives], self._names)
        self._travels = Travelling(ended, received, [*receives.values()], sizes if counts else None)

    def progress(self) -> None:
        """Let messages that travel do so."""
        assert self._travels is not None, "what makes progress was started"
        self._travels.ended.progress()

    def finish(self) -> None:
        """Wait for messages, and put what they bring into halos."""
        assert self._travels is not None, "what is finished was started"
        before, (travels, self._travels) = time.perf_counter(), (self._travels, None)
        travels.ended()
        if travels.sizes is not None:
            world().count(self.name, travels.sizes, before)
        for message, parcels in zip(travels.received, travels.parcels, strict=True):
            for one, part in _parts(message, parcels):
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


def _written(message: np.ndarray, parcels: Sequence[Parcel]) -> np.ndarray:
    """A message with the values of now, in its memory."""
    for one, part in _parts(message, parcels):
        one.read(part)
    return message[: _size(parcels)]


def _without(some: Collection[DistributedArray], parcels: dict[int, list[Parcel]]) -> dict[int, list[Parcel]]:
    """By rank, what messages have of other arrays."""
    if not some:
        return parcels
    rest = {rank: [one for one in listed if one.array not in some] for rank, listed in parcels.items()}
    return {rank: listed for rank, listed in rest.items() if listed}
