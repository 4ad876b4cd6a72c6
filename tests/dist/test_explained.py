"""What loops and programs say of themselves on a rank: of what it runs, with its own times, waiting for others apart.
No rank has to ask for another to hear it. Clocks are those of the tests."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import base
from meshloom.backend.base import Backend
from meshloom.dist import backend, lone_loop
from meshloom.dist.backend import Ranks
from meshloom.dist.lower import LocalProgram
from meshloom.dist.world import World
from meshloom.schedule.choice.explain import NOT_BY_ITSELF
from meshloom.target import CPU
from tests.dist.on_ranks import spread
from tests.dist.simulated import on_threads

LATE = 100.0  # seconds by which another rank comes late
ELEMENTS = 40


@ml.kernel
def taken(r: ml.Read, u: ml.ReadWrite, total: ml.Sum):
    u += r
    total += u * u


@ml.kernel
def halved(u: ml.Read, v: ml.Write):
    v[...] = 0.5 * u


class Row:
    """Elements between nodes in a row."""

    def __init__(self) -> None:
        self.between, self.nodes = ml.Set(ELEMENTS, "between"), ml.Set(ELEMENTS + 1, "nodes")
        near = np.stack([np.arange(ELEMENTS), np.arange(1, ELEMENTS + 1)], axis=1)
        self.ends = ml.Map(self.between, self.nodes, near, "ends")
        self.u = self.nodes.field("u", data=np.arange(ELEMENTS + 1.0))
        self.r, self.v, self.total = self.nodes.field("r"), self.nodes.field("v"), ml.Global(0.0, "total")

    def step(self) -> None:
        spread(self.between, self.u[self.ends], self.r[self.ends])
        taken(self.nodes, self.r, self.u, self.total)
        halved(self.nodes, self.u, self.v)


def figure(text: str, before: str, behind: str) -> float:
    """The number between two words."""
    found = re.search(rf"{before}([\d.e+-]+){behind}", text.replace(",", ""))
    assert found, text
    return float(found[1])


def test_a_loop_tells_its_own_work_and_waits_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation takes a millisecond; others come late to what is done before it, and compiling is no work."""
    now, ticks = [0.0], count()
    monkeypatch.setattr(lone_loop, "time", SimpleNamespace(perf_counter=lambda: now[0] + 1e-3 * next(ticks)))
    begin = LocalProgram.begin

    def late(self: LocalProgram) -> Any:
        now[0] += LATE
        return begin(self)

    monkeypatch.setattr(LocalProgram, "begin", late)

    def job(here: World) -> float:
        row = Row()
        loop = spread.loop(row.between, row.u[row.ends], row.r[row.ends])
        before = loop.explain()
        assert f"{ELEMENTS} elements" in before
        assert f"all this is of the whole mesh, of which rank {here.rank} of 2 runs a part" in before
        assert loop.seconds is None and before.count(NOT_BY_ITSELF) == 2
        for _ in range(3):
            loop()
        text = loop.explain()
        assert figure(text, r"spread over between: ", " elements") == ELEMENTS
        mine = figure(text, "runs: ", f" of {ELEMENTS} elements")
        assert "measured   1 ms (3 runs)" in text and loop.seconds == pytest.approx(1e-3)
        assert figure(text, "messages   ", r" ms \(3 runs\) besides") == pytest.approx(1e3 * LATE, rel=1.0)
        assert "halos      of u, exchanged before it" in text
        # of both ends of what runs here a value is read, and one is read and written
        assert figure(text, "compulsory ", " B") == pytest.approx(24 * (mine + 1) + 8 * mine)
        assert figure(text, r"runs\) ", " GB/s") == pytest.approx(1e-6 * (24 * (mine + 1) + 8 * mine), rel=1e-2)
        return mine

    assert ELEMENTS < sum(on_threads(2, job)) < ELEMENTS + 3, "elements at the cut are run by both"


def test_it_says_that_lists_are_made_again_where_a_map_is_given_other_indices() -> None:
    def job(here: World) -> None:
        row = Row()
        loop = spread.loop(row.between, row.u[row.ends], row.r[row.ends])
        loop()
        assert "lists" not in loop.explain()
        for times in ("once", "2 times"):
            row.ends.assign(row.ends.indices[::-1])
            loop()
            said = f"lists      of what is exchanged through {row.ends.name}: made again at each assign, {times} so far"
            assert said in loop.explain()

    on_threads(2, job)


def test_a_loop_of_which_a_rank_has_nothing_says_so() -> None:
    def job(here: World) -> str:
        grid = ml.Grid((8, 3))
        loop = halved.loop(grid.box((0, 0), (2, 3)), grid.field("u"), grid.field("v"))
        assert "all this is of the whole grid" in loop.explain()
        loop()
        return loop.explain()

    first, second = on_threads(2, job)
    assert "rank 0 of 2 runs: 6 of 6 elements" in first
    assert "rank 1 of 2 has nothing of it to run" in second and "measured" not in second


@pytest.mark.parametrize("name", ["numpy", "cpu"])
def test_a_program_tells_what_this_rank_runs_with_times(name: str) -> None:
    """Before it has run that nobody knows that yet; then exchanges, loops or what they have become, and reductions."""

    def job(here: World) -> str:
        row = Row()
        step = ml.program(row.step)
        before = step.explain()
        assert before.startswith("exchanges, and what this rank runs: not yet: run the program, then ask again\n")
        assert before.count("all this is of the whole mesh") == 3
        step.run(4)
        return step.explain()

    for rank, text in enumerate(on_threads(2, job, name)):
        assert text.startswith(f"on rank {rank} of 2, each replay"), text
        assert "not yet" not in text and "whole mesh" not in text
        (exchanged,) = (line for line in text.splitlines() if line.startswith("exchange of u"))
        assert f"with rank {1 - rank}" in exchanged and exchanged.endswith("(4 runs), waiting included")
        (summed,) = (line for line in text.splitlines() if line.startswith("total of all ranks"))
        assert summed.endswith("(4 runs), waiting included")
        if name == "numpy":
            assert text.count("ms (4 runs), ") == 3 + 2, text
        else:
            (fused,) = (line for line in text.splitlines() if "taken+halved" in line)
            assert "; measured " in fused and text.count("not by itself") >= 2, text


def test_copying_is_measured_by_communicator_of_a_node_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank by itself, to which others need not come, tells what they have measured so far, and measures nothing."""
    asked: list[int] = []
    monkeypatch.setattr(backend, "copy_bandwidth", lambda threads: asked.append(threads) or 2e9)

    def job(rank: World) -> list[float]:
        here = replace(rank, _node=rank.communicator)
        over = Ranks(cast(Backend, SimpleNamespace(copied_among_ranks=None, key=(), name="cpu", target=CPU)), here)
        begun = here.begun[0]
        found = [over.copy_bandwidth() for _ in range(2)]
        assert here.begun[0] == begun + 1, "they begin together, once"
        return found

    assert on_threads(2, job) == [[2e9, 2e9]] * 2 and len(asked) == 2
    ten = ml.Set(10, "ten")
    loop = halved.loop(ten, ten.field("u"), ten.field("v"))
    loop()
    assert " of copy (" in loop.explain()
    monkeypatch.setattr(base, "ranks", lambda: SimpleNamespace(size=2))
    monkeypatch.setattr(type(loop.backend), "copy_bandwidth", None)
    assert " GB/s of compulsory bytes" in loop.explain() and "of copy" not in loop.explain()
    monkeypatch.setattr(loop.backend, "copied_among_ranks", 1e9, raising=False)
    assert "of copy (1 GB/s)" in loop.explain()
