"""Programs inside programs, and recordings that fail."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshloomError, ProgramError
from meshloom.operation.fusion import program as fused_program
from meshloom.recording import recorder
from tests.recorded_world import World, scale


@pytest.fixture(params=["numpy", "cpu"])
def back_end(request: pytest.FixtureRequest) -> None:
    ml.use(request.param)


@pytest.mark.parametrize("ran_before", [False, True])
def test_an_inner_program_is_inlined(ran_before: bool, back_end: None) -> None:
    called, recorded = World(), World()
    if ran_before:
        recorded.inner.run(2)
        called.step()
        called.step()

    @ml.program
    def outer() -> None:
        recorded.inner()
        assert recorded.inner.run(2).shape == (2, 0)
        scale(recorded.cells, recorded.v, recorded.factor, recorded.total)

    assert [o.name for o in outer.loops] == 3 * ["scale", "v = 2", "spread"] + ["scale"]
    outer()
    for _ in range(3):
        called.step()
    scale(called.cells, called.v, called.factor, called.total)
    for a, b in zip(called.values(), recorded.values(), strict=True):
        np.testing.assert_array_equal(b, a)


def test_a_program_that_calls_itself_is_refused() -> None:
    world = World()
    programs: list[ml.Program] = []

    def first() -> None:
        world.step()
        programs[1]()

    programs += [ml.program(first), ml.program(lambda: programs[0]())]
    with pytest.raises(ProgramError, match="program first calls itself"):
        programs[0].run()
    programs[1] = ml.program(world.step)
    programs[0].run()  # it records anew
    assert len(programs[0].loops) == 6


def test_too_much_of_an_inner_program_is_refused() -> None:
    world = World()
    with pytest.raises(ProgramError, match="would become 3,000,000 operations, at most 100,000"):
        ml.program(lambda: world.inner.run(10**6)).run()


def test_a_recording_that_failed_is_made_anew() -> None:
    ml.use("numpy")
    world = World()
    fails = [True]

    def body() -> None:
        world.step()
        if fails[0]:
            raise RuntimeError("not yet")

    program = ml.program(body)
    with pytest.raises(RuntimeError):
        program.run()
    assert recorder.get() is None
    fails[0] = False
    program.run()
    assert len(program.loops) == 3
    other = World()
    other.step()
    np.testing.assert_array_equal(world.u.numpy(), other.u.numpy())


def test_a_global_is_no_truth_value() -> None:
    with pytest.raises(MeshloomError, match="neither true nor false"):
        bool(ml.Global(0.0))
    assert float(ml.Global(2.5)) == 2.5 and int(ml.Global(3)) == 3


def test_nothing_to_record_is_an_error_of_its_own() -> None:
    with pytest.raises(KernelError, match="calls no kernel"):
        ml.program(lambda: None)()


def test_steps_that_are_a_small_part_of_a_program_are_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing a stencil's results again could not save a tenth of forty steps: nobody tries."""
    ml.use("cpu")
    grid = ml.Grid((16, 12), periodic=True)
    u, at, fused = grid.field("u", data=np.ones((16, 12))), grid.star(1), list[int]()

    @ml.kernel
    def mean(u: ml.Read, v: ml.Write):
        v[...] = 0.5 * (u[1, 0] + u[0, -1])

    @ml.program
    def step():
        v = grid.field("v")
        mean(grid, u[at], v)
        mean(grid, v[at], u)

    original = fused_program._fused
    monkeypatch.setattr(fused_program, "_fused", lambda *given, **how: fused.append(1) or original(*given, **how))

    @ml.program
    def outer():
        step.run(40)

    outer.run(1)
    assert len(fused) == 1 and (u.numpy() == 1.0).all()
    assert any("it takes little of the program's time" in one for one in outer._fusion()[0].notes)
