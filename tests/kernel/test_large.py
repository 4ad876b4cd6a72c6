"""Kernels of many terms, and kernels that fail by themselves."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError
from meshloom.kernel import passes
from meshloom.kernel.model import Param
from meshloom.kernel.trace import trace

MANY = 5000
F8 = np.dtype(np.float64)


def long_sum(x: ml.Read, out: ml.Write):
    total = x[0]
    for k in range(MANY):
        total = total + x[k % 2] * (1.0 + k)
    out[...] = total


def long_sum_to_the_right(x: ml.Read, out: ml.Write):
    total = x[0]
    for k in range(MANY):
        total = x[k % 2] / (1.0 + k) - total
    out[...] = total


def long_product(x: ml.Read, out: ml.Write):
    total = x[0]
    for k in range(MANY):
        total = total * (x[k % 2] + k % 3) * 0.25
    out[...] = total


def nested_minima(x: ml.Read, out: ml.Write):
    total = x[0]
    for k in range(MANY):
        total = np.minimum(total, x[k % 2] * (MANY - k))
    out[...] = total


def nested_functions(x: ml.Read, out: ml.Write):
    total = x[0]
    for k in range(MANY):
        total = np.sqrt(np.abs(total - k))
    out[...] = total


def signs(x: ml.Read, out: ml.Write):
    total = x[0]
    for _ in range(MANY):
        total = -(total * x[1])
    out[...] = total


def product_of_long_sums(x: ml.Read, out: ml.Write):
    a, b = x[0], x[1]
    for k in range(MANY // 2):
        a, b = a + x[1] * (1.0 + k), b - x[0] * (2.0 + k)
    out[...] = a * b


def many_increments(x: ml.Read, out: ml.Inc):
    for k in range(MANY):
        out += x[k % 2] * (1.0 + k)


def many_offers(x: ml.Read, out: ml.Min):
    for k in range(MANY):
        out[...] = x[k % 2] * (1.0 + k)


LONG = (long_sum, long_sum_to_the_right, long_product, nested_minima, nested_functions, signs, product_of_long_sums,
        many_increments, many_offers)  # fmt: skip


def steps(function: Callable[..., None], terms: int, monkeypatch: pytest.MonkeyPatch, *, count: bool = True) -> int:
    """Lines and calls of Python that tracing and optimising take: work, whoever else is busy on the machine."""
    done = 0

    def note(*_: Any) -> Any:
        nonlocal done
        done += 1
        return note

    monkeypatch.setitem(globals(), "MANY", terms)
    mode = list(inspect.signature(function).parameters.values())[1].annotation
    kind = {"ml.Write": ml.Write, "ml.Inc": ml.Inc, "ml.Min": ml.Min}[mode]
    params = (Param("x", ml.Read, (2,), F8, 0, 2), Param("out", kind, (), F8, 0, 1))
    before = sys.gettrace()
    sys.settrace(note if count else before)
    try:
        made = passes.optimise([o.value for o in trace(function, "k", params).outputs])
    finally:
        sys.settrace(before)
    return done or bool(made)


@pytest.mark.parametrize("function", LONG)
def test_kernels_of_many_terms_are_traced(function: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """More terms, one in the other, than Python allows calls."""
    assert steps(function, sys.getrecursionlimit() + 200, monkeypatch, count=False)


@pytest.mark.filterwarnings("ignore:kernel .* operations after unrolling")
@pytest.mark.parametrize("function", (long_sum_to_the_right, many_increments, many_offers))
def test_the_work_of_tracing_grows_with_the_terms(
    function: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times as many take no more than five times the work; a look at all terms for each would be sixteen."""
    steps(function, 50, monkeypatch)
    few, many = (steps(function, n, monkeypatch) for n in (100, 400))
    assert many < 5 * few


def looks_at_all_terms(x: ml.Read, out: ml.Write):
    for k in range(MANY):
        out[...] = x[0] * sum(1 for _ in range(4 * k))


def test_work_that_grows_faster_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (steps(looks_at_all_terms, n, monkeypatch) for n in (100, 400))
    assert many > 5 * few


