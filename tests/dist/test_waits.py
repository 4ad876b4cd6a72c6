"""Ranks that wait for each other for long say so, and who has come to its end tells those who wait for it; a replay
does nothing for that."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist import waits
from meshloom.dist.checks import CollectiveCall, seconds_till_told
from meshloom.dist.messages import PersistentMessages
from meshloom.dist.waits import Wait, Watch, wait_of
from meshloom.dist.world import World
from meshloom.errors import UserError
from tests.dist.launch import launched
from tests.dist.simulated import SECONDS, on_threads
from tests.dist.test_disagreement import HERE, MOVE
from tests.dist.test_explained import Row
from tests.one_line import one_line_from

SCRIPT = "tests.dist.on_ranks_wrong"


def prepared() -> tuple[Row, ml.Program]:
    row = Row()
    step = ml.program(row.step)
    step.run(1)
    return row, step


#: What a rank waits in, in words, and for whom, in a world of three of which it is the first.
CALLS: list[tuple[Callable[[World, Row, ml.Program], object], str, tuple[int, ...]]] = [
    (lambda here, row, step: row.u.numpy(), r"gathers field u \(float64, shape \(1,\) each\)", (1, 2)),
    (lambda here, row, step: step.run(1), "exchanges halos of u", (1,)),
    (lambda here, row, step: here.all_to_all([np.zeros(2)] * 3, "rows of a script"), "sends rows .*", (1, 2)),
    (lambda here, row, step: row.u.norm(), "gathers the parts of .* of all ranks .*", (1, 2)),
    (lambda here, row, step: here.gathered(np.zeros(3), "rows of a script"), "gathers rows of a script .*", (1, 2)),
    (lambda here, row, step: here.allgathered(0, "things"), "compares things", (1, 2)),
    (lambda here, row, step: here.broadcast(0, "a number"), "takes a number of rank 0", ()),
]


def seen(by: World, world: World, does: str) -> Wait | None:
    """What another rank waits in, once it does that; others run meanwhile."""
    end = time.monotonic() + SECONDS / 2
    while time.monotonic() < end:
        by.communicator._at.waits(lambda: time.sleep(1e-3))
        if (found := wait_of(world)) is not None and re.fullmatch(does, found.call.does):
            return found
    return None


@pytest.mark.parametrize(("call", "does", "others"), CALLS, ids=[re.sub(r"\W+", "_", one[1])[:24] for one in CALLS])
def test_a_wait_is_read_from_the_stack(call: Callable[..., object], does: str, others: tuple[int, ...]) -> None:
    """By a thread that never stops who waits: others look at rank 0 before they come."""
    worlds: dict[int, World] = {}

    def job(here: World) -> Wait | None:
        worlds[here.rank] = here
        row, step = prepared()
        row.u.norm()
        here.allgathered(0)
        found = seen(here, worlds[0], does) if here.rank == 1 else None
        call(here, row, step)
        assert wait_of(here) is None
        return found

    _, found, _ = on_threads(3, job)
    assert found is not None and re.fullmatch(does, found.call.does), found
    assert found.others == others and re.fullmatch(r"\S+test_waits.py:\d+", found.call.where)


@pytest.mark.parametrize("code", waits._READERS, ids=lambda one: one.co_qualname)
def test_who_has_only_just_been_called_does_not_wait_yet(code: CodeType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that looks may do so between any two steps of what it looks at."""

    def job(here: World) -> None:
        at = SimpleNamespace(_world=here, what={}) if "Messages" in code.co_qualname else here
        frame = SimpleNamespace(f_code=code, f_locals={"self": at}, f_back=None, f_lineno=1)
        monkeypatch.setattr(sys, "_current_frames", lambda: {1: frame})
        found = wait_of(here)
        assert (found is None) is (code is not PersistentMessages.wait.__code__), "which waits for all that was sent"

    on_threads(1, job)


def test_who_waits_for_its_node_waits_for_no_one_else() -> None:
    """Nor for anybody that is known, where a node has some of the ranks."""
    some, all_of, found = World(0, 4, 0, 2, "all"), World(0, 4, 0, 4, "all"), {"ranks": "node", "does": "tells"}
    assert waits._of_some(some, found) == ("tells", ())
    assert waits._of_some(all_of, found)[1] == waits._of_some(some, found | {"ranks": "all"})[1] == (1, 2, 3)


def test_a_replay_does_nothing_for_who_watches() -> None:
    """Nothing is counted or noted for it, and each exchange and each reduction is begun once."""

    def job(here: World) -> Counter[str]:
        _, step = prepared()
        step.run(2)
        begun, called = here.begun[0], Counter[str]()

        def profiled(frame: FrameType, event: str, of: object) -> None:
            if event == "call":
                called[frame.f_code.co_qualname] += 1

        sys.setprofile(profiled)
        try:
            step.run(5)
        finally:
            sys.setprofile(None)
        assert here.begun[0] == begun
        return called

    for found in on_threads(2, job):
        each = found["PersistentMessages.start"], found["PersistentMessages._wait"], found["World.stacked"]
        assert each == (5, 5, 5) and not any(name.startswith(("wait_of", "Watch")) for name in found)


