"""How ranks compare what they were given, which must be the same on all of them: now, or with their next message.

What comes by a call that all ranks make (a field's values, the first ones of a Global) is compared before the next
loop, in a collective of its own. Numbers that loops take from Python may change on one rank alone, and the others would
not know that there is something to compare, and a Global may be set in every iteration: these are noted wherever loops
begin, and a digest of what was noted since ranks last compared goes along with the next values that all ranks put
together.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import NamedTuple, TypeVar

import numpy as np

from meshloom.backend.base import Backend
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
SAME_BACK_END = "choose the same on all ranks"
OWN_RUNS = f"({COMM}=self makes each a run of its own)"
DIGEST = 8  # bytes that go along with a message
MOST_BEGUN = 4096  # programs between two comparisons
LONGEST = 60  # characters of the names of loops


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
        return self.hint in (SAME_NUMBERS, SAME_BACK_END)


class Begun(NamedTuple):
    """Programs of one name that a rank has begun since ranks last compared: the ``numbers`` of the last one, what the
    ``plain`` ones among them were, and ``all`` of them so far, as a running digest."""

    numbers: NumbersFromPython
    plain: tuple[str, ...]
    all: bytes

    def given(self) -> Iterator[GivenToRank]:
        yield from self.numbers.graphs
        yield from (GivenToRank(f"{name} of loop {loop}", said, SAME_NUMBERS, differs="is another number")
                    for (loop, name), said in zip(self.numbers.names, self.plain, strict=True))  # fmt: skip


class Noted:
    """By a rank, since ranks last compared: what fields and Globals were ``given``, and what was ``begun``, by name. Of
    each name there is one digest of all, however far the next comparison is."""

    def __init__(self) -> None:
        self.given: dict[str, GivenToRank] = {}
        self.begun: Recent[str, Begun] = Recent(MOST_BEGUN)

    def give(self, one: GivenToRank) -> None:
        if (before := self.given.get(one.name)) is not None:
            one = one._replace(digest=hashlib.sha256(f"{before.digest} {one.digest}".encode()).hexdigest())
        self.given[one.name] = one

    def begin(self, numbers: NumbersFromPython, plain: tuple[str, ...], often: str) -> None:
        """One digest of a few bytes, however many loops there are."""
        before = self.begun.get(numbers.of)
        now = hashlib.sha256(f"{numbers.key} {plain} {often}".encode() + (before.all if before else b""))
        self.begun.keep(numbers.of, Begun(numbers, plain, now.digest()))

    def digest(self) -> bytes:
        """Of all of it: zeros where there is nothing. Ranks may have noted it in other orders."""
        if not (self.given or self.begun):
            return bytes(DIGEST)
        begun = sorted([(name, one.all) for name, one in self.begun.items()])
        return hashlib.sha256(repr((sorted(self.given.values()), begun)).encode()).digest()[:DIGEST]

    def all(self) -> list[GivenToRank]:
        """What may be told: of programs the last numbers first, then those before."""
        last = [each for one in self.begun.values() for each in one.given()]
        before = [GivenToRank(one.numbers.told, "", SAME_NUMBERS, one.all.hex(),
                              "has run with other numbers, or more or less often,")
                  for one in self.begun.values()]  # fmt: skip
        return [*self.given.values(), *dict.fromkeys(last), *before]

    def clear(self) -> None:
        self.given.clear()
        self.begun.clear()


_noted = Noted()


def compare(world: World, given: Iterable[GivenToRank], when: str) -> None:
    """RankError where ranks have different things, or have noted such, which names the first, and two ranks; all must
    ask."""
    now = [*given]
    said = hashlib.sha256(repr(now).encode() + _noted.digest()).hexdigest()
    alike = len(set(world.allgathered(said, f"what it was given {when}"))) == 1
    mine = [] if alike else [*now, *_noted.all()]
    _noted.clear()
    if not alike:
        everybody = world.allgathered(mine, "what differs")
        raise RankError(next(filter(None, (difference(everybody[0], rank, theirs)
                                           for rank, theirs in enumerate(everybody))), SAME_SCRIPT))  # fmt: skip


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
    """The same of what was noted: one rank may have some that the other has not."""
    here, there = [*(Counter(first) - Counter(theirs))], [*(Counter(theirs) - Counter(first))]
    if not here and not there:
        return ""
    one = (here or there)[0]
    other = next((each for each in there if each.name == one.name), one._replace(said="", digest="-"))
    return _told(one, other, rank)


def _told(one: GivenToRank, other: GivenToRank, rank: int) -> str:
    """How what has the same name on both ranks differs."""
    if one.said != other.said and one.said and other.said:
        return f"{one.name} is {one.said} on rank 0, and {other.said} on rank {rank}: {one.hint}"
    return f"{one.name} {one.differs} on rank {rank} than on rank 0: {one.hint}"


def note(given: Iterable[GivenToRank]) -> None:
    """For the next comparison, which may be far. No rank waits for another."""
    for one in given:
        _noted.give(one)


def forget() -> None:
    """What was noted, which concerned ranks of before."""
    _noted.clear()


# ----- what goes along with messages --------------------------------------------------------------------------------
def with_digest(sent: np.ndarray) -> np.ndarray:
    """Bytes (n,) and behind them a digest of what this rank has noted, (n + DIGEST,)."""
    return np.concatenate([sent, np.frombuffer(_noted.digest(), np.uint8)])


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
    """Of a program, by its graph: those that kernels captured and fills set, which are part of their own ``graphs``,
    and those that were given to loops in place of Globals, by ``names``, each with the first loop that uses it; and the
    back end ``inside``, which runs it. ``of``: what the program is called, by its loops; ``told``, ``runs``: for
    messages."""

    def __init__(self, program: Dataflow, inside: Backend):
        self.graphs = (back_end(inside), *_graphs(program.operations))
        self.key = hashlib.sha256(repr(self.graphs).encode()).hexdigest()
        self.of = ", ".join(one.name for one in program.operations if not one.domain.is_call)
        self.told = f"loop {shorten(self.of, LONGEST)}"
        self.runs = f"runs {self.told}"
        plain = {each: uses[0] for each, uses in program.accesses.items() if isinstance(each, PlainNumber)}
        self.names = [(program.operations[use.position].name, each.name) for each, use in plain.items()]
        self._plain = [*plain]

    def note(self, often: str = "") -> None:
        """What they are now, where loops begin, and how ``often`` these are to run, for the next comparison; no rank
        waits for another."""
        _noted.begin(self, tuple([repr(each.latest) for each in self._plain]), often)


def back_end(inside: Backend) -> GivenToRank:
    """Who runs a loop, with the options that decide bits."""
    plain = " ".join(str(one) for one in inside.key if isinstance(one, str | bool))  # others are this process's own
    return GivenToRank("the back end", inside.name, SAME_BACK_END, plain, "has other options")


def _graphs(operations: Iterable[Operation]) -> Iterator[GivenToRank]:
    for one in (one for one in operations if not one.domain.is_call):
        said = hashlib.sha256(repr(one.graph.content).encode()).hexdigest()[:16]
        yield GivenToRank(f"loop {one.name}", "", SAME_NUMBERS, said, "computes with other numbers")
