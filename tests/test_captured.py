"""What a kernel reads besides its parameters may change: loops and programs then compute with the new values."""

from __future__ import annotations

import abc
import enum
import functools
import gc
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.captured import captured
from tests.counted import python_calls

BACK_ENDS = ["numpy", "cpu", "emulated"]
FACTOR = 2.0
settings = types.ModuleType("settings")
settings.alpha = 2.0  # type: ignore[attr-defined]


def helper(x: Any) -> Any:
    return FACTOR * x


@dataclass
class Gas:
    gamma: float = 2.0
    table: dict[str, float] = field(default_factory=lambda: {"a": 2.0})

    def scaled(self, x: Any) -> Any:
        return self.gamma * x

    @property
    def doubled(self) -> float:
        return 2 * self.gamma


class Holder:
    """A class whose own data is read."""

    level = 2.0


def of_gas(gas: Gas, x: Any) -> Any:
    return gas.gamma * x


Case = tuple[Callable[[Any], Any], Callable[[float], None]]


def closure() -> Case:
    c = 2.0

    def change(to: float) -> None:
        nonlocal c
        c = to

    return lambda x: c * x, change


def module_global() -> Case:
    def change(to: float) -> None:
        global FACTOR
        FACTOR = to

    change(2.0)
    return lambda x: FACTOR * x, change


def global_of_a_helper() -> Case:
    return (lambda x: helper(x)), module_global()[1]


def module_attribute() -> Case:
    def change(to: float) -> None:
        settings.alpha = to  # type: ignore[attr-defined]

    change(2.0)
    return lambda x: settings.alpha * x, change  # type: ignore[attr-defined]


def array() -> Case:
    values = np.array([1.0, 2.0])
    return (lambda x: values[1] * x), lambda to: values.__setitem__(1, to)


def listed() -> Case:
    values = [1.0, 2.0]
    return (lambda x: values[1] * x), lambda to: values.__setitem__(1, to)


def nested_entries() -> Case:
    values = {"a": [(1.0, np.array([2.0]))]}
    return (lambda x: values["a"][0][1][0] * x), lambda to: values["a"][0][1].__setitem__(0, to)


def entry() -> Case:
    values = {"a": 2.0}
    return (lambda x: values["a"] * x), lambda to: values.update(a=to)


def attribute() -> Case:
    gas = Gas()
    return (lambda x: gas.gamma * x), lambda to: setattr(gas, "gamma", to)


def attribute_through_a_helper() -> Case:
    gas = Gas()
    return (lambda x: of_gas(gas, x)), lambda to: setattr(gas, "gamma", to)


def entry_of_an_attribute() -> Case:
    gas = Gas()
    return (lambda x: gas.table["a"] * x), lambda to: gas.table.update(a=to)


def method() -> Case:
    gas = Gas()
    return (lambda x: gas.scaled(x)), lambda to: setattr(gas, "gamma", to)


def bound_method() -> Case:
    gas = Gas()
    scaled = gas.scaled
    return (lambda x: scaled(x)), lambda to: setattr(gas, "gamma", to)


def property_of_an_object() -> Case:
    gas = Gas()
    return (lambda x: 0.5 * gas.doubled * x), lambda to: setattr(gas, "gamma", to)


def default_argument() -> Case:
    def inner(x: Any, c: float = 2.0) -> Any:
        return c * x

    return (lambda x: inner(x)), lambda to: setattr(inner, "__defaults__", (to,))


def keyword_default() -> Case:
    def inner(x: Any, *, c: float = 2.0) -> Any:
        return c * x

    return (lambda x: inner(x)), lambda to: inner.__kwdefaults__.update(c=to)


def partial() -> Case:
    values = [2.0]
    inner = functools.partial(lambda v, x: v[0] * x, values)
    return (lambda x: inner(x)), lambda to: values.__setitem__(0, to)


def nested_function() -> Case:
    c = 2.0

    def change(to: float) -> None:
        nonlocal c
        c = to

    def outer(x: Any) -> Any:
        def inner() -> Any:
            return sum((lambda k: c * x / k)(2) for _ in range(2))

        return inner()

    return outer, change


def helper_replaced() -> Case:
    space: dict[str, Any] = {"__name__": "notebook"}
    exec("def f(x): return 2.0 * x\ndef g(x): return f(x)", space)
    return space["g"], lambda to: exec(f"def f(x): return {to!r} * x", space)


def class_data() -> Case:
    def change(to: float) -> None:
        Holder.level = to

    change(2.0)
    return lambda x: Holder.level * x, change


def alias() -> Case:
    gas = Gas()

    def read(x: Any) -> Any:
        same = gas
        return same.gamma * x

    return read, lambda to: setattr(gas, "gamma", to)


def global_object() -> Case:
    factor = ml.Global(2.0)
    return (lambda x: factor.value * x), factor.assign


