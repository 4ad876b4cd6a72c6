"""Captured values that are reached by the ways of objects: operators, classes, modules, containers with a class."""

from __future__ import annotations

import contextvars
import enum
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import KernelError
from tests.test_captured import cells_with_data, kernel_of

LEVEL = 2.0
Case = tuple[Callable[[Any], Any], Callable[[float], None]]
constants = types.ModuleType("constants")


def set_level(to: float) -> None:
    global LEVEL
    LEVEL = to


class Doubled:
    """Its operators read a global."""

    def __init__(self, value: Any):
        self.value = value

    def __add__(self, other: Doubled) -> Doubled:
        return Doubled(LEVEL * (self.value + other.value) / 2)


class Levels:
    def __iter__(self) -> Any:
        return iter([LEVEL])


class Level:
    def __get__(self, of: Any, kind: Any = None) -> float:
        return LEVEL


class Described:
    level = Level()


class Base:
    level = 2.0

    def of(self, x: Any) -> Any:
        return self.level * x


class Derived(Base):
    def of(self, x: Any) -> Any:
        return 1.0 * super().of(x)


class Entries(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: str) -> float:
        return LEVEL


def handed_on(one: Any, x: Any) -> Any:
    return one.of(x)


def operator_of_a_class() -> Case:
    return (lambda x: (Doubled(x) + Doubled(x)).value), set_level


def iterator() -> Case:
    levels = Levels()
    return (lambda x: next(level * x for level in levels)), set_level


def descriptor() -> Case:
    described = Described()
    return (lambda x: getattr(described, "le" + "vel") * x), set_level


def data_behind_super() -> Case:
    derived = Derived()
    return (lambda x: derived.of(x)), lambda to: setattr(Base, "level", to)


def method_behind_super() -> Case:
    derived, before = Derived(), Base.of

    def change(to: float) -> None:
        Base.of = before if to == 2.0 else lambda self, x: to * x  # type: ignore[method-assign]

    return (lambda x: derived.of(x)), change


def method_of_an_object_handed_on() -> Case:
    base, before = Base(), Base.of

    def change(to: float) -> None:
        Base.of = before if to == 2.0 else lambda self, x: to * x  # type: ignore[method-assign]

    return (lambda x: handed_on(base, x)), change


def new_entry_of_a_class() -> Case:
    class Plain:
        pass

    plain = Plain()
    return (lambda x: getattr(plain, "lev" + "el", 2.0) * x), lambda to: setattr(Plain, "level", to)


def class_of_a_dictionary() -> Case:
    entries = Entries()
    return (lambda x: entries["a"] * x), set_level


def attribute_of_a_dictionary() -> Case:
    entries = Entries()
    entries.level = 2.0  # type: ignore[attr-defined]
    return (lambda x: entries.level * x), lambda to: setattr(entries, "level", to)  # type: ignore[attr-defined]


def method_of_a_dictionary() -> Case:
    entries = {"a": 2.0}
    get = entries.get
    return (lambda x: get("a") * x), lambda to: entries.update(a=to)  # type: ignore[operator]


def table_that_is_only_read() -> Case:
    entries = {"a": 2.0}
    shown = types.MappingProxyType(entries)
    return (lambda x: shown["a"] * x), lambda to: entries.update(a=to)


def entry_of_a_module_by_another_name() -> Case:
    constants.table = {"a": 2.0}  # type: ignore[attr-defined]

    def formula(x: Any) -> Any:
        same = constants
        return same.table["a"] * x  # type: ignore[attr-defined]

    return formula, lambda to: constants.table.update(a=to)  # type: ignore[attr-defined]


def value_of_a_member() -> Case:
    class Kind(enum.Enum):
        FIRST = [2.0]  # noqa: RUF012

    def value(kind: Kind) -> float:
        return kind.value[0]

    kind = Kind.FIRST
    return (lambda x: value(kind) * x), lambda to: kind.value.__setitem__(0, to)


def behind_a_reference() -> Case:
    base = Base()
    reference = weakref.ref(base)
    return (lambda x: reference().level * x), lambda to: setattr(base, "level", to)  # type: ignore[union-attr]


def variable_of_a_context() -> Case:
    level = contextvars.ContextVar("level", default=2.0)
    return (lambda x: level.get() * x), lambda to: level.set(to) and None  # type: ignore[func-returns-value]


WAYS = [operator_of_a_class, iterator, descriptor, data_behind_super, method_behind_super,
        method_of_an_object_handed_on, new_entry_of_a_class, class_of_a_dictionary, attribute_of_a_dictionary,
        method_of_a_dictionary, table_that_is_only_read, entry_of_a_module_by_another_name, value_of_a_member,
        behind_a_reference, variable_of_a_context]  # fmt: skip


def variable_by_its_name() -> Case:
    return (lambda x: globals()["LEVEL"] * x), set_level


@pytest.mark.filterwarnings("ignore:kernel apply reads variables by globals")
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("way", [*WAYS, variable_by_its_name])
def test_the_new_value_is_seen(way: Callable[[], Case], recorded: bool) -> None:
    ml.use("numpy")
    formula, change = way()
    change(2.0)

    @ml.kernel
    def apply(x: ml.Read, out: ml.Write):
        out[...] = formula(x)

    cells = ml.Set(3, "cells")
    x, out = cells.field("x", data=[1.0, 2.0, 3.0]), cells.field("out")
    run = ml.program(lambda: apply(cells, x, out)).run if recorded else lambda: apply(cells, x, out)
    for level in (2.0, 5.0, 2.0):
        change(level)
        run()
        np.testing.assert_array_equal(out.numpy(), level * x.numpy())


def test_a_table_that_is_only_read_is_compared() -> None:
    """And so the kernel is traced once, not at every call."""
    ml.use("numpy")
    table, traced = types.MappingProxyType({"a": 2.0}), []

    def formula(x: Any) -> Any:
        traced.append(1)
        return table["a"] * x

    apply = kernel_of(formula)
    cells, x, out = cells_with_data()
    for _ in range(3):
        apply(cells, x, out)
    assert len(traced) == 1 and out.numpy()[0] == 2.0 * x.numpy()[0]


_G, _V, _S = ml.Global(2.0, "g"), ml.Global([1.0, 2.0], "v"), ml.Set(3, "s")
_F = _S.field("f")


@pytest.mark.parametrize(
    "form",
    [lambda: _G * 2.0, lambda: _F + 1.0, lambda: np.sqrt(_G), lambda: _V[0], lambda: float(_G), lambda: _F[0],
     lambda: np.sum(_F), lambda: _F.sum(), lambda: _G, lambda: np.stack([_G, _G]), lambda: np.where(_G > 1, 1.0, 2.0),
     lambda: np.asarray(_F)[0], lambda: max(_G, 1.0), lambda: np.interp(_G, [0, 1], [0, 1])],
)  # fmt: skip
def test_what_a_kernel_must_not_capture_is_refused_at_the_users_line(form):
    @ml.kernel
    def look(x: ml.Read, out: ml.Write):
        out[...] = x * form()

    with pytest.raises(KernelError) as caught:
        look(_S, _F, _S.field("out"))
    assert str(caught.value).startswith(f"{__file__}:"), caught.value
