"""Versions of fields and globals: whatever changes values changes the version, for every public call there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.operation import replay
from meshloom.operation.weak_cache import loops_over
from tests.recorded_world import World, add, scale
from tests.test_recording import HARMLESS, RECORDED, REFUSED, Action

BACKENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
every_backend = pytest.mark.parametrize("backend", BACKENDS)
#: Besides the calls of the table of recordings: what only happens outside of programs, and views that are written to.
MORE: dict[str, Action] = {
    "Field.assign": lambda w: w.u.assign(np.arange(6.0) + 9.0),
    "Field.assign on a grid": lambda w: w.f.assign(np.ones(w.grid.shape)),
    "Field.relayout": lambda w: w.pair.relayout("aosoa4"),
    "Field.memory": lambda w: w.u.memory().fill(7.0),
    "Field.changed": lambda w: (w.u.storage.fill(7.0), w.u.changed()),
    "Global.value": lambda w: setattr(w.vector, "value", [4.0, 5.0, 6.0]),
    "Program.run": lambda w: ml.program(w.step).run(3, record=(w.total,)),
    "Program.repeat": lambda w: ml.program(w.step).repeat(until=w.total > 20.0, at_most=9),
    "Program of arguments": lambda w: [w.scaled(w.v, w.total), w.scaled(w.v, w.total), w.scaled(w.u, w.total)],
    "failing loop": lambda w: _failing(w),
}  # fmt: skip
READING: dict[str, Action] = {
    "numpy": lambda w: (w.u.numpy(), w.total.value, np.sum(w.u), w.f.saved(), w.grid.shaped(w.f)),
    "reading loop": lambda w: add(w.cells, w.cells.field("a"), w.cells.field("b")),
    "recording": lambda w: (w.inner.loops, w.inner.explain(), w.scaled.bind(w.u, w.total)),
    "no replay": lambda w: w.inner.run(0),
    "conditions": lambda w: bool(w.total < w.factor),
}


def _failing(w: World) -> None:
    """A call that ends half-way: nobody can say what is in the field."""
    scale(w.cells, w.u, w.factor, w.total)
    call = next(iter(loops_over(w.cells).calls.values()))
    execute = call.now.execute
    call.now = call.now._replace(execute=lambda: (execute(), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        scale(w.cells, w.u, w.factor, w.total)
    call.now = call.now._replace(execute=execute)


def stored(w: World) -> dict[str, ml.Field | ml.Global]:
    found = (w.u, w.v, w.pair, w.total, w.factor, w.vector, w.where, w.f, w.g, w.h, w.mesh.coordinates)
    return {one.name: one for one in found}


def contents(w: World) -> dict[str, bytes]:
    return {name: one.saved().tobytes() for name, one in stored(w).items()}


def versions(w: World) -> dict[str, int]:
    return {name: one.version for name, one in stored(w).items()}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = ml.backend()
    monkeypatch.chdir(tmp_path)
    yield
    ml.use(before)


def check(w: World, act: Callable[[], Any], *, twice: bool = True) -> set[str]:
    """The names of what changed: of all of it the version is a later one."""
    changed: set[str] = set()
    for _ in range(1 + twice):
        held, known = contents(w), versions(w)
        # not every call of the table makes sense outside of a program
        with suppress(MeshloomError, TypeError, ValueError, AttributeError), np.errstate(all="ignore"):
            act()
        now = {name for name, value in contents(w).items() if value != held[name]}
        assert all(versions(w)[name] > known[name] for name in now), now
        changed |= now
    return changed


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("name", RECORDED)
def test_what_changes_values_changes_the_version(name: str, backend: str) -> None:
    ml.use(backend)
    called, recorded = World(), World()
    assert check(called, lambda: RECORDED[name](called)), "nothing happens here"
    assert check(recorded, ml.program(lambda: RECORDED[name](recorded)).run), "nothing happens here"


@pytest.mark.slow
def test_so_does_every_other_public_call() -> None:
    ml.use("numpy")
    for act in (REFUSED | HARMLESS).values():
        w = World()
        check(w, lambda act=act, w=w: act(w), twice=False)  # type: ignore[misc]


@every_backend
@pytest.mark.parametrize("name", MORE)
def test_and_so_does_what_only_happens_outside_of_programs(name: str, backend: str) -> None:
    ml.use(backend)
    w = World()
    before = versions(w)
    changed = check(w, lambda: MORE[name](w), twice="changed" not in name)
    assert changed or name == "Field.relayout", "nothing happens here"
    assert versions(w) != before


@every_backend
@pytest.mark.parametrize("name", READING)
def test_reading_leaves_it_as_it_is(name: str, backend: str) -> None:
    ml.use(backend)
    w = World()
    w.step()
    w.inner.run()
    before = versions(w)
    READING[name](w)
    assert versions(w) == before


def test_a_run_is_one_write_and_versions_only_grow() -> None:
    ml.use("cpu")
    w = World()
    seen = [w.u.version]
    for times in (1, 5, 1):
        w.inner.run(times)
        seen.append(w.u.version)
    assert seen == sorted(set(seen)) and len({one.version for one in stored(w).values()}) == len(stored(w))
    with pytest.raises(AttributeError):
        w.u.version = 3  # type: ignore[misc]


# ----- what a replay needs at its start ------------------------------------------------------------------------------


class Scans:
    """u follows what flows along edges into r, which is 0 again at the end: fused, a replay takes that for granted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, r: Any = None):
        rng, self.scanned = np.random.default_rng(3), 0
        cells, edges = ml.Set(4000, "cells"), ml.Set(3999, "edges")
        ends = ml.Map(edges, cells, np.stack([np.arange(3999), np.arange(1, 4000)], axis=1), "ends")
        self.u = cells.field("u", data=rng.random(4000))
        self.r = cells.field("r") if r is None else cells.field("r", wrap=r)

        @ml.kernel
        def flow(u: ml.Read, r: ml.Inc):
            r[0] += u[1] - u[0]
            r[1] += u[0] - u[1]

        @ml.kernel
        def update(u: ml.ReadWrite, r: ml.ReadWrite):
            u += 0.1 * r
            r[...] = 0.0

        @ml.program
        def step() -> None:
            flow(edges, self.u[ends], self.r[ends])
            update(cells, self.u, self.r)

        def is_all(*given: Any) -> bool:
            self.scanned += 1
            return here(*given)

        here = replay._is_all
        monkeypatch.setattr(replay, "_is_all", is_all)
        self.step = step

    def of(self, act: Callable[[], object]) -> int:
        """How often memory is looked at."""
        self.scanned = 0
        act()
        return self.scanned


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_memory_is_looked_at_only_where_versions_do_not_tell(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use(backend)
    one = Scans(monkeypatch)
    assert one.of(lambda: one.step.run(2)) == 1, "nobody has written it before"
    assert [one.of(lambda: one.step.run(2)) for _ in range(3)] == [0, 0, 0]
    one.u.assign(np.ones(4000))
    assert one.of(one.step) == 0, "another field"
    one.r.assign(np.zeros(4000))
    assert [one.of(one.step) for _ in range(2)] == [1, 0]
    one.r.assign(np.ones(4000))
    expected = _by_hand(one, 1)
    assert one.of(one.step) == 1
    assert one.u.numpy() == pytest.approx(expected, abs=1e-14)
    assert one.of(one.step) == 0, "it ran loop by loop, and left what it should"


def _by_hand(one: Scans, steps: int) -> np.ndarray:
    """u after some steps, from what is there now."""
    flow = one.step.operations[0]
    ends, u, r = flow.maps[0].positions, one.u.numpy(), one.r.numpy()
    for _ in range(steps):
        np.add.at(r, ends, np.stack([u[ends[:, 1]] - u[ends[:, 0]], u[ends[:, 0]] - u[ends[:, 1]]], axis=1))
        u, r = u + 0.1 * r, np.zeros(4000)
    return u


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
@pytest.mark.parametrize("wraps", [False, True])
def test_memory_that_others_have_is_always_looked_at(
    backend: str, wraps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it may write at any time, without a word."""
    ml.use(backend)
    memory = np.zeros(4000)
    one = Scans(monkeypatch, memory if wraps else None)
    one.step.run(2)
    if not wraps:
        memory = one.r.memory()
    for _ in range(2):
        assert one.of(one.step) == 1
        memory[...] = 2.0
        expected = _by_hand(one, 3)
        assert one.of(lambda: one.step.run(3)) == 1
        assert one.u.numpy() == pytest.approx(expected, abs=1e-13)


def test_replays_that_did_not_end_leave_nothing_to_rely_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("cpu")
    one = Scans(monkeypatch)
    one.step.run(2)
    with monkeypatch.context() as broken:
        broken.setattr(replay.Replay, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one.step.run(2)
    assert [one.of(one.step) for _ in range(2)] == [1, 0]
