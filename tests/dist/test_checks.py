"""What ranks compare, without a launcher: ranks are threads, and their communicator is made of queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import attrgetter
from queue import Empty, Queue
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import meshloom as ml
from meshloom.dist import consistency, local
from meshloom.dist.array import DistributedArray
from meshloom.dist.checks import (
    CollectiveCall,
    absence,
    asked_to_check,
    difference,
    digest,
    poison,
    poisons_halos,
    seconds_to_wait,
)
from meshloom.dist.consistency import GivenToRank, compare
from meshloom.dist.halo import DistributedSet, distributed
from meshloom.dist.local import LocalSet, _local_set, distribution
from meshloom.dist.lower import stale_rows
from meshloom.dist.ownership import Link
from meshloom.dist.world import World
from meshloom.errors import MeshloomError, PlanError, RankError, UserError
from meshloom.process.ranks import alone
from meshloom.process.tracebacks import failing_line, running_line
from tests.dist.samples import Sample, samples
from tests.dist.simulated import Kind
from tests.one_line import one_line_from

SHORT = 0.2  # seconds that ranks wait here


class Queues:
    """What the threads of ``ranks`` share."""

    def __init__(self, ranks: int):
        self.size = ranks
        self.of: dict[tuple[int, int, int], Queue[Any]] = {
            (source, to, tag): Queue() for source in range(ranks) for to in range(ranks) for tag in range(4)
        }
        self.barrier = Barrier(ranks, timeout=30)


class FakeMPI:
    """As far as ``World`` uses MPI's module."""

    BYTE, ERR_TRUNCATE = Kind(1), 1

    class Exception(Exception):
        def Get_error_class(self) -> int:
            return FakeMPI.ERR_TRUNCATE if "truncated" in str(self) else 0

    class Status:
        count = 0

        def Get_count(self, of: Kind) -> int:
            return self.count // of.size if self.count % of.size == 0 else -1

        def Get_elements(self, of: Kind) -> int:
            return self.count

    class Request:
        @staticmethod
        def Waitall(requests: list[Leaving]) -> None: ...

    class Prequest:
        @staticmethod
        def Startall(requests: list[Leaving | Arriving]) -> None:
            for one in requests:
                one.start()

    @staticmethod
    def Is_finalized() -> bool:
        return False


@dataclass
class Sent:
    def wait(self) -> None: ...


@dataclass
class Leaving:
    start: Callable[[], object]

    def Free(self) -> None: ...


@dataclass
class Arriving(Leaving):
    queue: Queue[Any]
    memory: np.ndarray

    def Wait(self, status: FakeMPI.Status) -> None:
        message = self.queue.get(timeout=30)
        if message is None or len(message) > len(self.memory):
            raise FakeMPI.Exception("unknown error" if message is None else "message truncated")
        self.memory[: len(message)], status.count = message, len(message)


@dataclass
class Expected:
    queue: Queue[Any]

    def test(self) -> tuple[bool, Any]:
        try:
            return True, self.queue.get_nowait()
        except Empty:
            return False, None


@dataclass
class Communicator:
    """As far as ``World`` uses one, but for arrays."""

    queues: Queues
    rank: int

    def isend(self, note: Any, to: int, tag: int = 1) -> Sent:
        self.queues.of[self.rank, to, tag].put(note)
        return Sent()

    def irecv(self, source: int, tag: int = 1) -> Expected:
        return Expected(self.queues.of[source, self.rank, tag])

    def Send_init(self, message: list[Any], to: int) -> Leaving:
        return Leaving(lambda: self.isend(message[0].copy(), to, 0))

    def Recv_init(self, message: list[Any], source: int) -> Arriving:
        return Arriving(lambda: None, self.queues.of[source, self.rank, 0], message[0])

    def allgather(self, value: Any) -> list[Any]:
        others = [one for one in range(self.queues.size) if one != self.rank]
        for one in others:
            self.isend(value, one, 3)
        found = {one: self.queues.of[one, self.rank, 3].get(timeout=30) for one in others} | {self.rank: value}
        self.queues.barrier.wait()
        return [found[one] for one in range(self.queues.size)]

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]


