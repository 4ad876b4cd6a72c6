"""What nobody holds is gone at once, without Python's collector: fields are large, and it does not know."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import ProgramError
from meshloom.operation.weak_cache import loops_over
from tests.attacks.soak import scaled, spread, summed

SIZE = 50


class Mesh:
    """What lives on while other things come and go."""

    def __init__(self) -> None:
        self.cells, self.edges = ml.Set(SIZE, "cells"), ml.Set(SIZE - 1, "edges")
        self.pairs = np.stack([np.arange(SIZE - 1), np.arange(1, SIZE)], axis=1)
        self.ends = ml.Map(self.edges, self.cells, self.pairs, "ends")
        self.u, self.out = self.cells.field("u", data=np.ones(SIZE)), self.cells.field("out")
        self.by, self.grid = ml.Global(2.0, "by"), ml.Grid((12, 12), periodic=True)
        self.f, self.g = self.grid.field("f"), self.grid.field("g")


def never_used(m: Mesh) -> list[Any]:
    return [m.cells.field("new"), ml.Global(1.0), ml.Map(m.edges, m.cells, m.pairs), ml.Set(SIZE)]


def called(m: Mesh) -> list[Any]:
    new, by = m.cells.field("new"), ml.Global(3.0)
    for _ in range(2):
        scaled(m.cells, m.u, by, new)
        summed(m.cells, new, by)
    return [new, by]


def called_through_a_map(m: Mesh) -> list[Any]:
    new, ends = m.cells.field("new"), ml.Map(m.edges, m.cells, m.pairs)
    spread(m.edges, m.u[m.ends], new[m.ends])
    spread(m.edges, m.u[ends], new[ends])
    return [new, ends]


def called_and_moved(m: Mesh) -> list[Any]:
    new = m.cells.field("new", 2)
    pair = m.cells.field("pair", 2)
    for layout in ("soa", "aos"):
        scaled(m.cells, new, m.by, pair)
        new.relayout(layout)
    return [new, pair]


def over_new_sets(m: Mesh) -> list[Any]:
    cells, edges = ml.Set(SIZE, "cells"), ml.Set(SIZE - 1, "edges")
    ends, u, out = ml.Map(edges, cells, m.pairs), cells.field("u"), cells.field("out")
    spread(edges, u[ends], out[ends])
    scaled(cells, u, m.by, out)
    return [cells, edges, ends, u, out]


def on_a_grid(m: Mesh) -> list[Any]:
    new = m.grid.field("new")
    scaled(m.grid, m.f, m.by, new)
    scaled(m.grid.box((1, 1), (5, 5)), m.f, m.by, new)
    return [new]


def lines(m: Mesh) -> list[Any]:
    return [ml.compact.d(m.f, 0), ml.compact.filter(m.f, 1)]


def loops(m: Mesh) -> list[Any]:
    new = m.cells.field("new")
    loop = scaled.loop(m.cells, m.u, m.by, new)
    loop()
    loop.explain()
    return [loop, new]


def programs(m: Mesh) -> list[Any]:
    new, total = m.cells.field("new"), ml.Global(0.0)
    between = m.cells.field("between", temporary=True)

    def body() -> None:
        total.value = 0.0
        scaled(m.cells, m.u, m.by, between)
        scaled(m.cells, between, m.by, new)
        summed(m.cells, new, total)
        ml.compact.d(m.f, 0, m.g)

    program = ml.program(body)
    assert program.run(2, record=(total,))[1, 0] == 4.0 * SIZE
    program.explain()
    return [program, new, total, between, *(o for o in program.loops if not o.domain.all_memory)]


def recordings_that_fail(m: Mesh) -> list[Any]:
    new = m.cells.field("new")

    def body() -> None:
        scaled(m.cells, m.u, m.by, new)
        new.numpy()

    program = ml.program(body)
    with pytest.raises(ProgramError):
        program.run()
    return [program, new]


def kernels(m: Mesh) -> list[Any]:
    table = np.arange(3.0)

    @ml.kernel
    def own(u: ml.Read, out: ml.Write) -> None:
        out[...] = table[1] * u

    own(m.cells, m.u, m.out)
    table[1] = 4.0
    own(m.cells, m.u, m.out)
    return [own, own.state]


WAYS: list[Callable[[Mesh], list[Any]]] = [
    never_used, called, called_through_a_map, called_and_moved, over_new_sets, on_a_grid, lines, loops, programs,
    recordings_that_fail, kernels,
]  # fmt: skip


@contextmanager
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def kept(made: list[Any]) -> list[weakref.ref[Any]]:
    """Objects and the memory of those that have some."""
    return [weakref.ref(one) for one in [*made, *(o.storage for o in made if isinstance(o, ml.Field | ml.Global))]]


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
@pytest.mark.parametrize("way", WAYS)
def test_what_nobody_holds_is_gone_at_once(way: Callable[[Mesh], list[Any]], backend: str) -> None:
    ml.use(backend)
    mesh = Mesh()
    way(mesh)
    with no_collector():
        left = [ref() for ref in kept(way(mesh)) if ref() is not None]
        assert not left, f"somebody holds {[type(one).__name__ for one in left]}"


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
def test_older_parts_of_a_call_go_while_the_youngest_stays(backend: str) -> None:
    ml.use(backend)
    mesh, totals, gone = Mesh(), [], []
    with no_collector():
        for _ in range(3):
            new = mesh.cells.field("new", data=np.ones(SIZE))
            totals.append(ml.Global(0.0))
            summed(mesh.cells, new, totals[-1])
            gone += kept([new])
            del new
        assert [ref() for ref in gone if ref() is not None] == []
    assert [total.value for total in totals] == [SIZE] * 3 and not loops_over(mesh.cells).calls


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
def test_memory_that_a_field_has_left_goes(backend: str) -> None:
    ml.use(backend)
    cells = ml.Set(SIZE, "cells")
    field, total = cells.field("pair", 2, data=np.ones((SIZE, 2))), ml.Global(0.0)

    @ml.kernel
    def both(pair: ml.Read, total: ml.Sum):
        total[...] += pair[0] + pair[1]

    both(cells, field, total)
    before = weakref.ref(field.storage)
    with no_collector():
        field.relayout("soa")
        assert before() is None
    both(cells, field, total)
    assert total.value == 4 * SIZE


def test_plans_go_with_their_map() -> None:
    ml.use("cpu")
    mesh = Mesh()
    called_through_a_map(mesh)
    caches = loops_over(mesh.edges).shared
    before = len(caches)
    for _ in range(5):
        called_through_a_map(mesh)
    assert len(caches) == before


@pytest.mark.slow
def test_a_new_object_at_an_old_address_is_not_taken_for_the_old_one() -> None:
    """Calls are found by addresses, which are used again at once."""
    ml.use("cpu")
    mesh, addresses = Mesh(), set()
    for k in range(200):
        by = ml.Global(float(k))
        addresses.add(id(by))
        scaled(mesh.cells, mesh.u, by, mesh.out)
        assert mesh.out.numpy()[0] == k
        ends = ml.Map(mesh.edges, mesh.cells, np.full((SIZE - 1, 2), k % SIZE))
        mesh.out.fill(0.0)
        spread(mesh.edges, mesh.u[ends], mesh.out[ends])
        assert mesh.out.numpy()[k % SIZE] == 1.5 * (SIZE - 1)
    assert len(addresses) < 200, "no address came back, so nothing was tested"


def test_what_a_kernel_captured_before_is_not_kept() -> None:
    """Sets of captured values are remembered, so that going back to one needs no tracing, but by what they weigh."""
    ml.use("numpy")
    mesh = Mesh()

    class Settings:
        def __init__(self, alpha: float) -> None:
            self.alpha, self.on = alpha, ml.Set(3)

    @ml.kernel
    def own(u: ml.Read, out: ml.Write) -> None:
        out[...] = (settings.alpha + len(settings.on)) * u

    gone = []
    with no_collector():
        for alpha in (1.0, 2.0, 3.0):
            settings = Settings(alpha)
            own(mesh.cells, mesh.u, mesh.out)
            assert mesh.out.numpy()[0] == alpha + 3
            gone.append(weakref.ref(settings.on))
        assert [ref() is None for ref in gone] == [True, True, False]


def test_a_grid_remembers_only_so_many_boxes() -> None:
    grid = ml.Grid((5000,))
    first, often = grid.box(0, 1), grid.box(0, 2)
    assert grid.box(0, 1) is first and grid.offsets(1) is grid.offsets(1)
    gone = weakref.ref(grid.box(0, 3))
    for k in range(4, 2000):
        assert grid.box(0, 2) is often
        grid.box(0, k)
        grid.offsets(k)
    assert gone() is None and grid.box(0, 1) is not first
    assert len(grid._boxes) == len(grid._offsets) == 1024


def test_a_wish_for_a_layout_is_granted_once() -> None:
    """After that the layout is whatever it was changed to, though what is kept of the call is made anew."""
    ml.use("cpu")
    mesh = Mesh()
    u, out = (mesh.cells.field(name, 2) for name in ("u", "out"))
    scaled(mesh.cells, u, mesh.by, out, schedule={"layout": "soa"})
    assert str(u.layout) == "soa"
    u.relayout("aos")
    scaled(mesh.cells, u, mesh.by, out, schedule={"layout": "soa"})
    assert str(u.layout) == "aos"
    assert len(loops_over(mesh.cells).calls) == 1