# ----- the thread -----------------------------------------------------------------------------------------------------
class Notes:
    """What is asked of other ranks."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, CollectiveCall]] = []

    def isend(self, call: CollectiveCall, to: int) -> Any:
        self.asked.append((to, call))
        return SimpleNamespace(Test=lambda: True)


def watched(monkeypatch: pytest.MonkeyPatch, found: list[Wait | None], rank: int = 0, patience: float = 4.0
            ) -> tuple[list[str], list[int]]:  # fmt: skip
    """What a rank says, and whom it asks, where one look after the other finds this."""
    said, notes, looks = list[str](), Notes(), iter(found)
    monkeypatch.setattr(waits, "wait_of", lambda world: next(looks))
    monkeypatch.setattr(waits, "say", said.append)
    one = Watch(World(rank, 4), notes, patience)
    for now in range(len(found)):
        one.look(float(now))
    return said, [to for to, _ in notes.asked]


def waiting(number: int, others: tuple[int, ...] = (1, 2, 3)) -> Wait:
    return Wait(CollectiveCall("gathers field u", "a.py:4"), others, (number,))


LINE = ("meshloom: rank {} has waited for 4 s, and goes on waiting: it gathers field u at a.py:4;"
        " MESHLOOM_CHECK_RANKS=1 names who does not come")  # fmt: skip


def test_one_wait_is_told_once_and_those_who_are_waited_for_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    said, asked = watched(monkeypatch, [waiting(1)] * 9)
    assert said == [LINE.format(0)] and asked == [3, 1, 2, 3, 1, 2, 3]
    said, asked = watched(monkeypatch, [waiting(1, ())] * 9, rank=1)
    assert said == [LINE.format(1)] and not asked
    assert watched(monkeypatch, [waiting(1, (2,))] * 9, rank=2) == ([], [2] * 7), "others are as good"


def test_many_waits_are_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, [waiting(number // 2) for number in range(20)]) == ([], [])
    assert watched(monkeypatch, [None if number % 3 == 0 else waiting(1) for number in range(20)]) == ([], [])
    assert watched(monkeypatch, [waiting(1)] * 9, patience=0.0)[0] == []


def test_how_long_is_a_setting() -> None:
    values = {"": 60.0, "0": 0.0, "5": 5.0, "1.5": 1.5}
    assert {said: seconds_till_told({"MESHLOOM_LONG_WAIT": said}) for said in values} == values
    for said in ("soon", "-1", "nan", "inf"):
        with one_line_from(UserError, f"^MESHLOOM_LONG_WAIT must be 0 or more, got '{said}': 0 says nothing"):
            seconds_till_told({"MESHLOOM_LONG_WAIT": said})


# ----- the end of a script --------------------------------------------------------------------------------------------
def test_questions_of_what_is_over_are_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come at once at the end of a script; those that come later are answered."""
    now, told, call = [0.0], list[Any](), CollectiveCall("gathers field u", "a.py:4")
    monkeypatch.setattr(waits, "time", SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + 1.0)))  # fmt: skip
    monkeypatch.setattr(waits, "end_all", lambda notes, said, code, tell: told.append((said, code)))

    def ended(comes: float) -> list[Any]:
        now[0], coming = 0.0, [comes]
        monkeypatch.setattr(waits, "_questions", lambda notes: [(0, call) for at in coming if at == now[0]])
        notes = SimpleNamespace(Ibarrier=lambda: SimpleNamespace(Test=lambda: now[0] > 8.0))
        waits.until_all_end(World(1, 2), notes)
        return told

    assert not ended(1.0) and not ended(waits.STILL_UNDER_WAY)
    assert ended(waits.STILL_UNDER_WAY + 2.0) == [
        (f"rank 0 gathers field u at a.py:4, and rank 1 is at the end of its script: {MOVE}", 2)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line"),
    [("left_early", f"rank 0 gathers field rate .* at {HERE}, and rank 1 is at the end of its script: {MOVE}"),
     pytest.param("exit_raised", f"rank 0 gathers field rate .* at {HERE}, and rank 1 is at the end .*: {MOVE}",
                  marks=pytest.mark.slow),
     pytest.param("written_on_one", f"rank 0 .* at {HERE}, and rank 1 is at the end of its script: {MOVE}",
                  marks=pytest.mark.slow),
     pytest.param("one_step_more", f"rank 0 exchanges halos of u at {HERE}, and rank 1 is at the end .*: {MOVE}",
                  marks=pytest.mark.slow)],
)  # fmt: skip
def test_who_comes_to_its_end_tells_those_who_wait(name: str, line: str) -> None:
    done = launched(2, ["-m", SCRIPT, name], MESHLOOM_CHECK_RANKS="0")
    assert re.fullmatch(f"meshloom: {line}\n", done.stderr), done.stderr
    assert done.returncode == 2 and not done.stdout


@pytest.mark.slow
def test_a_rank_that_comes_late_is_told_and_waited_for() -> None:
    """Also where one is at its end long before the others."""
    done = launched(3, ["-m", SCRIPT, "late_by_seconds"], MESHLOOM_CHECK_RANKS="0", MESHLOOM_LONG_WAIT="3")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    said = f"meshloom: rank 0 has waited for 3 s, and goes on waiting: it gathers field rate .* at {HERE}; MESHLOOM.*"
    assert re.fullmatch(f"{said}\n", done.stderr), done.stderr


def test_no_thread_watches_where_there_is_one_process() -> None:
    assert not any(one.name == "waits of ranks" for one in threading.enumerate())