@dataclass(frozen=True)
class Thread(World):
    """A rank that is a thread."""

    mpi = FakeMPI  # type: ignore[assignment]


def threads(ranks: int, patience: float = 20.0) -> list[Thread]:
    queues = Queues(ranks)
    both = [(Communicator(queues, rank), Communicator(queues, rank)) for rank in range(ranks)]
    return [Thread(rank, ranks, rank, ranks, both[rank][0], None, both[rank][1], patience) for rank in range(ranks)]


def on_all(ranks: list[Thread], work: Callable[[Thread], Any]) -> list[Any]:
    """What each finds, or its error."""

    def found(one: Thread) -> Any:
        try:
            return work(one)
        except MeshloomError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(found, ranks))


# ----- calls ----------------------------------------------------------------------------------------------------------
def test_calls_that_are_the_same_pass() -> None:
    ranks = threads(3)
    for _ in range(3):
        assert on_all(ranks, lambda one: one.check("gathers field u")) == [None] * 3
    assert on_all(threads(3, 0.0), lambda one: one.check(f"does {one.rank}")) == [None] * 3, "nobody asked for checks"


def test_calls_that_differ_are_named_in_the_same_words_by_both() -> None:
    said = on_all(threads(2), lambda one: one.check("gathers field v" if one.rank else "gathers field u"))
    assert all(isinstance(one, RankError) for one in said) and str(said[0]) == str(said[1])
    here = r"\S*test_checks\.py:\d+"
    with one_line_from(RankError, f"^rank 0 gathers field u at {here}, and rank 1 gathers field v at {here}: all"):
        raise said[0]


def exchange(one: Thread, other: int, sent: int, expected: int, what: str = "u") -> None:
    names = {other: f"halos of {what}"}
    messages = one.messages({other: np.zeros(sent, np.uint8)}, {other: np.zeros(expected, np.uint8)}, names)
    messages.start()
    messages.wait()


@pytest.mark.parametrize(("sent", "what", "line"), [
    (24, "u", "rank 1 exchanges halos of u: it sends 24 bytes to rank 0, which expects 16"),
    (16, "v", r"rank 0 exchanges halos of u at .*, and rank 1 exchanges halos of v at .*: all ranks must .*"),
])  # fmt: skip
def test_neighbours_compare_what_they_exchange(sent: int, what: str, line: str) -> None:
    """Rank 2 takes no part."""
    ranks = threads(3)
    said = on_all(ranks[:2], lambda one: exchange(one, 0, sent, 8, what) if one.rank else exchange(one, 1, 8, 16))
    assert all(isinstance(one, RankError) and re.fullmatch(line, str(one)) for one in said), said


@pytest.mark.parametrize(("message", "got"), [
    (16, ""), (8, "it gets 8 bytes from rank 1, and expects 16 bytes"), (0, "it gets 0 bytes from rank 1, .*"),
    (24, "it gets more from rank 1, and expects 16 bytes"),
])  # fmt: skip
def test_what_comes_is_as_long_as_it_should_be(message: int, got: str) -> None:
    """Where nobody asked for checks."""
    ranks = threads(2, 0.0)
    said = on_all(ranks, lambda one: exchange(one, 0, message, 8) if one.rank else exchange(one, 1, 8, 16))
    assert said[1] is None and (said[0] is None) == (not got)
    if got:
        with one_line_from(RankError, f"^rank 0 exchanges halos of u: {got}: all ranks must .*_CHECK_RANKS=1 names"):
            raise said[0]


def test_what_mpi_says_is_one_line() -> None:
    (one, _) = threads(2, 0.0)
    one._ranks.queues.of[1, 0, 0].put(None)
    with one_line_from(RankError, "^rank 0 exchanges halos of u with rank 1: MPI says 'unknown error': all ranks must"):
        exchange(one, 1, 8, 16)


