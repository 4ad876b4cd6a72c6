"""How ranks end, without a launcher: errors that nobody catches, exits, and who of several tells."""

from __future__ import annotations

import _thread
import builtins
import io
import subprocess
import sys
import threading
from _sitebuiltins import Quitter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from queue import Queue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.dist import ending
from meshloom.dist.world import World
from meshloom.errors import RankError, UserError, interrupted
from meshloom.process.ranks import Ended

LONG = 30.0  # seconds in which anything has come


def test_errors_that_nobody_catches_are_one_line(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Ours; of others the traceback is shown by whoever did so before."""
    seen: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    ending.watch(World)
    codes = []
    for error in (ml.errors.MeshError("a mesh"), ml.errors.RunError("a run"), RankError("rank 0"), ValueError("other"),
                  KeyboardInterrupt(), interrupted("march of step: stopped after step 3", done=None)):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            sys.excepthook(type(error), error, None)
        codes.append(ended.value.code)
    assert codes == [2, 1, 2, 1, 130, 130] and [type(one) for one in seen] == [ValueError, KeyboardInterrupt]
    told = ["a mesh", "a run", "rank 0", "march of step: stopped after step 3"]
    assert capfd.readouterr().err == "".join(f"meshloom: {line}\n" for line in told)


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
