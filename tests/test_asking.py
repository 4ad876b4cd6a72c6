"""Asking changes nothing: every public question there is, found by looking at the classes, leaves all fields where they
are, in the layout and version that they have, and a run gives the same as if nobody had asked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.errors import UserError
from meshloom.mesh.buffer import Buffered, on_host
from meshloom.operation.operation import Operation, cached
from tests.one_line import one_line_from

BACK_ENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
#: What acts, or hands memory over, and is therefore no question. Whatever is new is asked.
ACTS = {
    "Operation": "begin_to_prepare invalidate prepare refresh run_plainly apply_layout",
    "Program": "bind run",
    "Field": "changed copy fill memory view sum min max mean norm",  # sums are loops, which bring it to where they run
    "Global": "changed copy fill memory view",
    "Map": "assign",
}
REPRESENTED = ("__repr__", "__str__", "_repr_html_", "_repr_mimebundle_", "__len__", "__format__")


def questions(one: Any) -> Iterator[str]:
    """Public properties, methods that need no argument, and the ways in which notebooks and consoles show it."""
    acts = {word for kind in type(one).__mro__ for word in ACTS.get(kind.__name__, "").split()}
    for name in dir(type(one)):
        if name in acts or (name.startswith("_") and name not in REPRESENTED):
            continue
        found = inspect.getattr_static(type(one), name)
        if isinstance(found, property | cached_property | cached) or inspect.ismemberdescriptor(found):
            yield name
        elif inspect.isfunction(found) or hasattr(found, "__wrapped__"):
            needed = [p for p in list(inspect.signature(getattr(type(one), name)).parameters.values())[1:]
                      if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]  # fmt: skip
            if not needed or name == "__format__":
                yield name


def ask(one: Any, name: str) -> None:
    """A refusal in one line is an answer, too."""
    try:
        found = getattr(one, name)
        if inspect.ismethod(found):
            found("") if name == "__format__" else found()
    except UserError:
        pass


class World:
    """Loops through maps and at offsets of a grid, a program of them, fields whose layouts are free or asked for."""

    def __init__(self) -> None:
        self.mesh = ml.generate.box((4, 3), cells="triangle")
        sides, n = self.mesh.face_cells, len(self.mesh.cells)
        rng = np.random.default_rng(1)
        q = self.mesh.cells.field("q", 3, data=rng.random((n, 3)))
        res, out = self.mesh.cells.field("res", 3, data=rng.random((n, 3))), self.mesh.cells.field("out", 3)
        total = ml.Global(0.0, "total")

        @ml.kernel
        def spread(q: ml.Read, res: ml.Inc):
            res[0] += 0.1 * (q[1] - q[0])
            res[1] -= 0.1 * (q[1] - q[0])

        @ml.kernel
        def moved(res: ml.Read, out: ml.Write, q: ml.ReadWrite, total: ml.Sum):
            q += res
            out[...] = 2.0 * res
            total += q[0] * q[1]

        self.arranged = self.mesh.cells.field("arranged", 3, data=rng.random((n, 3)))
        self.loops = [
            spread.loop(self.mesh.faces, q[sides], res[sides]),
            spread.loop(self.mesh.faces, self.arranged[sides], res[sides], schedule=ml.Schedule(layout="soa")),
            moved.loop(self.mesh.cells, res, out, q, total),
        ]

        @ml.program
        def step() -> None:
            spread(self.mesh.faces, q[sides], res[sides])
            moved(self.mesh.cells, res, out, q, total)

        self.program, self.kernels = step, [spread, moved]
        self.scattered = spread.loop(self.mesh.faces, q[sides], res[sides], schedule="color")
        self.stored: list[Buffered] = [q, res, out, self.arranged, total, self.mesh.coordinates]

    @property
    def things(self) -> list[Any]:
        mesh = self.mesh
        return [*self.loops, self.program, *self.kernels, *self.stored, mesh.face_cells, mesh, mesh.cells, mesh.faces]

    def state(self) -> list[tuple[Any, ...]]:
        """Where every field and global is, how it lies there, and what it holds."""
        kept = ("name", "_storage", "layout", "layout_is_free", "version", "undefined_after", "stays")
        held = [[getattr(one, word, None) for word in kept] for one in self.stored]
        return [(*[id(one) if word == "_storage" else one for word, one in zip(kept, entry, strict=True)],
                 on_host(entry[1]).tobytes()) for entry in held]  # fmt: skip

    def run(self) -> list[bytes]:
        for one in self.loops:
            one()
        self.program.run(2)
        return [np.asarray(one.numpy()).tobytes() for one in self.stored]


def placed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The back end in use brings values to memory of its own, as a GPU does."""
    made: list[np.ndarray] = []

    def place(storage: Any) -> Any:
        if not any(storage is one for one in made):
            made.append(storage.copy())
            return made[-1]
        return storage

    monkeypatch.setattr(current(), "place", place)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_no_question_changes_anything(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use(back_end)
    if back_end in ("cpu", "emulated"):
        placed_elsewhere(monkeypatch)
    expected = World().run()
    world = World()
    for when in ("before", "after"):
        before, asked = world.state(), set()
        for one in world.things:
            for name in questions(one):
                ask(one, name)
                asked.add(name)
                assert world.state() == before, f"{type(one).__name__}.{name}, asked {when} it ran"
        assert {"source", "explain", "counts", "launches", "graph", "steps", "_repr_html_", "plan"} <= asked
        if when == "before":
            assert world.run() == expected


def test_a_question_that_changes_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    world = World()
    before, field = world.state(), world.stored[0]
    monkeypatch.setattr(ml.Field, "peeked", property(lambda self: self.changed()), raising=False)
    assert "peeked" in questions(field), "whatever is new is asked"
    ask(field, "peeked")
    assert world.state() != before


def test_an_explanation_says_one_layout() -> None:
    """The one that fields have when it runs, also where it has not run yet; and asking gives it to none."""
    ml.use("emulated")
    for asked_first in (True, False):
        world = World()
        program = ml.program(partial(Operation.__call__, world.scattered))
        if not asked_first:
            program.run(1)
        told = program.explain().splitlines()
        assert "layout of res: soa, the least time over all loops" in told
        arguments = [line for line in told if line.startswith("  arguments")]
        assert len(arguments) == 1 and " soa, " in arguments[0] and "aos" not in arguments[0]
        if asked_first:
            assert {str(one.layout) for one in world.stored if isinstance(one, ml.Field)} == {"aos"}
    told = World().loops[1].explain()
    assert "layout=soa" in told and "arranged[face_cells] soa" in told and "aos" not in told


def test_a_schedule_is_checked_when_it_is_made() -> None:
    with one_line_from(ml.errors.ScheduleError, "unknown ordering 'hilber'; did you mean 'hilbert'"):
        ml.Schedule(order="hilber")
    assert all(ml.Schedule(order=name).order == name for name in ("given", *ml.orderings()))
