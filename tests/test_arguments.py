"""Arguments of kernels: by name, plain numbers, as many as there are."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import current
from meshloom.errors import KernelError, MeshError
from meshloom.operation.operation import Operation
from meshloom.operation.weak_cache import loops_over

BACK_ENDS = ("numpy", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))


@ml.kernel
def blend(a: ml.Read, b: ml.Read, weight: ml.Read, out: ml.Write):
    out[...] = weight * a + (1.0 - weight) * b


def three(n: int = 6, dtype: Any = np.float64) -> tuple[ml.Set, ml.Field, ml.Field, ml.Field]:
    s = ml.Set(n, "s")
    a, b = s.field("a", data=np.arange(float(n)), dtype=dtype), s.field("b", data=np.ones(n), dtype=dtype)
    return s, a, b, s.field("out", dtype=dtype)


# ----- by name --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_any_order_behind_those_by_position(back_end: str) -> None:
    ml.use(back_end)
    s, a, b, out = three()
    expected = 0.25 * np.arange(6.0) + 0.75
    for call in (
        lambda k: k(s, a, b, 0.25, out),
        lambda k: k(s, a, out=out, weight=0.25, b=b),
        lambda k: k(s, out=out, weight=0.25, b=b, a=a),
        lambda k: k(s, a, b, weight=ml.Global(0.25), out=out),
    ):
        for run in (blend, blend.python, lambda *args, **named: blend.loop(*args, **named)()):
            out.fill(0.0)
            call(run)
            np.testing.assert_array_equal(out.numpy(), expected)
    blend(s, a, b, weight=0.25, out=out, schedule="direct")
    assert blend.counts(s, a, b=b, weight=0.5, out=out).flops == blend.counts(s, a, b, 0.5, out).flops


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        (2, {"wieght": 0.5, "out": None}, "kernel blend has no parameter 'wieght'; did you mean 'weight'?"),
        (2, {"a": 0.5, "out": None}, "kernel blend: parameter a is given twice, by position and by name"),
        (2, {"out": None}, "kernel blend: weight is missing; it takes 4 arguments after the set (a, b, weight, out)"),
        (0, {"out": None}, "kernel blend: a, b, weight are missing; it takes 4 arguments"),
        (2, {}, "kernel blend takes 4 arguments after the set (a, b, weight, out), got 2"),
        (5, {}, "kernel blend takes 4 arguments after the set (a, b, weight, out), got 5"),
    ],
)
def test_names_that_do_not_fit(given: int, named: dict[str, Any], said: str) -> None:
    s, a, b, out = three()
    filled = {k: out if v is None else v for k, v in named.items()}
    for run in (blend, blend.loop, blend.counts, blend.python):
        with pytest.raises(KernelError) as error:
            run(s, *(a, b, 0.5, out, out)[:given], **filled)
        assert str(error.value).startswith(said) and "\n" not in str(error.value)
    assert not out.numpy().any()


def test_a_parameter_may_be_called_on_or_self() -> None:
    s, a, _, out = three()

    @ml.kernel
    def copied(on: ml.Read, self: ml.Write):
        self[...] = on

    copied(s, on=a, self=out)
    np.testing.assert_array_equal(out.numpy(), a.numpy())


def test_defaults_are_numbers_for_what_is_left_out() -> None:
    s, a, _, out = three()

    @ml.kernel
    def scaled(a: ml.Read, out: ml.Write, factor: ml.Read = 3.0):
        out[...] = factor * a

    scaled(s, a, out)
    np.testing.assert_array_equal(out.numpy(), 3.0 * a.numpy())
    scaled(s, a, out, factor=2.0)
    np.testing.assert_array_equal(out.numpy(), 2.0 * a.numpy())
    with pytest.raises(KernelError, match=r"takes 2 to 3 arguments after the set \(a, out, factor\), got 1"):
        scaled(s, a)


# ----- plain numbers --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_another_number_makes_nothing_anew(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use(back_end)
    s, a, b, out = three()
    blend(s, a, b, 0.5, out)
    made: list[Any] = []
    ordinary = Operation.__init__
    monkeypatch.setattr(
        Operation, "__init__", lambda self, *args, **named: (made.append(1), ordinary(self, *args, **named))
    )
    monkeypatch.setattr(type(current()), "prepare", lambda *_: made.append("compiled"))
    traces = len(blend.state.traces)
    values = np.random.default_rng(0).normal(size=1000).tolist()
    for value in values:
        blend(s, a, b, weight=value, out=out)
    assert not made and len(loops_over(s).calls) == 1 and len(blend.state.traces) == traces
    np.testing.assert_allclose(out.numpy(), values[-1] * a.numpy() + (1.0 - values[-1]), rtol=1e-13)


NUMBERS = (3, -7, 2.5, True, False, np.float32(0.1), np.float64(0.1), np.int32(5), np.int64(-5), np.bool_(True))
FORMULAS = {
    "x * n": lambda x, n: x * n,
    "n - x": lambda x, n: n - x,
    "n * n + x": lambda x, n: n * n + x,
    "(n + 1) * x": lambda x, n: (n + 1) * x,
    "(2.0 * n) * x": lambda x, n: (2.0 * n) * x,
    "(n / 3) * x": lambda x, n: (n / 3) * x,
    "abs(n) * x": lambda x, n: abs(n) * x,
    "n**2 * x": lambda x, n: n**2 * x,
    "sqrt(|n|) * x": lambda x, n: np.sqrt(abs(n)) * x,
    "where": lambda x, n: np.where(x > 0, n, x),
    "maximum": lambda x, n: np.maximum(x, n),
    "stacked": lambda x, n: np.stack([x, n])[1],
    "compared": lambda x, n: (n > 1) * x,
    "remainder": lambda x, n: (n % 2) * x,
    "floor": lambda x, n: (n // 2) * x,
    "like": lambda x, n: x + np.ones_like(n),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_kinds_are_those_of_numpy(formula: str, dtype: str) -> None:
    ml.use("numpy")
    s, (compute, seen) = ml.Set(1, "s"), (FORMULAS[formula], [])
    x, out = s.field("x", data=np.array([3], dtype)), s.field("out")

    @ml.kernel
    def k(x: ml.Read, n: ml.Read, out: ml.Write):
        result = compute(x, n)
        seen.append(result.dtype)
        out[...] = result * 1.0

    for number in NUMBERS:
        try:
            expected = compute(x.numpy()[0], number)
        except TypeError:  # NumPy does not know it, such as -x of truth values
            continue
        if isinstance(number, np.bool_) and formula in ("n**2 * x", "sqrt(|n|) * x"):
            continue  # NumPy computes them in int8 and float16: refused, as docs/kernels.md says
        seen.clear()
        k(s, x, number, out)
        if seen:  # else the kind was there before
            assert seen == [expected.dtype], (number, expected.dtype)
        np.testing.assert_allclose(out.numpy()[0], expected * 1.0, rtol=1e-6, err_msg=repr(number))
        before = out.numpy()
        k.python(s, x, number, out)
        np.testing.assert_allclose(out.numpy(), before, rtol=1e-6)


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_single_precision_stays_single(back_end: str) -> None:
    ml.use(back_end)
    s, a, b, out = three(dtype=np.float32)
    b.assign(np.float32(0.3))
    for number, kind in ((0.1, np.float32), (np.float64(0.1), np.float64), (np.float32(0.1), np.float32)):
        blend(s, a, b, number, out)
        x, y, w = a.numpy().astype(kind), b.numpy().astype(kind), kind(number)
        np.testing.assert_allclose(out.numpy(), (w * x + (1 - w) * y).astype(np.float32), rtol=3e-7)
    loop = blend.loop(s, a, b, 0.1, out)
    assert not any(o.value.dtype == np.float64 for o in loop.spec.outputs)


def test_integers_that_do_not_fit() -> None:
    ml.use("numpy")
    s = ml.Set(2, "s")
    narrow, wide = s.field("narrow", dtype=np.int32), s.field("wide", data=np.ones(2, np.int64))

    @ml.kernel
    def more(x: ml.Read, n: ml.Read, out: ml.Write):
        out[...] = x + n

    more(s, narrow, 2**31 - 1, narrow2 := s.field("out", dtype=np.int32))
    assert narrow2.numpy().tolist() == [2**31 - 1] * 2
    more(s, wide, 2**40, out := s.field("out", dtype=np.int64))
    assert out.numpy().tolist() == [2**40 + 1] * 2
    with pytest.raises(KernelError, match="a Python integer that int32 does not hold meets int32 here"):
        more(s, narrow, 2**31, narrow2)
    with pytest.raises(MeshError, match=rf"got int {2**63}, which 64 bits do not hold"):
        more(s, wide, 2**63, out)


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_numbers_are_offered_and_added(back_end: str) -> None:
    ml.use(back_end)
    s, a, _, _ = three()
    largest, summed = ml.Global(0, "largest", dtype=np.int32), ml.Global(0.0, "summed")

    @ml.kernel
    def offer(a: ml.Read, n: ml.Read, largest: ml.Max, summed: ml.Sum):
        largest[...] = n
        summed += n

    offer(s, a, 5, largest, summed)
    assert largest.value == 5 and summed.value == 30.0
    with pytest.raises(KernelError, match="largest, which is Max, is int32 and cannot take float64 in by combining"):
        offer(s, a, 5.5, largest, summed)


@pytest.mark.parametrize("mode", [ml.Write, ml.ReadWrite, ml.Inc, ml.Min, ml.Sum])
def test_a_number_is_only_read(mode: Any) -> None:
    s, a, _, _ = three()

    def k(a, b):
        b += a

    k.__annotations__ = {"a": ml.Read, "b": mode}
    with pytest.raises(KernelError, match=f"parameter b: a number can only be Read, and this is {mode.__name__}"):
        ml.kernel(k)(s, a, 2.0)


@pytest.mark.parametrize(
    ("value", "said"),
    [(np.int16(2), "got int16, a number of a type that kernels do not know"), (2j, "got complex"), ("2", "got str"),
     (None, "got NoneType"), (np.ones(3), "got ndarray; an array goes in as set.field")],
)  # fmt: skip
def test_what_is_no_number(value: object, said: str) -> None:
    s, a, b, out = three()
    with pytest.raises(MeshError, match=f"kernel blend, parameter weight: expected .*{said}"):
        blend(s, a, b, value, out)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_program_keeps_the_numbers_of_its_recording(back_end: str) -> None:
    ml.use(back_end)
    s, a, b, out = three()
    other = s.field("other")

    @ml.program
    def step():
        for weight in (0.5, 0.25, 0.5):
            blend(s, a, b, weight=weight, out=out)
        blend(s, out, b, 2.0, other)

    step()
    expected = 2.0 * (0.5 * a.numpy() + 0.5) - 1.0
    np.testing.assert_array_equal(other.numpy(), expected)
    blend(s, a, b, weight=0.75, out=out)
    step.run(2)
    np.testing.assert_array_equal(other.numpy(), expected)
    assert step.loops[0] is step.loops[2] is not step.loops[1]


def test_a_loop_keeps_the_number_that_it_was_made_with() -> None:
    ml.use("cpu")
    s, a, b, out = three()
    half = blend.loop(s, a, b, 0.5, out)
    half()
    blend(s, a, b, 0.25, out)
    half()
    np.testing.assert_array_equal(out.numpy(), 0.5 * a.numpy() + 0.5)
    assert "weight: Read number" in half.explain()


@pytest.mark.parametrize("back_end", ("numpy", "cpu"))
def test_numbers_and_captured_values_change_by_turns(back_end: str) -> None:
    ml.use(back_end)
    s, a, _, out = three()
    power = 1

    @ml.kernel
    def raised(a: ml.Read, n: ml.Read, out: ml.Write):
        out[...] = n * a**power

    for round_ in range(6):
        power = 1 + round_ % 2
        raised(s, a, float(round_), out)
        np.testing.assert_allclose(out.numpy(), round_ * a.numpy() ** power)
        if round_ == 3:
            a.relayout("soa")
            a.storage = a.storage.copy()  # moved: what was ready is made again


def test_temporary_fields_go_at_once() -> None:
    ml.use("cpu")
    s, a, b, _ = three()
    out = s.field("temporary")
    blend(s, a, b, 0.5, out)
    watched = weakref.ref(out)
    del out
    assert watched() is None and not loops_over(s).calls


# ----- as many as there are -------------------------------------------------------------------------------------------
@ml.kernel
def total(out: ml.Write, *terms: ml.Read, weight: ml.Read = 1.0):
    out[...] = weight * sum(terms)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_as_many_terms_as_given(back_end: str) -> None:
    ml.use(back_end)
    s, rng = ml.Set(7, "s"), np.random.default_rng(0)
    fields, out = [s.field(f"f{k}", 2, data=rng.random((7, 2))) for k in range(3)], s.field("out", 2)
    for many in (1, 3) if back_end == "numpy" else (3,):
        expected = 2.0 * sum(one.numpy() for one in fields[:many])
        for run in (total, total.python):
            run(s, out, *fields[:many], weight=2.0)
            np.testing.assert_allclose(out.numpy(), expected, rtol=1e-14)


def test_no_terms_and_terms_of_all_kinds() -> None:
    ml.use("numpy")
    s, a, _, out = three()
    total(s, out)
    assert not out.numpy().any()
    total(s, out, a, 0.5, ml.Global(2.0))
    np.testing.assert_array_equal(out.numpy(), a.numpy() + 2.5)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_terms_through_maps_and_outputs_by_star(back_end: str) -> None:
    ml.use(back_end)
    nodes, edges = ml.Set(4, "nodes"), ml.Set(3, "edges")
    ends = ml.Map(edges, nodes, [[0, 1], [1, 2], [2, 3]], "ends")
    u = nodes.field("u", data=np.arange(4.0))
    gains = [nodes.field("gain"), nodes.field("twice")]

    @ml.kernel
    def spread(u: ml.Read, *gains: ml.Inc):
        for k, gain in enumerate(gains):
            gain[0] += (k + 1) * u[1]
            gain[1] -= (k + 1) * u[0]

    @ml.program
    def step():
        spread(edges, u[ends], *(one[ends] for one in gains))

    step()
    expected = np.array([1.0, 2.0 - 0.0, 3.0 - 1.0, -2.0])
    np.testing.assert_array_equal(gains[0].numpy(), expected)
    np.testing.assert_array_equal(gains[1].numpy(), 2 * expected)


def test_errors_name_the_terms() -> None:
    s, a, b, out = three()
    far = ml.Set(3, "far").field("far")
    with pytest.raises(MeshError, match=r"kernel total, parameter terms\[1\]: field far lives on far"):
        total(s, out, a, far)
    with pytest.raises(KernelError, match="kernel total has no parameter 'terms'; allowed: out, weight"):
        total(s, out, terms=a)
    with pytest.raises(KernelError, match=r"takes at least 1 argument after the set \(out, \*terms, weight\), got 0"):
        total(s)
    with pytest.raises(KernelError, match="a is passed as out and as terms"):
        total(s, a, b, a)
    assert repr(total) == "Kernel(total: out: Write, *terms: Read, weight: Read)"
    assert "terms[1]: Read b aos" in total.loop(s, out, a, b).explain()

    def named(a: ml.Read, **others: ml.Read): ...

    with pytest.raises(KernelError, match=r"parameter others must not have \*\*: name every one"):
        ml.kernel(named)


def test_a_line_loop_takes_kernels_with_a_star() -> None:
    ml.use("numpy")
    grid = ml.Grid((8, 4), periodic=True)
    operator = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True))
    a, b, out = (grid.field(n, data=np.random.default_rng(1).random((8, 4))) for n in ("a", "b", "out"))

    @ml.kernel
    def added(*fields: ml.Read, f: ml.Write):
        f[...] = sum(fields)

    ml.linalg.line_loop(grid, 0, operator, (a, b), out, before=added)
    x = grid.shaped(out)
    np.testing.assert_allclose(x + 0.25 * (np.roll(x, 1, 0) + np.roll(x, -1, 0)), grid.shaped(a) + grid.shaped(b))
