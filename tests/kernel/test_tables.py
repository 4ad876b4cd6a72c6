"""Looking up by a value: ``table[k]`` and ``np.interp``, on every back end what NumPy gives."""

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, RunError

BACKENDS = ["numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
CONSTANTS = np.array([3.0, 1.5, -2.0, 8.0, 0.25])
ROWS = np.arange(12, dtype=np.int32).reshape(4, 3)


@ml.kernel
def by_name(k: ml.Read, out: ml.Write):
    out[...] = CONSTANTS[k] + helper(k) + ROWS[k % 4, 2] + ROWS[1, k % 3] + ROWS[k % 4].sum() + ROWS[k % 4, k % 3]


def helper(k):
    return CONSTANTS[::-1][k]


class Settings:
    table = np.array([1.0, 2.0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_tables_that_a_kernel_reads(backend):
    k = np.arange(-4, 5)
    with ml.using(backend):
        s = ml.Set(len(k), "s")
        out = s.field("out")
        by_name(s, s.field("k", data=k, dtype=np.int64), out)
    rows = ROWS[k % 4, 2] + ROWS[1, k % 3] + ROWS[k % 4].sum(axis=1) + ROWS[k % 4, k % 3]
    np.testing.assert_array_equal(out.numpy(), CONSTANTS[k] + CONSTANTS[::-1][k] + rows)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_global_of_rows_and_an_index_of_several(backend):
    @ml.kernel
    def look(k: ml.Read, g: ml.Read, out: ml.Write, both: ml.Write, one: ml.Write):
        g = g.reshape(3, 3)
        out[...] = g[k]
        both[...] = g[np.stack([k, k + 1]), 1]
        one[...] = np.stack([out[0], g[0, k], g[2, 1] * 2.0])[k]

    values = np.arange(9.0).reshape(3, 3) ** 2
    k = np.array([0, 1, -2, -3], np.int32)
    with ml.using(backend):
        s = ml.Set(4, "s")
        out, both, one = s.field("out", 3), s.field("both", 2), s.field("one")
        look(s, s.field("k", data=k, dtype=np.int32), ml.Global(values.ravel(), "g"), out, both, one)
    np.testing.assert_array_equal(out.numpy(), values[k])
    np.testing.assert_array_equal(both.numpy(), np.stack([values[k, 1], values[k + 1, 1]], 1))
    chosen = np.stack([values[k, 0], values[0, k], np.full(4, values[2, 1] * 2.0)])
    np.testing.assert_array_equal(one.numpy(), chosen[k, np.arange(4)])


def _all_lookups(table, points, heights):
    @ml.kernel(strict=True)
    def look(k: ml.Read, x: ml.Read, g: ml.Read, h: ml.Read, out: ml.Write):
        out[0] = table[k]
        out[1] = g[k]
        out[2] = np.interp(x, points, heights)
        out[3] = np.interp(x, points, heights, left=-7, right=9.0)
        out[4] = np.interp(x, points, h)
        out[5] = np.interp(x.astype(np.float32), points, table)
        out[6] = np.interp(x, points, heights, period=1.5)

    return look


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_lookups_and_interpolations(backend):
    """Over types and sizes, big tables included."""
    draws = np.random.default_rng(7)
    drawn = [(1, "float64", "int32"), (2, "float32", "int64"), (700, "float64", "int32"), (5, "int32", "int64")]
    for size, dtype, kind in drawn:
        table = (draws.normal(size=size) * 100).astype(dtype)
        points = np.sort(draws.normal(size=size)).round(2)  # some are equal
        k = draws.integers(-size, size, 50).astype(kind)
        x = np.concatenate([draws.normal(size=46), points[:1], points[-1:], [np.nan, np.inf]])
        heights = draws.normal(size=size)
        with ml.using(backend):
            s = ml.Set(50, "s")
            out = s.field("out", 7)
            fields = s.field("k", data=k, dtype=kind), s.field("x", data=x)
            tables = ml.Global(table, "g", dtype=dtype), ml.Global(heights, "h")
            _all_lookups(table, points, heights)(s, *fields, *tables, out)
        with np.errstate(invalid="ignore"):
            right = [table[k], table[k], np.interp(x, points, heights), np.interp(x, points, heights, -7, 9.0),
                     np.interp(x, points, heights), np.interp(x.astype(np.float32), points, table),
                     np.interp(x, points, heights, period=1.5)]  # fmt: skip
        np.testing.assert_allclose(out.numpy(), np.stack(right, 1), rtol=1e-14, atol=1e-13, err_msg=f"{size} {dtype}")
        np.testing.assert_array_equal(out.numpy()[:, :2], np.stack(right[:2], 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_finite_interpolates_as_in_numpy(backend):
    points = np.array([-np.inf, 0.0, 1.0, 1.0, 2.0, np.inf])
    heights = np.array([1.0, 1.0, np.inf, 3.0, np.nan, 5.0])
    x = np.array([-np.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf, np.nan])

    @ml.kernel
    def look(x: ml.Read, h: ml.Read, out: ml.Write):
        out[0] = np.interp(x, points, heights)
        out[1] = np.interp(x, points, h)

    with ml.using(backend):
        s = ml.Set(len(x), "s")
        out = s.field("out", 2)
        look(s, s.field("x", data=x), ml.Global(heights, "h"), out)
    with np.errstate(invalid="ignore"):
        right = np.interp(x, points, heights)
    np.testing.assert_array_equal(out.numpy(), np.stack([right, right], 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_index_outside_gives_the_nearest_end_and_debug_names_it(backend):
    @ml.kernel
    def look(k: ml.Read, g: ml.Read, out: ml.Write):
        out[...] = g[k] + CONSTANTS[k]

    k = np.array([0, 4, 5, 2**62, -5, -6, -(2**63)])
    with ml.using(backend):
        s = ml.Set(len(k), "cells")
        out, field = s.field("out"), s.field("k", data=k, dtype=np.int64)
        table = ml.Global(CONSTANTS * 2.0, "density")
        look(s, field, table, out)
        np.testing.assert_array_equal(out.numpy(), CONSTANTS[[0, 4, 4, 4, 0, 0, 0]] * 3.0)
        out.fill(0.0)
        with ml.debug(), pytest.raises(RunError) as caught:
            look(s, field, table, out)
    assert "index 5 is outside g, which has 5 entries" in str(caught.value), caught.value
    assert "cells element 2" in str(caught.value) and __file__ in str(caught.value) and (out.numpy() == 0.0).all()


@pytest.mark.parametrize("strategy", ["owner", "atomic", "color", "staged", "tile"])
@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_lookups_under_every_strategy(strategy, backend):
    mesh = ml.generate.box((6, 5), cells="triangle")
    draws = np.random.default_rng(1)
    kind, heat = draws.integers(0, 4, len(mesh.cells)), draws.random(len(mesh.cells))
    weights, x, y = ml.Global([1.0, 2.0, 4.0, 8.0], "weights"), np.array([0.0, 0.3, 1.0]), np.array([1.0, 5.0, 2.0])

    @ml.kernel
    def exchange(kind: ml.Read, heat: ml.Read, weights: ml.Read, rate: ml.Inc):
        d = weights[kind[0]] * np.interp(heat[1], x, y) - weights[kind[1]] * np.interp(heat[0], x, y)
        rate[0] += d
        rate[1] -= d

    found = []
    for name in ("numpy", backend):
        with ml.using(name):
            m = mesh.face_cells
            rate = mesh.cells.field(f"rate_{name}")
            args = (mesh.cells.field(f"k_{name}", data=kind, dtype=np.int32)[m],
                    mesh.cells.field(f"h_{name}", data=heat)[m], weights, rate[m])
            loop = exchange.loop(mesh.faces, *args, schedule=None if name == "numpy" else ml.Schedule(strategy))
            loop()
            assert loop.counts.flops > 0 and "exchange" in str(loop.explain())
            found.append(rate.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_lookups_fuse_and_follow_their_tables(backend):
    table = np.array([1.0, 2.0])
    with ml.using(backend):
        s = ml.Set(4, "s")
        k, a, b = s.field("k", data=[0, 1, 0, 1], dtype=np.int32), s.field("a"), s.field("b")
        g = ml.Global([10.0, 20.0], "g")

        @ml.kernel
        def first(k: ml.Read, g: ml.Read, a: ml.Write):
            a[...] = g[k] + table[k]

        @ml.kernel
        def second(a: ml.Read, k: ml.Read, b: ml.Write):
            b[...] = a * np.interp(a, [0.0, 100.0], [0.0, 1.0]) + table[-1 - k]

        @ml.program
        def step():
            first(s, k, g, a)
            second(s, a, k, b)

        step.run(1)
        rightly = np.array([11.0, 22.0, 11.0, 22.0])
        np.testing.assert_allclose(b.numpy(), rightly**2 / 100.0 + [2, 1, 2, 1])
        table[:] = [3.0, 4.0]
        g.value = [0.0, 1.0]
        step.run(1)
        rightly = np.array([3.0, 5.0, 3.0, 5.0])
        np.testing.assert_allclose(b.numpy(), rightly**2 / 100.0 + [4, 3, 4, 3])


def test_helpers_of_kernels_with_tables_keep_their_attributes():
    ml.use("cpu")

    def scaled(x):
        return scaled.gamma * x

    scaled.gamma = 1.5
    heights, cells = np.array([1.0, 2.0]), ml.Set(2, "cells")
    kind, out = cells.field("kind", data=np.array([1, 0]), dtype=np.int32), cells.field("out")

    @ml.kernel
    def look(kind: ml.Read, out: ml.Write):
        out[...] = scaled(heights[kind])

    look(cells, kind, out)
    assert out.numpy().tolist() == [3.0, 1.5]


def test_large_tables_are_told_of():
    ml.use("numpy")
    places, cells = np.linspace(0.0, 1.0, 30_000), ml.Set(2, "cells")
    x, out = cells.field("x", data=0.25), cells.field("out")

    @ml.kernel
    def look(x: ml.Read, out: ml.Write):
        out[...] = np.interp(x, places, 2.0 * places)

    with pytest.warns(UserWarning, match=r"kernel look looks up tables of [0-9]+ entries"):
        look(cells, x, out)
    assert np.allclose(out.numpy(), 0.5)


def test_python_sees_plain_numpy():
    s = ml.Set(9, "s")
    k = s.field("k", data=np.arange(-4, 5), dtype=np.int64)
    one, other = s.field("one"), s.field("other")
    by_name(s, k, one)
    by_name.python(s, k, other)
    np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_derivatives():
    x, y = np.array([0.0, 1.0, 3.0]), np.array([0.0, 5.0, 1.0])

    @ml.kernel
    def slope(u: ml.Read, k: ml.Read, g: ml.Read, d: ml.Write):
        d[0] = ml.jacobian(lambda v: np.interp(v, x, y), u)
        d[1] = ml.jacobian(lambda v: CONSTANTS[k] + g[k] * v, u)
        d[2] = ml.jacobian(lambda v: np.stack([v, v * v])[k], u)

    s = ml.Set(4, "s")
    d = s.field("d", 3)
    slope(s, s.field("u", data=[-1.0, 0.5, 2.0, 4.0]), s.field("k", data=[0, 1, 0, 1], dtype=np.int32),
          ml.Global([7.0, 9.0], "g"), d)
    np.testing.assert_allclose(d.numpy(), [[0, 7, 1], [5, 9, 1], [-2, 7, 1], [0, 9, 8]])


def test_counts_and_explanations_know_lookups():
    s = ml.Set(10, "s")
    look = by_name.loop(s, s.field("k", dtype=np.int64), s.field("out"))
    assert look.counts.compulsory == 10 * 16 and look.counts.flops_by_kind["select"] > 0


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda x, k: CONSTANTS[x], "indexed by float64"),
        (lambda x, k: CONSTANTS[x > 0], "truth value"),
        (lambda x, k: CONSTANTS[k, 0], "1 axis"),
        (lambda x, k: np.zeros(0)[k] if False else np.asarray(np.zeros(0))[k], "no entries"),
        (lambda x, k: Settings.table[k], "np.asarray(table)[k]"),
        (lambda x, k: np.asarray(CONSTANTS.astype(complex))[k], "known only at run time"),
        (lambda x, k: np.asarray(np.array([1, 2], np.uint8))[k] * 1.0, "not with uint8"),
        (lambda x, k: np.interp(x, [1.0, 0.0], [0.0, 1.0]), "xp must increase"),
        (lambda x, k: np.interp(x, [0.0, np.nan], [0.0, 1.0]), "xp must increase"),
        (lambda x, k: np.interp(x, [0.0, 1.0], [0.0]), "2 numbers and fp 1"),
        (lambda x, k: np.interp(x, [], []), "one at least"),
        (lambda x, k: np.interp(x, [0.0, x], [0.0, 1.0]), "xp must be known"),
        (lambda x, k: np.interp(x, ["a"], [0.0]), "real numbers"),
        (lambda x, k: np.interp(x, [0.0, 1.0], [0.0, 1.0], period=0), "period"),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_up_is_said_in_one_line(formula, words):
    @ml.kernel
    def look(x: ml.Read, k: ml.Read, out: ml.Write):
        out[...] = formula(x, k)

    s = ml.Set(2, "s")
    with pytest.raises(KernelError) as caught:
        look(s, s.field("x"), s.field("k", dtype=np.int32), s.field("out"))
    assert words in str(caught.value) and __file__ in str(caught.value), caught.value


def test_any_table_is_looked_up_through_asarray():
    settings = Settings()

    @ml.kernel
    def look(k: ml.Read, out: ml.Write):
        out[...] = np.asarray(settings.table)[k]

    s = ml.Set(2, "s")
    out = s.field("out")
    look(s, s.field("k", data=[1, 0], dtype=np.int32), out)
    assert out.numpy().tolist() == [2.0, 1.0]