@pytest.mark.filterwarnings("ignore:kernel .* operations after unrolling")
@pytest.mark.parametrize("back_end", ("numpy", "cpu", "emulated"))
@pytest.mark.parametrize(("function", "terms"), [(long_sum, 1000), (nested_minima, 150)])
def test_kernels_of_many_terms_run(
    function: Callable[..., None], terms: int, back_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minima, one in the other, took compilers minutes."""
    monkeypatch.setitem(globals(), "MANY", terms)
    ml.use(back_end)
    on = ml.Set(2)
    x = on.field("x", 2, data=np.array([[1.0, 0.5], [0.25, 2.0]]))
    kernel, plain, out = ml.kernel(function), on.field("plain"), on.field("out")
    kernel.python(on, x, plain)
    kernel(on, x, out)
    np.testing.assert_allclose(out.numpy(), plain.numpy(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:kernel .* operations after unrolling")
def test_a_deep_expression_is_shown_in_part() -> None:
    shown = []

    def k(x: ml.Read, out: ml.Write):
        total = x[0]
        for _ in range(5000):
            total = total + x[1]
        shown.append(repr(total))
        out[...] = total

    trace(k, "k", (Param("x", ml.Read, (2,), F8, 0, 2), Param("out", ml.Write, (), F8, 0, 1)))
    assert shown[0].startswith("<symbol add(add(") and len(shown[0]) < 1000


# --- a kernel's own errors --------------------------------------------------------------------------------------------
TABLE = {"one": 1.0}


def unknown_name(x: ml.Read, out: ml.Write):
    out[...] = x * nowhere  # noqa: F821


def divides_by_zero(x: ml.Read, out: ml.Write):
    out[...] = x * (1 / 0)


def unknown_key(x: ml.Read, out: ml.Write):
    out[...] = x * TABLE["two"]


def helper(depth: int) -> int:
    return helper(depth + 1)


def endless(x: ml.Read, out: ml.Write):
    out[...] = x * helper(0)


def asserts(x: ml.Read, out: ml.Write):
    assert TABLE["one"] == 2.0
    out[...] = x


def overflows(x: ml.Read, out: ml.Write):
    out[...] = x * (2.0**10000)


def raises(x: ml.Read, out: ml.Write):
    out[...] = x
    raise RuntimeError("two\nlines")


@pytest.mark.parametrize("back_end", ("python", "numpy"))
@pytest.mark.parametrize(
    ("function", "text", "words"),
    [
        (unknown_name, "nowhere", "NameError: name 'nowhere' is not defined"),
        (divides_by_zero, "(1 / 0)", "ZeroDivisionError: division by zero"),
        (unknown_key, 'TABLE["two"]', "KeyError: 'two'"),
        (helper, "helper(depth + 1)", "RecursionError: maximum recursion depth"),
        (asserts, "assert TABLE", "AssertionError"),
        (overflows, "2.0**10000", "OverflowError"),
        (raises, "raise RuntimeError", "RuntimeError: two lines"),
    ],
)
def test_errors_of_a_kernel_itself_name_its_line(function, text: str, words: str, back_end: str) -> None:
    lines, first = inspect.getsourcelines(function)
    line = first + next(k for k, one in enumerate(lines) if text in one)
    kernel = ml.kernel(endless if function is helper else function)
    ml.use("numpy")
    on = ml.Set(2)
    with pytest.raises(KernelError) as caught:
        (kernel.python if back_end == "python" else kernel)(on, on.field("x"), on.field("out"))
    message = str(caught.value)
    assert f"test_large.py:{line}: kernel {kernel.name}: " in message and words in message and "\n" not in message
    assert isinstance(caught.value.__cause__, Exception)


@pytest.mark.parametrize("back_end", ("python", "numpy"))
@pytest.mark.parametrize("stop", (KeyboardInterrupt, SystemExit))
def test_a_kernel_that_is_stopped_stops(stop: type[BaseException], back_end: str) -> None:
    @ml.kernel
    def k(x: ml.Read, out: ml.Write):
        out[...] = x
        raise stop

    ml.use("numpy")
    on = ml.Set(1)
    with pytest.raises(stop):
        (k.python if back_end == "python" else k)(on, on.field("x"), on.field("out"))


def test_more_operations_than_anybody_waits_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trace.__globals__, "MOST_NODES", 50)
    param = [Param("x", ml.Read, (2,), F8, 0, 2), Param("out", ml.Write, (), F8, 0, 1)]
    with pytest.raises(KernelError, match=r"test_large.py:\d+: kernel nested has .* operations .* more than the 50"):
        trace(nested_functions, "nested", param)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"test_large.py:\d+: kernel nested has 20001 operations"):
        trace(nested_functions, "nested", param)
