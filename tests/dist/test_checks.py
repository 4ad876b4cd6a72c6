"""What ranks compare, without a launcher: ranks are threads, and their communicator is made of queues."""

from __future__ import annotations

import _thread
import builtins
import io
import re
import subprocess
import sys
import threading
from _sitebuiltins import Quitter
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
from hypothesis import strategies as st

import meshloom as ml
from meshloom.dist import consistency, ending, local
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
from meshloom.process.ranks import Ended, alone
from meshloom.process.tracebacks import failing_line, running_line
from tests.dist.samples import Sample, samples
from tests.dist.simulated import Kind
from tests.one_line import one_line_from

SHORT = 0.2  # seconds that ranks wait here
LONG = 30.0  # seconds in which anything has come


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


# ----- errors ---------------------------------------------------------------------------------------------------------
def test_errors_that_nobody_catches_are_one_line(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Ours; of others the traceback is shown by whoever did so before."""
    seen: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    ending.watch(World)
    codes = []
    for error in (ml.errors.MeshError("a mesh"), ml.errors.RunError("a run"), RankError("rank 0"), ValueError("other"),
                  KeyboardInterrupt()):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            sys.excepthook(type(error), error, None)
        codes.append(ended.value.code)
    assert codes == [2, 1, 2, 1, 130] and [type(one) for one in seen] == [ValueError, KeyboardInterrupt]
    assert capfd.readouterr().err == "meshloom: a mesh\nmeshloom: a run\nmeshloom: rank 0\n"


def test_an_exit_that_is_caught_ends_nobody_and_one_that_is_not_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``sys.exit``, ``exit`` and ``quit``. Python reads the code of an exit from no frame, as a thread of C does."""
    arrived: Queue[tuple[str, int]] = Queue()

    class Last(World):
        def arrive(self, said: str, code: int, tell: object = None) -> Ended:
            arrived.put((said, code))
            return Ended(said, code)

    types_before, before = dict(SystemExit.__dict__), sys.exit
    monkeypatch.setattr(builtins, "quit", sys.exit, raising=False)
    unwatch = ending.watch_exit(lambda: Last(rank=1, size=2))
    try:
        for leave in (sys.exit, builtins.quit):
            for status, ends in ((3, [("ends with exit code 3", 3)]), (259, [("ends with exit code 3", 3)]),
                                 ("no such file", [("no such file", 1)]), (0, []), (None, [])):  # fmt: skip
                with pytest.raises(SystemExit) as caught:
                    leave(status)
                assert caught.value.code == status and arrived.empty(), "it may still be caught"
                _thread.start_new_thread(attrgetter("code"), (caught.value,))
                assert [arrived.get(timeout=LONG) for _ in ends] == ends
        assert arrived.empty()
        caught.value.code = 4
        assert caught.value.code == 4 and dict(SystemExit.__dict__) == types_before, "no type of Python's is changed"
    finally:
        unwatch()
    assert sys.exit is before and builtins.quit is before


#: What ``sys.exit`` may be given, as a script writes it.
GIVEN_TO_EXIT = [
    "0", "256", "-256", "2**40", "True", "False", "None", "3", "259", "-1", "2**63-1", "2**63", "2**64", "-2**63",
    "-2**63-1", "-10**5000", "''", "'a\\nb'", "0.0", "1.5", "()", "(3,)", "[]", "b''", "object",
    "type('', (int,), {})(256)", "type('', (), {'__eq__': lambda *_: True})",
    "type('', (), {'__str__': lambda _: 1 / 0})()",
]  # fmt: skip


@pytest.mark.parametrize("given", GIVEN_TO_EXIT)
def test_an_exit_is_an_error_of_all_ranks_where_python_ends_with_one(given: str) -> None:
    arrived: list[int] = []

    class Last(World):
        def arrive(self, said: str, code: int, tell: object = None) -> Ended:
            arrived.append(code)
            return Ended(said, code)

    alone = subprocess.run([sys.executable, "-c", f"import sys; sys.exit({given})"], capture_output=True).returncode
    status = eval(given)
    assert ending.exit_status(status) == alone
    ends = ending._exited(lambda: Last(rank=1, size=2), status)
    assert ends is status if alone == 0 else ends == alone
    assert arrived == [alone] * (alone != 0), "who ends without an error waits for nobody"


def test_an_exit_in_a_thread_ends_the_thread_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever waits for a thread of a pool has it there, and may end all ranks by it."""
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    arrived: Queue[int] = Queue()

    class Last(World):
        def arrive(self, said: str, code: int, tell: object = None) -> Ended:
            arrived.put(code)
            return Ended(said, code)

    unwatch = ending.watch_exit(lambda: Last(rank=1, size=2))
    try:
        for status in ((), (3,), ("no such file",)):
            thread = threading.Thread(target=sys.exit, args=status)
            thread.start()
            thread.join()
        assert capfd.readouterr().err == "" and arrived.empty()
        failing = threading.Thread(target=int, args=("no number",))
        failing.start()
        failing.join()
        assert capfd.readouterr().err.count("ValueError") == 1, "other errors are shown as ever"
        with ThreadPoolExecutor(1) as pool, pytest.raises(SystemExit) as caught:
            pool.submit(sys.exit, 3).result()
        assert caught.value.code == 3 and arrived.empty() and capfd.readouterr().err == ""
        _thread.start_new_thread(attrgetter("code"), (caught.value,))
        assert arrived.get(timeout=LONG) == 3
    finally:
        unwatch()
    assert threading.excepthook is threading.__excepthook__


def test_exits_of_a_script_stay_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of SystemExit that it has made, what it puts in the place of ours, and words by which ``exit`` is
    called."""

    class Own(SystemExit):
        pass

    monkeypatch.setattr(builtins, "exit", Quitter("exit", "Ctrl-D"), raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # which it closes
    unwatch = ending.watch_exit(World)
    try:
        with pytest.raises(Own):
            sys.exit(Own(3))
        with pytest.raises(SystemExit) as caught:
            builtins.exit(code=3)
        assert caught.value.code == 3
        monkeypatch.setattr(threading, "excepthook", print)
    finally:
        unwatch()
    assert threading.excepthook is print, "nobody else's is put back"


# ----- who tells ------------------------------------------------------------------------------------------------------
class Clock:
    """Time that passes as a test wants, and what ranks send meanwhile: (when it is there, from whom, to whom)."""

    def __init__(self, size: int, delay: float):
        self.now, self.size, self.delay, self.sent = 0.0, size, delay, list[tuple[float, int, int]]()

    def monotonic(self) -> float:
        return self.now


@dataclass
class Failing:
    """The communicator of one that has failed by itself."""

    rank: int
    clock: Clock

    @property
    def size(self) -> int:
        return self.clock.size

    def isend(self, value: int, to: int) -> None:
        self.clock.sent.append((self.clock.now + self.clock.delay, value, to))

    def _there(self) -> list[tuple[float, int, int]]:
        return [one for one in self.clock.sent if one[2] == self.rank and one[0] <= self.clock.now]

    def iprobe(self) -> bool:
        return bool(self._there())

    def recv(self) -> int:
        self.clock.sent.remove(one := self._there()[0])
        return one[1]


STEP = 0.01


def tellers(clock: Clock, come: dict[int, float], gone: frozenset[int], until: float) -> list[tuple[int, float]]:
    """Who tells its error, and when, of ranks that fail by themselves at some moments; some of them are ``gone`` when
    they have warned the others. Nobody is ended by it until the end."""
    asked = {rank: ending.when_to_tell(Failing(rank, clock)) for rank in come}
    told = []
    while clock.now < until:
        for rank in [rank for rank in asked if come[rank] <= clock.now]:
            if next(asked[rank], True):
                del asked[rank]
                told.append((rank, clock.now))
            elif rank in gone and any(sender == rank for _, sender, _ in clock.sent):
                del asked[rank]
        clock.now += STEP
    return told


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(2, 300), delay=st.floats(0.0, 0.2), spread=st.floats(0.0, 2.0))
def test_of_ranks_that_fail_by_themselves_one_tells(data: st.DataObject, size: int, delay: float, spread: float
                                                    ) -> None:  # fmt: skip
    """However many there are, at whatever moments, where a warning takes less than a fifth of a second: from then on
    nobody else tells anything for longer than it takes to end them all."""
    ranks = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=12, unique=True))
    come = {rank: data.draw(st.floats(0.0, spread)) for rank in ranks}
    clock = Clock(size, delay)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "time", clock)
        (first, when), *others = tellers(clock, come, frozenset(), min(come.values()) + 2 * ending.SECONDS - 0.5)
    assert not others, "told once"
    assert abs(when - min(come.values()) - ending.SECONDS) <= delay + 3 * STEP, "after three seconds"
    assert first in ranks


