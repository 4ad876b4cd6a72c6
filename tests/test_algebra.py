"""Fast algebra keeps finite results finite and right to rounding; strict kernels have the bits of NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshloom as ml
from meshloom.target import H200

BACK_ENDS = ("numpy", "cpu", "emulated")
rng = np.random.default_rng(7)


def through(kernel: ml.Kernel, dtype: str, *values: np.ndarray | float) -> np.ndarray:
    """What a kernel of so many Read parameters and one Write gives for arrays of one length."""
    arrays = np.broadcast_arrays(*np.atleast_1d(*values, np.zeros(1)))[:-1]
    s = ml.Set(len(arrays[0]), "s")
    inputs = [s.field(f"a{k}", data=one, dtype=dtype) for k, one in enumerate(arrays)]
    result = s.field("r", dtype=dtype)
    kernel(s, *inputs, result)
    return result.numpy()


# --- fast ---------------------------------------------------------------------------------------------------------
@ml.kernel
def up_and_down(a: ml.Read, r: ml.Write):
    r[...] = a * 1e20 * 1e20 * 1e-20


@ml.kernel
def down_and_up(a: ml.Read, r: ml.Write):
    r[...] = a * 1e-30 * 1e-30 * 1e30 * 1e30


@ml.kernel
def outside_a_sum(a: ml.Read, b: ml.Read, r: ml.Write):
    r[...] = 1e30 * (1e30 * a + 1e30 * b) + 1e30 * (1e30 * a - 1e30 * b)


@ml.kernel
def by_a_tiny_power(a: ml.Read, r: ml.Write):
    r[...] = a / 2.0**-130


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize(
    ("kernel", "values", "expected"),
    [
        (up_and_down, (1e-15,), 1e5),
        (down_and_up, (1e35,), 1e35),
        (down_and_up, (1e33,), 1e33),
        (outside_a_sum, (1e-37, 1e-37), 2e23),
        (by_a_tiny_power, (1e-35,), 1e-35 * 2.0**130),
    ],
)
def test_constants_are_never_multiplied_out_of_the_range(
    back_end: str, kernel: ml.Kernel, values: tuple[float, ...], expected: float
) -> None:
    ml.use(back_end)
    assert through(kernel, "float32", *values)[0] == pytest.approx(expected, rel=1e-5)


def roots() -> list[tuple[Callable[..., None], float]]:
    def root(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(a * a - b * b)

    def scaled(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(0.7 * (a * b - b * a + a * b * b - b * b * a))

    def held(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(np.maximum(a * a - b * b, -1.0))

    def logarithm(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.log1p(a * b - b * b)

    def fractional(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = (a * a - a * b) ** 0.3

    return [(one, 0.0) for one in (root, scaled, held, logarithm, fractional)]


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("function", "expected"), roots())
def test_differences_of_products_under_a_root_are_not_contracted(
    back_end: str, dtype: str, function: Callable[..., None], expected: float
) -> None:
    ml.use(back_end)
    same = rng.uniform(0.5, 2.0, 1000)
    found = through(ml.kernel(function), dtype, same, same)
    assert (found == expected).all(), np.count_nonzero(found != expected)


def test_a_gpu_contracts_what_the_text_says_and_nothing_else() -> None:
    """Products under a root are rounded; in the text, which NVRTC compiles, and in what it makes of it."""
    from meshloom.backend.cuda import dialect, kernels, nvrtc
    from meshloom.backend.translation_unit import make_unit

    def root(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = np.sqrt(a * a - b * b) + (a * b + b)

    ml.use("emulated")
    s = ml.Set(100, "s")
    loop = ml.kernel(root).loop(s, s.field("a"), s.field("b"), s.field("r"))
    unit = make_unit(loop.spec, loop.plan, target=H200)
    source = dialect.render(unit, dialect.kernels(unit, 128, 128, [1]), wide_index=False)
    body = source.split("// loop root")[1]
    assert body.count("ml_fma(") == 1
    assembly = nvrtc.assembly(source, "root", "sm_90", flags=(kernels.NO_CONTRACTION,))
    assert assembly.count("mul.rn.f64") == 2 and assembly.count("fma.rn.f64") == 1


# --- strict -------------------------------------------------------------------------------------------------------
def flux(a, b, c):
    """A formula that fast algebra changes in all its ways."""
    return (a * b - 0.1 * a) / b + a / b + 0.3 * (a * c + b * c) + 0.7 * (a - c) + (c / a) * a + 2.0 * a * 1.7


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_strict_kernel_has_the_bits_of_numpy(back_end: str, dtype: str) -> None:
    ml.use(back_end)

    @ml.kernel(strict=True)
    def written(a: ml.Read, b: ml.Read, c: ml.Read, r: ml.Write):
        r[...] = flux(a, b, c) + np.sqrt(a * b + c * c) - a**2

    @ml.kernel
    def fast(a: ml.Read, b: ml.Read, c: ml.Read, r: ml.Write):
        r[...] = flux(a, b, c) + np.sqrt(a * b + c * c) - a**2

    a, b, c = rng.uniform(0.5, 2.0, (3, 2000)).astype(dtype)
    wanted = flux(a, b, c) + np.sqrt(a * b + c * c) - a**2
    found = through(written, dtype, a, b, c)
    np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(through(fast, dtype, a, b, c), wanted), "then this formula tests nothing"


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_everything_can_be_strict(back_end: str) -> None:
    @ml.kernel
    def plain(a: ml.Read, b: ml.Read, c: ml.Read, r: ml.Write):
        r[...] = flux(a, b, c)

    s = ml.Set(500, "s")
    a, b, c = (s.field(name, data=rng.uniform(0.5, 2.0, 500)) for name in "abc")
    r = s.field("r")
    wanted = flux(a.numpy(), b.numpy(), c.numpy())
    try:
        ml.use(back_end, strict=True)
        plain(s, a, b, c, r)
        assert (r.numpy() == wanted).all()
        ml.use(back_end)  # says nothing about it
        assert plain.loop(s, a, b, c, r).spec.strict
        ml.use(back_end, strict=False)
        plain(s, a, b, c, r)  # the loop that was kept for this call is the other one
        assert (r.numpy() != wanted).any()
    finally:
        ml.use(back_end, strict=False)


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("strategy", ["color", "staged", "owner"])
def test_what_one_element_adds_is_added_up_in_the_order_of_the_kernel(back_end: str, strategy: str) -> None:
    ml.use(back_end)

    @ml.kernel(strict=True)
    def several(a: ml.Read, r: ml.Inc):
        for k in range(2):
            r[k] += 0.1 * a[0]
            r[k] -= a[1] * a[0]
            r[k] += a[0] / 3.0
            r[k] += a[1] - 0.3 * a[0]

    edges, nodes = ml.Set(300, "edges"), ml.Set(600, "nodes")
    ends = ml.Map(edges, nodes, rng.permutation(600).reshape(300, 2), "ends")
    a, r, wanted = nodes.field("a", data=rng.uniform(0.5, 2.0, 600)), nodes.field("r"), nodes.field("wanted")
    several(edges, a[ends], r[ends], schedule=strategy)
    several.python(edges, a[ends], wanted[ends])
    np.testing.assert_array_equal(r.numpy(), wanted.numpy())


def test_strict_and_fast_loops_share_no_code() -> None:
    ml.use("cpu")
    s = ml.Set(100, "s")
    a, b, r = s.field("a", data=0.3), s.field("b", data=0.7), s.field("r")

    def product(a: ml.Read, b: ml.Read, r: ml.Write):  # the same text either way
        r[...] = a * b - 0.25

    fast, strict = (ml.kernel(product, strict=how).loop(s, a, b, r) for how in (False, True))
    codes = [loop.prepare().launches[0].function for loop in (fast, strict)]
    assert codes[0].library is not codes[1].library
    assert fast.spec != strict.spec
    assert "as written" in strict.explain() and "as written" not in fast.explain()
    assert fast.as_written().spec.strict and strict.as_written() is strict


def test_loops_of_a_strict_kernel_are_counted_as_written() -> None:
    def twice(a: ml.Read, b: ml.Read, r: ml.Write):
        r[...] = a / b + 3.0 * a / b + 1.0 / b

    s = ml.Set(10, "s")
    fields = [s.field(name) for name in "abr"]
    assert ml.kernel(twice, strict=True).counts(s, *fields).flops_by_kind == {"add": 2, "mul": 1, "div": 3}
    assert ml.kernel(twice).counts(s, *fields).flops_by_kind["div"] == 1


def test_the_decorator() -> None:
    def copy(a: ml.Read, r: ml.Write):
        r[...] = a

    assert not ml.kernel(copy).strict and not ml.kernel()(copy).strict
    assert ml.kernel(strict=True)(copy).strict and not ml.kernel(strict=False)(copy).strict
    misspelt = {"stric": True}, "no option 'stric'; did you mean 'strict'"
    for wrong, words in (misspelt, ({"strict": 1}, "True or False")):
        with pytest.raises(ml.errors.KernelError, match=words):
            ml.kernel(**wrong)  # type: ignore[call-overload]
    with pytest.raises(ml.errors.KernelError, match="of a function, got int"):
        ml.kernel(3)  # type: ignore[call-overload]
    with pytest.raises(ml.errors.ScheduleError, match="strict must be True or False"):
        ml.use("numpy", strict="yes")  # type: ignore[arg-type]


# --- strict loops in programs and along lines -----------------------------------------------------------------------
def stepped(fuse: bool, strict: bool) -> tuple[np.ndarray, ml.Program]:
    """Three loops in a row, the first one over faces, and what comes out after five replays."""
    ml.use("emulated")
    mesh = ml.generate.box((12, 9))
    at = mesh.face_cells
    u = mesh.cells.field("u", data=np.random.default_rng(1).uniform(0.5, 2.0, len(mesh.cells.points)))
    change, rate = (mesh.cells.field(name, temporary=True) for name in ("change", "rate"))

    @ml.kernel(strict=strict)
    def exchange(u: ml.Read, change: ml.Inc):
        f = 0.3 * (u[0] * u[0] + u[1] * u[1]) + 0.1 * (u[0] - u[1]) / (u[0] + u[1])
        change[0] += f
        change[1] -= f

    @ml.kernel
    def limit(change: ml.Read, u: ml.Read, rate: ml.Write):
        rate[...] = 0.7 * (change * u + 0.1 * change) / u + change / u

    @ml.kernel
    def advance(rate: ml.Read, u: ml.ReadWrite):
        u[...] = u + 0.01 * rate * u - 0.003 * rate

    @ml.program(fuse=fuse)
    def step():
        change.fill(0.0)
        exchange(mesh.faces, u[at], change[at], schedule="owner")
        limit(mesh.cells, change, u, rate)
        advance(mesh.cells, rate, u)

    step.run(5)
    return u.numpy(), step


def test_strict_loops_are_fused_with_their_like() -> None:
    """Fused or not, the bits are the same: the composed formulas are not simplified, and nothing is contracted. The
    others are fused without them."""
    try:
        ml.use("emulated", strict=True)
        apart, _ = stepped(False, False)
        fused, program = stepped(True, False)
        assert program.fused_steps and "as written (strict)" in program.explain()
    finally:
        ml.use("emulated", strict=False)
    np.testing.assert_array_equal(fused, apart)
    _, one = stepped(True, True)
    assert [(len(step.composed), step.spec.strict) for step in one.fused_steps] == [(2, True), (2, False)]
    _, none = stepped(True, False)
    assert [step.spec.strict for step in none.fused_steps] == [False]


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_kernels_of_line_loops_are_strict_together(back_end: str) -> None:
    """The operator leaves every value as it is, so what is left is the formulas."""
    ml.use(back_end)
    grid = ml.Grid((16, 12), periodic=True)
    stencil = ml.linalg.LineStencil({0: 1.0})
    same = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.0, 1.0, 0.0, periodic=True), stencil, 1.0)
    a, b, c = (grid.field(name, data=rng.uniform(0.5, 2.0, grid.total)) for name in "abc")
    r = grid.field("r")

    def before(a: ml.Read, b: ml.Read, c: ml.Read, f: ml.Write):
        f[...] = flux(a, b, c)

    def after(y: ml.Read, r: ml.Write):
        r[...] = 0.3 * (y * y + y * 0.7) + y / 3.0

    f = flux(a.numpy(), b.numpy(), c.numpy())
    wanted = 0.3 * (f * f + f * 0.7) + f / 3.0
    for first, second in ((True, False), (False, True)):
        kernels = {"before": ml.kernel(before, strict=first), "after": ml.kernel(after, strict=second)}
        ml.linalg.line_loop(grid, 0, same, (a, b, c), r, values=1, **kernels)
        np.testing.assert_array_equal(r.numpy(), wanted)
    loop = ml.linalg.LineLoop(grid, 0, same, (a, b, c), r, before=ml.kernel(before), after=ml.kernel(after), values=1)
    assert not loop.spec.strict and loop.as_written().spec.strict
    assert "as written" in loop.as_written().explain()