class Pair(NamedTuple):
    low: float
    high: float

    def mean(self) -> float:
        return 0.5 * (self.low + self.high)


class Kind(enum.Enum):
    ONE = 1.0


class Base(abc.ABC):
    """With what Python adds to such classes."""

    rate: float = 2.0

    @functools.cached_property
    def unused(self) -> float:
        return 0.0

    @abc.abstractmethod
    def of(self, x: Any) -> Any: ...


class Slotted(Base):
    __slots__ = ("lock", "scale")

    def __init__(self) -> None:
        self.scale, self.lock = 2.0, threading.Lock()

    def of(self, x: Any) -> Any:
        return self.scale * x * Kind.ONE.value


def named_tuple() -> Case:
    held = [Pair(1.0, 3.0)]

    def formula(x: Any) -> Any:
        return Pair(x * held[0].mean(), x).low

    return formula, lambda to: held.__setitem__(0, Pair(to - 1.0, to + 1.0))


def object_in_a_list() -> Case:
    held = [Slotted()]
    return (lambda x: held[0].of(x)), lambda to: setattr(held[0], "scale", to)


def attribute_of_a_base_class() -> Case:
    one = Slotted()

    def change(to: float) -> None:
        Base.rate = to

    change(2.0)
    return lambda x: helper_of(one, x), change


def helper_of(one: Any, x: Any) -> Any:
    return one.rate * x


def global_handed_on() -> Case:
    factor = ml.Global(2.0)
    return (lambda x: value_of(factor) * x), factor.assign


def field_handed_on() -> Case:
    factors = ml.Set(2).field("factors", data=[1.0, 2.0])
    return (lambda x: value_of(factors)[1] * x), lambda to: factors.assign([1.0, to])


def imported_inside() -> Case:
    sys.modules["meshloom_test_settings"] = module = types.ModuleType("meshloom_test_settings")
    module.alpha = module.one = 1.0  # type: ignore[attr-defined]
    module.alpha = 2.0  # type: ignore[attr-defined]

    def read(x: Any) -> Any:
        import meshloom_test_settings  # type: ignore[import-not-found]
        from meshloom_test_settings import alpha, one

        return alpha * x * one * meshloom_test_settings.one

    return read, lambda to: setattr(module, "alpha", to)


def value_of(stored: Any) -> Any:
    return stored.numpy()


def wrapped() -> Case:
    gas = Gas()

    @functools.wraps(of_gas)
    def inner(x: Any) -> Any:
        return of_gas(gas, x)

    return (lambda x: inner(x)), lambda to: setattr(gas, "gamma", to)


WAYS = [closure, module_global, global_of_a_helper, module_attribute, array, listed, nested_entries, entry, attribute,
        attribute_through_a_helper, entry_of_an_attribute, method, bound_method, property_of_an_object,
        default_argument, keyword_default, partial, nested_function, helper_replaced, class_data, alias, global_object,
        wrapped, named_tuple, object_in_a_list, attribute_of_a_base_class, global_handed_on,
        field_handed_on, imported_inside]  # fmt: skip


def kernel_of(formula: Callable[[Any], Any]) -> ml.Kernel:
    @ml.kernel
    def apply(x: ml.Read, out: ml.Write):
        out[...] = formula(x)

    return apply


def cells_with_data() -> tuple[ml.Set, ml.Field, ml.Field]:
    cells = ml.Set(3, "cells")
    return cells, cells.field("x", data=[1.0, 2.0, 3.0]), cells.field("out")


@pytest.mark.parametrize("way", WAYS)
def test_an_eager_loop_sees_the_new_value(way: Callable[[], Case]) -> None:
    ml.use("numpy")
    formula, change = way()
    apply = kernel_of(formula)
    cells, x, out = cells_with_data()
    loop = apply.loop(cells, x, out)
    for factor in (2.0, 3.0, 2.0, 5.0):
        change(factor)
        apply(cells, x, out)
        np.testing.assert_array_equal(out.numpy(), factor * x.numpy())
        loop()
        np.testing.assert_array_equal(out.numpy(), factor * x.numpy())
        assert captured(apply.function).comparable


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("fuse", [True, False])
def test_a_program_sees_the_new_value(back_end: str, fuse: bool) -> None:
    ml.use(back_end)
    formula, change = attribute()
    first, second = kernel_of(formula), kernel_of(lambda x: x + 1.0)
    cells, x, out = cells_with_data()
    twice = cells.field("twice")

    @ml.program(fuse=fuse)
    def step() -> None:
        first(cells, x, out)
        second(cells, out, twice)

    for factor in (2.0, 3.0, 2.0):
        change(factor)
        step.run(2)
        np.testing.assert_array_equal(twice.numpy(), factor * x.numpy() + 1.0)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_line_loops_see_the_new_value(back_end: str) -> None:
    ml.use(back_end)
    grid = ml.Grid((8, 6), periodic=True)
    u, out = grid.field("u", data=np.arange(48.0)), grid.field("out")
    gas = Gas()

    @ml.kernel
    def before(u: ml.Read, f: ml.Write):
        f[...] = gas.gamma * u

    @ml.kernel
    def after(y: ml.Read, out: ml.Write):
        out[...] = y + gas.table["a"]

    unit = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.0, 1.0, 0.0, periodic=True))

    def call() -> None:
        ml.linalg.line_loop(grid, 0, unit, u, out, before=before, after=after, values=1)

    program = ml.program(call)
    for gamma, a in ((2.0, 1.0), (3.0, 1.0), (3.0, 4.0), (2.0, 1.0)):
        gas.gamma, gas.table["a"] = gamma, a
        for run in (call, program.run):
            out.fill(0.0)
            run()
            np.testing.assert_allclose(out.numpy(), gamma * u.numpy() + a, rtol=1e-14)