def test_of_ranks_that_fail_at_the_same_time_the_lowest_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(64, 0.1)
    monkeypatch.setattr(ending, "time", clock)
    assert [rank for rank, _ in tellers(clock, dict.fromkeys((17, 5, 9), 0.0), frozenset(), 5.0)] == [5]
    monkeypatch.setattr(ending, "time", clock := Clock(64, 0.1))
    assert not tellers(clock, dict.fromkeys(range(64), 0.0), frozenset(), 2.0) and not clock.sent, "all may yet come"


def test_where_the_one_that_would_tell_is_gone_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(64, 0.0)
    monkeypatch.setattr(ending, "time", clock)
    told = tellers(clock, {5: 0.0, 9: 0.1, 17: 0.1}, frozenset({5}), 3 * ending.SECONDS)
    assert {rank for rank, _ in told} == {9, 17} and all(when > 2 * ending.SECONDS for _, when in told)


@pytest.mark.parametrize(("kind", "line"), [(UserError, f"wrong ({__file__}:"), (RankError, "wrong")])
def test_lines_say_where_an_error_is(kind: type[UserError], line: str) -> None:
    """Ranks that disagree have their lines named already."""
    with pytest.raises(kind) as caught:
        raise kind("wrong")
    found = ending._line(caught.value)
    assert found.startswith(line) and (kind is UserError or found == line)


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
