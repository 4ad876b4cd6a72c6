"""Calls with ever new globals, fields or maps leave nothing behind, and need no compiler."""

from __future__ import annotations

import gc
import resource
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml
from meshloom.native import compiler
from meshloom.operation.weak_cache import loops_over


@ml.kernel
def scale(u: ml.ReadWrite, factor: ml.Read):
    u[...] = factor * u


@ml.kernel
def copied(u: ml.Read, out: ml.Write):
    out[...] = u


@ml.kernel
def spread(u: ml.Read, out: ml.Inc):
    out[0] += 0.5 * u[1]
    out[1] += u[0]


class Mesh:
    def __init__(self) -> None:
        self.cells, self.edges, self.grid = ml.Set(20, "cells"), ml.Set(19, "edges"), ml.Grid((20,), periodic=True)
        self.pairs = np.stack([np.arange(19), np.arange(1, 20)], axis=1)
        self.ends = ml.Map(self.edges, self.cells, self.pairs, "ends")
        self.u, self.out = self.cells.field("u", data=np.ones(20)), self.cells.field("out")
        self.f = self.grid.field("f", data=np.ones(20))

    def new_global(self) -> None:
        scale(self.cells, self.u, ml.Global(1.0))

    def new_field(self) -> None:
        copied(self.cells, self.u, self.cells.field("new"))

    def new_field_through_a_map(self) -> None:
        spread(self.edges, self.u[self.ends], self.cells.field("new")[self.ends])

    def new_map(self) -> None:
        ends = ml.Map(self.edges, self.cells, self.pairs, "ends")
        spread(self.edges, self.u[ends], self.out[ends])

    def new_set(self) -> None:
        cells = ml.Set(5, "cells")
        copied(cells, cells.field("u"), cells.field("out"))

    def new_field_of_a_box(self) -> None:
        copied(self.grid.box((2,), (9,)), self.f, self.grid.field("new"))

    def new_derivative(self) -> None:
        ml.compact.d(self.f, 0)

    def new_program(self) -> None:
        factor = ml.Global(1.0)
        ml.program(lambda: scale(self.cells, self.u, factor)).run()


WAYS = [Mesh.new_global, Mesh.new_field, Mesh.new_field_through_a_map, Mesh.new_map, Mesh.new_set,
        Mesh.new_field_of_a_box, Mesh.new_derivative, Mesh.new_program]  # fmt: skip
#: Maps, sets and line loops are prepared anew for every new one, which takes milliseconds.
CALLS = {Mesh.new_map: 100, Mesh.new_derivative: 100, Mesh.new_set: 100}


def objects_after(calls: int, call: Callable[[], None]) -> int:
    for _ in range(calls):
        call()
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("way", WAYS)
def test_no_objects_are_left_behind(way: Callable[[Mesh], None]) -> None:
    ml.use("cpu")
    mesh, calls = Mesh(), CALLS.get(way, 300)
    before = objects_after(70, lambda: way(mesh))  # forms and caches have their full size
    after = objects_after(calls, lambda: way(mesh))
    assert after - before < 0.2 * calls + 30
    assert len(loops_over(mesh.cells).calls) + len(loops_over(mesh.edges).calls) < 100


@pytest.mark.slow
@pytest.mark.parametrize("way", [Mesh.new_global, Mesh.new_field, Mesh.new_field_through_a_map])
def test_memory_stays_flat_over_20_000_calls(way: Callable[[Mesh], None]) -> None:
    ml.use("cpu")
    mesh = Mesh()
    objects_after(1000, lambda: way(mesh))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    objects_after(20_000, lambda: way(mesh))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4_000  # kB


def test_a_field_goes_when_nobody_wants_it() -> None:
    """Not even one: fields are large."""
    ml.use("cpu")
    mesh = Mesh()
    mesh.new_field()
    new = mesh.cells.field("new")
    copied(mesh.cells, mesh.u, new)
    gone = weakref.ref(new)
    del new
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_coefficients_go_with_their_systems(back_end: str) -> None:
    """What runs, and the text that was compiled, are kept for later: neither holds a field."""
    ml.use(back_end)
    mesh = Mesh()
    systems, x = ml.linalg.LineSystems(mesh.grid, 0, 0.0, np.full(20, 2.0), 0.0), mesh.grid.field("x")
    systems.solve(mesh.f, x)
    assert x.numpy().tolist() == [0.5] * 20
    gone = weakref.ref(systems.inverse)
    del systems
    gc.collect()
    assert gone() is None


def test_the_same_arguments_find_their_loop() -> None:
    ml.use("cpu")
    mesh = Mesh()
    factor = ml.Global(1.0)
    found = set()
    for _ in range(3):
        scale(mesh.cells, mesh.u, factor)
        gc.collect()
        found |= {*loops_over(mesh.cells).calls.values()}  # held here, so that none is made in the place of another
    assert len(found) == 1


@pytest.mark.parametrize("back_end", ["cpu", "emulated"])
def test_new_fields_and_globals_need_no_compiler(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use(back_end)
    mesh = Mesh()
    mesh.new_global()
    mesh.new_field_through_a_map()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing should be built or loaded here")

    for module in ("meshloom.native.together", "meshloom.native.compiler"):
        monkeypatch.setattr(sys.modules[module], "load", refuse)
    mesh.new_global()
    mesh.new_field_through_a_map()
    assert compiler.load is refuse


def test_forms_are_told_apart() -> None:
    """Loops that share what is compiled must agree in all that it depends on: types, shapes, layouts, maps."""
    ml.use("cpu")
    mesh = Mesh()
    other = ml.Map(mesh.edges, mesh.cells, mesh.pairs[::-1], "other")
    forms = [(np.float64, 1, "aos"), (np.float32, 1, "aos"), (np.float64, 2, "aos"), (np.float64, 2, "soa")]
    for dtype, dim, layout in forms:
        data = np.arange(20.0 * dim).reshape(-1, dim).astype(dtype)
        u = mesh.cells.field("u", dim, data=data, layout=layout)
        new = mesh.cells.field("new", dim, dtype=dtype)
        copied(mesh.cells, u, new)
        np.testing.assert_array_equal(new.numpy().reshape(-1, dim), data)
    for ends in (mesh.ends, other):
        new = mesh.cells.field("new")
        spread(mesh.edges, mesh.cells.field("number", data=np.arange(20.0))[ends], new[ends])
        expected = np.zeros(20)
        np.add.at(expected, ends.indices[:, 0], 0.5 * ends.indices[:, 1])
        np.add.at(expected, ends.indices[:, 1], 1.0 * ends.indices[:, 0])
        np.testing.assert_allclose(new.numpy(), expected, rtol=1e-14)
