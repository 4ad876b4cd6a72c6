"""Programs and loops one after the other, on ranks that are threads of this process: what one knows of halos, the next
finds. Values are those of a process by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.dist.array import DistributedArray
from meshloom.dist.world import World as Ranks
from tests.dist.on_ranks_programs import at_once, moved
from tests.dist.simulated import alone, on_threads
from tests.one_line import one_line_from
from tests.test_asking import ask, questions


def same_on_ranks(job: Callable[[Ranks], list[np.ndarray]], ranks: int = 2) -> None:
    """The values that a job gives on ranks are those that it gives by itself."""
    expected = alone(job)
    for found in on_threads(ranks, job):
        assert all(map(np.array_equal, found, expected))


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
