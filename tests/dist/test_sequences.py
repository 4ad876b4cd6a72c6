"""Programs and loops one after the other: what one knows of halos, the next finds. Nobody looks at stale ones, and none
that are valid are sent. On ranks that are threads of this process values are those of a process by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.dist import validity
from meshloom.dist.array import DistributedArray
from meshloom.dist.halo import LAYERS
from meshloom.dist.validity import Halo, needs, place_exchanges
from meshloom.dist.world import World as Ranks
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.operation import Operation
from tests.dist.on_ranks_programs import World, at_once, flux, in_turn, moved
from tests.dist.on_ranks_programs import given as handed
from tests.dist.simulated import alone, on_threads
from tests.one_line import one_line_from
from tests.test_asking import ask, questions


def same_on_ranks(job: Callable[[Ranks], list[np.ndarray]], ranks: int = 2) -> None:
    """The values that a job gives on ranks are those that it gives by itself."""
    expected = alone(job)
    for found in on_threads(ranks, job):
        assert [(one.shape, one.tobytes()) for one in found] == [(one.shape, one.tobytes()) for one in expected]


class Line:
    """Faces between cells in a row, and fields that loops change."""

    def __init__(self, size: int = 8):
        cells, faces = ml.Set(size, "cells"), ml.Set(size - 1, "faces")
        near = np.stack([np.arange(size - 1), np.arange(1, size)], axis=1)
        self.cells, self.faces, self.ends = cells, faces, ml.Map(faces, cells, near, "ends")
        self.u = cells.field("u", data=np.arange(float(size)) ** 2)
        self.r, self.w = cells.field("r"), faces.field("w", data=np.ones(size - 1))

    def spread(self) -> None:
        at_once(self.faces, self.u[self.ends], self.w, self.r[self.ends])

    def move(self) -> None:
        moved(self.cells, self.r, self.u)


def test_a_program_that_is_only_made_ready_leaves_halos_as_they_are() -> None:
    """``run(0)``: what another program has left stale stays stale."""

    def job(_: Ranks) -> list[np.ndarray]:
        one = Line()
        both = ml.program(lambda: (one.move(), one.spread()))
        moving, spreading = ml.program(one.move), ml.program(one.spread)
        both.run(1)
        moving.run(2)
        both.run(0)
        spreading.run(1)
        return [one.r.numpy()]

    same_on_ranks(job)


# ----- questions --------------------------------------------------------------------------------------------------
@ml.kernel
def near(u: ml.Read, v: ml.ReadWrite):
    v[...] = v + u[-1, 0] + u[1, 0]


@ml.kernel
def far(u: ml.Read, v: ml.ReadWrite):
    v[...] = v + u[-3, 0] * u[3, 0]


@ml.kernel
def taken(v: ml.Read, u: ml.ReadWrite):
    u[...] = 0.5 * u + 0.1 * v


class Asked:
    """Programs on a grid and on sets, of which one reaches further than the other."""

    def __init__(self) -> None:
        grid = self.grid = ml.Grid((16, 4))
        u, v = (grid.field(name, data=np.random.default_rng(3).standard_normal((16, 4))) for name in "uv")
        line = self.line = Line(16)
        box, by_one, by_three = grid.box((3, 0), (13, 4)), grid.offsets((-1, 0), (1, 0)), grid.offsets((-3, 0), (3, 0))
        turned = self.turned = ml.Map(line.faces, line.cells, line.ends.indices[::-1], "turned")
        self.fields = [u, v, line.u, line.r, line.w]

        @ml.program
        def first() -> None:
            near(box, u[by_one], v)
            taken(grid, v, u)
            line.spread()
            line.move()

        @ml.program
        def further() -> None:
            far(box, u[by_three], v)
            taken(grid, v, u)
            at_once(line.faces, line.u[turned], line.w, line.r[turned])
            line.move()

        @ml.program
        def with_a_call() -> None:
            further()
            ml.call(int, reads=(), writes=())
            first()

        self.programs = {"first": first, "further": further, "with a call": with_a_call}

    def state(self) -> list[Any]:
        """What is here of fields, and how deep halos are."""
        kept = [one.kept.get(word) for one in (self.grid, self.line.cells, self.line.faces)
                for word in ("slabs", "ranks")]  # fmt: skip
        reached = [sorted(map(str, one.maps)) for one in kept if hasattr(one, "maps")]
        there = [(id(one.storage), one.storage.valid, id(one.storage.on)) if isinstance(one.storage, DistributedArray)
                 else one.numpy().tobytes() for one in self.fields]  # fmt: skip
        return [*map(id, kept), *reached, *there]


def test_no_question_of_one_rank_changes_anything() -> None:
    """Before the programs run and behind it, nor does another rank see that somebody asked."""

    def job(here: Ranks) -> list[np.ndarray]:
        one, asked = Asked(), set[str]()
        for number, name in enumerate(["first", "further", "with a call", "first"]):
            if here.rank == number % 2 and here.size > 1:
                for thing in (each for program in one.programs.values() for each in (program, *program.loops)):
                    for question in questions(thing):
                        before = one.state()
                        ask(thing, question)
                        asked.add(question)
                        assert one.state() == before, f"{question} of {thing}, asked before {name}"
            one.programs[name].run(2)
        if here.size > 1:
            assert {"launches", "graph", "explain", "steps", "source", "plan"} <= asked
        return [each.numpy() for each in one.fields]

    same_on_ranks(job)


def test_what_is_not_made_ready_yet_is_said_to_be_so() -> None:
    def job(here: Ranks) -> list[np.ndarray]:
        one = Asked()
        program = one.programs["further"]
        if here.size > 1:
            assert program.graph == "not yet: run the program, then ask again"
            with one_line_from(ml.errors.ProgramError, "program further: launches: not yet: run the program"):
                _ = program.launches
        program.run(1)
        if here.size > 1:
            assert "exchange of" in program.graph and program.launches == 0
        return [each.numpy() for each in one.fields]

    same_on_ranks(job)


# ----- exchanges --------------------------------------------------------------------------------------------------
def exchanges_of(job: Callable[[Line], Callable[[], object]], ranks: int = 2, times: int = 3) -> dict[str, float]:
    """How often what is exchanged in a step, from the second one on."""

    def counted(here: Ranks) -> dict[str, float]:
        step = job(Line())
        step()
        before = {name: one.calls for name, one in here.sent().items()}
        for _ in range(times):
            step()
        found = {name: (one.calls - before.get(name, 0)) / times for name, one in here.sent().items()}
        return {name: count for name, count in found.items() if count}

    first, *others = on_threads(ranks, counted)
    assert all(one == first for one in others)
    return first


def through_faces(one: Line) -> tuple[ml.Field, list[Callable[[], None]]]:
    """A flux at faces, which cells get; then they move."""
    u, r = (one.cells.field(name, 2) for name in "ur")
    f = one.faces.field("f", 2)
    return f, [lambda: flux(one.faces, u[one.ends], f), lambda: handed(one.faces, f, r[one.ends]),
               lambda: moved(one.cells, r, u)]  # fmt: skip


def test_loops_by_hand_exchange_what_their_program_does() -> None:
    """A flux that faces have computed for others, too, is not sent, though what of it is only read is stale."""

    def programs(one: Line) -> Callable[[], object]:
        _, loops = through_faces(one)
        first, rest = ml.program(loops[0]), ml.program(partial(in_turn, loops[1:]))
        return lambda: (first.run(1), rest.run(1))

    expected = {"exchange of u": 1}
    assert exchanges_of(lambda one: partial(in_turn, through_faces(one)[1])) == expected
    assert exchanges_of(programs) == expected
    assert exchanges_of(lambda one: ml.program(partial(in_turn, through_faces(one)[1]))) == expected


def test_what_is_valid_behind_a_call_is_not_sent_again() -> None:
    def with_a_call(one: Line) -> Callable[[], object]:
        out = one.cells.field("out")

        @ml.program
        def step() -> None:
            out.fill(0.0)
            at_once(one.faces, one.u[one.ends], one.w, out[one.ends])
            ml.call(int, reads=(), writes=())
            one.spread()
            one.move()

        return lambda: step.run(2)

    assert exchanges_of(with_a_call) == {"exchange of u": 2}


def test_of_what_is_due_together_only_what_is_stale_is_sent() -> None:
    """A program that leaves two fields stale which it looks at, run where one of them is valid."""

    def job(here: Ranks) -> list[np.ndarray]:
        one = Line()
        other = one.cells.field("other", data=np.arange(8.0))

        @ml.kernel
        def both(u: ml.Read, v: ml.Read, r: ml.Inc):
            r[0] += u[1] * v[0]
            r[1] += u[0] - v[1]

        def step() -> None:
            both(one.faces, one.u[one.ends], other[one.ends], one.r[one.ends])
            moved(one.cells, one.r, one.u)
            moved(one.cells, one.r, other)

        program, looking = ml.program(step), ml.program(one.spread)
        sizes = []
        for _ in range(3):
            before = sum(each.bytes for each in here.sent().values())
            program.run(1)
            sizes.append(sum(each.bytes for each in here.sent().values()) - before)
            looking.run(1)
        if here.size > 1:
            assert sizes[2] == sizes[1] == 8, "one value of one field"
        return [one.u.numpy(), other.numpy()]

    same_on_ranks(job)


def test_of_many_replays_each_finds_what_the_one_before_has_left() -> None:
    """A flux of what was valid at first, and then is made of what never was."""
    one = World(0)
    graph = ml.program(lambda: (flux(one.faces, one.u[one.ends], one.f), moved(one.cells, one.r, one.u))).dataflow
    found = place_exchanges(graph, lambda field: LAYERS)
    direct = Dataflow([of for of in graph.operations if of.name == "moved"])
    assert found.before and not place_exchanges(direct, lambda field: LAYERS).before
    swapped = found._replace(written=frozenset([one.u, one.r]),
                             valid={(one.u, "exec"): frozenset([(one.r, "exec")]),
                                    (one.r, "exec"): frozenset([(one.u, "exec")])})  # fmt: skip
    began = frozenset([(one.u, "exec"), (one.w, "exec")])
    left = [sorted(field.name for field, _ in swapped.valid_after(began, replays)) for replays in range(1, 6)]
    assert left == [["r", "w"], ["u", "w"], ["r", "w"], ["u", "w"], ["r", "w"]]
    chain = found._replace(written=frozenset([one.u, one.r]), valid={(one.u, "exec"): frozenset([(one.r, "exec")])})
    assert [len(chain.valid_after(frozenset([(one.r, "exec")]), replays)) for replays in (1, 2, 10**9)] == [1, 0, 0]


def test_what_only_one_rank_writes_is_stale_on_all() -> None:
    """A box of planes of which another rank has copies only."""

    def job(_: Ranks) -> list[np.ndarray]:
        grid = ml.Grid((8, 3))
        u, v = (grid.field(name, data=np.arange(24.0).reshape(8, 3)) for name in "uv")
        inside, own = grid.box((1, 0), (7, 3)), grid.box((0, 0), (4, 3))
        ahead = grid.offsets((-1, 0), (1, 0))
        seen, made = ml.program(lambda: near(inside, u[ahead], v)), ml.program(lambda: taken(own, v, u))
        for _ in range(2):
            seen.run(1)
            made.run(1)
        return [u.numpy(), v.numpy()]

    same_on_ranks(job)


# ----- random sequences -------------------------------------------------------------------------------------------
def rows(field: ml.Field) -> Sequence[str]:
    """Some rank has both layers of every set."""
    return LAYERS


class Replayed:
    """Which layers are ``valid``, operation by operation, by the rules alone; ``known``: what programs know of it."""

    def __init__(self, fields: Sequence[ml.Field]):
        self.all = frozenset((one, layer) for one in fields for layer in LAYERS)
        self.valid, self.known = self.all, self.all

    def stale(self, field: ml.Field) -> bool:
        return any((field, layer) not in self.valid for layer in LAYERS)

    def send(self, fields: Sequence[ml.Field]) -> None:
        for one in fields:
            assert self.stale(one), f"{one.name} is sent, and is valid"
        self.valid |= {halo for halo in self.all if halo[0] in fields}

    def write(self, field: ml.Field, valid: bool) -> None:
        """All of it, by hand: filled, or assigned by number."""
        its = {halo for halo in self.all if halo[0] is field}
        self.valid = self.valid | its if valid else self.valid - its
        self.known = self.known | its if valid else self.known - its

    def run(self, graph: Dataflow, replays: int) -> None:
        if not replays:
            return
        found = place_exchanges(graph, rows)
        first = found.due_first(self.known)
        self.send(first)
        began = self.known | {halo for halo in self.all if halo[0] in first}
        left_out = found.left_out(began)
        for replay in range(replays):
            for position, one in enumerate(graph.operations):
                kept = left_out.get(position, frozenset()) if replay == 0 else frozenset()
                assert not any(map(self.stale, kept)), "what is left out is valid"
                self.send([each for each in found.before.get(position, ()) if each not in kept])
                self.step(one)
        self.known = found.valid_after(began, replays)
        assert self.known == self.valid, "no more is known than holds, and no less"

    def step(self, one: Operation) -> None:
        for halo in needs(one):
            assert halo in self.valid, f"{one.name} looks at {halo[0].name}, {halo[1]}"
        layers = dict.fromkeys((field for field, _ in self.all), LAYERS)
        self.valid = frozenset(validity._after(one, dict.fromkeys(self.valid, frozenset[Halo]()), None, layers))


@cache
def pieces() -> tuple[World, list[Dataflow]]:
    """What programs are made of, each by itself."""
    one = next(each for each in map(World, range(20)) if len(each.cells) > 5)
    return one, [ml.program(each).dataflow for each in one.pieces()]


PIECES = st.integers(0, 14)
RUN = st.tuples(st.just("run"), st.lists(PIECES, min_size=1, max_size=5), st.integers(0, 3))
LOOPS = st.tuples(st.just("loops"), st.lists(PIECES, min_size=1, max_size=3), st.just(1))
WRITTEN = st.tuples(
    st.sampled_from(["fill", "assign"]), st.lists(st.integers(0, 4), min_size=1, max_size=1), st.just(1)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(RUN | LOOPS | WRITTEN, min_size=2, max_size=7))
def test_nobody_looks_at_stale_halos_and_none_that_are_valid_are_sent(
    actions: list[tuple[str, list[int], int]],
) -> None:
    one, graphs = pieces()
    fields = [one.u, one.r, one.f, one.n, one.w]
    ranks = Replayed([*fields, one.t])
    for what, chosen, times in actions:
        listed = [of for k in chosen for of in graphs[k % len(graphs)].operations]
        if what == "run":
            ranks.run(Dataflow(listed), times)
        elif what == "loops":
            for of in listed:
                ranks.run(Dataflow([of]), 1)
        else:
            ranks.write(fields[chosen[0] % len(fields)], what == "fill")


def left_by(seed: int, _: Ranks) -> list[np.ndarray]:
    """All values behind programs, loops by hand, and what is written by hand, in random order."""
    one = World(seed)
    pieces, dice, fields = one.pieces(), np.random.default_rng(seed), [one.u, one.r, one.f, one.n, one.w]
    programs = [ml.program(partial(in_turn, [pieces[k] for k in dice.integers(0, len(pieces), dice.integers(1, 5))]))
                for _ in range(3)]  # fmt: skip
    for _ in range(24):
        kind, program, field = dice.integers(6), programs[dice.integers(3)], fields[dice.integers(5)]
        if kind < 3:
            program.run(int(dice.integers(0, 4)))
        elif kind == 3:
            pieces[dice.integers(len(pieces))]()
        elif kind == 4:
            field.fill(0.5)
        else:
            field.assign(-field.numpy())
    return [*(each.numpy() for each in fields), np.array([float(one.total), float(one.most)])]


@pytest.mark.parametrize("seed", range(6, 12))
def test_random_sequences_give_the_values_of_one_process(seed: int) -> None:
    same_on_ranks(partial(left_by, seed), 2 + seed % 2)
