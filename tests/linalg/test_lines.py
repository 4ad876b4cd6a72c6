"""Line loops and tridiagonal solvers against LU, on every back end; wrong input in one clear line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.linalg.operator import lu, solved

BACKENDS = ("cpu", "emulated")
TOLERANCE = {"float64": 1e-14, "float32": 3e-6}
END, PADE = {0: -17 / 6, 1: 1.5, 2: 1.5, 3: -1 / 6}, {-1: -0.75, 1: 0.75}
INNER = {-2: -1 / 36, -1: -7 / 9, 1: 7 / 9, 2: 1 / 36}


def matrix(periodic: bool) -> ml.linalg.Tridiagonal:
    third, near = 1 / 3, (0.25, 1.0, 0.25)
    if periodic:
        return ml.linalg.Tridiagonal(third, 1.0, third, periodic=True)
    return ml.linalg.Tridiagonal(third, 1.0, third, low=((0.0, 1.0, 3.0), near), high=((3.0, 1.0, 0.0), near))


def lele6(periodic: bool, scale: float = 2.5) -> ml.linalg.LineOperator:
    closures = {} if periodic else {"low": (END, PADE), "high": ({-o: -c for o, c in END.items()}, PADE)}
    return ml.linalg.LineOperator(matrix(periodic), ml.linalg.LineStencil(INNER, **closures), scale)  # type: ignore[arg-type]


def dense(operator: ml.linalg.LineOperator, n: int) -> np.ndarray:
    """scale A^-1 B as a full matrix, built entry by entry: independent of everything that is tested."""
    a, b, m, s = np.zeros((n, n)), np.zeros((n, n)), operator.matrix, operator.stencil
    for k in range(n):
        low, high = k < len(m.low), n - 1 - k < len(m.high)
        row = m.low[k] if low else m.high[n - 1 - k] if high else (m.lower, m.diag, m.upper)
        for o, c in zip((-1, 0, 1), row, strict=True):
            if c:
                a[k, (k + o) % n] += c
        low, high = k < len(s.low), n - 1 - k < len(s.high)
        for o, c in (s.low[k] if low else s.high[n - 1 - k] if high else s.inner).items():
            b[k, (k + o) % n] += c
    return operator.scale * np.linalg.solve(a, b)


def run(shape: tuple[int, ...], axis: int, operator: ml.linalg.LineOperator, back_end: str, precision: str = "float64",
        dim: int = 1, **options: object) -> np.ndarray:  # fmt: skip
    ml.use(back_end)
    layout, ghosts = options.pop("layout", "soa"), options.pop("ghosts", 0)
    aligned = options.pop("aligned", False)
    grid = ml.Grid(shape, periodic=operator.matrix.periodic, ghosts=ghosts, aligned=aligned)  # type: ignore[arg-type]
    data = np.random.default_rng(3).random((*grid.shape, dim)).astype(precision)
    f = grid.field("f", dim, dtype=precision, data=data, layout=layout)  # type: ignore[arg-type]
    out = f if options.pop("in_place", False) else grid.field("out", dim, dtype=precision, layout=layout)  # type: ignore[arg-type]
    ml.linalg.line_loop(grid, axis, operator, f, out, **options)
    return grid.shaped(out)


def differ(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("periodic", [True, False])
def test_the_reference_is_the_dense_solution(periodic: bool) -> None:
    operator = lele6(periodic)
    for n in (5, 6, 33):
        f = np.random.default_rng(n).random((n, 4))
        assert differ(operator.applied(f), dense(operator, n) @ f) < 1e-14


#: Lengths around segments of 16 points, lines that go to several blocks, one that is no multiple of anything.
LENGTHS = (5, 16, 17, 47, 512, 4097)
FORMS: list[dict[str, Any]] = [{"dim": 3}, {"dim": 2, "layout": "aos"}, {"dim": 3, "layout": "aosoa4"},
                               {"ghosts": (2, 1)}, {"in_place": True}]  # fmt: skip


def check(shape: tuple[int, ...], axis: int, periodic: bool, back_end: str, precision: str = "float64",
          **options: Any) -> None:  # fmt: skip
    """A back end gives the LU reference, to rounding."""
    operator = lele6(periodic)
    expected = run(shape, axis, operator, "numpy", precision, **dict(options))
    found = run(shape, axis, operator, back_end, precision, **dict(options))
    assert differ(found, expected) < TOLERANCE[precision], (shape, axis, periodic, back_end, precision, options)


@pytest.mark.parametrize("back_end", BACKENDS)
@pytest.mark.parametrize("periodic", [True, False])
def test_segmented_is_lu(periodic: bool, back_end: str) -> None:
    check((37, 3), 0, periodic, back_end)
    check((2, 3, 37), 2, periodic, back_end)
    check((3, 37, 5), 1, not periodic, back_end, "float32", dim=2)


@pytest.mark.parametrize("back_end", BACKENDS)
@pytest.mark.parametrize("periodic", [True, False])
def test_long_lines(periodic: bool, back_end: str) -> None:
    check((70_000,), 0, periodic, back_end)


@pytest.mark.parametrize("back_end", BACKENDS)
def test_layouts_and_ghosts(back_end: str) -> None:
    check((20, 33), 0, True, back_end, dim=2, layout="aos", ghosts=(2, 1))
    check((20, 33), 1, False, back_end, in_place=True)


@pytest.mark.slow
@pytest.mark.parametrize("back_end", BACKENDS)
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("periodic", [True, False])
def test_every_length_axis_and_form(periodic: bool, precision: str, back_end: str) -> None:
    for n in LENGTHS:
        for shape, axis in (((n, 3), 0), ((3, n), 1)):
            check(shape, axis, periodic, back_end, precision)
    for axis in range(3):
        check((9, 21, 34), axis, periodic, back_end, precision)
    for shape, axis in (((2, 65_537), 1), ((3001, 2), 0)):
        check(shape, axis, periodic, back_end, precision)
    for options in FORMS:
        for axis in (0, 1):
            check((20, 33), axis, periodic, back_end, precision, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("periodic", [True, False])
def test_on_a_device(periodic: bool, precision: str) -> None:
    for n in (5, 17, 47, 512, 4097, 65_537):
        check((n, 40), 0, periodic, "cuda", precision)
        check((40, n), 1, periodic, "cuda", precision)
    for axis in range(3):
        check((60, 70, 80), axis, periodic, "cuda", precision, dim=3)
        check((60, 70, 77), axis, periodic, "cuda", precision, aligned=True)


@ml.kernel
def flux(q: ml.Read, half: ml.Read, f: ml.Write):
    p = 0.4 * (q[2] - half * q[1] ** 2 / q[0])
    f[...] = np.stack([q[1], q[1] ** 2 / q[0] + p, (q[2] + p) * q[1] / q[0]])


@ml.kernel
def accumulate(df: ml.Read, metric: ml.Read, rhs: ml.Inc):
    rhs -= metric * df


@ml.kernel
def mixed(df: ml.Read, metric: ml.Read, rhs: ml.ReadWrite):
    rhs[...] = np.stack([rhs[0] + df[1], rhs[1] * metric + df[0] * df[2], df.sum()])


@pytest.mark.parametrize(("after", "periodic", "back_end", "tuning"), [
    *((accumulate, False, back_end, {}) for back_end in BACKENDS),
    *((mixed, True, back_end, {}) for back_end in BACKENDS),
    (accumulate, False, "emulated", {"group": 2, "shared": 0, "prefetch": 2}),  # blocks of two, and of one
    (accumulate, True, "emulated", {"group": 2, "points": 8, "shared": 0}),
    (accumulate, False, "emulated", {"group": 3, "points": 8, "shared": 1}),  # through shared memory along all axes
    (accumulate, True, "emulated", {"group": 2, "points": 4, "shared": 1, "side": 2, "prefetch": 1}),
    (accumulate, False, "emulated", {"group": 2, "points": 8, "shared": 1, "tile": 16}),
    (mixed, True, "emulated", {"points": 8, "shared": 1, "side": 2}),  # results that need several operands
])  # fmt: skip
def test_kernels_before_and_after(after: ml.Kernel, periodic: bool, back_end: str, tuning: dict[str, int]) -> None:
    """Against the same thing in three steps, by NumPy alone."""
    for axis in (0, 1):
        ml.use(back_end)
        grid, rng = ml.Grid((19, 36), periodic=periodic), np.random.default_rng(5)
        q = grid.field("q", 3, data=1.0 + rng.random((grid.total, 3)))
        metric, rhs = (
            grid.field("metric", data=rng.random(grid.total)),
            grid.field("rhs", 3, data=rng.random((grid.total, 3))),
        )
        before, operator = rhs.numpy().reshape(-1, 3), lele6(periodic)
        half = ml.Global(0.5, "half")
        ml.linalg.LineLoop(grid, axis, operator, (q, half), (metric, rhs), before=flux, after=after, values=3,
                           tuning=tuning)()  # fmt: skip
        values, expected = grid.shaped(q), np.empty((grid.total, 3))
        rho, m, e = np.moveaxis(values, -1, 0)
        p = 0.4 * (e - 0.5 * m**2 / rho)
        df = []
        for f in (m, m**2 / rho + p, (e + p) * m / rho):
            lines = np.moveaxis(f, axis, 0)
            df.append(
                np.moveaxis(operator.applied(lines.reshape(len(lines), -1)).reshape(lines.shape), 0, axis).ravel()
            )
        w = metric.numpy().reshape(-1)
        if after is accumulate:
            expected = before - w[:, None] * np.stack(df, axis=1)
        else:
            expected = np.stack([before[:, 0] + df[1], before[:, 1] * w + df[0] * df[2], sum(df)], axis=1)
        assert differ(rhs.numpy().reshape(-1, 3), expected) < 1e-14


@pytest.mark.parametrize("periodic", [True, False])
def test_neighbours_exchange_operands(periodic: bool) -> None:
    """What a thread gets from its neighbours is what it would have evaluated; not where a segment is not full."""
    ml.use("emulated")
    for n, possible in ((24, True), (21, False)):
        grid, found = ml.Grid((n, 5), periodic=periodic), []
        q = grid.field("q", 3, data=1.0 + np.random.default_rng(5).random((grid.total, 3)))
        metric, half = grid.field("metric", data=np.ones(grid.total)), ml.Global(0.5, "half")
        for exchange in (1, 0):
            rhs = grid.field("rhs", 3)
            loop = ml.linalg.LineLoop(grid, 0, lele6(periodic), (q, half), (metric, rhs), before=flux, after=accumulate,
                                      values=3, tuning={"points": 8, "shared": 0, "exchange": exchange})  # fmt: skip
            assert loop.spec.tiling.exchange == bool(exchange and possible)
            loop()
            found.append(rhs.numpy())
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("periodic", [True, False])
def test_lines_in_pairs(periodic: bool) -> None:
    """A thread that takes two lines at a time gives what one does that takes one; odd numbers go one by one."""
    ml.use("emulated")
    for shape, aligned, paired in (((37, 18), False, True), ((21, 3, 6), False, True), ((37, 17), False, False),
                                   ((37, 17), True, True), ((9, 21, 5), True, True),
                                   ((200, 2), False, True)):  # fmt: skip
        grid, found = ml.Grid(shape, periodic=periodic, aligned=aligned), []
        f = grid.field("f", 2, dtype="float32", data=np.random.default_rng(2).random((*grid.shape, 2), np.float32))
        for pair in (1, 0):
            out = grid.field("out", 2, dtype="float32")
            loop = ml.linalg.LineLoop(grid, 0, lele6(periodic), f, out,
                                      tuning={"pair": pair, "points": 8, "tile": 8, "threads": 128})  # fmt: skip
            assert loop.spec.tiling.pair == bool(pair and paired)
            loop()
            found.append(grid.shaped(out))
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("back_end", BACKENDS)
def test_an_operator_for_each_operand(back_end: str) -> None:
    """Two biased matrices, as a flux splitting needs them."""
    stencil = ml.linalg.LineStencil(INNER)
    pair = [ml.linalg.LineOperator(ml.linalg.Tridiagonal(a, 1.0, b, periodic=True), stencil, s)
            for a, b, s in ((0.25, 0.4, 2.0), (0.4, 0.25, -1.0))]  # fmt: skip
    for axis in (0, 1):
        ml.use(back_end)
        grid = ml.Grid((20, 35), periodic=True)
        f, out = grid.field("f", 2, data=np.random.default_rng(1).random((grid.total, 2))), grid.field("out", 2)
        ml.linalg.line_loop(grid, axis, pair, f, out)
        for c, one in enumerate(pair):
            lines = np.moveaxis(grid.shaped(f)[..., c], axis, 0)
            assert differ(np.moveaxis(grid.shaped(out)[..., c], axis, 0), one.applied(lines)) < 1e-14


@pytest.mark.parametrize("back_end", BACKENDS)
@pytest.mark.parametrize("periodic", [True, False])
def test_slow_decay_is_exact_too(periodic: bool, back_end: str) -> None:
    """Carries of all segments of a line; on a GPU two levels where it goes to several blocks."""
    slow = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.4995, 1.0, 0.4985, periodic=periodic), scale=3.0)
    for shape, axis in (((301, 2), 0), ((9001,), 0)) if periodic else (((2, 301), 1), ((2500, 9), 0)):
        loops = {one: run(shape, axis, slow, one) for one in ("numpy", back_end)}
        assert differ(loops[back_end], loops["numpy"]) < 2e-13, shape


@pytest.mark.parametrize("back_end", BACKENDS)
@pytest.mark.parametrize("method", ml.linalg.tridiagonal.methods())
def test_every_method_solves(method: str, back_end: str) -> None:
    for periodic, shape, axis in ((True, (7, 50), 1), (False, (50, 7), 0)):
        ml.use(back_end)
        grid = ml.Grid(shape, periodic=periodic)
        f, out = grid.field("f", data=np.random.default_rng(1).random(grid.total)), grid.field("out")
        ml.linalg.tridiagonal.solve(matrix(periodic), f, out, axis, method=method)
        lines = np.moveaxis(grid.shaped(f), axis, 0)
        expected = solved(matrix(periodic), lines)
        assert differ(np.moveaxis(grid.shaped(out), axis, 0), expected) < 1e-14, (periodic, shape)


@pytest.mark.parametrize("method", ["cgs", "bicgstab"])
def test_smooth_lines_converge_early(method: str) -> None:
    """A few waves are solved after a few iterations; what rounding does with the rest must not spoil them."""
    ml.use("cpu", threads=1)
    n, lines = 16, 3000
    rng, x = np.random.default_rng(1), 2.0 * np.pi * np.arange(n) / n
    sizes = rng.normal(size=(lines, 5)) * 10.0 ** -rng.integers(0, 9, (lines, 5))
    rows = sizes @ np.sin(np.arange(1, 6)[:, None] * x) + 1e-16 * rng.normal(size=(lines, n))
    grid = ml.Grid((lines, n), periodic=(False, True))
    f, out = grid.field("f", data=rows), grid.field("out")
    ml.linalg.tridiagonal.solve(ml.linalg.Tridiagonal(1 / 3, 1.0, 1 / 3, periodic=True), f, out, 1, method=method)
    matrix = np.eye(n) + (np.eye(n, k=1) + np.eye(n, k=-1)) / 3.0
    matrix[0, -1] = matrix[-1, 0] = 1.0 / 3.0
    expected = np.linalg.solve(matrix, rows.T).T
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(grid.shaped(out) / scale, expected / scale, rtol=0.0, atol=1e-13)


def test_thomas_without_transposing() -> None:
    ml.use("emulated")
    grid = ml.Grid((3, 40), periodic=True)
    f, out = grid.field("f", data=np.random.default_rng(1).random(grid.total)), grid.field("out")
    operator = ml.linalg.LineOperator(matrix(True))
    ml.linalg.LineLoop(grid, 1, operator, f, out, method="thomas", tuning={"transposed": 0})()
    assert differ(grid.shaped(out).T, operator.applied(grid.shaped(f).T)) < 1e-14


@settings(max_examples=25, deadline=None)
@given(
    st.integers(5, 90), st.floats(-1, 1), st.floats(-1, 1), st.floats(1.05, 4.0), st.booleans(), st.integers(0, 10**6)
)
def test_random_dominant_matrices(n: int, a: float, c: float, margin: float, periodic: bool, seed: int) -> None:
    """The factors and the segments' tables hold for any dominant matrix: swept here as generated code does."""
    from meshloom.schedule.lines.segments import Cut, carries_needed, further_turns, tables

    operator = ml.linalg.LineOperator(ml.linalg.Tridiagonal(a, margin * (abs(a) + abs(c)) + 0.1, c, periodic=periodic))
    cut = Cut(n, 8, -(-n // 8))
    found = tables(operator, cut, np.dtype("float64"))
    needed = carries_needed(found, cut, np.dtype("float64"))
    f = np.random.default_rng(seed).random(n)
    g = np.append(f, np.zeros(cut.segments * 8 - n)).reshape(-1, 8)
    for sweep, factors, products, turn in zip((1, -1), (found.lower, found.upper), (found.forward, found.backward),
                                              further_turns(found, cut, needed), strict=True):  # fmt: skip
        factors = factors.reshape(-1, 8)
        if sweep < 0:
            g, factors, products = g * found.inverse.reshape(-1, 8), factors, products
            g, factors, products = g[::-1, ::-1].copy(), factors[::-1, ::-1], products[::-1]
        for i in range(1, 8):
            g[:, i] -= factors[:, i] * g[:, i - 1]
        out, carry, weight = g[:, -1].copy(), np.zeros(len(g)), np.ones(len(g))
        for q in range(1, needed + 1):
            carry += weight * np.roll(out, q)
            weight = weight * np.roll(products, q)
        part = (carry * turn)[:, None] * np.cumprod(-factors, axis=1)
        g = g + part
    assert differ(g[::-1, ::-1].ravel()[:n], operator.applied(f[:, None])[:, 0]) < 1e-14


def test_a_program_records_line_loops() -> None:
    """Loops before and after, fills and increments, replayed: as many times, the same as by hand."""

    @ml.kernel
    def step(rhs: ml.Read, u: ml.ReadWrite):
        u += 0.01 * rhs

    found = {}
    for back_end in ("numpy", *BACKENDS):
        ml.use(back_end)
        grid = ml.Grid((24,), extent=2 * np.pi, periodic=True)
        u, rhs = grid.field("u", data=np.sin(grid.coordinates[0])), grid.field("rhs")

        @ml.kernel
        def give(du: ml.Read, rhs: ml.Inc):
            rhs -= du

        operator = lele6(True, 1.0 / grid.spacing[0])

        @ml.program
        def advance(grid=grid, u=u, rhs=rhs, give=give, operator=operator):
            rhs.fill(0.0)
            ml.linalg.line_loop(grid, 0, operator, u, rhs, after=give)
            step(grid, rhs, u)

        advance.run(5)
        assert "give: 1 line of 24 points along axis 0" in advance.explain()
        found[back_end] = u.numpy()
    for back_end in BACKENDS:
        assert differ(found[back_end], found["numpy"]) < 1e-14
    expected = np.sin(2 * np.pi * np.arange(24) / 24 - 0.05)
    assert np.abs(found["numpy"] - expected).max() < 3e-3, "first order in time"


def test_what_a_line_loop_says() -> None:
    ml.use("numpy")
    grid = ml.Grid((8, 10), periodic=True)
    f, out = grid.field("f", 2), grid.field("out", 2)
    loop = ml.linalg.LineLoop(grid, 1, lele6(True), f, out, name="d_dy")
    assert loop.compulsory == 16 * 2 * 80 and loop.reads == (f,) and loop.writes == (out,)
    loop()
    text = loop.explain()
    assert "d_dy: 8 lines of 10 points along axis 1 of grid, 2 operands, back end numpy" in text
    assert "segmented (one pass" in text
    assert "contiguous lines; side by side: 8" in text and "compulsory 2.56 kB" in text
    shown = [line for line in text.splitlines() if line.lstrip().startswith("measured")]
    assert len(shown) == 1 and float(re.search(r"(\S+) ms", shown[0])[1]) == pytest.approx(loop.seconds * 1e3, rel=0.01)


def test_factors_that_settle_are_those_that_do_not() -> None:
    """Factors copied once they repeat equal those of the recurrence carried on."""
    rows = matrix(False).rows(400)
    found, pivot = lu(rows), rows[0, 1]
    for k in range(1, 400):
        factor = rows[k, 0] / pivot
        pivot = rows[k, 1] - factor * rows[k - 1, 2]
        np.testing.assert_allclose(found[k], (factor, 1 / pivot, rows[k, 2] / pivot), rtol=1e-15)


def around(rows: np.ndarray) -> np.ndarray:
    """Rows (n, 3) of a line as a full matrix; what sticks out comes in at the other end."""
    n, full = len(rows), np.zeros((len(rows), len(rows)))
    for k, row in enumerate(rows):
        for o, c in zip((-1, 0, 1), row, strict=True):
            full[k, (k + o) % n] += c
    return full


@pytest.mark.parametrize("periodic", [False, True])
def test_corners_are_made_up_for(periodic: bool) -> None:
    one = ml.linalg.Tridiagonal(0.2, 1.1, 0.3, periodic=True) if periodic else matrix(False)
    right, made = np.random.default_rng(5).random(9), one.cornerless(9)
    y = np.linalg.solve(around(made.rows), right)
    found = y - made.corner * (y[0] + made.mix * y[-1])
    np.testing.assert_allclose(found, np.linalg.solve(around(one.rows(9)), right), rtol=1e-13)
    g, x = np.zeros(9), np.zeros(10)
    for k in range(9):
        g[k] = right[k] - made.factors[k, 0] * g[k - 1]
    for k in reversed(range(9)):
        x[k] = g[k] * made.factors[k, 1] - made.factors[k, 2] * x[k + 1]
    np.testing.assert_allclose(x[:9], y, rtol=1e-12)


@pytest.mark.parametrize("periodic", [False, True])
def test_parts_of_a_line_are_joined_by_their_ends(periodic: bool) -> None:
    n, size, one = 23, 8, matrix(periodic)
    right, ends = np.random.default_rng(6).random(n), []
    for first, part in zip(range(0, n, size), one.parts(n, size), strict=True):
        alone = part.copy()
        alone[0, 0] = alone[-1, 2] = 0.0
        found = np.linalg.solve(around(alone), right[first : first + size])
        ends += [found[0], found[-1]]
    whole = np.linalg.solve(around(one.rows(n)), right)
    np.testing.assert_allclose(one.joints(n, size) @ ends, whole[[0, 7, 8, 15, 16, 22]], rtol=1e-12)


BAD = {
    "not dominated by its diagonal": lambda g, f: ml.linalg.Tridiagonal(0.5, 1.0, 0.5),
    "makes it singular": lambda g, f: ml.linalg.Tridiagonal(0.25, 1.0, 0.25, low=((0.0, 0.0, 1.0),)).factors(9),
    "its lower entry must be 0": lambda g, f: ml.linalg.Tridiagonal(0.25, 1.0, 0.25, low=((0.1, 1.0, 1.0),)),
    "three numbers": lambda g, f: ml.linalg.Tridiagonal(0.25, 1.0, 0.25, low=((1.0, 1.0),)),  # type: ignore[arg-type]
    "takes no rows low or high": lambda g, f: ml.linalg.Tridiagonal(0.2, 1.0, 0.2, True, low=((0.0, 1.0, 0.0),)),
    "2 rows at each end need stencils": lambda g, f: ml.linalg.LineOperator(
        matrix(False), ml.linalg.LineStencil(INNER)
    ),
    "must map offsets": lambda g, f: ml.linalg.LineStencil({}),
    "reaches 1 points back, but only 0": lambda g, f: ml.linalg.LineStencil({0: 1.0}, low=({-1: 1.0},)),
    "the matrix is periodic, but axis 0 of grid is closed": lambda g, f: ml.linalg.LineLoop(g, 0, lele6(True), f, f),
    "has 4 points, this operator needs 5": lambda g, f: ml.linalg.LineLoop(g, 1, lele6(False), f, f),
    "has no axis 2": lambda g, f: ml.linalg.LineLoop(g, 2, lele6(False), f, f),
    "unknown method 'tomas'; did you mean 'thomas'?": lambda g, f: ml.linalg.tridiagonal.solve(
        matrix(False), f, f, 0, "tomas"
    ),
    "only 'segmented' takes a stencil": lambda g, f: ml.linalg.LineLoop(
        g, 0, lele6(False), f, f, method="thomas"
    ).prepare(),
    "reads, writes and values must agree": lambda g, f: ml.linalg.LineLoop(g, 0, lele6(False), (f, f), f),
    "the operands: annotate it Write": lambda g, f: ml.linalg.LineLoop(
        g, 0, lele6(False), f, f, before=accumulate_wrongly
    ).prepare(),
    "takes 2 parameters": lambda g, f: ml.linalg.LineLoop(g, 0, lele6(False), f, f, before=flux).prepare(),
}


@ml.kernel
def accumulate_wrongly(q: ml.Read, f: ml.Inc):
    f += q


def test_what_is_written_is_passed_once() -> None:
    """The mode of the last one counted: NumPy wrote nothing, and compiled code did not compile."""
    grid = ml.Grid((9, 4))
    f, u = grid.field("f"), grid.field("u")

    @ml.kernel
    def after(r: ml.Read, a: ml.Write, b: ml.Read):
        a[...] = r + b

    with pytest.raises(ml.errors.MeshError, match="u is passed twice and written; pass it once, as ReadWrite"):
        ml.linalg.LineLoop(grid, 0, ml.linalg.LineOperator(matrix(False)), f, (u, u), after=after, values=1)


@pytest.mark.parametrize("message", BAD)
def test_wrong_input_is_one_line(message: str) -> None:
    ml.use("cpu")
    grid = ml.Grid((9, 4))
    f = grid.field("f")
    with pytest.raises(ml.errors.UserError) as caught:
        BAD[message](grid, f)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_long_lines_are_not_solved_in_place_on_a_gpu() -> None:
    ml.use("emulated")
    grid = ml.Grid((6000,), periodic=True)
    f = grid.field("f")
    with pytest.raises(ml.errors.ScheduleError, match="cannot be solved in place; use a second field"):
        ml.linalg.tridiagonal.solve(matrix(True), f, f, 0)


def test_lines_too_long_for_shared_memory() -> None:
    ml.use("emulated")
    grid = ml.Grid((9000,), periodic=True)
    f, out = grid.field("f"), grid.field("out")
    with pytest.raises(ml.errors.ScheduleError, match="bytes of shared memory, a block has"):
        ml.linalg.tridiagonal.solve(matrix(True), f, out, 0, method="pcr")
