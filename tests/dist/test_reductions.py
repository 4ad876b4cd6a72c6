"""What ranks reduce: when it is put together, and whose elements count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.numpy import NumpyBackend
from meshloom.dist.backend import Ranks
from meshloom.dist.halo import EXEC, LAYERS
from meshloom.dist.lower import lowered
from meshloom.dist.validity import place_exchanges
from meshloom.dist.world import World
from tests.dist.simulated import functions, on_rank


@ml.kernel
def summed(u: ml.Read, total: ml.Sum):
    total += u


@ml.kernel
def highest(u: ml.Read, most: ml.Max):
    most[...] = u


@ml.kernel
def scaled(total: ml.Read, u: ml.ReadWrite):
    u[...] = u / total


def test_reductions_wait_for_each_other_until_somebody_looks() -> None:
    with ml.using("numpy"):
        things = ml.Set(8, "things")
        u, total, most, last = things.field("u"), *(ml.Global(0.0, name) for name in ("total", "most", "last"))

        def step() -> None:
            total.value = 0.0
            summed(things, u, total)
            highest(things, u, most)
            summed(things, u, total)
            scaled(things, total, u)
            summed(things, u, last)

        found = on_rank(step)
    messages = [[one.total.name for one in made.each] for made in functions(found)]
    assert messages == [["total", "most", "total"], ["last"]]
    names = [one.name for one in found.operations if not one.domain.all_memory]
    assert names == ["summed", "highest", "summed", "total, most of all ranks", "scaled", "summed", "last of all ranks"]
    assert "total, most of all ranks in one message" in found.summary
    begun = [one.name for one in found.operations if one.domain.all_memory]
    assert begun[:2] == ["total = 0", "total begun anew here"], "what is at first in a rank's part is nobody's business"


def test_a_reduction_that_nobody_looks_at_is_not_sent() -> None:
    """The airfoil's residual of the first of two stages, which the second sets anew."""
    with ml.using("numpy"):
        things = ml.Set(8, "things")
        u, total = things.field("u"), ml.Global(0.0, "total")

        def step() -> None:
            for _ in range(2):
                total.value = 0.0
                summed(things, u, total)

        names = [one.name for one in on_rank(step).operations if not one.domain.all_memory]
    assert names == ["summed", "summed", "total of all ranks"]


class There(np.ndarray):
    """Memory of its own."""


class Elsewhere(NumpyBackend):
    """Loops find values in other memory than where these are made, as on a GPU."""

    def place(self, storage: Any) -> Any:
        return storage if isinstance(storage, There) else storage.copy().view(There)

    zeros = place


@pytest.mark.parametrize("size", [8, 0])
def test_what_is_reduced_begins_where_the_loop_finds_it(size: int) -> None:
    """Also where no element is: a fill of memory that a loop by itself brings elsewhere afterwards would be lost."""
    with ml.using("numpy"):
        things = ml.Set(size, "things")
        u, most = things.field("u", data=np.full(size, -3.0)), ml.Global(-5.0, "most")
        graph = ml.program(lambda: highest(things, u, most)).dataflow
        found = lowered(graph, Ranks(Elsewhere(), World(0, 2))._here(graph.operations))
        for one in [one.prepare() for one in found.operations if not one.domain.is_call]:
            one()
    ((made,),) = [each.each for each in functions(found)]
    assert isinstance(made.here.storage, There)
    assert float(made.here.value) == (-3.0 if size else -np.inf)


def test_a_global_that_every_rank_computes_by_itself_is_known_before() -> None:
    """A loop over one element, which all ranks have, adds to what ranks have put together."""
    with ml.using("numpy"):
        things, clock = ml.Set(8, "things"), ml.Set(1, "clock")
        u, w, total = things.field("u"), clock.field("w"), ml.Global(0.0, "total")

        def step() -> None:
            summed(things, u, total)
            summed(clock, w, total)

        names = [one.name for one in on_rank(step).operations if not one.domain.all_memory]
    assert names == ["summed", "total of all ranks", "summed"]


@ml.kernel
def shared_out(x: ml.Read, to: ml.Inc, total: ml.Sum, least: ml.Min):
    to[0] += x
    to[1] += x
    total += x
    least[...] = x


def test_elements_of_others_count_for_nothing() -> None:
    """What every rank has of the sum, of loops that visit others' elements for what they write."""
    totals, leasts, visited = 0.0, [], 0
    for rank in range(3):
        with ml.using("numpy"):
            things, places = ml.Set(30, "things"), ml.Set(31, "places")
            ends = ml.Map(things, places, np.stack([np.arange(30), np.arange(1, 31)], axis=1), "ends")
            x, to = things.field("x", data=np.arange(30) - 40.0), places.field("to")
            found = on_rank(lambda: shared_out(things, x, to[ends], ml.Global(0.0), ml.Global(9.0)), rank, 3)  # noqa: B023
            for one in found.operations:
                if not one.domain.is_call:
                    one.prepare()()
                    visited += one.elements if one.name == "shared_out" else 0
        (both,) = functions(found)
        totals += float(both.each[0].here.value)
        leasts.append(float(both.each[1].here.value))
    assert visited > 30 and totals == np.sum(np.arange(30) - 40.0) and leasts[0] == -40.0 == min(leasts)
    assert len(set(leasts)) == 3, "each of its own"


def test_what_a_loop_that_reduces_writes_on_the_exec_halo_is_valid_there() -> None:
    with ml.using("numpy"):
        things, places = ml.Set(8, "things"), ml.Set(8, "places")
        ends = ml.Map(things, places, np.arange(8)[:, None].repeat(2, 1), "ends")
        x, y, to, total = things.field("x"), things.field("y"), places.field("to"), ml.Global(0.0)

        @ml.kernel
        def kept(x: ml.Read, y: ml.Write, total: ml.Sum):
            y[...] = 2.0 * x
            total += x

        def step() -> None:
            kept(things, x, y, total)
            shared_out(things, y, to[ends], ml.Global(0.0), ml.Global(0.0))

        found = place_exchanges(ml.program(step).dataflow, lambda field: LAYERS)
    assert not found.before and {one.name for one, _ in found.first} == {"x"} and (y, EXEC) in found.valid
