"""What reaches compiled code is checked by type, size and place, and refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.translation_unit import Argument, check_arrays
from meshloom.errors import MeshError, MeshloomError, ProgramError, ScheduleError
from meshloom.native import ffi, runtime
from meshloom.native.tiles import tiles

BACK_ENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]


@ml.kernel
def grow(u: ml.ReadWrite, total: ml.Sum):
    u += 1.0
    total += u


class Steps:
    def __init__(self) -> None:
        self.cells = ml.Set(4, "cells")
        self.u, self.total = self.cells.field("u"), ml.Global(0.0, "total")
        self.unused, self.vector = ml.Global(7, "unused", dtype=np.int32), ml.Global([1.0, 2.0, 3.0], "vector")

        @ml.program
        def step() -> None:
            self.total.value = 0.0
            grow(self.cells, self.u, self.total)

        self.step = step


WRONG: dict[str, Callable[[Steps], Any]] = {
    "a field": lambda s: s.step.run(3, record=(s.u,)),
    "a field among globals": lambda s: s.step.run(3, record=[s.total, s.u]),
    "an argument": lambda s: s.step.run(3, record=(s.u.direct,)),
    "an array": lambda s: s.step.run(3, record=(np.zeros(3),)),
    "a number": lambda s: s.step.run(3, record=5),
    "a name": lambda s: s.step.run(3, record="total"),
    "one global": lambda s: s.step.run(3, record=s.total),
    "None": lambda s: s.step.run(3, record=None),
    "half a replay": lambda s: s.step.run(2.5),
    "a float": lambda s: s.step.run(3.0),
    "a bool": lambda s: s.step.run(True),
    "text": lambda s: s.step.run("3"),
    "negative": lambda s: s.step.run(-1),
    "beyond 64 bits": lambda s: s.step.run(2**64),
    "beyond memory": lambda s: s.step.run(2**40, record=(s.vector,)),
    "beyond memory in 32 bits": lambda s: s.step.run(2**47, record=(s.total, s.vector)),
}


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_run_cannot_take_is_refused_in_one_line(wrong: str, back_end: str) -> None:
    ml.use(back_end)
    steps = Steps()
    with pytest.raises((ProgramError, ScheduleError), match="program step") as caught:
        WRONG[wrong](steps)
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(steps.u.numpy(), 0.0)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_what_run_can_take(back_end: str) -> None:
    """Twice the same global, one that no loop uses, an iterator, counts of NumPy."""
    ml.use(back_end)
    steps = Steps()
    found = steps.step.run(np.int64(2), record=iter([steps.total, steps.unused, steps.total, steps.vector]))
    np.testing.assert_array_equal(found, [[4, 7, 4, 1, 2, 3], [8, 7, 8, 1, 2, 3]])
    assert steps.step.run(np.uint8(1)).shape == (1, 0)


@pytest.mark.parametrize(
    "storage",
    [np.zeros(3), np.zeros(4, np.float32), np.zeros(8)[::2], np.zeros((2, 2)), [0.0] * 4, None,
     np.frombuffer(bytes(32)), np.zeros(4, ">f8"), np.zeros(33, np.uint8)[1:].view(np.float64)],
)  # fmt: skip
def test_a_buffer_that_does_not_fit_is_refused(storage: Any) -> None:
    steps = Steps()
    for stored in (steps.u, ml.Global(np.zeros(4), "vector")):
        kept = stored.storage
        with pytest.raises(MeshError, match="storage") as caught:
            stored.storage = storage
        assert "\n" not in str(caught.value) and stored.storage is kept


@pytest.mark.parametrize("back_end", ["numpy", "cpu", "emulated"])
def test_loops_and_programs_follow_to_another_buffer(back_end: str) -> None:
    ml.use(back_end)
    steps = Steps()
    for run in (steps.step.run, lambda: grow(steps.cells, steps.u, steps.total)):
        run()
        steps.u.storage = np.full(4, 10.0)
        run()
        np.testing.assert_array_equal(steps.u.numpy(), 11.0)


@pytest.mark.parametrize(
    "array", [np.zeros(8)[::2], np.zeros(2, ">f8"), np.array([None]), [1.0], np.zeros(9, np.uint8)[1:].view(np.float64)]
)
def test_operations_take_arrays_that_code_can_walk_through(array: Any) -> None:
    with pytest.raises(ScheduleError, match="compiled code takes") as caught:
        runtime.NativeCall(runtime.library().ml_fill_float64, [array], [1])
    assert "\n" not in str(caught.value)


def test_numbers_and_types_of_operations() -> None:
    zeros, cursor = np.zeros(4), np.zeros(1, np.int64)
    wrong: list[Callable[[], Any]] = [
        lambda: runtime.NativeCall(runtime.library().ml_fill_float64, [zeros], [2**63]),
        lambda: runtime.fill_operation(np.zeros(4, np.uint8), 1),
        lambda: runtime.record_operation(np.zeros(4, np.complex128), zeros, cursor, 4),
        lambda: runtime.record_operation(zeros, np.zeros(4, np.float32), cursor, 4),
        lambda: runtime.record_operation(zeros, zeros, cursor, 3),
        lambda: runtime.replay([runtime.fill_operation(zeros, 1.0)], 1, np.zeros(0), np.zeros(1, np.int64)),
        lambda: runtime.replay([], 1, np.zeros(0), np.zeros(1, np.int32)),
        lambda: runtime.replay([], 2**63, np.zeros(0), np.zeros(1, np.int64)),
        lambda: check_arrays("loop", [Argument("a", "double", True)], {"a": np.zeros(1, np.float32)}),
        lambda: ffi.call("tiles", "tiles_i32", 2**63),
        lambda: ffi.call("tiles", "tiles_i32", "text"),
        lambda: ffi.call("tiles", "tiles_i32", [zeros[::2]]),
        lambda: tiles(np.array([0, 2]), np.array([0, 9], np.int32), 2, 1, 4),
        lambda: tiles(np.array([0, 1]), np.array([0, 1], np.int32), 2, 1, 4),
        lambda: tiles(np.array([0, 2]), np.array([0, 1], np.int32), 2, 1, 0),
    ]
    for call in wrong:
        with pytest.raises(MeshloomError) as caught:
            call()
        assert "\n" not in str(caught.value)
