"""What runs while messages travel: of the loops behind an exchange, up to the next one, those that do not wait for it.

Points of a grid that look at no plane of another rank are the core of a loop: it runs first, and the rim when messages
have come. A loop behind it runs on so much of its own box as waits for no rim before it. Loops over sets run early as a
whole, or not at all: a target that adds up contributions of the core and of the rim has to do so in their order. What
may go before what, the data-flow graph says. Where that hides less time than it costs, nothing is cut.

Most MPIs go on with large messages only while somebody calls them. So where there are several nodes MPI is polled
between early loops that run one by one anyway; a loop is not cut for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np

from meshloom.dist.exchange import Exchange, RankMessages, sent_bytes
from meshloom.dist.local import LocalSet
from meshloom.dist.world import world
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.mesh.random import Random
from meshloom.operation.call import called, functions_of
from meshloom.operation.dataflow import OFFSETS, Dataflow, Storage
from meshloom.operation.domain import EVERYWHERE, BoxPoints, Extent, Part, Region, overlap, without
from meshloom.operation.fusion.groups import Group, grouped
from meshloom.operation.operation import Operation
from meshloom.records import dataclass
from meshloom.target import CPU
from meshloom.target.numbers import MessageNumbers

Halos = Mapping[Storage, Sequence[Region]]  # of fields that are exchanged, where they change


class Ends(NamedTuple):
    """Of the planes of a slab: those at which there is a halo."""

    below: bool
    above: bool


@dataclass(frozen=True, eq=False)
class ExchangeStart:
    """Messages are sent, and the loops ``meanwhile`` run before anybody waits for them."""

    exchange: Exchange
    meanwhile: tuple[str, ...]
    polls: int = 0

    def __call__(self) -> None:
        self.exchange.start()

    def __str__(self) -> str:
        times = "once" if self.polls == 1 else f"{self.polls} times"
        return f"overlapped with {', '.join(self.meanwhile)}{f', polled {times} meanwhile' if self.polls else ''}"


@dataclass(frozen=True, eq=False)
class ExchangePoll:
    """Messages that travel make progress: nobody waits for them."""

    exchange: Exchange

    def __call__(self) -> None:
        self.exchange.progress()


@dataclass(frozen=True, eq=False)
class ExchangeEnd:
    """They have come."""

    exchange: Exchange

    def __call__(self) -> None:
        self.exchange.finish()


@dataclass(frozen=True, eq=False)
class BlockingExchange:
    """Both, one after the other. ``why``: nothing runs meanwhile."""

    exchange: Exchange
    why: str

    def __call__(self) -> None:
        self.exchange()

    def __str__(self) -> str:
        return f"not overlapped: {self.why}"


def overlap_exchanges(graph: Dataflow) -> Dataflow:
    """A pass over what runs on a rank: exchanges are started, and finished when what does not wait for them has run,
    where that pays."""
    left, found = list(graph.operations), list[Operation]()
    while left:
        one = left.pop(0)
        (exchange,) = functions_of([one]) or (None,)
        if not isinstance(exchange, Exchange):
            found.append(one)
            continue
        loops = list(takewhile(lambda other: not other.domain.is_call, left))
        early, late = divided(exchange, loops)
        if why := _objection(exchange, early, late):
            found.append(_called(BlockingExchange(exchange, why), exchange, one.name))
            continue
        names = tuple(dict.fromkeys(other.name for other in early if not other.domain.all_memory))
        pieces = _pieces(exchange, early)
        found.append(_called(ExchangeStart(exchange, names, len(pieces) - 1), exchange, one.name))
        for number, piece in enumerate(pieces):
            found += [_called(ExchangePoll(exchange), exchange, f"poll of {one.name}")] if number else []
            found += piece
        found += [_called(ExchangeEnd(exchange), exchange, f"end of {one.name}"), *late]
        del left[: len(loops)]
    return Dataflow(found)


def _called(
    function: ExchangeStart | ExchangePoll | ExchangeEnd | BlockingExchange, exchange: Exchange, name: str
) -> Operation:
    local = tuple(one.local for one in exchange.arrays)
    reads = () if isinstance(function, ExchangePoll) else local
    writes = local if isinstance(function, ExchangeEnd | BlockingExchange) else ()
    return called(RankMessages(function, reads, writes), name)


def _objection(exchange: Exchange, early: Sequence[Operation], late: Sequence[Operation]) -> str:
    """Why nothing runs while messages travel; '' where something does."""
    if all(one.domain.all_memory for one in early):
        why = _reason_whole(late[0]) or "has no core" if late else ""
        return f"{late[0].name} waits for it, and {why}" if late else "nothing comes next"
    if any(isinstance(one, Field) and one.temporary for one in Dataflow([*early, *late]).storages):
        return "temporary fields of loops that are cut would have to be stored"
    hidden, per_cut = _hidden(exchange, early), message_numbers().per_cut
    if hidden > per_cut:
        return ""
    loop = next((one for one in early if not one.domain.all_memory), early[0])
    hides = f"to run {loop.name} meanwhile hides at most {in_microseconds(hidden)}"
    return f"{hides}, and takes {in_microseconds(per_cut)} more"


def _hidden(exchange: Exchange, early: Sequence[Operation]) -> float:
    """Seconds that messages may travel while loops run."""
    numbers = message_numbers()
    travels = numbers.latency + sent_bytes(exchange.arrays) * numbers.per_byte
    return min(travels, sum(one.estimate for one in early))


def _pieces(exchange: Exchange, early: Sequence[Operation]) -> list[Sequence[Operation]]:
    """Loops that run while messages travel, with a poll between every two pieces: as many as cost less than they may
    hide, and only between loops that are not fused anyway. A poll costs what a cut does: loops behind it start again.
    """
    hidden, per_cut = _hidden(exchange, early), message_numbers().per_cut
    if hidden <= 2 * per_cut or not across_nodes():  # what the exchange itself takes, and one poll
        return [early]
    graph = Dataflow(early)
    places = [then.begin for first, then in pairwise(grouped(graph)) if _stay_apart(graph, first, then)]
    most = sum(hidden > (2 + k) * per_cut for k in range(len(places)))
    chosen = [places[k * len(places) // most] for k in range(most)]
    return [early[a:b] for a, b in pairwise([0, *chosen, len(early)])]


def across_nodes() -> bool:
    """Are there ranks on other nodes? Those of one copy messages by the processors that run loops: to do so earlier, in
    polls, takes as long."""
    return world().node_size < world().size


def _stay_apart(graph: Dataflow, first: Group, then: Group) -> bool:
    """Are two groups never fused, whatever is done to them: because one looks around at what the other writes, or as
    they run over different sets, or one of them takes part in no fused loop?"""
    around = any(one.distance == OFFSETS and not one.replays for a in range(first.begin, first.end)
                 for b in range(then.begin, then.end) for one in graph.between(a, b))  # fmt: skip
    return around or bool(first.loops and then.loops and (first.on is None or first.on is not then.on))


def message_numbers() -> MessageNumbers:
    """What messages take: they go through the memory of the host, wherever loops run."""
    return CPU.cpu.messages


def in_microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} us"


def divided(exchange: Exchange, loops: Iterable[Operation]) -> tuple[list[Operation], list[Operation]]:
    """What of loops behind an exchange does not wait for it, and the rest, each in their order."""
    halos: Halos = {one.local: list(_halo(one.on)) for one in exchange.arrays}
    graph = Dataflow(tuple(loops))
    early, late = list[Operation](), list[list[Operation]]()  # late: what runs so of each loop
    for one, waits in zip(graph.operations, graph.waits(), strict=True):
        core = _core(one, halos, [part for k in sorted(waits) for part in late[k]])
        late.append([one] if core is None else _rim(one, core))
        early += [] if core is None else [core]
    return early, [part for parts in late for part in parts]


def _core(one: Operation, halos: Halos, late: Sequence[Operation]) -> Operation | None:
    """A loop, or else the largest part of its box, planes left out at the ends that have a halo, which waits for
    nobody; None where there is none. ``late``: of the loops that it has to wait for, what runs late."""
    if not any(True for _ in _conflicts(one, halos, late)):
        return one
    ends = _ends(halos)
    narrower = None if _reason_whole(one) else _narrower(one, ends, 1)
    if narrower is None:
        return None
    # with every plane that is left out, all that it touches gets narrower by a plane
    missing = [_planes_between(*pair, ends) for pair in _conflicts(narrower, halos, late)]
    core = None if None in missing else _narrower(one, ends, 1 + max(filter(None, missing), default=0))
    return None if core is None or any(True for _ in _conflicts(core, halos, late)) else core


def _conflicts(core: Operation, halos: Halos, late: Sequence[Operation]) -> Iterator[tuple[Region, Region]]:
    """Where a loop looks at a halo, or depends on what runs late, which would otherwise go before it: what it touches,
    and what it must not touch."""
    graph, at = Dataflow([*late, core]), len(late)
    for access in graph.accessed(at, at + 1):
        yield from ((access.region, part) for part in halos.get(access.storage, ()) if overlap(access.region, part))
    yield from ((own.region, earlier.region) for _, earlier, own in graph.into(at))


def _planes_between(own: Region, other: Region, ends: Ends) -> int | None:
    """How many planes have to go from the ``ends`` of a box until it does not overlap another; None where no number
    does."""
    if isinstance(own, Extent) or isinstance(other, Extent):
        return None
    (low, *_), (high, *_) = own
    (begin, *_), (end, *_) = other
    return min(([end - low] if ends.below else []) + ([high - begin] if ends.above else []))


def _halo(on: LocalSet) -> Iterator[Region]:
    """Where values of a field change that is exchanged: of a grid planes at the ends of the slab."""
    grid = on.set
    if not isinstance(grid, IndexSpace):
        yield EVERYWHERE
        return
    rows = np.concatenate([np.zeros(0, np.int64), *on.receives.rows])
    planes = rows // grid.strides[0] - grid.first[0]
    (_, *low), (_, *high) = grid.everything.low, grid.everything.high
    for side in (planes[planes < 0], planes[planes >= grid.shape[0]]):
        if len(side):
            yield (int(side.min()), *low), (int(side.max()) + 1, *high)


def _reason_whole(one: Operation) -> str:
    """Why a loop is not cut into core and rim; '' where it may be."""
    if one.box is None:
        return "is not cut: it visits no points of a grid one by one"
    if any(o.is_global and o.mode.writes for o in one.operands):
        return "is not cut: it reduces to a Global"
    if any(isinstance(o.storage, Random) for o in one.operands):
        return "is not cut: it draws random numbers"
    return ""


def _ends(halos: Halos) -> Ends:
    """Where the slab has a halo."""
    begins = [part[0][0] for parts in halos.values() for part in parts if isinstance(part, tuple)]
    return Ends(any(at < 0 for at in begins), any(at >= 0 for at in begins))


def _narrower(one: Operation, ends: Ends, planes: int) -> Operation | None:
    """A loop over a box without so many planes at its ``ends``; None where nothing is left, or there is no end."""
    assert one.box is not None
    (low, *begin), (high, *end) = one.box.low, one.box.high
    first, last = low + planes * ends.below, high - planes * ends.above
    return _over(one, ((first, *begin), (last, *end))) if any(ends) and first < last else None


def _over(one: Operation, part: Part) -> Operation:
    """A loop over a part of its box."""
    assert one.box is not None and isinstance(one.box.grid, Grid)
    return Operation(one.name, BoxPoints(one.box.grid.box(*part)), one.operands, one.body, one.policy, one.backend)


def _rim(one: Operation, core: Operation) -> list[Operation]:
    """What is left of a loop."""
    if core is one:
        return []
    assert one.box is not None and core.box is not None
    outer, inner = ((box.low, box.high) for box in (one.box, core.box))
    return [_over(one, part) for part in without(outer, inner)]
