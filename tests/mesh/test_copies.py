"""What copy and pickle make of fields, sets, loops and programs: another one, itself, or one line."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import MeshloomError, ProgramError


@ml.kernel
def halved(u: ml.Read, out: ml.Write):
    out[...] = 0.5 * u


class World:
    def __init__(self) -> None:
        self.cells, self.grid = ml.Set(4, "cells", numbering=[2, 0, 3, 1]), ml.Grid((3, 3))
        self.mesh, self.next = ml.generate.box((2, 2)), ml.Map(self.cells, self.cells, [1, 2, 3, 0], "next")
        self.u, self.out = self.cells.field("u", 2, data=np.arange(8.0).reshape(4, 2)), self.cells.field("out", 2)
        self.total = ml.Global([1.0, 2.0], "total")
        self.loop = halved.loop(self.cells, self.u, self.out)
        self.program = ml.program(lambda: halved(self.cells, self.u, self.out))


@pytest.fixture
def world() -> World:
    ml.use("numpy")
    return World()


COPIES = [copy.copy, copy.deepcopy]


@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_field_has_the_same_values_and_its_own_memory(world: World, how: Callable, layout: str) -> None:
    world.u.relayout(layout)
    other = how(world.u)
    assert (other.set, other.name, other.dim, other.layout) == (world.cells, "u", 2, world.u.layout)
    halved(world.cells, other, world.u)
    np.testing.assert_array_equal(other.numpy(), np.arange(8.0).reshape(4, 2))
    np.testing.assert_array_equal(world.u.numpy(), 0.5 * np.arange(8.0).reshape(4, 2))
    other.relayout("aosoa2")  # loops with the first one need not notice
    np.testing.assert_array_equal(world.u.numpy(), 0.5 * np.arange(8.0).reshape(4, 2))


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_global_has_the_same_values(world: World, how: Callable) -> None:
    other = how(world.total)
    world.total.value = [5.0, 6.0]
    np.testing.assert_array_equal(other.value, [1.0, 2.0])
    assert how(ml.Global(3, "n", dtype=np.int32)).value == 3


def test_a_copy_keeps_what_a_field_is(world: World) -> None:
    between = world.cells.field("between", transient=True, dtype=np.float32)
    between.undefined_after = "step"
    other = copy.deepcopy(between)
    assert other.transient and other.layout_is_free and other.dtype == np.float32
    with pytest.raises(ProgramError, match="transient and has no values after program step"):
        other.numpy()


def test_copies_of_several_fit_together(world: World) -> None:
    """Fields in a container: the same field twice becomes one other field, and both are on the set that there is."""
    mine = {"u": world.u, "again": world.u, "out": world.out, "on": world.cells, "through": world.u[world.next]}
    other = copy.deepcopy(mine)
    assert other["u"] is other["again"] is other["through"].field is not world.u
    halved(other["on"], other["u"], other["out"])
    np.testing.assert_array_equal(other["out"].numpy(), 0.5 * world.u.numpy())
    assert not world.out.numpy().any()


CONSTANT: dict[str, Callable[[World], Any]] = {
    "a set": lambda w: w.cells, "a map": lambda w: w.next, "a mesh": lambda w: w.mesh, "a grid": lambda w: w.grid,
    "a box": lambda w: w.grid.inside, "offsets": lambda w: w.grid.star(), "a kernel": lambda w: halved,
}  # fmt: skip


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("what", CONSTANT)
def test_what_never_changes_is_its_own_copy(world: World, what: str, how: Callable) -> None:
    assert how(CONSTANT[what](world)) is CONSTANT[what](world)


BOUND: dict[str, Callable[[World], Any]] = {
    "operation halved": lambda w: w.loop, "program <lambda>": lambda w: w.program
}  # fmt: skip


@pytest.mark.parametrize("how", [*COPIES, pickle.dumps])
@pytest.mark.parametrize("what", BOUND)
def test_loops_and_programs_are_not_copied(world: World, what: str, how: Callable) -> None:
    with pytest.raises(ProgramError, match=f"^{what} can be neither copied nor pickled.*make another one") as caught:
        how(BOUND[what](world))
    assert "\n" not in str(caught.value)


UNPICKLED = {"field u": lambda w: w.u, "global total": lambda w: w.total, "field u in a list": lambda w: [w.u],
             **{what: one for what, one in CONSTANT.items() if what != "a kernel"}}  # fmt: skip


@pytest.mark.parametrize("what", UNPICKLED)
def test_what_cannot_be_pickled_says_so_in_one_line(world: World, what: str) -> None:
    with pytest.raises(MeshloomError, match="cannot be pickled for a file or another process: send arrays") as caught:
        pickle.dumps(UNPICKLED[what](world))
    assert "\n" not in str(caught.value)


def test_kernels_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(halved)) is halved
