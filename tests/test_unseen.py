"""What functions read without a name or a value that could be compared at first sight: objects that are equal but
others, names that are taken later, signs of NaN, caches, settings, what the standard library keeps."""

from __future__ import annotations

import builtins
import decimal
import enum
import functools
import io
import itertools
import logging
import math
import numbers
import operator
import os
import sys
import types
from collections.abc import Callable
from sys import getrecursionlimit
from typing import Any

import numpy as np
import pytest

from meshloom.kernel.bytecode import identities_asked
from tests.readers import READERS, followed, held

Case = tuple[Callable[[], float], Callable[[int], Any]]
BUILT_IN = "meshloom_test_level"


def handed(one: Any, of: Callable[[Any], float]) -> float:
    """What somebody finds in an object that is handed on."""
    return float(of(one))


def set_value(holder: Any, to: Callable[[int], Any]) -> Callable[[int], None]:
    return lambda k: setattr(holder, "value", to(k))


def code_of(text: str, **variables: Any) -> dict[str, Any]:
    space = {"__name__": "notebook", **variables}
    exec(text, space)
    return space


# --- objects that are equal, but others -------------------------------------------------------------------------------
def is_a_list() -> Case:
    one = [1]
    other = held(one)
    return lambda: float(other.value is one), set_value(other, lambda k: one if k == 1 else [1])


def is_an_array() -> Case:
    one = other = np.ones(2)

    def change(k: int) -> None:
        nonlocal other
        other = one if k == 1 else np.ones(2)

    return lambda: float(other is one), change


def is_a_tuple() -> Case:
    one = (1, 2)
    other = held(one)
    return lambda: float(other.value is one), set_value(other, lambda k: one if k == 1 else (*one[:1], 2))


def is_an_entry() -> Case:
    one, entries = [1], [[1]]
    return lambda: float(entries[0] is one), lambda k: operator.setitem(entries, 0, one if k == 1 else [1])


def is_an_object() -> Case:
    one = held(1)
    other = held(one)
    return lambda: float(other.value is one), set_value(other, lambda k: one if k == 1 else held(1))


def is_a_sentinel() -> Case:
    missing = object()
    other = held(missing)
    return lambda: float(other.value is missing), set_value(other, lambda k: missing if k == 1 else object())


def is_numpy_s_nan() -> Case:
    other = held(np.nan)
    return lambda: float(other.value is np.nan), set_value(other, lambda k: np.nan if k == 1 else float("nan"))


def has_the_address() -> Case:
    one = [1]
    other = held(one)
    return lambda: float(id(other.value) == id(one)), set_value(other, lambda k: one if k == 1 else [1])


def operator_is() -> Case:
    one = [1]
    other = held(one)
    return lambda: float(operator.is_(other.value, one)), set_value(other, lambda k: one if k == 1 else [1])


def nan_in_a_list() -> Case:
    one, entries = float("nan"), [float("nan")]
    return lambda: float(one in entries), lambda k: operator.setitem(entries, 0, one if k == 1 else float("nan"))


# --- names ------------------------------------------------------------------------------------------------------------
def shadowed() -> Case:
    space = code_of("def f(): return max(1, 2)")
    return space["f"], lambda k: space.pop("max", None) if k == 1 else space.update(max=lambda *_: 2 * k)


def module_replaced() -> Case:
    space = code_of("def f(): return math.floor(1.5)", math=math)
    return space["f"], lambda k: space.update(math=math if k == 1 else types.SimpleNamespace(floor=lambda _: k))


def put_beside_python_s() -> Case:
    return code_of(f"def f(): return {BUILT_IN}")["f"], lambda k: setattr(builtins, BUILT_IN, k)


def variable_made_later() -> Case:
    space = code_of("def f():\n try: return LEVEL\n except NameError: return 1")
    return space["f"], lambda k: space.pop("LEVEL", None) if k == 1 else space.update(LEVEL=k)


def default_given_later() -> Case:
    space = code_of("def g(x): return x\ndef f():\n try: return g()\n except TypeError: return 1")
    return space["f"], lambda k: setattr(space["g"], "__defaults__", None if k == 1 else (k,))


def attribute_of_a_function() -> Case:
    def inner() -> None: ...

    return lambda: handed(inner, lambda one: getattr(one, "level", 0)), lambda k: setattr(inner, "level", k)