def test_neighbours_of_one_need_not_be_those_of_another() -> None:
    """Rank 1 exchanges u and v with rank 0, and u alone with rank 2."""
    sizes = {0: {1: 16}, 1: {0: 16, 2: 8}, 2: {1: 8}}
    what = {16: "halos of u, v", 8: "halos of u"}

    def run(one: Thread) -> list[np.ndarray]:
        others = sizes[one.rank]
        sent, found = ({to: np.full(size, one.rank, np.uint8) for to, size in others.items()} for _ in range(2))
        messages = one.messages(sent, found, {other: what[size] for other, size in others.items()})
        messages.start()
        messages.wait()
        return [*found.values()]

    found = on_all(threads(3), run)
    assert [[part.tolist() for part in one] for one in found] == [[[1] * 16], [[0] * 16, [2] * 8], [[1] * 8]]


def test_what_is_gathered_is_part_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is checked before anything is sent."""
    asked: list[str] = []

    def check(self: World, does: str) -> None:
        asked.append(does)
        raise RankError("enough")

    monkeypatch.setattr(World, "check", check)
    (one, _) = threads(2)
    for call in (lambda: one.gathered(np.zeros((3, 2)), "field u"), lambda: one.allgathered(1, "numbers")):
        with pytest.raises(RankError):
            call()
    assert asked == ["gathers field u (float64, shape (2,) each)", "compares numbers"]


def test_who_does_not_come_is_named() -> None:
    ranks = threads(3, SHORT)
    said = on_all([ranks[0], ranks[2]], lambda one: one.check("gathers field u"))
    for one, rank in zip(said, (0, 2), strict=True):
        with one_line_from(RankError, rf"^rank {rank} gathers field u at .*, and rank 1 is not there after 0\.2 s"):
            raise one
    assert "rank 1 and rank 3 are not there after 5 s" in absence(0, CollectiveCall("gathers", ""), [1, 3], 5.0)


def test_the_line_that_is_named_may_differ() -> None:
    assert difference(0, CollectiveCall("gathers u", "a.py:1"), 1, CollectiveCall("gathers u", "a.py:9")) == ""
    assert difference(1, CollectiveCall("gathers u", ""), 0, CollectiveCall("ends", "a.py:9")).startswith(
        "rank 0 ends at a.py:9, and rank 1 gathers u: ")  # fmt: skip


@pytest.mark.parametrize(("call", "does"), [
    (lambda one, what: one.allgathered(1, what), "compares {}"),
    (lambda one, what: one.on_node(1, what), "tells its node {}"),
    (lambda one, what: one.of_first_on_node(1, what), "takes {} of the first of its node"),
    (lambda one, what: one.wait_for_node(what), "waits until its node has {}"),
    (lambda one, what: one.broadcast(1, what), "takes {} of rank 0"),
])  # fmt: skip
def test_calls_that_differ_exchange_no_values(call: Callable[[World, str], object], does: str) -> None:
    """Where nobody asked for checks: those that get them see what they are of."""
    ranks = [replace(one, _node=one._ranks) for one in threads(3, 0.0)]
    assert not any(isinstance(one, RankError) for one in on_all(ranks, lambda one: call(one, "b")))
    said = on_all(ranks, lambda one: call(one, "b" if one.rank == 2 else "a"))
    told = {str(one) for one in said if isinstance(one, RankError)}
    assert len(told) == 1 and isinstance(said[2], RankError)
    here = r"at \S+test_checks\.py:\d+"
    a, b = (re.escape(does.format(one)) for one in "ab")
    assert re.fullmatch(f"rank 0 {a} {here}, and rank 2 {b} {here}: all ranks must .* in the same order", *told)


@pytest.mark.parametrize("call", [lambda one: one.allgathered(1), lambda one: one.broadcast(1)])
def test_bytes_of_another_call_are_one_line(call: Callable[[World], object]) -> None:
    _, one = threads(2, 0.0)
    one._ranks.queues.barrier = Barrier(1)
    one._ranks.queues.of[0, 1, 3].put(b"no pickle")
    with one_line_from(RankError, "^rank 1 .*: it cannot read what comes: .*: all ranks must .*_CHECK_RANKS=1 names"):
        call(one)


@pytest.mark.parametrize("checks", [0.0, 20.0])
def test_no_other_rank_is_asked_for_what_one_does_for_others(checks: float) -> None:
    """They wait for that."""
    one, _ = threads(2, checks)
    one, row = replace(one, _node=one._ranks), np.zeros(1)
    calls: list[Callable[[], object]] = [
        lambda: one.allgathered(1), lambda: one.broadcast(1), lambda: one.on_node(1, "it"), lambda: one.largest(1),
        lambda: one.of_first_on_node(1, "it"), lambda: one.wait_for_node("it"), lambda: one.gathered(row),
        lambda: one.stacked(row), lambda: one.joined(row.view(np.uint8), [8, 8], "it"), lambda: exchange(one, 1, 8, 8),
        lambda: one.check("ends"),
    ]  # fmt: skip
    for call in calls:
        with alone(), one_line_from(RankError, "^rank 0 .* in what it does for others, which wait until it is done"):
            call()
    assert all(queue.empty() for queue in one._ranks.queues.of.values()), "nothing was sent"


@pytest.mark.parametrize(("said", "seconds"), [("", 0), ("0", 0), ("1", 60), ("7", 7), ("0.5", 60), ("2.5", 2.5)])
def test_how_long_ranks_wait(said: str, seconds: float) -> None:
    assert seconds_to_wait(asked_to_check({"MESHLOOM_CHECK_RANKS": f" {said} "})) == seconds
    assert seconds_to_wait(asked_to_check({})) == 0


@pytest.mark.parametrize("said", ["no", "-1", "yes", "inf", "nan"])
def test_how_long_ranks_wait_is_a_number(said: str) -> None:
    with one_line_from(UserError, f"^MESHLOOM_CHECK_RANKS must be 0 or more, got '{said}': "):
        seconds_to_wait(said)


def wrong_set() -> None:
    ml.Set(-1)


def test_the_users_line_is_found() -> None:
    """The innermost one that is not Meshloom's."""
    assert running_line().startswith(f"{__file__}:")
    with pytest.raises(UserError) as caught:
        wrong_set()
    assert failing_line(caught.value) == f"{__file__}:{wrong_set.__code__.co_firstlineno + 1}"
    assert failing_line(UserError("raised by nobody")) == ""


