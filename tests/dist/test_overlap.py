"""What runs on a rank between messages: few of these, loops that do not wait for them, and the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.dist import exchange, lower, overlap
from meshloom.dist.backend import Ranks
from meshloom.dist.exchange import Exchange, Travelling
from meshloom.dist.halo import LAYERS
from meshloom.dist.lower import LocalProgram, slabs_of
from meshloom.dist.messages import PersistentMessages
from meshloom.dist.overlap import BlockingExchange, ExchangeEnd, ExchangePoll, ExchangeStart
from meshloom.dist.slabs import PlaneStep, slabs
from meshloom.dist.validity import place_exchanges
from meshloom.dist.world import World
from meshloom.operation.operation import Operation
from meshloom.target.numbers import MessageNumbers
from tests.dist import on_ranks_overlap
from tests.dist.launch import over_ranks
from tests.dist.on_ranks import digest
from tests.dist.on_ranks_overlap import FREE
from tests.dist.simulated import Library, Status, functions, on_rank
from tests.dist.test_ranks import ran
from tests.dist.test_reductions import scaled, summed

MODULE, QUICK = "tests.dist.on_ranks_overlap", ("in turn", "lines", "reductions")


@cache
def alone(backend: str) -> dict[str, Any]:
    return ran(backend, None, MODULE)


@over_ranks(["numpy", "cpu"], [4, 2, 3])
def test_any_number_of_ranks_gives_the_same_bits(backend: str, ranks: int) -> None:
    assert ran(backend, ranks, MODULE) == alone(backend)


@pytest.mark.slow
def test_so_do_kernels_of_cuda() -> None:
    some = ("in turn", "lines", "reductions")
    assert ran("emulated", 3, MODULE, *some) == ran("emulated", None, MODULE, *some)


def test_some_of_it_on_two_ranks() -> None:
    with ml.using("numpy", reproducible=True):
        found = {name: digest(on_ranks_overlap.RUNS[name]()) for name in QUICK}
    assert len(set(found.values())) == len(QUICK)
    assert ran("numpy", 2, MODULE, *QUICK) == found


def run_freely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be cut is, and polled, too."""
    monkeypatch.setattr(overlap, "message_numbers", lambda: FREE)
    monkeypatch.setattr(overlap, "across_nodes", lambda: True)


# ----- planes of grids --------------------------------------------------------------------------------------------
@ml.kernel
def star(u: ml.Read, v: ml.Write):
    values: Any = u
    v[...] = values[-1, 0] + values[0, 0] + values[1, 0]


@ml.kernel
def taken(v: ml.Read, u: ml.Write):
    u[...] = v


def stepping(shape: tuple[int, int], periodic: bool, ghosts: int) -> Callable[[], None]:
    grid = ml.Grid(shape, periodic=(periodic, False), ghosts=(ghosts, 0))
    u, v = grid.field("u"), grid.field("v")

    def step() -> None:
        ml.fill_ghosts(u)
        star(grid, u[grid.offsets((-1, 0), (0, 0), (1, 0))], v)
        taken(grid, v, u)

    return step


