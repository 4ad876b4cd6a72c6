"""Exchanges: where a program needs halos, and what brings them up to date.

One pass over the data-flow graph decides where. A halo has two layers (``halo.py``); each is valid, for a field, until
an operation writes to the field elsewhere. Before an operation that looks at a layer which is not valid the field is
exchanged, with all others that are due there. The graph is a cycle: what is valid at the end of a replay need not be
exchanged at the beginning of the next one, and what no operation writes is exchanged once before the first, if at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    """``first``: fields whose halos a program asks for as they are before it runs. ``before``: by position, those that
    are exchanged before the operation there, in every replay. ``valid``: what is valid of the fields that it writes
    when a replay has ended. ``stale``: by position, what the operation there leaves behind that is not valid."""

    first: tuple[Field, ...]
    before: dict[int, tuple[Field, ...]]
    valid: Valid
    stale: dict[int, tuple[Halo, ...]]


def place_exchanges(graph: Dataflow, layers: Layers, slabs_of: SlabsOf = lambda of: None) -> Exchanges:
    """The exchanges of a program."""
    start = {(one, layer) for one in graph.storages if isinstance(one, Field) for layer in LAYERS}
    while True:
        before, valid, asked, stale = _walked(graph, layers, slabs_of, start)
        if start <= valid.keys():
            break
        start &= valid.keys()  # what a replay leaves stale the next one finds stale
    while not (more := {halo for one in asked for halo in valid[one]}) <= asked:  # for the replays after the first
        asked |= more
    first = [one for one in graph.storages if any(field is one for field, _ in asked)]
    written = {halo: since for halo, since in valid.items() if halo[0] in graph.written}
    return Exchanges(tuple(one for one in first if isinstance(one, Field)), before, written, stale)


def _walked(
    graph: Dataflow, layers: Layers, slabs_of: SlabsOf, start: set[Halo]
) -> tuple[dict[int, tuple[Field, ...]], Valid, set[Halo], dict[int, tuple[Halo, ...]]]:
    """One replay that begins with some layers valid: exchanges, what is valid at its end, what of the ``start`` it asks
    for, and what operations leave stale."""
    valid: Valid = {one: frozenset([one]) for one in start}
    before: dict[int, tuple[Field, ...]] = {}
    asked: set[Halo] = set()
    stale: dict[int, tuple[Halo, ...]] = {}
    for position, one in enumerate(graph.operations):
        cut = slabs_of(one)
        needed = [halo for halo in needs(one, cut) if halo[1] in layers(halo[0])]
        due = tuple(dict.fromkeys(halo[0] for halo in needed if halo not in valid))
        if due:
            before[position] = due
            valid |= {(field, layer): frozenset() for field in due for layer in LAYERS}
        asked |= {since for halo in needed for since in valid[halo]}
        valid = _after(one, valid, cut)
        stale[position] = _left_stale(one, valid)
    return before, valid, asked, stale


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


def _after(of: Operation, valid: Valid, cut: Slabs | None) -> Valid:
    """What is valid behind an operation. One that fills memory fills halos, too. A loop visits the exec halo of its
    set, so what it writes there at its own elements is valid where all that it looks at was. Of planes of a grid, which
    is ``cut`` so, that are in no halo there are no copies."""
    if cut is not None and not cut.has_copies(of.box):
        return valid
    written = [one for one in of.written if isinstance(one, Field)]
    left = {halo: since for halo, since in valid.items() if halo[0] not in written}
    if of.domain.all_memory:
        return left | {(one, layer): frozenset() for one in written for layer in LAYERS}
    if of.domain.is_call:  # which copies a rank's own rows
        return left
    looked_at = [(one.storage, layer) for one in of.operands
                 if isinstance(one.storage, Field) and (one.mode.reads or one.mode.combine)
                 for layer in (LAYERS if one.pattern.map is not None else (EXEC,))]  # fmt: skip
    if not all(halo in valid for halo in looked_at):
        return left
    since = frozenset(one for halo in looked_at for one in valid[halo])
    through_maps = {one.storage for one in of.operands if one.mode.writes and one.pattern.map is not None}
    return left | {(one, EXEC): since for one in written if one not in through_maps}


def _left_stale(of: Operation, valid: Valid) -> tuple[Halo, ...]:
    """What of the fields that an operation has written is not valid behind it."""
    halos = ((one, layer) for one in of.written if isinstance(one, Field) for layer in LAYERS)
    return tuple(halo for halo in halos if halo not in valid)


def neighbours(arrays: Iterable[DistributedArray]) -> list[int]:
    """The ranks with which this one exchanges halos of arrays."""
    return sorted({rank for one in arrays for side in (one.on.sends, one.on.receives) for rank in side.neighbours})


def sent_bytes(arrays: Iterable[DistributedArray]) -> int:
    """That this rank sends when it does."""
    return sum(len(rows) * one.local.dim * one.dtype.itemsize for one in arrays for rows in one.on.sends.rows)


def traffic(arrays: Sequence[DistributedArray]) -> str:
    """Both, in words."""
    ranks = ", ".join(map(str, neighbours(arrays)))
    return f"with {f'rank {ranks}' if ranks else 'no rank'}, {amount(sent_bytes(arrays))} from here"


@dataclass(frozen=True)
class RankMessages(CalledFunction):
    """What all ranks do together, for a body: an exchange or a reduction."""

    what = "messages between ranks"
    timed_as = "messages"


class Parcel(NamedTuple):
    """What one message has of one array: the values at ``places`` (rows, dim) of its memory, so many ``bytes``."""

    array: DistributedArray
    places: Any
    bytes: int


class Exchange:
    """Brings the halos of some fields up to date: one message to each neighbour, with all of them. All ranks call it,
    or ``start`` it, and ``finish`` it before somebody looks at halos. ``inside``: the back end in whose memory values
    are; what is sent is picked out there."""

    def __init__(self, arrays: Sequence[DistributedArray], inside: Backend):
        self.arrays = tuple(arrays)
        self._inside = inside
        self._ended: MessagesInFlight | None = None  # while messages travel
        self._sends: dict[int, list[Parcel]] = {}  # by rank
        self._receives: dict[int, list[Parcel]] = {}
        for one in arrays:
            inside.bring(one.local)
            both = (one.on.sends, self._sends), (one.on.receives, self._receives)
            for (messages, listed), places in zip(both, one.on.places(one.layout, one.local.dim), strict=True):
                for rank, at in zip(messages.neighbours, places, strict=True):
                    parcel = Parcel(one, inside.place(at), at.size * one.dtype.itemsize)
                    listed.setdefault(rank, []).append(parcel)

        self.name = f"exchange of {', '.join(one.local.name for one in arrays)}"
        self._sizes = [sum(one.bytes for one in parcels) for parcels in self._sends.values()]  # of messages

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
        """Send what there is now."""
        sent = [np.concatenate([on_host(one.array.local.storage[one.places]).view(np.uint8).reshape(-1)
                                for one in parcels]) for parcels in self._sends.values()]  # fmt: skip
        lengths = [sum(one.bytes for one in parcels) for parcels in self._receives.values()]
        self._ended = world().begin_exchange(sent, lengths, [*self._sends], [*self._receives], self._names)

    def progress(self) -> None:
        """Let messages that travel do so."""
        assert self._ended is not None, "what makes progress was started"
        self._ended.progress()

    def finish(self) -> None:
        """Wait for messages, and put what they bring into halos."""
        assert self._ended is not None, "what is finished was started"
        before = time.perf_counter()
        found, self._ended = self._ended(), None
        world().count(self.name, self._sizes, before)
        for message, parcels in zip(found, self._receives.values(), strict=True):
            first = 0
            for array, places, size in parcels:
                values = message[first : first + size].view(array.dtype).reshape(places.shape)
                array.local.storage[places] = self._inside.place(values)
                first += size