def unset_slot() -> Case:
    class Slotted:
        __slots__ = ("level",)

    one = Slotted()

    def change(k: int) -> None:
        if k != 1:
            one.level = k
        elif hasattr(one, "level"):
            del one.level

    return lambda: handed(one, lambda one: getattr(one, "level", 1)), change


# --- numbers, and what is derived from them ---------------------------------------------------------------------------
def signed(k: int) -> float:
    return math.copysign(math.nan, 1 if k == 1 else -1)


def sign_of_nan() -> Case:
    one = held(math.nan)
    return lambda: math.copysign(1, one.value), set_value(one, signed)


def sign_of_numpy_s_nan() -> Case:
    one = held(np.float32(math.nan))
    return lambda: math.copysign(1, one.value), set_value(one, lambda k: np.float32(signed(k)))


def sign_in_a_complex_number() -> Case:
    one = held(complex(0, math.nan))
    return lambda: math.copysign(1, one.value.imag), set_value(one, lambda k: complex(0, signed(k)))


class Length(float):
    def __repr__(self) -> str:
        return "a length"


class Count(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Listed(list):  # type: ignore[type-arg]
    __slots__ = ("level",)


class Dual(numbers.Number):
    __slots__ = ("level",)
    __hash__ = object.__hash__


class Kind(enum.Enum):
    ONE = 1


def float_that_looks_the_same() -> Case:
    one = held(Length(1))
    return lambda: one.value + 0.0, set_value(one, Length)


def int_that_is_equal_to_all() -> Case:
    one = held(Count(1))
    return lambda: one.value + 0, set_value(one, Count)


def slot_of_a_list() -> Case:
    one = Listed()
    return lambda: one.level, lambda k: setattr(one, "level", k)


def slot_of_a_number() -> Case:
    one = Dual()
    return lambda: one.level, lambda k: setattr(one, "level", k)


def attribute_of_a_member() -> Case:
    Kind.ONE.level = 1  # type: ignore[attr-defined]
    return lambda: handed(Kind.ONE, lambda one: one.level), lambda k: setattr(Kind.ONE, "level", k)


def names_of_fields() -> Case:
    one = held(None)
    return lambda: len(one.value.dtype.names[0]), set_value(one, lambda k: np.zeros(1, [("a" * k, float)]))


def flags_of_an_array() -> Case:
    one = np.ones(2)
    return lambda: float(one.flags.writeable), lambda k: one.setflags(write=k == 1)


# --- what functions and classes of the standard library keep ----------------------------------------------------------
def stale_results(cache: Any) -> Case:
    level = [1]
    kept = cache(lambda: level[0])

    def change(k: int) -> None:
        level[0] = k
        if k == 3:
            kept.cache_clear()
            kept()

    return lambda: kept(), change


def cache() -> Case:
    return stale_results(functools.cache)


def bounded_cache() -> Case:
    return stale_results(functools.lru_cache)


def cached_method() -> Case:
    class Solver:
        level = 1

        @functools.lru_cache  # noqa: B019
        def of(self) -> float:
            return self.level

    one = Solver()

    def change(k: int) -> None:
        one.level = k
        Solver.of.cache_clear()

    return lambda: one.of(), change


def decorator_with_a_number() -> Case:
    class Scaled:
        def __init__(self, function: Callable[[], float]):
            functools.update_wrapper(self, function)
            self.factor = 1

        def __call__(self) -> float:
            return self.factor * self.__wrapped__()  # type: ignore[attr-defined]

    one = Scaled(lambda: 1.0)
    return lambda: one(), lambda k: setattr(one, "factor", k)


def method_of_a_polynomial() -> Case:
    one = np.polynomial.Polynomial([1.0, 2.0])
    return lambda: float(one.deriv()(0.0)), lambda k: operator.setitem(one.coef, 1, k)


def precision_of_decimals() -> Case:
    one = decimal.Decimal(1)
    return lambda: float(one / 3), lambda k: setattr(decimal.getcontext(), "prec", 3 + k)


def precision_of_new_decimals() -> Case:
    return lambda: float(decimal.Decimal(1) / 3), lambda k: setattr(decimal.getcontext(), "prec", 3 + k)


def level_of_a_logger() -> Case:
    one = logging.getLogger("meshloom.tests.unseen")
    return lambda: float(one.isEnabledFor(20)), lambda k: one.setLevel(10 * (k + 1))


def number_of_a_module() -> Case:
    return lambda: sys.float_info.epsilon + sys.level, lambda k: setattr(sys, "level", k)  # type: ignore[attr-defined]


def class_that_counts_its_objects() -> Case:
    class Counted:
        numbers = itertools.count()

        def __init__(self) -> None:
            self.level = next(self.numbers)

        def save(self) -> None:
            os.remove(open.__name__)

    one = Counted()
    return lambda: handed(one, lambda one: one.level), lambda k: setattr(one, "level", k)


FOLLOWED = [is_a_list, is_an_array, is_a_tuple, is_an_entry, is_an_object, is_a_sentinel, is_numpy_s_nan,
            has_the_address, operator_is, nan_in_a_list, shadowed, module_replaced, put_beside_python_s,
            variable_made_later, default_given_later, attribute_of_a_function, unset_slot, sign_of_nan,
            sign_of_numpy_s_nan, sign_in_a_complex_number, float_that_looks_the_same, int_that_is_equal_to_all,
            slot_of_a_list, slot_of_a_number, attribute_of_a_member, names_of_fields, flags_of_an_array, cache,
            bounded_cache, cached_method, decorator_with_a_number, method_of_a_polynomial, precision_of_decimals,
            precision_of_new_decimals, level_of_a_logger, number_of_a_module]  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("way", FOLLOWED)
def test_it_is_followed_without_a_word(way: Callable[[], Case], kind: str) -> None:
    with decimal.localcontext():
        read, change = way()
        said = followed(kind, read, (change(k) for k in (1, 1, 2, 2, 3, 1)))
    assert not said


def test_methods_that_no_code_names_are_no_reason_to_trace_every_time() -> None:
    read, change = class_that_counts_its_objects()
    assert not followed("kernel", read, (change(k) for k in (1, 1, 2, 3)))


def environment() -> Case:
    return lambda: float(os.environ["LEVEL"]), lambda k: os.environ.update(LEVEL=str(k))


def environment_by_name() -> Case:
    from os import environ

    return lambda: float(environ.get("LEVEL", "")), lambda k: os.environ.update(LEVEL=str(k))


def environment_imported_inside() -> Case:
    def read() -> float:
        import os as system

        return float(system.environ["LEVEL"])

    return read, environment()[1]


def environment_in_a_method() -> Case:
    class Settings:
        def level(self) -> float:
            return float(os.environ["LEVEL"])

    one = Settings()
    return lambda: handed(one, lambda one: one.level()), environment()[1]


def function_of_c_by_name() -> Case:
    most = sys.getrecursionlimit()
    return lambda: getrecursionlimit(), lambda k: sys.setrecursionlimit(most + k)


def file() -> Case:
    path = f"{os.getcwd()}/level"

    def change(k: int) -> None:
        with open(path, "w") as stream:
            stream.write(str(k))

    def read() -> float:
        with open(path) as stream:
            return float(stream.read())

    return read, change


def stream_of_a_class() -> Case:
    class Log:
        stream = io.StringIO()

    one = Log()
    return lambda: handed(one, lambda one: len(one.stream.getvalue())), lambda k: one.stream.write("a")


def cache_info_of_a_helper() -> Case:
    kept = functools.cache(abs)
    return lambda: handed(kept, lambda one: one.cache_info().hits), lambda k: kept(1)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("way", [environment, environment_by_name, environment_imported_inside, environment_in_a_method,
                                 function_of_c_by_name, file, stream_of_a_class, cache_info_of_a_helper])  # fmt: skip
def test_what_nobody_can_compare_is_said_once(
    way: Callable[[], Case], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEVEL", "1")
    read, change = way()
    said = followed(kind, read, (change(k) for k in (1, 1, 2, 3, 1)))
    assert "cannot be compared at every" in said or way is environment_by_name  # an object of Python's, with entries


def test_which_identities_code_asks_for() -> None:
    def asks(a: Any, b: Any) -> Any:
        return a is b, a is FOLLOWED, a is np.nan, a is not b.c, a is b[0], (lambda c, d: c is d.e)

    def asks_for_what_is_itself(a: Any, b: Any) -> Any:
        return a is None, a is not True, type(a) is type(b), a.__class__ is b.__class__, a is ...

    assert identities_asked(asks.__code__) == (("",), ("FOLLOWED",), ("np", "nan"), ("", "c"), ("", "e"))
    assert not identities_asked(asks_for_what_is_itself.__code__)
