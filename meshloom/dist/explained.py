"""What loops and programs say of themselves over ranks: of what runs on this one, and so that it is said. No other rank
is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from meshloom.dist.array import DistributedArray
from meshloom.dist.exchange import traffic
from meshloom.dist.grid_rows import reaches_rows
from meshloom.dist.lone_loop import LoneLaunches
from meshloom.dist.lower import slabs_of, told
from meshloom.dist.validity import needs
from meshloom.dist.world import World
from meshloom.errors import one_line
from meshloom.mesh.box import IndexSpace
from meshloom.mesh.core import Field, Map
from meshloom.operation.call import functions_of
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from meshloom.operation.tape import Tape, segment_of
from meshloom.schedule.choice.explain import NOT_BY_ITSELF

Row = tuple[str, str]
#: Of a loop that this rank runs in a program as one with others, whose time stands above
AS_ONE = "not by itself: the loops that it is one with have one time"


def loop_explained(of: Operation, world: World) -> str:
    """Of a loop as it was recorded, or is called by itself: what of it runs here, once it was called."""
    if of.domain.all_memory or of.domain.is_call:
        return of.policy.explain(of)
    launches = of.execution.launches
    lone = launches.loop if isinstance(launches, LoneLaunches) else None
    if lone is None or lone.local is None:
        what = "grid" if isinstance(of.domain.set, IndexSpace) else "mesh"
        said = f"all this is of the whole {what}, of which {_name(world)} runs a part; of that {NOT_BY_ITSELF}"
        return _with_rows(of.policy.explain(of), [("ranks", said)], _beyond(of))
    seconds, calls = lone.apart
    more = [("messages", f"{1e3 * seconds:.4g} ms ({_runs(calls)}) besides: exchanges and sums of all ranks, waiting"
                         " for who comes late included")]  # fmt: skip
    head = f"{of.name} over {of.over}: {of.elements:,} elements, back end {of.backend.name}"
    if not lone.loops:
        return _with_rows(head, [("ranks", f"{_name(world)} has nothing of it to run")], [*more, *_beyond(of)])
    own = ((one, one.explain().partition("\n")[2]) for one in lone.loops)  # below a headline of its part
    some = (_with_rows(f"{head}\n{text}", [("ranks", _here(of, one, world))], ()) for one, text in own)
    return _with_rows("\n\n".join(some), (), [*more, *_beyond(of)])


def _name(world: World) -> str:
    return f"rank {world.rank} of {world.size}"


def _here(of: Operation, one: Operation, world: World) -> str:
    return (f"all this is of what {_name(world)} runs: {one.elements:,} of {of.elements:,} elements, some of which"
            " others run, too")  # fmt: skip


def _runs(calls: int) -> str:
    return f"{calls} run{'' if calls == 1 else 's'}"


def _with_rows(text: str, first: Iterable[Row], last: Iterable[Row]) -> str:
    """With rows below the headline, and behind all."""
    before, after = ([f"  {label:<10} {one_line(said)}" for label, said in rows] for rows in (first, last))
    head, *rest = text.split("\n")
    return "\n".join([head, *before, *rest, *after])


def _beyond(of: Operation) -> Iterator[Row]:
    """What it needs of other ranks, and how long lists of that hold."""
    yield from _halos(of)
    for one in (map_ for map_ in of.maps if isinstance(map_, Map) and map_.version):
        times = "once" if one.version == 1 else f"{one.version:,} times"
        yield "lists", f"of what is exchanged through {one.name}: made again at each assign, {times} so far"


def _halos(of: Operation) -> Iterator[Row]:
    """The halos that a loop looks at, once its fields are over ranks."""
    fields = Dataflow([of]).storages
    if not all(isinstance(one.storage, DistributedArray) for one in fields if isinstance(one, Field)):
        return
    if reaches_rows(of):
        names = ", ".join(one.name for one in fields if isinstance(one, Field) and isinstance(one.set, IndexSpace))
        yield "halos", f"of {names} by rows, which maps lead to: copied out of slabs before it"
        return
    if seen := dict.fromkeys(field for field, _ in needs(of, slabs_of(of))):
        arrays = [cast(DistributedArray, one.storage) for one in seen]
        names = ", ".join(one.name for one in seen)
        yield "halos", f"of {names}, exchanged before it where they are not valid: {traffic(arrays)}"


def program_explained(lowered: Tape, world: World) -> str:
    """Of a program as it was last made ready: what is exchanged, what runs between two exchanges, and how long each
    took on this rank."""
    head = f"on {_name(world)}, each replay: elements, bytes and times are those of this rank, and others have theirs"
    pieces = lowered.pieces if lowered.calls else ()
    parts = [_messages(one) if segment_of(one) is None else str(one.explain()) for one in pieces]
    return "\n\n".join([head, *(one.replace(NOT_BY_ITSELF, AS_ONE) for one in parts or [lowered.explained()] if one)])


def _messages(one: Operation) -> str:
    """An exchange or a reduction, and how long it took."""
    (function,) = functions_of([one])
    took = f"; measured {1e3 * one.seconds:.4g} ms ({_runs(one.calls)}), waiting included" if one.seconds else ""
    return one_line(f"{told(one, function) or one.name}{took}")
