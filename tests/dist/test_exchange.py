"""Where the pass over the data-flow graph places exchanges: before whoever looks at stale halos, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.dist.array import DistributedArray
from meshloom.dist.exchange import Exchange, Parcel, Travelling, slices_of
from meshloom.dist.halo import EXEC, LAYERS
from meshloom.dist.local import LocalSet
from meshloom.dist.messages import PersistentMessages
from meshloom.dist.validity import Exchanges, place_exchanges
from meshloom.dist.world import World as Ranks
from meshloom.errors import RankError
from meshloom.operation.call import functions_of
from tests.dist.on_ranks_programs import World, at_once, averaged, back, flux, given, looked_at, moved, scaled, stored
from tests.dist.simulated import on_threads


def world() -> World:
    return next(one for one in map(World, range(20)) if len(one.cells) > 5)


def placed(step: Callable[[], None], layers: tuple[str, ...] = LAYERS) -> Exchanges:
    return place_exchanges(ml.program(step).dataflow, lambda field: layers)


def names(found: Exchanges) -> tuple[set[str], dict[int, list[str]]]:
    return {one.name for one, _ in found.first}, {at: [one.name for one in due] for at, due in found.before.items()}


def test_what_nobody_writes_is_asked_for_once() -> None:
    one = world()
    found = placed(lambda: at_once(one.faces, one.u[one.ends], one.w, one.r[one.ends]))
    assert names(found) == ({"u", "w"}, {})
    assert not found.valid


def test_what_is_written_is_exchanged_in_every_replay_with_all_that_is_due() -> None:
    one = world()

    def step() -> None:
        moved(one.cells, one.r, one.u)
        scaled(one.faces, one.f)
        back(one.cells, one.n[one.corners], one.r)
        at_once(one.faces, one.u[one.ends], one.w, one.r[one.ends])
        given(one.faces, one.f, one.u[one.ends])

    first, before = names(placed(step))
    assert before == {3: ["u"]} and first == {"f", "n", "w"}


def test_what_the_end_of_a_replay_has_exchanged_its_beginning_has() -> None:
    one = world()

    def step() -> None:
        flux(one.faces, one.u[one.ends], one.f)
        moved(one.cells, one.r, one.u)
        at_once(one.faces, one.u[one.ends], one.w, one.r[one.ends])

    assert names(placed(step)) == ({"u", "w"}, {2: ["u"]})


def test_what_is_computed_on_the_exec_halo_is_not_sent() -> None:
    """Through a field of the faces, which the cells then get."""
    one = world()

    def step() -> None:
        flux(one.faces, one.u[one.ends], one.t)
        scaled(one.faces, one.t)
        given(one.faces, one.t, one.r[one.ends])
        moved(one.cells, one.r, one.u)

    found = placed(step)
    assert names(found) == (set(), {0: ["u"]})
    assert (one.t, EXEC) in found.valid


def test_not_where_it_was_computed_from_what_is_old() -> None:
    one = world()

    def step() -> None:
        stored(one.cells, one.u, one.f[one.own_face])  # other ranks' faces
        scaled(one.faces, one.f)
        given(one.faces, one.f, one.r[one.ends])

    assert names(placed(step)) == ({"u"}, {2: ["f"]})


def test_what_is_claimed_rests_on_what_was_right_before() -> None:
    """A direct loop asks for nothing; what it leaves is valid on the exec halo where that of its input was."""
    one = world()
    found = placed(lambda: scaled(one.faces, one.f))
    assert names(found) == (set(), {})
    assert found.valid == {(one.f, EXEC): frozenset({(one.f, EXEC)})}


def test_fills_are_right_everywhere_and_reductions_leave_old_halos() -> None:
    one = world()

    def step() -> None:
        one.r.fill(1.0)
        at_once(one.faces, one.r[one.ends], one.w, one.u[one.ends])
        looked_at(one.cells, one.u, one.total, one.most)
        averaged(one.cells, one.u, one.n[one.corners])

    assert names(placed(step)) == ({"w"}, {3: ["u"]})


def test_layers_that_no_rank_has_are_never_exchanged() -> None:
    one = world()

    def step() -> None:
        averaged(one.cells, one.u, one.n[one.corners])
        moved(one.part, one.r, one.u)

    assert names(placed(step, layers=())) == (set(), {})
    assert names(placed(step)) == (set(), {0: ["u"]})


def test_random_programs_never_look_at_what_is_old() -> None:
    """Replayed by hand: which layers are valid, by the rules alone, at every operation of three replays."""
    for seed in range(40):
        one = World(seed)
        pieces, dice = one.pieces(), np.random.default_rng(seed)
        chosen = [pieces[k] for k in dice.integers(0, len(pieces), 6)]

        def step(chosen: list[Callable[[], None]] = chosen) -> None:
            for each in chosen:
                each()

        graph = ml.program(step).dataflow
        found = place_exchanges(graph, lambda field: LAYERS)
        fields = {one for one in graph.storages if isinstance(one, ml.Field)}
        stale = fields - {one for one, _ in found.first}  # on every halo
        for _ in range(3):
            for at, operation in enumerate(graph.operations):
                stale -= {*found.before.get(at, ())}
                reads = {o.storage for o in operation.operands if o.mode.reads and o.pattern.map is not None
                         and not o.pattern.as_member}  # fmt: skip
                assert not reads & stale, f"program {seed}, operation {at}"
                written = {w for w in operation.written if isinstance(w, ml.Field)}
                stale = stale - written if operation.domain.all_memory else stale | written


# ----- messages ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
@pytest.mark.parametrize("dim", [1, 3])
def test_rows_that_are_one_run_are_sent_by_slices(layout: str, dim: int) -> None:
    """And with the values of a message by indices, in its order; what comes is put where that is."""
    with ml.using("numpy"):
        on = LocalSet.of(ml.Set(12, "rows"), np.arange(12), np.arange(12), 12)
        field = on.set.field("u", dim, layout=layout, data=np.arange(12.0 * dim).reshape(12, dim))
        array = DistributedArray(field, on)
        array.set(field.storage)
        at, before = on.memory(field.layout, dim), array.local.unpacked()
        for rows in (np.arange(3, 9), np.array([4]), np.array([1, 3, 4])):
            one = Parcel.of(array, at[rows], current())
            runs = len(rows) == 1 or (len(rows) == 6 and (dim == 1 or layout != "aosoa4"))
            assert isinstance(one.places, tuple) == runs
            message = np.zeros(one.bytes, np.uint8)
            one.read(message)
            assert np.array_equal(message.view(float).reshape(-1, dim), before[rows])
            one.write((message.view(float) + 100.0).view(np.uint8), current())
            before[rows] += 100.0
            assert np.array_equal(array.local.unpacked(), before)
    assert slices_of(np.zeros((0, 3), np.int64)) is None


def stepped() -> ml.Program:
    """A program that has run once, and exchanges planes of u."""
    return stepped_field()[0]


def stepped_field() -> tuple[ml.Program, ml.Field]:
    """With u."""
    grid = ml.Grid((8, 5))
    u, v = (grid.field(name, 2, data=np.arange(80.0).reshape(8, 5, 2)) for name in "uv")
    near = grid.offsets((-1, 0), (1, 0))

    @ml.program
    def step() -> None:
        summed(grid.box((1, 0), (7, 5)), u[near], v)
        kept(grid, v, u)

    step.run(1)
    return step, u


def test_messages_of_planes_are_slices_and_their_memory_stays() -> None:
    def job(here: Ranks) -> None:
        step = stepped()
        made = [one for one in exchanges_in(step) if one.arrays[0].local.name == "u"]
        assert made and all(isinstance(parcel.places, tuple) for one in made
                            for side in (one._sends, one._receives) for parcels in side.values()
                            for parcel in parcels)  # fmt: skip
        used = memory_of(here)
        step.run(3)
        places = [place for one in used for place in one]
        assert len(places) == len({*places}) == 2 * len(made[0]._sends), "each message its own, made once"

    on_threads(3, job)


def test_a_time_loop_in_python_makes_no_requests_anew() -> None:
    """Each run begins with values that all ranks were given, whose halos are valid, and not sent."""

    def job(here: Ranks) -> None:
        (step, u), used = stepped_field(), memory_of(here)
        counts = []
        for number in range(4):
            u.fill(float(number))
            step.run(2)
            counts.append(len(used))
        assert counts[0] == counts[-1] > 0, counts

    on_threads(3, job)


def memory_of(here: Ranks) -> list[list[int]]:
    """Of the requests that are made from now on for each exchange: where in memory its messages lie, all in turn."""
    used, before = list[list[int]](), here.messages

    def messages(*sides: Any) -> PersistentMessages:
        used.append([one.ctypes.data for side in sides[:2] for one in side.values()])
        return before(*sides)

    object.__setattr__(here, "messages", messages)
    return used


def test_an_exchange_that_an_error_has_left_is_waited_for_before_its_memory_is_used_again() -> None:
    """Values are those of the last one."""

    def job(here: Ranks) -> None:
        step = stepped()
        (one,) = [one for one in exchanges_in(step) if one.arrays[0].local.name == "u"]
        one.start()
        one.arrays[0].local.fill(float(here.rank))
        one()
        rows = one.arrays[0].local.unpacked()
        halos = [rows[at].ravel().tolist() for at in one.arrays[0].on.receives.rows]
        assert halos == [[float(rank)] * 10 for rank in one.arrays[0].on.receives.neighbours]

    on_threads(3, job)


def test_an_exchange_that_an_error_has_left_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one begins anew, and waits for nothing of it."""

    def job(here: Ranks) -> None:
        (one,) = [one for one in exchanges_in(stepped()) if one.arrays[0].local.name == "u"]

        class Broken:
            def wait(self) -> None:
                raise RankError("on purpose")

        one._travels = Travelling(cast(PersistentMessages, Broken()), {}, None)
        with pytest.raises(RankError, match="on purpose"):
            one.start()
        one()

    on_threads(2, job)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_rows_of_all_ranks_have_their_type_and_shape(dtype: type) -> None:
    """As many of each rank as it has; none of rank 0."""
    found = on_threads(3, lambda here: here.gathered(np.full((here.rank, 2, 3), here.rank, dtype)))
    for rows in found:
        assert [one.shape for one in rows] == [(0, 2, 3), (1, 2, 3), (2, 2, 3)]
        assert all(one.dtype == dtype and (one == dtype(rank)).all() for rank, one in enumerate(rows))


@ml.kernel
def summed(u: ml.Read, v: ml.Write):
    for k in range(2):
        v[k] = u[-1, 0][k] + u[1, 0][k]


@ml.kernel
def kept(v: ml.Read, u: ml.Write):
    for k in range(2):
        u[k] = v[k]


def exchanges_in(program: ml.Program) -> list[Exchange]:
    """Those of a program that has run, in every replay."""
    (segment,) = program.segments
    assert segment.lowered is not None
    return [one.exchange for one in functions_of(segment.lowered.operations)]