def test_exchange_lists_are_verified_where_ranks_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupted(*of: Any) -> dict[Any, DistributedSet]:
        sets = distributed(*of)
        for key, one in sets.items():
            if len(numbers := one.import_halo.receives.numbers):
                lists = replace(one.import_halo.receives, numbers=numbers[::-1].copy())
                sets[key] = replace(one, import_halo=replace(one.import_halo, receives=lists))
        return sets

    def cut(world: World) -> None:
        mesh = ml.generate.box((6, 4), cells="quad")
        distribution(world, [mesh.cells], {mesh.face_cells: False}).halos(mesh.cells)

    cut(threads(2)[0])
    monkeypatch.setattr(local, "distributed", corrupted)
    cut(threads(2, 0.0)[0])
    with one_line_from(PlanError, r"cells, import halo: rank 0 receives element \d+ from rank \d"):
        cut(threads(2)[0])


@settings(max_examples=40, deadline=None)
@given(samples())
def test_what_a_rank_sends_is_what_its_neighbour_expects(sample: Sample) -> None:
    """To the element and in the same order, by the rows that are exchanged."""
    for key, cut in distributed(sample.owner, sample.links, sample.ranks).items():
        parts = [_local_set(ml.Set(len(cut.owner), str(key)), cut, rank) for rank in range(sample.ranks)]
        sent, expected = ({(rank, other): part.here[rows].tolist() for rank, part in enumerate(parts)
                           for other, rows in zip(side(part).neighbours, side(part).rows, strict=True)}
                          for side in (attrgetter("sends"), attrgetter("receives")))  # fmt: skip
        assert sent == {(there, here): numbers for (here, there), numbers in expected.items()}


# ----- what was given -------------------------------------------------------------------------------------------------
FIRST = [GivenToRank("set cells", "of 4 elements", "the same mesh"),
         GivenToRank("field u", "of float64", "a start?", "abc")]  # fmt: skip


