"""Asking changes nothing: every public question there is, found by looking at the classes, leaves all fields where they
are, in the layout and version that they have, compiles nothing, and a run gives the same as if nobody had asked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.backend.compiling import CompilingBackend
from meshloom.backend.cuda import nvrtc, peaks
from meshloom.errors import UserError
from meshloom.mesh.buffer import Buffered, on_host
from meshloom.native import compiler
from meshloom.native.peaks import TYPES
from meshloom.operation.execution import cached
from meshloom.operation.operation import Operation
from meshloom.target.limit import DEVICE_KINDS
from tests.one_line import one_line_from

BACK_ENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
#: What acts, or hands memory over, and is therefore no question. Whatever is new is asked.
ACTS = {
    "Operation": "begin_to_prepare invalidate prepare ready refresh run_plainly apply_layout",
    "Program": "bind run",
    "Field": "changed copy fill memory view sum min max mean norm",  # sums are loops, which bring it to where they run
    "Global": "changed copy fill memory view",
    "Map": "assign",
}
#: What a device is given is known when it is compiled: registers decide what fits it, and bounds are tried.
COMPILES = {"launches", "graph"}
#: Libraries of Meshloom's own, which plans need: no text of theirs depends on a loop.
LIBRARIES = {path.stem for path in Path(compiler.__file__).parent.glob("*.cpp")}
#: Nor of those that measure a GPU.
LIBRARIES |= {peaks.name_of(kind, dtype) for kind in DEVICE_KINDS for dtype in TYPES}
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
    """Loops through maps and at offsets of a grid, along its lines and over parts of it, a program of loops, and one of
    all that programs hold, fields whose layouts are free or asked for."""

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

        self.kernels, self.programs = [spread, moved], [step]
        self.scattered = spread.loop(self.mesh.faces, q[sides], res[sides], schedule="color")
        self.stored: list[Buffered] = [q, res, out, self.arranged, total, self.mesh.coordinates]
        self._on_a_grid(rng)

    def _on_a_grid(self, rng: np.random.Generator) -> None:
        """Points and parts, lines, a fill, a call, a program inside of another and one that is repeated there."""
        self.grid = grid = ml.Grid((6, 5), periodic=True, ghosts=(1, 0))
        u, v = grid.field("u", 2, data=rng.random((6, 5, 2))), grid.field("v", 2)
        w, between = grid.field("w", data=rng.random((6, 5))), grid.field("between", temporary=True)
        change, box = ml.Global(0.0, "change"), grid.box((1, 1), (4, 4))
        line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True))

        @ml.kernel
        def smoothed(u: ml.Read, v: ml.Write):
            v[...] = 0.5 * (u[-1, 0] + u[1, 0])

        @ml.kernel
        def halved(w: ml.ReadWrite, change: ml.Max):
            w[...] = 0.5 * w
            change[...] = w

        @ml.kernel
        def weighted(v: ml.Read, w: ml.ReadWrite, between: ml.Write):
            between[...] = 0.1 * v[0]
            w[...] = w + v[1]

        @ml.kernel
        def added(between: ml.Read, w: ml.ReadWrite):
            w[...] = w + between

        @ml.program
        def shrink() -> None:
            change.value = 0.0
            halved(grid, w, change)

        @ml.program
        def smooth() -> None:
            smoothed(grid, u[grid.offsets((-1, 0), (1, 0))], v)

        @ml.program
        def everything() -> None:
            smooth()
            weighted(grid, v, w, between)
            added(grid, between, w)
            ml.call(partial(bool, 1), reads=(w,), writes=())
            v.fill(0.25)
            ml.linalg.line_loop(grid, 1, line, w, w)
            shrink.repeat(until=change < 0.125, at_most=9)
            weighted(box, v, w, between)
            added(box, between, w)

        self.loops += [smoothed.loop(box, u[grid.offsets((-1, 0), (1, 0))], v), ml.linalg.LineLoop(grid, 1, line, w, w)]
        self.kernels += [smoothed, halved]
        self.programs += [shrink, everything]
        self.stored += [u, v, w, change]

    @property
    def things(self) -> list[Any]:
        mesh = self.mesh
        parts = self.programs[-1].operations + self.programs[-1].fused_steps
        return [*self.loops, *self.programs, *parts, *self.kernels, *self.stored, mesh.face_cells, mesh, mesh.cells,
                mesh.faces, self.grid, self.grid.inside]  # fmt: skip

    def state(self) -> list[tuple[Any, ...]]:
        """Where every field and global is, how it lies there, and what it holds."""
        kept = ("name", "_storage", "layout", "layout_is_free", "version", "undefined_after", "stays")
        held = [[getattr(one, word, None) for word in kept] for one in self.stored]
        return [(*[id(one) if word == "_storage" else one for word, one in zip(kept, entry, strict=True)],
                 on_host(entry[1]).tobytes()) for entry in held]  # fmt: skip

    def run(self) -> list[bytes]:
        for one in self.loops:
            one()
        for program in self.programs:
            program.run(2)
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


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What of loops is compiled, begun to be, or looked for among what was."""
    names: list[str] = []
    places = (compiler, "build"), (nvrtc, "build"), (CompilingBackend, "begin"), (CompilingBackend, "loaded")
    for where, what in places:
        here = getattr(where, what)

        def noted(*given: Any, here: Any = here, **named: Any) -> Any:
            name = given[1] if isinstance(given[1], str) else given[1].name if here.__name__ == "loaded" else "begun"
            names.extend({name} - LIBRARIES)
            return here(*given, **named)

        monkeypatch.setattr(where, what, noted)
    return names


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_no_question_changes_anything(back_end: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use(back_end)
    if back_end in ("cpu", "emulated"):
        placed_elsewhere(monkeypatch)
    expected = World().run()
    world = World()
    for when in ("before", "after"):
        before, asked = world.state(), set()
        asking = [(one, name) for one in world.things for name in questions(one)]
        for one, name in sorted(asking, key=lambda entry: entry[1] in COMPILES):
            compiled.clear()
            ask(one, name)
            asked.add(name)
            assert world.state() == before, f"{type(one).__name__}.{name}, asked {when} it ran"
            assert not compiled or name in COMPILES, f"{type(one).__name__}.{name} compiles {compiled}, asked {when}"
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


@pytest.mark.parametrize("back_end", ["cpu", "emulated"])
def test_a_question_that_compiles_is_found(back_end: str, compiled: list[str]) -> None:
    ml.use(back_end)
    program = World().programs[0]
    program.explain()
    assert not compiled and ("graph: not yet: run the program" in program.explain()) == (back_end == "emulated")
    assert program.launches >= 0 and compiled, "whatever the cache has"
    assert program.graph in program.explain() and "graph: not yet" not in program.explain()


def test_an_explanation_says_one_layout() -> None:
    """The one that fields have when it runs, also where it has not run yet; and asking gives it to none."""
    ml.use("emulated")
    for asked_first in (True, False):
        world = World()
        program = ml.program(partial(Operation.__call__, world.scattered))
        if not asked_first:
            program.run(1)
        told = program.explain().splitlines()
        assert "layout of res: aosoa32, the least time over all loops" in told
        arguments = [line for line in told if line.startswith("  arguments")]
        assert len(arguments) == 1 and arguments[0].count(" aosoa32") == 2
        if asked_first:
            fields = [one for one in world.stored if isinstance(one, ml.Field) and one.set is not world.grid]
            assert {str(one.layout) for one in fields} == {"aos"}
    told = World().loops[1].explain()
    assert "layout=soa" in told and "arranged[face_cells] soa" in told and "aos" not in told


def test_a_schedule_is_checked_when_it_is_made() -> None:
    with one_line_from(ml.errors.ScheduleError, "unknown ordering 'hilber'; did you mean 'hilbert'"):
        ml.Schedule(order="hilber")
    assert all(ml.Schedule(order=name).order == name for name in ("given", *ml.orderings()))


def test_an_unknown_ordering_is_told_each_that_there_is_once() -> None:
    with one_line_from(ml.errors.ScheduleError, f"unknown ordering 'zigzag'; allowed: {', '.join(ml.orderings())}"):
        ml.Schedule(order="zigzag")
