"""Loops at the points of a grid that line loops do on their way give what they give by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom import compact
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.into_lines import fuse_epilogues, fuse_prologues
from meshloom.schedule.lines import methods as line_methods
from tests.linalg.test_lines import dense, lele6

BACK_ENDS = ["numpy", "cpu", "emulated"]


@ml.kernel
def squares(u: ml.Read, a: ml.Write, b: ml.Write):
    a[...] = u[0] * u[1]
    b[...] = np.stack([u[0] ** 2, np.sin(u[1])])


@ml.kernel
def scaled(a: ml.Read, c: ml.Write):
    c[...] = 0.5 * a + 1.0


@ml.kernel
def follow(da: ml.Read, db: ml.Read, rate: ml.Write, out: ml.ReadWrite):
    rate[...] = np.stack([da + db[0], db[1]])
    out[...] = out + rate


@ml.kernel
def finish(rate: ml.Read, dt: ml.Read, u: ml.ReadWrite):
    u[...] = u + dt * rate


@ml.kernel
def accumulate(df: ml.Read, total: ml.Inc):
    total += df


@ml.kernel
def beside(db: ml.Read, b: ml.Read, out: ml.Write):
    out[...] = db + 0.5 * b


@ml.kernel
def half(u: ml.Read, a: ml.Write, b: ml.Write):
    a[...] = 0.5 * u
    b[...] = u[::-1] + 1.0


@ml.kernel
def turned(da: ml.Read, db: ml.Read, out: ml.Write):
    out[0] = da[1] - db[0]
    out[1] = db[1] + da[0]


@ml.kernel
def power(u: ml.Read, c: ml.Write):
    c[...] = np.exp(u[0])


@ml.kernel
def plus(a: ml.Read, b: ml.Read, c: ml.Write):
    c[...] = a + b


class World:
    """Two components on a ring of a grid."""

    def __init__(self, ghosts: int = 0) -> None:
        self.grid = ml.Grid((12, 10), extent=2 * np.pi, periodic=True, ghosts=ghosts)
        x, y = self.grid.meshgrid()
        self.u = self.grid.field("u", 2, data=np.stack([np.sin(x) + 2, np.cos(y) * np.sin(x)], axis=-1))
        self.out, self.dt = self.u.like("out"), ml.Global(0.01, "dt")
        self.kept = [self.grid.field("kept"), self.grid.field("kept too")]

    def fields(self, *names: str) -> list[ml.Field]:
        return [self.grid.field(name) for name in names]


def makers_for_both_axes(w: World) -> None:
    """One loop makes what line loops along both axes derive."""
    a, da, db = *w.fields("a", "da"), w.u.like("db")
    b = w.u.like("b")
    squares(w.grid, w.u, a, b)
    compact.d(a, 0, da, compact.PADE4)
    compact.d(b, 1, db, compact.PADE4)
    rate = w.u.like("rate")
    follow(w.grid, da, db, rate, w.out)
    finish(w.grid, rate, w.dt, w.u)


def chained_makers(w: World) -> None:
    a, c, dc = w.fields("a", "c", "dc")
    b = w.u.like("b")
    squares(w.grid, w.u, a, b)
    scaled(w.grid, a, c)
    compact.d(c, 0, dc, compact.PADE4)
    db = w.u.like("db")
    compact.d(b, 1, db, compact.PADE4)
    follow(w.grid, dc, db, w.u.like("rate"), w.out)


def overwritten_between(w: World) -> None:
    """The state changes between the maker and the second line loop: this one must not be given the new state."""
    a, b = w.fields("a")[0], w.u.like("b")
    da, db = w.fields("da")[0], w.u.like("db")
    squares(w.grid, w.u, a, b)
    compact.d(a, 0, da, compact.PADE4)
    finish(w.grid, w.out, w.dt, w.u)
    compact.d(b, 1, db, compact.PADE4)
    follow(w.grid, da, db, w.u.like("rate"), w.out)


def in_place_behind(w: World) -> None:
    """What follows a line loop writes what this reads."""
    (a, da), b = w.fields("a", "da"), w.u.like("b")
    squares(w.grid, w.u, a, b)
    compact.d(a, 0, da, compact.PADE4)
    db = w.u.like("db")
    compact.d(w.u, 1, db, compact.PADE4)
    finish(w.grid, db, w.dt, w.u)
    follow(w.grid, da, db, w.u.like("rate"), w.out)


def added_up(w: World) -> None:
    """Line loops that add to a field, then one that uses the sum."""
    total, (a, da) = w.u.like("total"), w.fields("a", "da")
    b, db = w.u.like("b"), w.u.like("db")
    squares(w.grid, w.u, a, b)
    for axis in (0, 1):
        compact.apply(w.grid, axis, compact.operator(compact.PADE4, w.grid, axis), b, total, after=accumulate)
    finish(w.grid, total, w.dt, w.out)
    compact.d(a, 1, da, compact.PADE4)
    follow(w.grid, da, db, w.u.like("rate"), w.out)


def seen_again(w: World) -> None:
    """The kernel behind a solve looks at what the line loop derives."""
    a, b = w.fields("a")[0], w.u.like("b")
    squares(w.grid, w.u, a, b)
    operator = compact.operator(compact.PADE4, w.grid, 0)
    compact.apply(w.grid, 0, operator, b, [b, w.out], after=beside, values=2)


PROGRAMS: list[Callable[[World], None]] = [
    makers_for_both_axes, chained_makers, overwritten_between, in_place_behind, added_up, seen_again
]  # fmt: skip


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("ghosts", [0, 1])
@pytest.mark.parametrize("body", PROGRAMS, ids=lambda body: body.__name__)
def test_taken_along_or_by_themselves(body: Callable[[World], None], ghosts: int, back_end: str) -> None:
    ml.use("numpy")
    plain = World(ghosts=ghosts)
    program = ml.program(fuse=False)(lambda: body(plain))
    program.run(2)
    ml.use(back_end)
    taken = World(ghosts=ghosts)
    operations = taken_along(lambda: body(taken))
    assert any(o.composed for o in operations) or (ghosts and body is overwritten_between)
    for operation in operations * 2:
        operation()
    for name in ("u", "out"):
        np.testing.assert_allclose(getattr(taken, name).numpy(), getattr(plain, name).numpy(), rtol=0, atol=1e-12)


def taken_along(function: Callable[[], None]) -> tuple[Any, ...]:
    """The operations that a function records, with loops taken into line loops as on a CPU."""
    graph = fuse_prologues(Dataflow(ml.program(fuse=False)(function).loops), on_gpu=False)
    return fuse_epilogues(graph, on_gpu=False).operations


def names(body: Callable[[World], None]) -> list[str]:
    w = World()
    return [o.name for o in taken_along(lambda: body(w))]


def test_what_is_taken_along() -> None:
    """What both axes need is evaluated by both, what follows is done by the last; but not what the state of another
    moment would be given to, and nothing that writes what a line loop reads."""
    ml.use("cpu")
    assert names(makers_for_both_axes) == ["squares+lines", "squares+lines+follow", "finish"]
    assert names(overwritten_between) == ["squares", "lines", "finish", "lines+follow"]
    assert names(chained_makers) == ["squares+scaled+lines", "squares+lines+follow"]
    assert names(in_place_behind)[-2:] == ["finish", "follow"]


@pytest.mark.parametrize("method", line_methods.names())
def test_every_method_takes_along_what_it_can(method: str) -> None:
    """Some take one operand after the other, and so no loop that needs several of them."""
    ml.use("cpu")

    def ending(fuse: bool) -> tuple[np.ndarray, np.ndarray]:
        w = World()
        a, b, da, db = (w.u.like(name) for name in ("a", "b", "da", "db"))

        @ml.program(fuse=fuse)
        def step() -> None:
            half(w.grid, w.u, a, b)
            compact.d((a, b), 0, (da, db), compact.PADE4, method=method)
            turned(w.grid, da, db, w.out)
            finish(w.grid, w.out, w.dt, w.u)

        step.run(2)
        return w.u.numpy(), w.out.numpy()

    for fused, plain in zip(ending(True), ending(False), strict=True):
        np.testing.assert_allclose(fused, plain, rtol=0, atol=1e-12)


def test_functions_are_not_called_again_for_every_axis() -> None:
    """Two line loops that both call exp would take longer than one more field."""
    ml.use("cpu")

    def body(w: World, axes: int) -> None:
        c, dc = w.fields("c", "dc")
        power(w.grid, w.u, c)
        for axis in range(axes):
            compact.d(c, axis, dc, compact.PADE4)
            scaled(w.grid, dc, w.kept[axis])

    assert names(lambda w: body(w, 1)) == ["power+lines+scaled"]
    assert names(lambda w: body(w, 2)) == ["power", "lines+scaled", "lines+scaled"]


def test_what_is_gained_nowhere_is_not_done_before_the_first_replay() -> None:
    """Of ways to fuse that cost the same, that which does nothing twice in a single replay."""
    ml.use("cpu")
    grid = ml.Grid((48, 48), extent=2 * np.pi, periodic=True)
    u, out = grid.field("u"), grid.field("out")

    @ml.program
    def step() -> None:
        a, x, y, z = (grid.field(name) for name in "axyz")
        scaled(grid, u, a)
        compact.d(a, 0, x, compact.PADE4)
        compact.d(a, 1, y, compact.PADE4)
        scaled(grid, y, z)
        plus(grid, x, z, out)

    assert "in one pass over its lines" in step.explain()
    assert "before the first one" not in step.explain()


@ml.kernel
def costly(u: ml.Read, a: ml.Write, b: ml.Write):
    """Many divisions of few values."""
    x = u[0]
    for _ in range(30):
        x = 1.0 / (1.5 + x)
    a[...] = x
    b[...] = np.stack([x, u[1] / x])


def costly_for_both_axes(w: World) -> None:
    a, da, b, db = *w.fields("a", "da"), w.u.like("b"), w.u.like("db")
    costly(w.grid, w.u, a, b)
    compact.d(a, 0, da, compact.PADE4)
    compact.d(b, 1, db, compact.PADE4)
    follow(w.grid, da, db, w.u.like("rate"), w.out)


def test_what_costs_more_to_do_twice_than_to_store_is_stored() -> None:
    ml.use("cpu")
    assert names(costly_for_both_axes) == ["costly", "lines", "lines+follow"]


def test_composed_as_written() -> None:
    """For whoever looks for the loop where a solution broke down: the same answer, term by term."""
    ml.use("cpu")
    plain, taken = World(), World()
    for world, strictly in ((plain, False), (taken, True)):
        loops = taken_along(lambda world=world: chained_makers(world))
        for one in loops:
            assert one.composed
            written = one.as_written() if strictly else one
            assert written.strict == strictly and written.name == one.name
            written()
    np.testing.assert_allclose(taken.out.numpy(), plain.out.numpy(), rtol=0, atol=1e-13)


def test_a_gpu_keeps_its_light_passes() -> None:
    ml.use("emulated")
    w = World()
    loops = ml.program(lambda: makers_for_both_axes(w)).loops
    for one in (fuse_prologues, fuse_epilogues):
        assert one(Dataflow(loops), on_gpu=True).operations == loops


@ml.kernel
def push(df: ml.Read, u: ml.Inc):
    u += 0.5 * df


@ml.kernel
def lift(c: ml.Read, u: ml.Inc):
    u += 0.25 * c


@pytest.mark.parametrize("back_end", ["numpy", "cpu", "emulated"])
def test_a_field_that_lines_read_is_incremented(back_end: str) -> None:
    """By the loop itself, and by loops that it may take along: what lines read is there before."""
    ml.use(back_end)
    grid, rng = ml.Grid((5, 16)), np.random.default_rng(8)
    u, c = grid.field("u", data=rng.random(grid.shape)), grid.field("c", data=rng.random(grid.shape))
    full, expected = dense(lele6(False), 16), u.numpy().reshape(grid.shape)
    line = ml.linalg.LineLoop(grid, 1, lele6(False), u, u, after=push, values=1)
    lifted = 0.25 * c.numpy().reshape(grid.shape)
    line()
    expected = expected + 0.5 * expected @ full.T

    @ml.program
    def step() -> None:
        lift(grid, c, u)
        line()
        lift(grid, c, u)

    step.run(2)
    for _ in range(2):
        expected = expected + lifted
        expected = expected + 0.5 * expected @ full.T + lifted
    np.testing.assert_allclose(u.numpy().reshape(grid.shape), expected, rtol=1e-12)
