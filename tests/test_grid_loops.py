"""Loops over grids: every layout, precision and back end against NumPy; boxes, ends, ghosts, programs, wrong input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.errors import KernelError, MeshError
from meshloom.schedule.strategies.common.points import NEAR, tile_of

BACKENDS = ("numpy", "cpu", "emulated")
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def back_end() -> Iterator[None]:
    before = ml.backend(), ml.threads()
    ml.use("numpy", threads=2)
    yield
    ml.use(before[0], threads=before[1])


def inner(box: Any) -> tuple[slice, ...]:
    return tuple(slice(first, last) for first, last in zip(box.low, box.high, strict=True))


def seen(values: np.ndarray, *offset: int) -> np.ndarray:
    """For every point the value at an offset, round the ends."""
    return np.roll(values, [-d for d in offset], tuple(range(len(offset))))


@ml.kernel
def mixed(
    v: ml.Read, s: ml.Read, out: ml.Write, more: ml.Inc, own: ml.ReadWrite, total: ml.Sum, least: ml.Min, most: ml.Max
):
    out[0] = v[1, 0][1] - v[-1, 0][1]
    out[1] = 0.5 * (s[0, 1] + s[0, -1]) + v[0, 0][0]
    more += s[0, 2] * own
    own[...] = 2.0 * own + s[0, -1]
    total += s[0, 1]
    least[...] = s[0, 1]
    most[...] = v[0, 0][0]


MIXED_OFFSETS = ((0, 0), (1, 0), (-1, 0)), ((0, 1), (0, -1), (0, 2))


def mixed_numbers(shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(1)
    return tuple(rng.random((*shape, *more)).astype(dtype) for more in ((2,), (), (2,), (), ()))


def mixed_expected(box: Any, v: np.ndarray, s: np.ndarray, out: np.ndarray, more: np.ndarray, own: np.ndarray) -> Any:
    at = inner(box)
    new = np.stack([seen(v[..., 1], 1, 0) - seen(v[..., 1], -1, 0),
                    v.dtype.type(0.5) * (seen(s, 0, 1) + seen(s, 0, -1)) + v[..., 0]], axis=-1)  # fmt: skip
    out, more, own = out.copy(), more.copy(), own.copy()
    out[at], more[at] = new[at], (more + seen(s, 0, 2) * own)[at]
    own[at] = (2 * own + seen(s, 0, -1))[at]
    right = seen(s, 0, 1)[at]
    return out, more, own, right.astype(np.float64).sum(), right.min(), v[..., 0][at].max()


@every_backend
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("layout", ["aos", "soa", "aosoa4"])
def test_every_layout_precision_and_back_end_against_numpy(layout: str, precision: str, backend: str) -> None:
    ml.use(backend)
    grid = ml.Grid((7, 68), periodic=(False, True))
    numbers = mixed_numbers(grid.shape, precision)
    v, s, out, more, own = (
        grid.field(name, 2 if x.ndim == 3 else 1, data=x, layout=layout)
        for name, x in zip(("v", "s", "out", "more", "own"), numbers, strict=True)
    )
    results = [ml.Global(0.0), ml.Global(np.inf, dtype=precision), ml.Global(-np.inf, dtype=precision)]
    at_v, at_s = (grid.offsets(*o) for o in MIXED_OFFSETS)
    mixed(grid.interior(1), v[at_v], s[at_s], out, more, own, *results)
    expected = mixed_expected(grid.interior(1), *numbers)
    close = {"rtol": 1e-14 if precision == "float64" else 2e-6, "atol": 1e-15 if precision == "float64" else 1e-6}
    for field, wanted in zip((out, more, own), expected, strict=False):
        np.testing.assert_allclose(grid.shaped(field), wanted, **close)
    np.testing.assert_allclose([g.value for g in results], expected[3:], rtol=close["rtol"])


def test_plain_execution_agrees_with_the_others() -> None:
    grid = ml.Grid((5, 7), periodic=(False, True))
    numbers = mixed_numbers(grid.shape, "float64")
    fields = [grid.field("f", 2 if x.ndim == 3 else 1, data=x) for x in numbers]
    results = [ml.Global(0.0), ml.Global(np.inf), ml.Global(-np.inf)]
    at_v, at_s = (grid.offsets(*o) for o in MIXED_OFFSETS)
    v, s, *written = fields
    mixed.python(grid.interior(1), v[at_v], s[at_s], *written, *results)
    expected = mixed_expected(grid.interior(1), *numbers)
    for field, wanted in zip(written, expected, strict=False):
        np.testing.assert_allclose(grid.shaped(field), wanted, rtol=1e-15)
    np.testing.assert_allclose([g.value for g in results], expected[3:], rtol=1e-14)


# ----- axes, ends, tiles ------------------------------------------------------------------------------------------
@ml.kernel
def star1(u: ml.Read, out: ml.Write):
    out[...] = u[1] - 2.0 * u[0] + u[-1]


@ml.kernel
def star2(u: ml.Read, out: ml.Write):
    out[...] = u[1, 0] + 2.0 * u[-1, 0] + 3.0 * u[0, 1] + 4.0 * u[0, -1] - 5.0 * u[0, 0]


@ml.kernel
def star3(u: ml.Read, out: ml.Write):
    out[...] = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + 2.0 * u[0, 0, 1] + u[0, 0, -1] - 6.0 * u[0, 0, 0]


STARS = {1: (star1, (-2, 1, 1)), 2: (star2, (-5, 2, 1, 4, 3)), 3: (star3, (-6, 1, 1, 1, 1, 1, 2))}


def star_of(grid: ml.Grid, values: np.ndarray, box: Any) -> np.ndarray:
    """What the kernel of this rank gives in a box, zero elsewhere."""
    _, weights = STARS[grid.rank]
    whole = sum(w * seen(values, *o) for w, o in zip(weights, grid.star(1).offsets, strict=True))
    result = np.zeros(grid.shape)
    result[inner(box)] = whole[inner(box)]
    return result


@every_backend
@pytest.mark.parametrize(("shape", "periodic"), [((301,), True), ((6, 9, 70), (True, False, True))])
def test_one_and_three_axes_with_ends_that_wrap(shape: tuple[int, ...], periodic: Any, backend: str) -> None:
    ml.use(backend)
    grid = ml.Grid(shape, periodic=periodic)
    values = np.random.default_rng(2).random(shape)
    u, out = grid.field("u", data=values), grid.field("out")
    STARS[grid.rank][0](grid.interior(1), u[grid.star(1)], out)
    np.testing.assert_allclose(grid.shaped(out), star_of(grid, values, grid.interior(1)), atol=1e-14)


def test_a_gpu_shares_the_loads_of_a_tile_and_loads_vectors() -> None:
    ml.use("emulated")
    grid = ml.Grid((16, 16, 128), periodic=True)
    u, out = grid.field("u"), grid.field("out")
    loop = star3.loop(grid, u[grid.star(1)], out)
    assert tile_of(loop.spec) == (4, 1, 2)
    assert "box block=256 (points of a grid, their neighbours found by arithmetic; 4 x 1 x 2 points" in loop.explain()
    single = grid.field("u", dtype=np.float32), grid.field("out", dtype=np.float32)
    assert tile_of(star3.loop(grid, single[0][grid.star(1)], single[1]).spec)[-1] == 4
    odd = ml.Grid((16, 16, 127), periodic=True)
    assert tile_of(star3.loop(odd, odd.field("u")[odd.star(1)], odd.field("out")).spec) == (4, 1, 1)


def test_a_gpu_has_smaller_blocks_where_a_point_loads_much() -> None:
    """Four components at six neighbours of two points in a row fill 96 registers, and rows are taken; of seven they
    would fill 168, so points stay single, and blocks are smaller, unless others are wanted."""
    ml.use("emulated")
    grid = ml.Grid((8, 8, 128), periodic=True)
    few, u, a, out = grid.field("few", 4), grid.field("u", 7), grid.field("a"), grid.field("out")
    beside = [o for o in grid.star(1).offsets if any(o)]

    @ml.kernel
    def twenty_four(u: ml.Read, out: ml.Write):
        out[...] = math.prod(u[o][c] for o in beside for c in range(4))

    @ml.kernel
    def forty_two(u: ml.Read, a: ml.Read, out: ml.Write):
        out[...] = a * math.prod(u[o][c] for o in beside for c in range(7))

    loops = [twenty_four.loop(grid, few[grid.star(1)], out), forty_two.loop(grid, u[grid.star(1)], a, out)]
    assert [(tile_of(one.spec), one.schedule.block) for one in loops] == [((1, 1, 2), 256), ((1, 1, 1), 128)]
    assert loops[1].by(ml.Schedule("box", block=256)).schedule.block == 256

    @ml.program
    def both() -> None:
        forty_two(grid, u[grid.star(1)], a, out)
        advance(grid, out, a)

    assert [one.schedule.block for one in both.fused_steps] == [128]


def test_rows_of_a_loop_that_stores_much_stay_by_themselves() -> None:
    """Slabs share what they load; a loop that stores four values and more at a point takes rows."""
    ml.use("emulated")
    grid = ml.Grid((16, 16, 128), periodic=True)

    def tile(components: int) -> tuple[int, ...]:
        @ml.kernel
        def spread(u: ml.Read, out: ml.Write):
            for c in range(components):
                out[c] = sum(u[o] for o in grid.star(1).offsets) * (c + 1.0)

        out = grid.field("out", components)
        return tuple(tile_of(spread.loop(grid, grid.field("u")[grid.star(1)], out).spec))

    assert [tile(components) for components in (2, 3, 4)] == [(4, 1, 2), (4, 1, 2), (1, 1, 2)]


def test_a_loop_that_stores_nothing_takes_more_rows() -> None:
    """Blocks end with a sum, which more points share: three components around four points fill 120 registers."""
    ml.use("emulated")
    grid = ml.Grid((16, 16, 128), periodic=True)
    u, total = grid.field("u", 3, data=np.random.default_rng(1).random((16, 16, 128, 3))), ml.Global(0.0, "total")
    beside = [o for o in grid.star(1).offsets if any(o)]

    @ml.kernel
    def measure(u: ml.Read, total: ml.Sum):
        total += sum(u[0, 0, 0][c] * u[o][c] for o in beside for c in range(3))

    @ml.kernel
    def keep(u: ml.Read, out: ml.Write):
        out[...] = sum(u[0, 0, 0][c] * u[o][c] for o in beside for c in range(3))

    measured, kept = measure.loop(grid, u[grid.star(1)], total), keep.loop(grid, u[grid.star(1)], grid.field("out"))
    assert (tile_of(measured.spec), tile_of(kept.spec)) == ((2, 1, 2), (1, 1, 2))
    measured()
    values = u.numpy()
    wanted = sum((values * np.roll(values, step, axis)).sum() for axis in range(3) for step in (-1, 1))
    assert total.value == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("backend", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("axis", [0, 1])
def test_steps_near_and_far_and_just_between(axis: int, backend: str) -> None:
    """Near ones are numbers in the text, far ones sizes; points that a thread takes together reach over the limit."""
    shape = (70, 72)
    values = np.random.default_rng(4).random(shape)
    for step in (NEAR - 7, NEAR - 1, NEAR, NEAR + 1, -NEAR, -NEAR - 1):
        ml.use(backend)
        grid = ml.Grid(shape, periodic=True)
        offset = (step, 0) if axis == 0 else (0, step)

        @ml.kernel
        def both(u: ml.Read, out: ml.Write):
            out[...] = u[offset] - 2.0 * u[0, 0]  # noqa: B023

        u, out = grid.field("u", data=values), grid.field("out")
        both(grid, u[grid.offsets((0, 0), offset)], out)
        np.testing.assert_array_equal(out.numpy(), seen(values, *offset) - 2.0 * values, err_msg=str(step))


@settings(deadline=None, max_examples=40)
@given(data=st.data())
@every_backend
def test_random_shapes_and_boxes(data: st.DataObject, backend: str) -> None:
    """Any box that the stencil can see around, on a grid whose axes wrap or not."""
    ml.use(backend)
    bricks = backend == "emulated"  # there boxes keep to what shares one text, with vectors, and edges that cut them
    shape = data.draw(st.tuples(st.integers(6, 12), st.sampled_from((72, 76, 80)))
                      if bricks else st.tuples(st.integers(3, 12), st.integers(3, 40)))  # fmt: skip
    periodic = data.draw(st.sampled_from([(False, False)] if bricks else [(False, False), (True, True)]))
    grid = ml.Grid(shape, periodic=periodic)
    edge, thick = [0 if p else 1 for p in periodic], (4, 64) if bricks else (1, 1)
    low = [data.draw(st.integers(e, n - e - t)) for e, n, t in zip(edge, shape, thick, strict=True)]
    high = [data.draw(st.integers(first + t, n - e)) for first, e, n, t in zip(low, edge, shape, thick, strict=True)]
    values = np.random.default_rng(3).random(shape)
    u, out = grid.field("u", data=values), grid.field("out")
    box = grid.box(low, high)
    star2(box, u[grid.star(1)], out)
    np.testing.assert_allclose(grid.shaped(out), star_of(grid, values, box), atol=1e-14)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_random_offsets_count_and_find_their_points(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = data.draw(st.tuples(*[st.integers(3, 7)] * rank))
    periodic = data.draw(st.tuples(*[st.booleans()] * rank))
    reach = [n if p else 1 for n, p in zip(shape, periodic, strict=True)]
    offset = st.tuples(*[st.integers(-r, r) for r in reach])
    offsets = data.draw(st.lists(offset, min_size=1, max_size=5, unique=True))
    grid = ml.Grid(shape, periodic=periodic)
    box = grid.interior(1)
    numbers = np.arange(grid.total).reshape(shape)
    rows = [box.rows(o) for o in offsets]
    for o, found in zip(offsets, rows, strict=True):
        np.testing.assert_array_equal(found, seen(numbers, *o)[inner(box)].reshape(-1))
    assert box.touched(offsets) == len(np.unique(rows))
    u, out = grid.field("u", data=np.random.default_rng(0).random(shape)), grid.field("out")

    @ml.kernel
    def add(u: ml.Read, out: ml.Write):
        out[...] = sum((k + 1.0) * u[o] for k, o in enumerate(offsets))

    add(box, u[grid.offsets(*offsets)], out)
    wanted = sum((k + 1.0) * seen(grid.shaped(u), *o) for k, o in enumerate(offsets))
    np.testing.assert_allclose(grid.shaped(out)[inner(box)], wanted[inner(box)], rtol=1e-14)


def test_bytes_count_each_value_of_a_stencil_once() -> None:
    grid = ml.Grid((10, 12))
    u, out = grid.field("u"), grid.field("out")
    counts = star2.counts(grid.interior(1), u[grid.star(1)], out)
    assert counts.bytes.compulsory == 8 * (10 * 12 - 4 + 8 * 10)  # all of u but its corners, the interior of out
    assert counts.bytes.issued == 8 * 80 * 6 and counts.bytes.cache_lines >= counts.bytes.compulsory // 2
    box = star2.counts(grid.box((3, 3), (5, 6)), u[grid.star(1)], out)
    assert box.bytes.compulsory == 8 * ((2 * 3 + 2 * 2 + 2 * 3) + 6)


# ----- ghosts -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("closed", "backend"), [("copy", "numpy"), ("mirror", "numpy"), ("mirror", "cpu"), ("copy", "emulated")]
)
def test_ghosts_are_filled_axis_after_axis(closed: str, backend: str) -> None:
    ml.use(backend)
    grid = ml.Grid((20, 6), periodic=(True, False), ghosts=(2, 1))
    values = np.random.default_rng(4).random(grid.shape)
    u, out = grid.field("u", data=values), grid.field("out")
    ml.fill_ghosts(u, closed=closed)
    wanted = np.pad(values, ((2, 2), (0, 0)), mode="wrap")
    wanted = np.pad(wanted, ((0, 0), (1, 1)), mode="edge" if closed == "copy" else "reflect")
    np.testing.assert_array_equal(grid.shaped(u, ghosts=True), wanted)
    star2(grid, u[grid.star(1)], out)  # all points, their neighbours in the ghosts; ghosts of out stay untouched
    around = ml.Grid(wanted.shape)
    points = star_of(around, wanted, around.interior((2, 1)))
    np.testing.assert_allclose(grid.shaped(out, ghosts=True), points, atol=1e-14)


def test_a_field_may_be_read_and_written_where_the_two_are_apart() -> None:
    grid = ml.Grid((4, 5))
    u = grid.field("u", data=np.arange(20.0).reshape(4, 5))

    @ml.kernel
    def copy_inside(inside: ml.Read, u: ml.Write):
        u[...] = inside[1, 0]

    copy_inside(grid.boundary(0, "low"), u[grid.offsets((1, 0))], u)
    np.testing.assert_array_equal(grid.shaped(u)[0], np.arange(5.0) + 5)
    with pytest.raises(KernelError, match="u is passed as inside and as u"):
        copy_inside(grid.box((0, 0), (2, 5)), u[grid.offsets((1, 0))], u)


# ----- programs ---------------------------------------------------------------------------------------------------
@ml.kernel
def advance(slope: ml.Read, u: ml.ReadWrite):
    u += 0.1 * slope


@ml.kernel
def hold(u: ml.Write):
    u[...] = 1.0


@every_backend
def test_box_loops_in_a_program_beside_loops_that_fuse(backend: str) -> None:
    ml.use(backend)
    grid = ml.Grid((8, 11), periodic=(True, False))
    values = np.random.default_rng(5).random(grid.shape)
    u, slope = grid.field("u", data=values), grid.field("slope", temporary=True)

    @ml.program
    def step() -> None:
        slope.fill(0.0)
        star2(grid.interior(1), u[grid.star(1)], slope)
        advance(grid, slope, u)
        hold(grid.boundary(1, "low"), u)
        advance(grid, slope, u)

    step.run(3)
    for _ in range(3):
        change = 0.1 * star_of(grid, values, grid.interior(1))
        values = values + change
        values[:, 0] = 1.0
        values = values + change
    np.testing.assert_allclose(grid.shaped(u), values, rtol=1e-12)


# ----- wrong input ------------------------------------------------------------------------------------------------
CLOSED = ml.Grid((6, 5), name="g")
ROUND = ml.Grid((6, 2), periodic=True, name="r")


@ml.kernel
def through(u: ml.Read, out: ml.Inc):
    out += u[1, 0]


@ml.kernel
def writes_around(u: ml.Write):
    u[...] = 1.0


@pytest.mark.parametrize(("act", "words"), [
    (lambda u, out: star2(CLOSED, u[CLOSED.star(1)], out),
     r"parameter u: offset \(-1, 0\) of u leads out of grid g from g\[0:6, 0:5\]: axis x ends there and has 0 ghost"),
    (lambda u, out: CLOSED.interior(3), r"axis x has 6 points, too few for interior\(3\): at least 7"),
    (lambda u, out: CLOSED.box((2, 2), (2, 4)), "box 2:2 on axis x is empty; it must be within 0:6"),
    (lambda u, out: CLOSED.box((2, 2), (4, 9)), "box 2:9 on axis y leaves the grid; it must be within 0:5"),
    (lambda u, out: CLOSED.box((2,), (4, 4)), "the low end of a box has 1 entries, but the grid has 2 axes"),
    (lambda u, out: CLOSED.offsets((1, 0, 0)), r"offset \(1, 0, 0\) must have 2 entries, has 3"),
    (lambda u, out: CLOSED.offsets((0.5, 0)), "offsets must be whole numbers"),
    (lambda u, out: CLOSED.offsets(), "give at least one offset"),
    (lambda u, out: CLOSED.ghost(0, "low"), "no ghost layers on axis x"),
    (lambda u, out: CLOSED.boundary(0, "left"), "a side is 'low' or 'high', got 'left'"),
    (lambda u, out: CLOSED.boundary(2, "low"), "no axis 2"),
    (lambda u, out: ml.fill_ghosts(u, closed="mirrors"), "did you mean 'mirror'"),
    (lambda u, out: star2(CLOSED.interior(1), u[CLOSED.offsets((1, 0))], out), r"u is read at offset \(-1, 0\), but"),
    (lambda u, out: through(CLOSED.interior(1), u[CLOSED.star(1)], out[CLOSED.star(1)]),
     "out is Inc at offsets, but a loop over a grid writes at its own point only"),
    (lambda u, out: writes_around(CLOSED.interior(1), u[CLOSED.star(1)]), "u is Write at offsets"),
    (lambda u, out: u[ROUND.star(1)], "lives on g, but the offsets are of r"),
    (lambda u, out: star2(ROUND, u[CLOSED.star(1)], out), "field u lives on g, but the loop runs over r"),
    (lambda u, out: star2(3, u[CLOSED.star(1)], out), r"the set \(or box of a grid\) to loop over, got int"),
    (lambda u, out: through(ROUND, ROUND.field("w")[ROUND.offsets((1, 0), (0, 3))], ROUND.field("o")),
     r"offset \(0, 3\) of w leads out of grid r .*: axis y has only 2 points, and goes around once;"
     " 1 there is the same point$"),
])  # fmt: skip
def test_wrong_input_gets_one_clear_line(act: Any, words: str) -> None:
    u, out = CLOSED.field("u"), CLOSED.field("out")
    with pytest.raises((MeshError, KernelError), match=words) as caught:
        act(u, out)
    assert "\n" not in str(caught.value)


def test_a_stencil_cannot_be_written_in_the_kernel() -> None:
    def writes(u, out):
        u.__setitem__((1, 0), 1.0)
        out[...] = u[1, 0]

    writes.__annotations__ = {"u": ml.Read, "out": ml.Write}
    kernel, u = ml.kernel(writes), CLOSED.field("u")
    with pytest.raises(KernelError, match=r"test_grid_loops.py:\d+: parameter u is read at offsets and cannot"):
        kernel(CLOSED.interior(1), u[CLOSED.star(1)], CLOSED.field("out"))


def test_a_box_of_all_that_is_stored_is_a_plain_loop() -> None:
    """Without neighbours; then it has no need of coordinates, and may fuse."""

    @ml.kernel
    def double(v: ml.ReadWrite):
        v[...] = 2.0 * v

    ml.use("cpu")
    for grid, strategy in ((ml.Grid((4, 3), ghosts=1), "box"), (ml.Grid((4, 3), periodic=True), "direct")):
        v = grid.field("v")
        v.fill(1.0)
        for box, expected in ((grid.everything, "direct"), (grid.interior(1 - any(grid.ghosts)), strategy)):
            loop = double.loop(box, v)
            loop()
            assert loop.schedule.strategy == expected and loop.elements == len(box)
        assert grid.shaped(v).min() == 4.0 and grid.shaped(v, ghosts=True).sum() == grid.total * 2.0 + 12 * 2.0


def test_a_form_of_another_strategy_means_nothing_to_a_box() -> None:
    """As a strategy does not; one that it never had is an error."""
    ml.use("numpy")
    grid = ml.Grid((4, 5))
    u, v = grid.field("u", data=np.ones((4, 5))), grid.field("v")

    @ml.kernel
    def moved(u: ml.Read, v: ml.Write):
        v[...] = 2.0 * u[0, 1]

    box = grid.box((0, 0), (4, 4))
    for wish in (ml.Schedule("color", variant="indices"), ml.Schedule("color"), ml.Schedule("box", variant="row")):
        moved.loop(box, u[grid.offsets((0, 1))], v, schedule=wish)()
        assert grid.shaped(v)[:, :4].tolist() == [[2.0] * 4] * 4
    with pytest.raises(ml.errors.ScheduleError, match="strategy 'color' has no variant 'row'"):
        moved.loop(box, u[grid.offsets((0, 1))], v, schedule=ml.Schedule("color", variant="row"))()


def test_each_place_where_a_written_field_is_read_is_looked_at() -> None:
    """The first of them lies apart from what is written, the second does not."""
    grid = ml.Grid(8)
    u = grid.field("u")

    @ml.kernel
    def extrapolate(u: ml.Write, far: ml.Read, near: ml.Read):
        u[...] = far[2] + near[1]

    with pytest.raises(KernelError, match="u is passed as u and as near, and one of them is written"):
        extrapolate(grid.boundary(0, "low", 2), u, u[grid.offsets((2,))], u[grid.offsets((1,))])
