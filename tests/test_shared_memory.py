"""Fields that lie in the same memory: however they came to it, no loop and no program takes them for two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml
from tests.one_line import one_line_from

N = 64
BACK_ENDS = ["numpy", "cpu", "emulated"]
CELLS = ml.Set(N, "cells")
NEXT = ml.Map(CELLS, CELLS, (np.arange(N)[:, None] + 1) % N, "next")


@ml.kernel
def shifted(a: ml.Read, b: ml.Write):
    b[...] = a[0] + 1.0


@ml.kernel
def doubled(a: ml.Read, b: ml.Write):
    b[...] = 2.0 * a


@ml.kernel
def compared(a: ml.Read, b: ml.Read, c: ml.Write):
    c[...] = a - b


Two = tuple[ml.Field, ml.Field]


def one_array() -> Two:
    array = np.arange(float(N))
    return CELLS.field("a", wrap=array), CELLS.field("b", wrap=array)


def overlapping_views() -> Two:
    array = np.arange(N + 8.0)
    return CELLS.field("a", wrap=array[:N]), CELLS.field("b", wrap=array[8:])


def a_view_of_the_other() -> Two:
    a = CELLS.field("a", data=np.arange(float(N)))
    return a, CELLS.field("b", wrap=a.view())


def the_memory_of_the_other() -> Two:
    a = CELLS.field("a", data=np.arange(float(N)))
    return a, CELLS.field("b", wrap=a.memory())


def by_dlpack() -> Two:
    a = CELLS.field("a", data=np.arange(float(N)))
    return a, CELLS.field("b", wrap=np.from_dlpack(a))


def by_the_array_interface() -> Two:
    class Other:
        def __init__(self, array: np.ndarray):
            self.kept, self.__array_interface__ = array, array.__array_interface__

    array = np.arange(float(N))
    return CELLS.field("a", wrap=array), CELLS.field("b", wrap=np.asarray(Other(array)))


def the_storage_of_the_other() -> Two:
    a, b = CELLS.field("a", data=np.arange(float(N))), CELLS.field("b")
    b.storage = a.storage
    return a, b


def of_another_type() -> Two:
    array = np.zeros(2 * N, np.float32)
    return CELLS.field("a", wrap=array[:N]), CELLS.field("b", wrap=array.view(np.float64))


WAYS: list[Callable[[], Two]] = [one_array, overlapping_views, a_view_of_the_other, the_memory_of_the_other, by_dlpack,
                                 by_the_array_interface, the_storage_of_the_other, of_another_type]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_loops_and_programs_refuse_two_fields_in_one_memory(back_end: str, way: Callable[[], Two]) -> None:
    ml.use(back_end)
    a, b = way()
    before, c = a.numpy().copy(), CELLS.field("c")
    same = "a and b lie in the same memory, and one of them is written; pass one field for both"
    with one_line_from(ml.errors.KernelError, f"kernel shifted: {same}"):
        shifted(CELLS, a[NEXT], b)
    with one_line_from(ml.errors.KernelError, f"kernel doubled: {same}"):
        doubled(CELLS, b, a)
    for fuse in (True, False):

        @ml.program(fuse=fuse)
        def step() -> None:
            doubled(CELLS, a, c)
            shifted(CELLS, c[NEXT], b)

        with one_line_from(ml.errors.ProgramError, f"program step: {same}"):
            step.run(2)
    assert np.array_equal(a.numpy(), before)  # nothing has run
    compared(CELLS, a, b, c)  # which writes neither
    assert np.array_equal(c.numpy(), a.numpy() - b.numpy())


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_loops_one_after_the_other_see_what_each_has_written(back_end: str) -> None:
    ml.use(back_end)
    a, b = one_array()
    c = CELLS.field("c")
    doubled(CELLS, a, c)
    shifted(CELLS, c[NEXT], b)
    assert np.array_equal(a.numpy(), np.roll(2.0 * np.arange(N), -1) + 1.0)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_parts_of_one_array_that_do_not_meet_are_two_fields(back_end: str) -> None:
    ml.use(back_end)
    array = np.arange(2.0 * N)
    a, b = CELLS.field("a", wrap=array[:N]), CELLS.field("b", wrap=array[N:])

    @ml.program
    def step() -> None:
        shifted(CELLS, a[NEXT], b)
        doubled(CELLS, b, a)

    step.run(1)
    assert np.array_equal(array[N:], np.roll(np.arange(N), -1) + 1.0) and np.array_equal(array[:N], 2.0 * array[N:])


def test_a_loop_that_is_ready_notices_that_its_fields_have_come_together() -> None:
    ml.use("cpu")
    a, b = CELLS.field("a", data=np.arange(float(N))), CELLS.field("b")
    loop = doubled.loop(CELLS, a, b)
    loop()
    doubled(CELLS, a, b)
    b.storage = a.storage
    for again in (loop, lambda: doubled(CELLS, a, b)):
        with one_line_from(ml.errors.KernelError, "a and b lie in the same memory"):
            again()


@pytest.mark.gpu
def test_arrays_of_a_device_that_overlap_are_refused() -> None:
    import cupy

    ml.use("cuda")
    array = cupy.arange(N + 8.0)
    a, b = CELLS.field("a", wrap=array[:N]), CELLS.field("b", wrap=array[8:])
    with one_line_from(ml.errors.KernelError, "a and b lie in the same memory"):
        doubled(CELLS, a, b)
