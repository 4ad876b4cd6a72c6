"""Programs: replay equals calling, recorded assignments, history of globals, layouts that change underneath."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.base import Recording
from meshloom.backend.cpu import NativeRecording
from meshloom.errors import KernelError, ProgramError


@pytest.fixture(autouse=True, params=["numpy", "cpu"])
def back_end(request: pytest.FixtureRequest):
    before = ml.backend()
    ml.use(request.param)
    yield request.param
    ml.use(before)


@ml.kernel
def relax(u: ml.Read, out: ml.Inc):
    d = 0.25 * (u[1] - u[0])
    out[0] += d
    out[1] -= d


@ml.kernel
def apply(change: ml.ReadWrite, u: ml.ReadWrite, total: ml.Sum, biggest: ml.Max):
    u += change
    total += u @ u
    biggest[...] = np.max(np.abs(change))
    change[...] = 0.0


class Heat:
    """Something to step: values on cells that even out."""

    def __init__(self, layout: str = "aos"):
        self.mesh = ml.generate.box((20, 15))
        rng = np.random.default_rng(1)
        self.u = self.mesh.cells.field("u", 2, data=rng.random((300, 2)), layout=layout)
        self.change = self.mesh.cells.field("change", 2, layout=layout)
        self.total, self.biggest = ml.Global(0.0, "total"), ml.Global(0.0, "biggest")

    def step(self) -> None:
        faces = self.mesh.face_cells
        relax(self.mesh.faces, self.u[faces], self.change[faces])
        self.total.value = 0.0
        self.biggest.value = -np.inf
        apply(self.mesh.cells, self.change, self.u, self.total, self.biggest)


def test_replay_equals_calling() -> None:
    called, replayed = Heat(), Heat()
    history = []
    for _ in range(7):
        called.step()
        history.append((called.total.value, called.biggest.value))
    program = ml.program(fuse=False)(replayed.step)
    assert [o.name for o in program.loops] == ["relax", "total = 0", "biggest = -inf", "apply"]
    np.testing.assert_array_equal(replayed.u.numpy(), Heat().u.numpy())  # recording runs nothing
    recorded = program.run(7, record=(replayed.total, replayed.biggest))
    np.testing.assert_array_equal(recorded, history)
    np.testing.assert_array_equal(replayed.u.numpy(), called.u.numpy())
    assert [(o.name, o.calls) for o in program.loops if not o.domain.all_memory] == [("relax", 7), ("apply", 7)]
    assert all(o.seconds > 0 for o in program.loops if not o.domain.all_memory)


def test_zero_replays_and_split_replays() -> None:
    one, two = Heat(), Heat()
    a, b = ml.program(one.step), ml.program(two.step)
    assert a.run(0, record=(one.total,)).shape == (0, 1)
    a.run(6)
    b.run(2)
    b.run(4)
    np.testing.assert_array_equal(one.u.numpy(), two.u.numpy())


def test_a_layout_may_change_between_replays() -> None:
    one, two = Heat(), Heat()
    a, b = ml.program(one.step), ml.program(two.step)
    a.run(6)
    b.run(3)
    two.u.relayout("soa")
    two.change.relayout("aosoa4")
    b.run(3)
    np.testing.assert_allclose(two.u.numpy(), one.u.numpy(), rtol=1e-13)


def test_each_loop_can_be_called_by_itself() -> None:
    one, two = Heat(), Heat()
    program = ml.program(one.step)
    for operation in program.loops:
        operation()
    two.step()
    np.testing.assert_array_equal(one.u.numpy(), two.u.numpy())
    assert [w.name for w in program.loops[-1].writes] == ["change", "u", "total", "biggest"]


def test_explain_lists_every_loop() -> None:
    program = ml.program(fuse=False)(Heat().step)
    program.run(2)
    text = program.explain()
    assert text.count("relax over faces") == 1 and text.count("apply over cells") == 1
    assert re.findall(r"\((\d+) runs\)", text) == ["2", "2"], "both loops"


def test_wrong_use() -> None:
    with pytest.raises(KernelError, match="calls no kernel"):
        ml.program(lambda: None).run(1)
    heat = Heat()
    inner = ml.program(heat.step)
    with pytest.raises(ProgramError, match=r"replays must be a whole number from 0 to .*, got -1"):
        inner.run(-1)
    for wrong, words in ((heat.total, r"as in record=\(total,\), got a single one"), (heat.u, "got a single Field")):
        with pytest.raises(ProgramError, match=words):
            inner.run(1, record=wrong)
    vector = ml.Global(np.zeros(3), "vector")

    def sets_a_vector() -> None:
        vector.value = [1.0, 2.0, 3.0]

    with pytest.raises(ml.errors.MeshError, match="one number only"):
        ml.program(sets_a_vector).run(1)


@pytest.mark.parametrize("kept", [False, True], ids=["first run", "run again"])
@pytest.mark.parametrize("given", [False, True], ids=["alone", "with arguments"])
def test_too_little_memory_is_one_line(given: bool, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every program, whether it is made ready for this run or was for an earlier one."""
    cells = ml.Set(4, "cells")
    u, own = cells.field("u", data=1.0), ml.Map(cells, cells, np.arange(4)[:, None].repeat(2, 1), "own")
    program = ml.program((lambda u: relax(cells, u[own], u.like("out")[own])) if given else Heat().step)
    arguments = (u,) if given else ()
    for _ in range(kept):
        program.run(1, *arguments)

    def full(*_: Any) -> Any:
        raise MemoryError("no room")

    for one in (Recording, NativeRecording):
        monkeypatch.setattr(one, "run", full)
    with pytest.raises(ProgramError, match=r"not enough memory to run 3 times: no room"):
        program.run(3, *arguments)


@ml.kernel
def doubled(u: ml.Read, v: ml.Write):
    v[...] = 2.0 * u


def test_what_is_decided_between_two_runs_counts(back_end: str) -> None:
    """A program that is ready to run does so as it is decided now, not as it was when it was made ready."""
    cells = ml.Set(30, "cells")
    u, v, w = (cells.field(name, data=1.0) for name in "uvw")
    program = ml.program(lambda: [doubled(cells, one, other) for one, other in ((u, v), (v, w))][:0])
    program.run(2)
    program.fuse = False
    program.run(3)
    assert [one.calls for one in program.loops] == [3 if back_end == "cpu" else 5] * 2, "one by one, then"
    program.fuse = True
    program.run(2)
    assert [one.calls for one in program.loops] == [3 if back_end == "cpu" else 7] * 2


def test_a_schedule_that_is_given_between_two_runs_counts() -> None:
    heat = Heat()
    program = ml.Program(heat.step, fuse=False)
    program.run(2)
    loop = program.loops[0]
    loop.reschedule("color")
    program.run(2)
    assert loop.execution.launches is not None and loop.schedule.strategy == "color", "made ready anew"