@pytest.mark.parametrize("periodic", [False, True])
def test_ghosts_are_filled_without_an_exchange_of_their_own(periodic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond closed ends from what the rank there has; around a periodic one by that which stencils need anyway: no
    rank has copies of ghosts of the whole."""
    monkeypatch.setattr(lower, "world", lambda: World(0, 3))
    with ml.using("numpy"):
        graph = ml.program(stepping((12, 4), periodic, 2)).dataflow
        Ranks(current(), World(0, 3))._here(graph.operations)
        found = place_exchanges(graph, lambda field: LAYERS, slabs_of)
    first = next(k for k, one in enumerate(graph.operations) if periodic or one.name == "star")
    assert {at: [one.name for one in due] for at, due in found.before.items()} == {first: ["u"]}


def test_planes_that_are_seen_and_copied() -> None:
    grid = ml.Grid((12, 4), ghosts=(2, 0))
    cut = slabs(World(1, 3), grid, [PlaneStep(0, 12, 1), PlaneStep(0, 12, -1)])
    box = grid.box
    assert cut.looks_beyond(None, grid.offsets((0, 0), (1, 0))) and not cut.looks_beyond(None, grid.offsets((0, 1)))
    assert not cut.looks_beyond(box((0, 0), (3, 4)), grid.offsets((1, 0))), "into the slab itself"
    assert cut.looks_beyond(box((0, 0), (4, 4)), grid.offsets((1, 0))) and not cut.looks_beyond(None, None)
    copied = [k for k in range(-2, 14) if cut.has_copies(box((k, 0), (k + 1, 4)))]
    assert copied == [3, 4, 7, 8] and cut.has_copies(None)


# ----- while messages travel --------------------------------------------------------------------------------------
def loops_of(found: LocalProgram) -> list[tuple[str, tuple[int, int] | None]]:
    """Names and planes of what runs, in order; of calls, names alone."""
    return [(one.name, None if one.box is None else (one.box.low[0], one.box.high[0])) for one in found.operations]


def test_cores_run_before_messages_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle one of three slabs of four planes: what follows a stencil runs on what waits for no rim."""
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    run_freely(monkeypatch)
    with ml.using("numpy"):
        found = on_rank(stepping((18, 4), False, 1), 1, 3)
        core, rims = (1, 5), [(0, 1), (5, 6)]
        later, their = (2, 4), [(0, 2), (4, 6)]
        assert loops_of(found) == [
            ("exchange of u", None), ("star", core), ("poll of exchange of u", None), ("taken", later),
            ("end of exchange of u", None),
            *(("star", one) for one in rims), *(("taken", one) for one in their)]  # fmt: skip
        assert "with ranks 0 and 2: 64 B from here, overlapped with star, taken, polled once meanwhile" in found.summary
    start, poll, end = functions(found)
    assert isinstance(start, ExchangeStart) and isinstance(poll, ExchangePoll) and isinstance(end, ExchangeEnd)
    assert start.exchange is poll.exchange is end.exchange


@pytest.mark.parametrize("planes", [30, 12_000])
def test_planning_takes_as_many_graphs_for_any_number_of_planes(planes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the slab in the middle: one loop waits as a whole, and so do all behind it, whatever is left out of them."""
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    run_freely(monkeypatch)
    with ml.using("numpy"):
        grid = ml.Grid((planes, 4))
        u, v, w, source = grid.field("u"), grid.field("v"), grid.field("w"), ml.Random(seed=1)

        @ml.kernel
        def shaken(v: ml.ReadWrite, r: ml.Random):
            v += r.uniform()

        def step() -> None:
            star(grid.box((1, 0), (planes - 1, 4)), u[grid.offsets((-1, 0), (0, 0), (1, 0))], v)
            shaken(grid, v, source)
            for _ in range(3):
                taken(grid, v, w)
                taken(grid, w, v)
            taken(grid, v, u)

        counted = Counted(overlap.Dataflow)
        monkeypatch.setattr(overlap, "Dataflow", counted)
        found = on_rank(step, 1, 3)
    assert next(one for one in loops_of(found) if one[0] == "star") == ("star", (1, planes // 3 - 1))
    assert 0 < counted.times <= 5 + 3 * 9, (
        "one for all, and at most three for each loop, for objections, and what is found"
    )


class Counted:
    """What makes something, and how often it did."""

    def __init__(self, function: Callable[..., Any]):
        self.function, self.times = function, 0

    def __call__(self, *given: Any) -> Any:
        self.times += 1
        return self.function(*given)


def by_trying(exchange: Exchange, loops: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """What ``divided`` computes, by trying one plane after the other, with all that runs late."""
    halos = {one.local: list(overlap._halo(one.on)) for one in exchange.arrays}
    early, late = list[Operation](), list[Operation]()
    for one in loops:
        cores = [one]
        for planes in range(1, 0 if overlap._reason_whole(one) or one.box is None else one.box.high[0]):
            cores += filter(None, [overlap._narrower(one, overlap._ends(halos), planes)])
        core = next((core for core in cores if not list(overlap._conflicts(core, halos, late))), None)
        late += [one] if core is None else overlap._rim(one, core)
        early += [] if core is None else [core]
    return early, late


def boxes_of(operations: Sequence[Operation]) -> list[tuple[str, Any]]:
    return [(one.name, one.box and (one.box.low, one.box.high)) for one in operations]


@ml.kernel
def seen(u: ml.Read, v: ml.ReadWrite):
    values: Any = u
    v[...] = 0.5 * v + values[0, 0]


def random_calls(dice: np.random.Generator, grid: ml.Grid) -> Iterator[Callable[[], None]]:
    """Of kernels, for a program: stencils, copies, fills and sums."""
    fields, total = [grid.field(f"f{k}") for k in range(4)], ml.Global(0.0, "total")
    for kind in ("set", "read", *dice.choice(["read", "read", "read", "set", "fill", "sum"], 6)):
        a, b = (fields[k] for k in dice.permutation(4)[:2])
        low, high = dice.integers((3, 1), (8, 3)), dice.integers((26, 3), (34, 5))
        box = grid.box(tuple(map(int, low)), tuple(map(int, high)))
        if kind == "read":
            other = (int(dice.integers(-3, 4)), int(dice.integers(-1, 2)))
            yield partial(seen, box, a[grid.offsets(*dict.fromkeys([(0, 0), other]))], b)
        elif kind == "set":
            yield partial(taken, box if dice.random() < 0.5 else grid, a, b)
        elif kind == "fill":
            yield partial(b.fill, 1.0)
        else:
            yield partial(summed, grid, a, total)


def test_cores_are_those_that_trying_every_plane_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random loops over random boxes, with random offsets, fills, and loops that are not cut."""
    kinds = set[str]()

    def compared(exchange: Exchange, loops: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
        found, tried = overlap_divided(exchange, loops), by_trying(exchange, loops)
        assert tuple(map(boxes_of, found)) == tuple(map(boxes_of, tried)), [str(one) for one in loops]
        left_out = {one.name: one.box.size for one in found[1] if one.box is not None}
        kinds.update("cut" if one.box is not None and left_out.get(one.name, one.box.size) < one.box.size else "whole"
                     for one in loops)  # fmt: skip
        return found

    overlap_divided = overlap.divided
    monkeypatch.setattr(overlap, "divided", compared)
    run_freely(monkeypatch)
    for seed in range(60):
        monkeypatch.setattr(lower, "world", lambda rank=seed % 3: World(rank, 3))
        with ml.using("numpy"):
            calls = list(random_calls(np.random.default_rng(seed), ml.Grid((36, 5), periodic=(seed % 2 > 0, False))))

            def step(calls: Sequence[Callable[[], None]] = tuple(calls)) -> None:
                for each in calls:
                    each()

            on_rank(step, seed % 3, 3)
    assert kinds == {"cut", "whole"}


@ml.kernel
def beside(v: ml.Read, w: ml.Write):
    values: Any = v
    w[...] = values[0, -1] + values[0, 1]


def in_pieces() -> Callable[[], None]:
    """Two loops that are never one, as the second looks around at what the first writes, and one that is fused with
    the second."""
    grid = ml.Grid((18, 4))
    u, v, w, x = (grid.field(name) for name in "uvwx")
    box, near = grid.box((1, 1), (17, 3)), grid.offsets((-1, 0), (0, 0), (1, 0))

    def step() -> None:
        taken(grid, w, u)
        star(box, u[near], v)
        beside(box, v[grid.offsets((0, -1), (0, 1))], w)
        taken(box, w, x)

    return step


def test_messages_are_polled_between_loops_that_are_never_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    run_freely(monkeypatch)
    with ml.using("numpy"):
        found = on_rank(in_pieces(), 1, 3)
    names = [name for name, _ in loops_of(found)]
    assert names[:7] == ["taken", "exchange of u", "star", "poll of exchange of u", "beside", "taken",
                         "end of exchange of u"]  # fmt: skip
    assert "overlapped with star, beside, taken, polled once meanwhile" in found.summary


def test_ranks_of_one_node_are_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    monkeypatch.setattr(overlap, "message_numbers", lambda: FREE)
    monkeypatch.setattr(overlap, "world", lambda: World(1, 3, 1, 3))
    with ml.using("numpy"):
        found = on_rank(in_pieces(), 1, 3)
    assert [type(one) for one in functions(found)] == [ExchangeStart, ExchangeEnd]
    assert "overlapped with star, beside, taken" in found.summary and "polled" not in found.summary


@pytest.mark.parametrize(("cuts", "polls"), [(1.5, 0), (2.5, 1), (9.0, 1)])
def test_a_poll_costs_as_much_as_a_cut(cuts: float, polls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    monkeypatch.setattr(overlap, "message_numbers", lambda: MessageNumbers(1.0, 0.0, per_cut=1.0))
    monkeypatch.setattr(overlap, "across_nodes", lambda: True)
    monkeypatch.setattr(overlap, "_hidden", lambda exchange, early: cuts)
    with ml.using("numpy"):
        found = on_rank(in_pieces(), 1, 3)
    assert sum(isinstance(one, ExchangePoll) for one in functions(found)) == polls


def test_a_poll_asks_for_every_message_and_completes_none() -> None:
    """How long it was is known from the poll that finds it: MPI tells it to nobody else, as MPICH does."""

    class Request:
        asked, waited = 0, False

        def Free(self) -> None: ...

        def Get_status(self, status: Status) -> bool:
            status.bytes, self.asked = 0 if self.asked else 8, self.asked + 1
            return True

        def Wait(self, status: Status) -> None:
            self.waited, status.bytes = True, 0 if self.asked else 8

    class OneWorld(World):
        mpi = Library

    requests, exchange = [Request(), Request()], object.__new__(Exchange)
    messages = PersistentMessages(OneWorld(0, 2), {}, {1: np.zeros(8, np.uint8), 2: np.zeros(8, np.uint8)}, {})
    messages._requests.coming[:] = requests
    exchange._travels = Travelling(messages, {}, None)
    for _ in range(2):
        ExchangePoll(exchange)()
    assert [(one.asked, one.waited) for one in requests] == [(1, False)] * 2
    exchange.finish()
    assert [one.waited for one in requests] == [True] * 2


def test_what_does_not_pay_is_not_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    with ml.using("numpy"):
        found = on_rank(stepping((18, 4), False, 1), 1, 3)
    assert loops_of(found) == [("exchange of u", None), ("star", (0, 6)), ("taken", (0, 6))]
    (at_once,) = functions(found)
    assert (
        isinstance(at_once, BlockingExchange) and "not overlapped: to run star meanwhile hides at most" in found.summary
    )


def test_exchanges_that_are_alike_are_told_once() -> None:
    """By the ranks that they are with, and how often in a replay."""
    with ml.using("numpy"):
        once = stepping((18, 4), False, 1)

        def twice() -> None:
            once()
            once()

        said = on_rank(twice, 1, 3).summary
        assert said.startswith("exchange of u with ranks 0 and 2: 64 B from here, ") and said.endswith(" (2 times)")
        assert said.count("exchange of u") == 1
        assert "times)" not in on_rank(once, 1, 3).summary


@pytest.mark.parametrize(("ranks", "words"), [
    ([], "no rank: 0 B"), ([1], "rank 1: 0 B"), ([0, 2], "ranks 0 and 2: 0 B"), ([1, 2, 12], "ranks 1, 2 and 12: 0 B")
])  # fmt: skip
def test_the_ranks_of_an_exchange_are_told_apart_from_its_size(
    monkeypatch: pytest.MonkeyPatch, ranks: list[int], words: str
) -> None:
    monkeypatch.setattr(exchange, "neighbours", lambda arrays: ranks)
    assert exchange.traffic([]) == f"with {words} from here"


def test_reductions_draws_and_temporaries_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "world", lambda: World(1, 3))
    run_freely(monkeypatch)
    with ml.using("numpy"):
        grid = ml.Grid((18, 4))
        u, v, total = grid.field("u"), grid.field("v"), ml.Global(0.0, "total")
        near = grid.offsets((-1, 0), (0, 0), (1, 0))
        inside = grid.box((1, 0), (17, 4))

        @ml.kernel
        def counted(u: ml.Read, total: ml.Sum):
            total += u[-1, 0] * u[1, 0]

        def sums() -> None:
            taken(grid, v, u)
            counted(inside, u[grid.offsets((-1, 0), (1, 0))], total)

        found = on_rank(sums, 1, 3)
        assert "not overlapped: counted waits for it, and is not cut: it reduces to a Global" in found.summary

        @ml.kernel
        def shaken(u: ml.Read, v: ml.Write, r: ml.Random):
            v[...] = u[-1, 0] + u[1, 0] * r.uniform()

        def draws() -> None:
            taken(grid, v, u)
            shaken(inside, u[grid.offsets((-1, 0), (1, 0))], v, source)

        source = ml.Random(seed=1)
        assert "and is not cut: it draws random numbers" in on_rank(draws, 1, 3).summary

        def by_temporary() -> None:
            t = grid.field("t")
            taken(grid, v, u)
            star(inside, u[near], t)
            taken(inside, t, v)

        assert "not overlapped: temporary fields" in on_rank(by_temporary, 1, 3).summary


def test_loops_over_sets_that_do_not_wait_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a whole; those that depend on one that waits do not."""
    run_freely(monkeypatch)
    with ml.using("numpy"):
        things, places = ml.Set(8, "things"), ml.Set(8, "places")
        ends = ml.Map(things, places, np.stack([np.arange(8), (np.arange(8) + 1) % 8], axis=1), "ends")
        x, y, z, r = places.field("x"), things.field("y"), places.field("z"), places.field("r")
        own, w = things.field("own"), things.field("w")

        @ml.kernel
        def looked(x: ml.Read, y: ml.Write):
            y[...] = x[0] - x[1]

        def step() -> None:
            taken(places, z, x)
            looked(things, x[ends], y)
            taken(places, z, r)
            taken(things, y, w)
            doubled(things, own)

        names = [one.name for one in on_rank(step).operations]
    assert names == ["taken", "exchange of x", "taken", "poll of exchange of x", "doubled", "end of exchange of x",
                     "looked", "taken"]  # fmt: skip


@ml.kernel
def doubled(u: ml.ReadWrite):
    u[...] = 2.0 * u


def test_what_would_hide_too_little_is_named_by_its_loop() -> None:
    """Not by a fill that comes before it."""
    with ml.using("numpy"):
        things, places, clock = ml.Set(8, "things"), ml.Set(8, "places"), ml.Set(1, "clock")
        ends = ml.Map(things, places, np.stack([np.arange(8), np.roll(np.arange(8), 1)], axis=1), "ends")
        u, to, w = places.field("u"), places.field("to"), clock.field("w")
        rest, total = ml.Global(1.0, "rest"), ml.Global(0.0, "total")

        @ml.kernel
        def gathered(u: ml.Read, to: ml.Inc):
            to[0] += u[1]
            to[1] += u[0]

        @ml.kernel
        def moved(to: ml.Read, u: ml.ReadWrite):
            u += to

        def step() -> None:
            to.fill(0.0)
            total.value = 0.0
            gathered(things, u[ends], to[ends])
            moved(places, to, u)
            summed(places, u, total)
            scaled(clock, rest, w)

        summary = on_rank(step).summary
    assert "not overlapped: to run scaled meanwhile hides at most" in summary