def test_counts_and_explain_follow() -> None:
    ml.use("cpu")
    powers = [2]
    apply = kernel_of(lambda x: sum(x**k for k in powers))
    cells, x, out = cells_with_data()
    loop = apply.loop(cells, x, out)
    assert loop.counts.flops == 1
    powers[0] = 3
    assert loop.counts.flops == 2 and "  flops      2 per element" in loop.explain()


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [(0.0, -0.0, True), (np.nan, float("nan"), False), (1, 1.0, True), (1, True, True), (1.5, 1.5, False),
     (np.float32(0.1), 0.1, True), (np.zeros(2), np.zeros(2), False), (np.zeros(2), np.zeros(2, np.float32), True),
     (np.zeros(4), np.zeros((2, 2)), True), ([1, 2], (1, 2), True), ({"a": 1}, {"a": 1}, False),
     ({1, 2}, {2, 1}, False), (np.array([0.0]), np.array([-0.0]), True), (Gas(2.0), Gas(2.0), False),
     (Gas(2.0), Gas(3.0), True), (np.array([1, "a"], object), np.array([1, "b"], object), True)],
)  # fmt: skip
def test_values_are_compared_by_type_and_value(before: Any, after: Any, differs: bool) -> None:
    value = before
    one = captured(lambda: value)
    assert one.comparable and one.unchanged()
    value = after
    other = captured(lambda: value)
    # two lambdas have code of their own; what they read is the last part of the key
    assert (one.key[-1] != other.key[-1]) is differs  # type: ignore[index]


def test_going_back_traces_and_compiles_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("cpu")
    traces: list[int] = []
    from meshloom.operation import loop as module

    original = module.trace
    monkeypatch.setattr(module, "trace", lambda *a, **k: (traces.append(1), original(*a, **k))[1])
    formula, change = attribute()
    apply = kernel_of(formula)
    cells, x, out = cells_with_data()
    for _ in range(10):
        for factor in (2.0, 3.0):
            change(factor)
            apply(cells, x, out)
            np.testing.assert_array_equal(out.numpy(), factor * x.numpy())
    assert len(traces) == 2


def test_many_values_leave_little_behind() -> None:
    ml.use("numpy")
    formula, change = attribute()
    apply = kernel_of(formula)
    cells, x, out = cells_with_data()

    def objects(values: int) -> int:
        for k in range(values):
            change(float(k))
            apply(cells, x, out)
        gc.collect()
        return len(gc.get_objects())

    objects(100)
    before = objects(100)
    assert objects(300) - before < 300


def test_what_cannot_be_compared_is_traced_every_time_and_said_once() -> None:
    ml.use("numpy")
    many = list(range(20_000))
    apply = kernel_of(lambda x: many[-1] * x)
    cells, x, out = cells_with_data()
    with pytest.warns(UserWarning, match=r"kernel apply reads more than 10,000 values.*ml\.Global"):
        apply(cells, x, out)
    many[-1] = 7
    apply(cells, x, out)
    np.testing.assert_array_equal(out.numpy(), 7 * x.numpy())
    step = ml.program(lambda: apply(cells, x, out))
    for factor in (8, 9):
        many[-1] = factor
        step.run()
        np.testing.assert_array_equal(out.numpy(), factor * x.numpy())


def test_a_kernel_that_changes_what_it_reads_is_traced_once() -> None:
    ml.use("numpy")
    seen: list[int] = []

    def formula(x: Any) -> Any:
        seen.append(1)
        return x

    apply = kernel_of(formula)
    cells, x, out = cells_with_data()
    for _ in range(5):
        apply(cells, x, out)
    assert len(seen) == 1


def test_comparing_is_cheap() -> None:
    gas, values, c, d = Gas(), np.zeros(3), 1.0, 2.0
    found = captured(lambda x: gas.gamma * x + values[0] + c + d + helper(x) + settings.alpha)  # type: ignore[attr-defined]
    assert found.unchanged()
    assert python_calls(found.unchanged) <= 12