@pytest.mark.parametrize(("theirs", "line"), [
    ([FIRST[0]._replace(said="of 5 elements"), FIRST[1]],
     "set cells is of 4 elements on rank 0, and of 5 elements on rank 2: the same mesh"),
    ([FIRST[0], FIRST[1]._replace(digest="abd")], "field u was given other values on rank 2 than on rank 0: a start?"),
    ([FIRST[0], FIRST[1]._replace(name="field v")], "rank 0 uses field u where rank 2 uses field v: all ranks"),
    (FIRST[:1], "rank 0 uses field u before others do: all ranks must run the same script"),
    ([*FIRST, FIRST[0]], "rank 2 uses set cells before others do: all ranks must run the same script"),
])  # fmt: skip
def test_what_differs_is_named_on_all_ranks(theirs: list[GivenToRank], line: str) -> None:
    said = on_all(threads(3), lambda one: compare(one, theirs if one.rank == 2 else FIRST, "for a test"))
    assert len({str(one) for one in said}) == 1
    with one_line_from(RankError, f"^{line.replace('?', '.')}"):
        raise said[0]


def test_what_is_the_same_passes() -> None:
    assert on_all(threads(3), lambda one: compare(one, FIRST, "for a test")) == [None] * 3
    assert on_all(threads(2), consistency.compare_settings) == [None] * 2


def test_what_is_filled_waits_for_the_next_sum_and_what_is_assigned_does_not() -> None:
    """Also where the array moves, since more of its set is here."""
    with ml.using("numpy"):
        on = LocalSet.of(ml.Set(4, "rows"), np.arange(4), np.arange(4), 4)
        field = on.set.field("u")
        one = DistributedArray(field, on)
        assert one.given is None
        for give, noted in ((lambda: one.fill(2.0), True), (lambda: one.set(np.arange(4.0)), False)):
            give()
            assert one.given is not None and one.given.noted is noted and one.given.name == "field u"
            assert one.moved_to(on, field).given == one.given
        one.assign_owned(np.zeros((4, 1)))
        assert one.given is None, "which all ranks have put together"


def test_digests_tell_values_apart() -> None:
    values = np.random.default_rng(3).standard_normal(50)
    assert digest(values) == digest(values.copy()) != digest(values + 1e-12)
    assert digest(np.zeros(3)) == digest(np.zeros(3, np.int32)) == "zero" != digest(np.ones(3))
    for dtype in (np.float64, np.float32):  # of which one has another reciprocal
        assert digest(np.array([0.0, -0.0], dtype)) != digest(np.zeros(2, dtype))
        assert digest(np.array(-0.0, dtype)) != digest(np.array(0.0, dtype))


# ----- halos ----------------------------------------------------------------------------------------------------------
def part_of_line(rank: int) -> LocalSet:
    """Nine points of a line on three ranks, each of which reads both neighbours."""
    points = ml.Set(9, "points")
    rows = np.clip(np.arange(9)[:, None] + [-1, 1], 0, 8)
    owner = {points: np.repeat(np.arange(3), 3).astype(np.int32)}
    return _local_set(points, distributed(owner, [Link(points, points, rows)], 3)[points], rank)


def test_rows_of_layers_are_told_apart() -> None:
    on = part_of_line(1)
    assert on.here[stale_rows(on, ("exec", "import"))].tolist() == [2, 6]
    assert on.here[stale_rows(on, ("import",))].tolist() == [2, 6] and not len(stale_rows(on, ("exec",)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int64])
@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
def test_stale_rows_are_poisoned_and_others_are_not(dtype: type, layout: str) -> None:
    u = ml.Set(5, "points").field("u", 2, dtype=dtype, layout=layout, data=np.arange(10).reshape(5, 2))
    poison(u, np.array([0, 4]))
    found = u.numpy()
    assert np.array_equal(found[1:4], np.arange(2, 8).reshape(3, 2))
    others = found[[0, 4]]
    assert np.isnan(others).all() if np.dtype(dtype).kind == "f" else (others == np.iinfo(dtype).max).all()


def test_zero_poisons_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, asked in (("0", False), ("", False), ("1", True)):
        monkeypatch.setenv("MESHLOOM_POISON_HALOS", said)
        assert poisons_halos() == asked
