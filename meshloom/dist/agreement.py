"""How ranks compare what they were given, which must be the same on all of them: now, or with their next message.

What comes by a call that all ranks make (a field's values, the first ones of a Global) is compared before the next
loop, in a collective of its own. Numbers that loops take from Python may change on one rank alone, and the others would
not know that there is something to compare, and a Global may be set in every iteration: these are noted, and a digest
of what was noted since ranks last compared goes along with the next values that all ranks put together.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from meshloom.dist.world import World
from meshloom.errors import RankError
from meshloom.kernel.recent import Recent
from meshloom.mesh.number import PlainNumber
from meshloom.mesh.values import as_bytes
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from meshloom.process.ranks import COMM

T = TypeVar("T")

SAME_SCRIPT = "all ranks must run the same script"
SAME_NUMBERS = "all ranks must take the same numbers from Python"
OWN_RUNS = f"({COMM}=self makes each a run of its own)"
DIGEST = 8  # bytes that go along with a message
MOST_KNOWN = 4096  # programs with numbers


class GivenToRank(NamedTuple):
    """Something by its ``name``. Where ``said`` differs between ranks, both are told; where ``digest`` does, that the
    thing ``differs``, such as "was given other values". ``hint``: what to do about it."""

    name: str
    said: str
    hint: str
    digest: str = ""
    differs: str = "was given other values"

    @property
    def noted(self) -> bool:
        """Is it one of those that need not be compared by all ranks at the same time?"""
        return self.hint == SAME_NUMBERS


_noted: list[GivenToRank] = []  # since ranks last compared
#: What was noted before, by content: ranks make loops ready again at other times than others do.
_known: Recent[tuple[str | tuple[str, ...], ...], bool] = Recent(MOST_KNOWN)


def compare(world: World, given: Iterable[GivenToRank], when: str) -> None:
    """RankError where ranks have different things, or have noted such, which names the first, and two ranks; all must
    ask."""
    mine = [*given, *_noted]
    _noted.clear()
    digests = world.allgathered(hashlib.sha256(repr(mine).encode()).hexdigest(), f"what it was given {when}")
    for rank, one in enumerate(digests):
        if one != digests[0]:
            everybody = world.allgathered(mine, "what differs")
            raise RankError(difference(everybody[0], rank, everybody[rank]))


def difference(first: Sequence[GivenToRank], rank: int, theirs: Sequence[GivenToRank]) -> str:
    """What a rank has that rank 0 has otherwise."""

    def of(some: Sequence[GivenToRank], noted: bool) -> list[GivenToRank]:
        return [one for one in some if one.noted is noted]

    return (_in_turn(of(first, False), of(theirs, False), rank)
            or _in_any_order(of(first, True), of(theirs, True), rank))  # fmt: skip


def _in_turn(first: Sequence[GivenToRank], theirs: Sequence[GivenToRank], rank: int) -> str:
    for one, other in zip(first, theirs, strict=False):
        if one.name != other.name:
            return f"rank 0 uses {one.name} where rank {rank} uses {other.name}: {SAME_SCRIPT}"
        if one != other:
            return _told(one, other, rank)
    if len(first) == len(theirs):
        return ""
    longer = (0, first) if len(first) > len(theirs) else (rank, theirs)
    return f"rank {longer[0]} uses {longer[1][min(len(first), len(theirs))].name} before others do: {SAME_SCRIPT}"


def _in_any_order(first: Sequence[GivenToRank], theirs: Sequence[GivenToRank], rank: int) -> str:
    """The same of what was noted: one rank may have nothing new where the other has."""
    here, there = [*(Counter(first) - Counter(theirs))], [*(Counter(theirs) - Counter(first))]
    if not here and not there:
        return _in_turn(first, theirs, rank)
    one = (here or there)[0]
    other = next((each for each in there if each.name == one.name), one._replace(said="", digest="-"))
    return _told(one, other, rank)


def _told(one: GivenToRank, other: GivenToRank, rank: int) -> str:
    """How what has the same name on both ranks differs."""
    if one.said != other.said and one.said and other.said:
        return f"{one.name} is {one.said} on rank 0, and {other.said} on rank {rank}: {one.hint}"
    return f"{one.name} {one.differs} on rank {rank} than on rank 0: {one.hint}"


def note(given: Iterable[GivenToRank]) -> None:
    """For the next comparison, which may be far: of each name the last one. No rank waits for another."""
    for one in given:
        for before in [other for other in _noted if other.name == one.name]:
            _noted.remove(before)
        _noted.append(one)


# ----- what goes along with messages --------------------------------------------------------------------------------
def with_digest(sent: np.ndarray) -> np.ndarray:
    """Bytes (n,) and behind them a digest of what this rank has noted, (n + DIGEST,)."""
    found = hashlib.sha256(repr(_noted).encode()).digest()[:DIGEST] if _noted else bytes(DIGEST)
    return np.concatenate([sent, np.frombuffer(found, np.uint8)])


def without_digest(world: World, parts: np.ndarray) -> np.ndarray:
    """What all ranks have sent so, (ranks, n), without the digests. RankError where these differ."""
    _check_digests(world, parts[:, -DIGEST:])
    return parts[:, :-DIGEST]


def _check_digests(world: World, digests: np.ndarray) -> None:
    if (digests != digests[0]).any():
        compare(world, (), "as numbers")
    _noted.clear()


def gathered_known(world: World, rows: np.ndarray, counts: np.ndarray, what: str) -> np.ndarray:
    """The rows (n, ...) of all ranks, one rank's behind the other's, of which all know how many, ``counts`` (ranks,),
    in one collective. ``what`` they are: for messages."""
    kind, shape = rows.dtype, rows.shape[1:]
    each = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    more = -(-DIGEST // each)  # rows that a digest takes
    sent = np.zeros((len(rows) + more, each), np.uint8)
    as_bytes(sent)[: rows.nbytes + DIGEST] = with_digest(as_bytes(rows))
    parts = world.joined(sent, (counts + more).tolist(), f"{what} ({kind}, shape {shape} each)")
    _check_digests(world, np.stack([as_bytes(one[-more:])[:DIGEST] for one in parts]))
    return as_bytes(np.concatenate([one[:-more] for one in parts])).view(kind).reshape(-1, *shape)


def alike(world: World, values: np.ndarray, count: int, what: str) -> np.ndarray:
    """Values of a rank's ``count`` elements (count, ...), or one for all of them, in the type and the shape that hold
    those of all ranks, as one process would have found them; one where all have one. Ranks without elements have no
    say. RankError where shapes differ, or the one for all."""
    one = values.item() if values.ndim == 0 else None
    everybody = world.allgathered((values.dtype.str, values.shape, one, count), f"the kind of {what}")
    deciding = {rank: kind for rank, kind in enumerate(everybody) if kind[-1]} or {0: everybody[0]}
    dtype = np.result_type(*(np.dtype(name) for name, *_ in deciding.values()))
    shapes = {rank: shape[1:] for rank, (_, shape, _, _) in deciding.items() if shape}
    if not shapes:
        singles = {rank: single for rank, (_, _, single, _) in deciding.items()}
        return np.asarray(_the_same(singles, "one value for all points,", what), dtype)
    each = _the_same(shapes, "values of shape", what)
    return np.array(np.broadcast_to(values if count else 0, (count, *each)), dtype)


def _the_same(given: Mapping[int, T], kind: str, what: str) -> T:
    """What a function gives on every rank that has a say."""
    first, *others = given.items()
    for rank, other in others:
        if repr(other) != repr(first[1]):
            raise RankError(f"{what}: its function gives {kind} {first[1]} on rank {first[0]}, and {other} on rank"
                            f" {rank}: it must be a function of each point")  # fmt: skip
    return first[1]


# ----- numbers that loops take from Python --------------------------------------------------------------------------
class NumbersFromPython:
    """Of a program, by its graph: those that kernels captured and fills set, which are part of their own graphs, and
    those that were given to loops in place of Globals, each with the first loop that uses it."""

    def __init__(self, program: Dataflow):
        self._graphs = tuple(_graphs(program.operations))
        self._key = hashlib.sha256(repr(self._graphs).encode()).hexdigest()
        self._plain = [(program.operations[uses[0].position].name, each) for each, uses in program.accesses.items()
                       if isinstance(each, PlainNumber)]  # fmt: skip

    def note(self) -> None:
        """For the next comparison, where they are others than ever before; no rank waits for another."""
        plain = tuple([repr(each.latest) for _, each in self._plain])
        if _is_new(self._key):
            _noted.extend(self._graphs)
        if plain and _is_new(self._key, plain):
            _noted.extend(GivenToRank(f"{each.name} of loop {loop}", said, SAME_NUMBERS, differs="is another number")
                          for (loop, each), said in zip(self._plain, plain, strict=True))  # fmt: skip


def _is_new(*content: str | tuple[str, ...]) -> bool:
    """Was it not noted before?"""
    return _known.find(content) is None and _known.keep(content, True)


def _graphs(operations: Iterable[Operation]) -> Iterator[GivenToRank]:
    for one in (one for one in operations if not one.domain.is_call):
        said = hashlib.sha256(repr(one.graph.content).encode()).hexdigest()[:16]
        yield GivenToRank(f"loop {one.name}", "", SAME_NUMBERS, said, "computes with other numbers")
