"""Tracing: what kernels may say, and the errors that name the user's line."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError, MeshError
from meshloom.kernel import trace as tracing
from meshloom.kernel.access import Inc, Max, Min, Read, ReadWrite, Sum, Write

F8, I4 = np.dtype(np.float64), np.dtype(np.int32)


@pytest.fixture(autouse=True)
def reference_back_end():
    before = ml.backend()
    ml.use("numpy")
    yield
    ml.use(before)


def run_both(function, *inputs, dims=None, out_dim=1, dtype=np.float64):
    """The kernel on one element per row of the inputs: by the plain function and by the traced graph."""
    n = len(inputs[0])
    on = ml.Set(n, "points")
    fields = [on.field(f"in{k}", np.shape(v)[1] if np.ndim(v) > 1 else 1, data=v) for k, v in enumerate(inputs)]
    out = on.field("out", out_dim, dtype=dtype)
    kernel = ml.kernel(function)
    kernel.python(on, *fields, out)
    plain = out.numpy()
    out.fill(0)
    kernel(on, *fields, out)
    return plain, out.numpy()


RNG = np.random.default_rng(3)
V, W, S = RNG.random((50, 3)) + 0.1, RNG.random((50, 3)) - 0.5, RNG.random(50) + 0.2


def test_numpy_functions_mean_what_they_mean_in_numpy() -> None:
    def k(v: Read, w: Read, s: Read, out: Write):
        m = np.outer(v, w) + np.diag(v)
        pieces = [
            v @ w, np.dot(v, w), np.sum(v), v.sum(), np.prod(v), np.linalg.norm(w), np.max(w), np.min(v), w.max(),
            np.cross(v, w)[1], np.einsum("i,i", v, w), np.clip(s, 0.3, 0.6), np.where(w[0] > 0, v[0], w[0]),
            np.linalg.det(m), np.trace(m), (m @ v)[2], np.mean(v), np.stack([v, w])[1, 2], np.concatenate([v, w])[4],
            np.roll(v, 1)[0], np.hypot(v[0], w[1]), np.arctan2(w[0], v[0]), np.exp(-s), np.log(s), np.sin(s), np.cos(s),
            np.tanh(w[2]), np.maximum(w, 0.0)[1], np.minimum(w, s)[0], np.abs(w[0]), np.sign(w[1]), np.floor(3 * w[0]),
            s**3, s**0.5, s**-2, s**1.7, 2.0**s, v[0] % w[1], v[0] // w[1], np.square(s), np.reciprocal(s),
            np.copysign(s, w[0]), np.where((w[0] > 0) & (w[1] > 0) | ~(w[2] > 0), 1.0, 2.0), -s, +s, abs(w[1]),
            np.where(np.any(w > 0.4), s, 2 * s), np.where(np.all(w > -0.4), s, 2 * s), np.cbrt(w[0]), np.expm1(s),
            np.where(np.isfinite(s), s, 0.0), np.where(np.logical_and(w[0] > 0, w[1] > 0), s, 0.0), sum(v), v[::-1][0],
            v.reshape(3, 1)[2, 0], np.add.reduce(v), np.sqrt(np.array([s, v[0]]))[1],
        ]  # fmt: skip
        out[...] = pieces

    plain, traced = run_both(k, V, W, S, out_dim=57)
    np.testing.assert_allclose(traced, plain, rtol=1e-12, atol=1e-13)


def test_loops_helpers_and_unpacking_unroll() -> None:
    def norm2(a):
        return sum(c * c for c in a)

    def k(v: Read, out: Write):
        a, b, c = v
        total = 0.0
        for i in range(3):
            for j in range(i):
                total += v[i] * v[j]
        out[...] = [total, norm2([a, b, c]), norm2(v)]

    plain, traced = run_both(k, V, out_dim=3)
    np.testing.assert_allclose(traced, plain, rtol=1e-14)


def test_copies_may_be_changed_and_do_not_touch_the_parameter() -> None:
    def k(v: Read, out: Write):
        work = v.copy()
        work[0] += 1.0
        work[1:] *= 2.0
        out[...] = work

    plain, traced = run_both(k, V, out_dim=3)
    np.testing.assert_allclose(traced, plain, rtol=1e-14)
    np.testing.assert_allclose(traced[:, 0], V[:, 0] + 1)


def test_integers_divide_and_compare_as_in_numpy() -> None:
    a = RNG.integers(-20, 20, (60, 2)).astype(np.int32)
    a[a == 0] = 7

    def k(v: Read, out: Write):
        out[...] = [
            v[0] // v[1],
            v[0] % v[1],
            v[0] * v[1],
            np.where(v[0] == v[1], 1, v[0] & 3),
            np.minimum(v[0], v[1]),
            abs(v[0]),
            v[0] ** 2,
            -v[1],
        ]

    for backend in ("numpy", "cpu"):
        ml.use(backend)
        plain, traced = run_both(k, a, out_dim=8, dtype=np.int64)
        np.testing.assert_array_equal(traced, plain)


def types_in(kernel: Any) -> set[np.dtype]:
    params = (
        tracing.Param("v", Read, (3,), np.dtype(np.float32), 0, 3),
        tracing.Param("out", Write, (3,), np.dtype(np.float32), 0, 3),
    )
    from meshloom.kernel.expr import topological

    return {n.dtype for n in topological(o.value for o in tracing.trace(kernel, "k", params).outputs)}


def test_single_precision_stays_single() -> None:
    """Numbers of Python take the type of what they meet; a list that is stored at once is never double."""

    def k(v: ml.Read, out: ml.Write):
        zero = np.zeros_like(v[0])
        w = 0.1 * v + np.stack([zero, v[0], np.float32(0.1)]) * np.array([v[1], 0.25, v[2]], dtype=np.float32)
        out[...] = [w[0], 0.5, np.where(w[1] > 0.1, w[1], 0)]

    assert types_in(k) == {np.dtype(np.float32), np.dtype(bool)}


def test_python_numbers_in_lists_make_arrays_double() -> None:
    """As in NumPy."""
    lists = [lambda v: v * [1.0, 2, 3.0], lambda v: np.stack([v[0], 0.5, 1]) * v, lambda v: np.array([v[0], 1, 2]) / 3]
    for made in lists:

        def k(v: ml.Read, out: ml.Write, made: Any = made):
            out[...] = made(v)

        assert np.dtype(np.float64) in types_in(k)


def test_a_list_that_numpy_would_convert_unseen_is_refused() -> None:
    """Its entries would keep types of their own."""
    for function in (np.sum, np.mean, np.linalg.norm, lambda v: np.maximum(v, 0.0), lambda v: np.dot(v, v)):

        def k(v: Read, out: Write, function: Any = function):
            out[...] = function([v[0], 0.5])

        with pytest.raises(KernelError, match=r"np\.stack\(\[\.\.\.\]\)"):
            types_in(k)


def test_numpy_is_as_before_after_tracing() -> None:
    array = np.array

    def k(v: Read, out: Write):
        assert np.array is not array and np.array([1, 2]).dtype == np.int64 and np.asarray(2.5).dtype == np.float64
        out[...] = np.array([v[0], v[1], v[2]])
        raise ZeroDivisionError

    with pytest.raises(KernelError, match="ZeroDivisionError"):
        types_in(k)
    assert np.array is array and np.array([1]).dtype == np.int64


def line_of(function, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if text in line)


def failing(function, **shapes) -> str:
    kernel = ml.kernel(function)
    params = tuple(
        tracing.Param(n, m, shapes.get(n, ()), F8, 2 if shapes.get(n) == (2,) else 0, 1)
        for n, m in kernel.modes.items()
    )
    with pytest.raises(KernelError) as caught:
        kernel.trace(params)
    message = str(caught.value)
    assert "\n" not in message
    return message


def branch(a: Read, out: Write):
    if a > 0:
        out[...] = a
    else:
        out[...] = -a


def loop_count(a: Read, out: Write):
    out[...] = sum(a for _ in range(a))


def python_math(a: Read, out: Write):
    out[...] = math.sqrt(a)


def fills_zeros(a: Read, out: Write):
    f = np.zeros(2)
    f[0] = a
    out[...] = f[0]


def reads_back(a: Read, out: Inc):
    out[0] += a[0]
    out[1] += out[0] * 2.0


def assigns_an_increment(a: Read, out: Inc):
    out[0] = a[0]


def reads_a_write(a: Read, out: Write):
    out[...] = out + a


def wrong_slot(a: Read, out: Inc):
    out[0] += a[2]


def unknown_function(a: Read, out: Write):
    out[...] = np.convolve(a, [1, 2])


def python_max(a: Read, out: Write):
    out[...] = max(a, 0.0)


def writes_through_alias(a: Read, out: Write):
    alias = a
    alias[...] = 1.0
    out[...] = 1.0


def a_string(a: Read, out: Write):
    out[...] = a + "1"


@pytest.mark.parametrize(
    ("function", "shapes", "line", "words"),
    [
        (branch, {}, "if a > 0", "use np.where"),
        (loop_count, {}, "range(a)", "cannot be a loop count"),
        (python_math, {}, "math.sqrt(a)", "np.sqrt, not math.sqrt"),
        (fills_zeros, {}, "f[0] = a", "np.stack"),
        (reads_back, {"a": (2,), "out": (2,)}, "out[0] * 2.0", "cannot be read back"),
        (assigns_an_increment, {"a": (2,), "out": (2,)}, None, "use += or -="),
        (reads_a_write, {}, "out + a", "which is Write"),
        (wrong_slot, {"a": (2,), "out": (2,)}, "a[2]", "out of bounds"),
        (unknown_function, {}, "np.convolve", "np.convolve is not supported"),
        (python_max, {}, "max(a, 0.0)", "np.maximum"),
        (writes_through_alias, {}, "alias[...] = 1.0", "a parameter that is Read is written"),
        (a_string, {}, 'a + "1"', "str"),
    ],
)
def test_errors_are_one_line_that_names_file_and_line(function, shapes, line, words) -> None:
    message = failing(function, **shapes)
    assert words in message
    if line:
        assert re.search(rf"test_trace\.py:{line_of(function, line)}:", message), message


def test_a_component_that_is_never_set() -> None:
    def k(v: Read, out: Write):
        out[0] = v[0]

    on = ml.Set(3, "points")
    with pytest.raises(KernelError, match=r"out is Write, but entry \[1\] is never set"):
        ml.kernel(k)(on, on.field("v", 2), on.field("out", 2))


def test_errors_at_definition() -> None:
    with pytest.raises(KernelError, match=r"test_trace\.py:\d+: kernel k: parameter a is Read but is written here"):

        @ml.kernel
        def k(a: Read, out: Write):
            a[0] += 1.0
            out[...] = a

    with pytest.raises(KernelError, match=r"has no access mode; annotate it with one of Read, .*, Sum, Random$"):

        @ml.kernel
        def k2(a, out: Write):
            out[...] = a

    with pytest.raises(KernelError, match="did you mean 'Read'"):

        @ml.kernel
        def k3(a: Reed, out: Write):  # noqa: F821
            out[...] = a

    with pytest.raises(KernelError, match="parameter out is Write but is never set"):

        @ml.kernel
        def k4(a: Read, out: Write):
            pass


def _whole(a: Read, out: Write):
    out = a  # noqa: F841


def _again(a: Read, out: ReadWrite):
    out[...] = a
    out = 2.0 * out


def _unpacked(a: Read, out: ReadWrite):
    b, out = a, a
    out[...] = b


def _summed(a: Read, out: Sum):
    out = out + a


def _looped(a: Read, out: Inc):
    for out in range(3):
        out += a


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_whole, "out is Write, and 'out = ...' sets nothing"),
        (_again, "out is ReadWrite, and 'out = ...' sets nothing"),
        (_unpacked, "write out[...] = ..., or use another name"),
        (_summed, "write out += ..., or use another name"),
        (_looped, "out is Inc, and 'out = ...' sets nothing"),
    ],
)
def test_an_output_whose_name_is_given_away_is_not_lost_without_a_word(function, words: str) -> None:
    with pytest.raises(KernelError, match=re.escape(words)):
        ml.kernel(function)


def test_names_inside_of_a_kernel_are_its_own() -> None:
    @ml.kernel
    def k(a: Read, out: ReadWrite):
        def twice(out):
            out = 2.0 * out
            return out

        a = twice(a) + sum(out for out in (1.0, 2.0)) + (lambda out: out)(0.5)
        out += a

    on = ml.Set(3, "points")
    out = on.field("out", data=[1.0, 1.0, 1.0])
    k(on, on.field("a", data=[0.0, 1.0, 2.0]), out)
    assert out.numpy().tolist() == [4.5, 6.5, 8.5]


def test_messages_name_what_stands_there() -> None:
    on = ml.Set(3, "points")
    u, out = on.field("u", 2), on.field("out")

    @ml.kernel
    def solved(a: Read, out: Write):
        out[...] = np.linalg.pinv(np.stack([a, a]))[0, 0]

    @ml.kernel
    def chosen(a: Read, out: Write):
        out[...] = [1.0, 2.0][(a[0] > 0.0).astype(np.int32)]

    @ml.kernel
    def captured(a: Read, out: Write):
        out[...] = a[0] + out_of_place

    out_of_place = ml.Global(1.0)
    with pytest.raises(KernelError, match=r"np\.linalg\.pinv is not supported in a kernel"):
        solved(on, u, out)
    with pytest.raises(KernelError, match="known only at run time cannot be a loop count, nor say where"):
        chosen(on, u, out)
    with pytest.raises(KernelError, match="not with Global; pass it as an argument of the loop"):
        captured(on, u, out)
    with pytest.raises(MeshError, match=r"got ndarray; an array goes in as set\.field\(name, data=array\)"):
        solved(on, np.zeros((3, 2)), out)


def test_a_kernel_that_returns_a_value() -> None:
    @ml.kernel
    def k(a: Read, out: Write):
        out[...] = a
        return a

    on = ml.Set(3, "points")
    with pytest.raises(KernelError, match="returns a value"):
        k(on, on.field("a"), on.field("out"))


def test_arguments_are_checked_against_the_loop() -> None:
    @ml.kernel
    def k(a: Read, total: Sum):
        total += a

    nodes, edges = ml.Set(4, "nodes"), ml.Set(3, "edges")
    ends = ml.Map(edges, nodes, np.zeros((3, 2), int), "ends")
    a, total = nodes.field("a"), ml.Global(0.0)
    with pytest.raises(MeshError, match=r"field a lives on nodes, but the loop runs over edges; pass a\[map\]"):
        k(edges, a, total)
    with pytest.raises(MeshError, match="map ends starts at edges, but the loop runs over nodes"):
        k(nodes, a[ends], total)
    with pytest.raises(KernelError, match=r"takes 2 arguments after the set \(a, total\), got 1"):
        k(nodes, a)
    with pytest.raises(KernelError, match="a Field cannot be Sum"):
        k(nodes, a, nodes.field("b"))
    with pytest.raises(MeshError, match="expected a Field, field"):
        k(nodes, "3.0", total)
    with pytest.raises(MeshError, match="the first argument is the set"):
        k(a, total)

    @ml.kernel
    def k2(a: Read, b: Inc):
        b[0] += a

    with pytest.raises(KernelError, match="a is passed as a and as b, and one of them is written"):
        k2(nodes, a, a)
    with pytest.raises(KernelError, match="a Global cannot be Inc"):
        k2(nodes, a, total)


def test_writing_through_a_map_wants_one_element_per_target() -> None:
    @ml.kernel
    def k(a: Read, b: Write):
        b[0] = a

    nodes, edges = ml.Set(4, "nodes"), ml.Set(3, "edges")
    a, b = edges.field("a", data=[1.0, 2.0, 3.0]), nodes.field("b")
    for backend in ("numpy", "cpu"):
        ml.use(backend)
        k(edges, a, b[ml.Map(edges, nodes, [3, 0, 1])])
        np.testing.assert_array_equal(b.numpy(), [2.0, 3.0, 0.0, 1.0])
        with pytest.raises(KernelError, match="shares nodes entry 3 with another one"):
            k(edges, a, b[ml.Map(edges, nodes, [3, 0, 3])])


def test_min_and_max_keep_every_offer() -> None:
    def k(v: Read, low: Min, high: Max):
        low[...] = v[0]
        low[...] = v[1]
        high[...] = v[0]
        high[...] = v[1]

    on = ml.Set(50, "points")
    v, low, high = on.field("v", 3, data=V), on.field("low", data=np.full(50, 0.5)), on.field("high")
    ml.kernel(k)(on, v, low, high)
    np.testing.assert_array_equal(low.numpy(), np.minimum(V[:, :2].min(axis=1), 0.5))
    np.testing.assert_array_equal(high.numpy(), V[:, :2].max(axis=1))


def test_read_write_leaves_untouched_components_alone() -> None:
    def k(v: ReadWrite):
        v[0] = 2.0 * v[1]

    on = ml.Set(50, "points")
    v = on.field("v", 3, data=V)
    ml.kernel(k)(on, v)
    np.testing.assert_array_equal(v.numpy(), np.stack([2 * V[:, 1], V[:, 1], V[:, 2]], axis=1))


def test_a_large_kernel_warns() -> None:
    def k(v: Read, out: Write):
        total = v[0]
        for i in range(6000):
            total = total * v[1] + float(i)
        out[...] = total

    params = (tracing.Param("v", Read, (3,), F8, 0, 3), tracing.Param("out", Write, (), F8, 0, 1))
    with pytest.warns(UserWarning, match="operations after unrolling"):
        tracing.trace(k, "k", params)
