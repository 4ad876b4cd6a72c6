"""Captured values that are reached by the ways of objects: operators, classes, modules, containers with a class."""

from __future__ import annotations

import colorsys
import contextvars
import enum
import functools
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
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


class Kind(enum.Enum):
    FIRST = 1

    def level(self) -> float:
        return LEVEL

    @property
    def height(self) -> float:
        return LEVEL


def height_of(kind: Kind) -> float:
    return kind.height


def method_of_a_member() -> Case:
    kind = Kind.FIRST
    return (lambda x: sum(one.level() for one in (kind,)) * x), set_level


def property_of_a_member_handed_on() -> Case:
    kind = Kind.FIRST
    return (lambda x: height_of(kind) * x), set_level


def members_one_after_the_other() -> Case:
    return (lambda x: max(one.height for one in Kind) * x), set_level


def member_by_its_name() -> Case:
    return (lambda x: Kind["FIRST"].height * x), set_level


def another_class() -> Case:
    class Higher(Base):
        def of(self, x: Any) -> Any:
            return 5.0 * x

    base = Base()
    return (lambda x: handed_on(base, x)), lambda to: setattr(base, "__class__", Base if to == 2.0 else Higher)


def other_bases() -> Case:
    class Low(Base):
        def of(self, x: Any) -> Any:
            return 2.0 * x

    class High(Base):
        def of(self, x: Any) -> Any:
            return 5.0 * x

    class One(Low):
        pass

    one = One()
    return (lambda x: handed_on(one, x)), lambda to: setattr(One, "__bases__", (Low if to == 2.0 else High,))


def another_property() -> Case:
    class Lower:
        height = property(lambda self: 2.0)

    class Lowest(Lower):
        pass

    lowest = Lowest()
    return (lambda x: lowest.height * x), lambda to: setattr(Lower, "height", property(lambda self: to))


def function_that_wraps_one_of_numpys() -> Case:
    @functools.wraps(np.sum)
    def scaled(x: Any) -> Any:
        return LEVEL * x

    return (lambda x: scaled(x)), set_level


def method_of_another_object() -> Case:
    class Height:
        def __init__(self, height: float):
            self._height = height

        def height(self) -> float:
            return self._height

    held = {2.0: Height(2.0).height, 5.0: Height(5.0).height}
    chosen = types.SimpleNamespace(height=held[2.0])
    return (lambda x: chosen.height() * x), lambda to: setattr(chosen, "height", held[to])


def what_only_entries_tell() -> Case:
    class Settings(dict):  # type: ignore[type-arg]
        __getattr__ = dict.__getitem__

    settings = Settings(level=2.0)
    return (lambda x: settings.level * x), lambda to: settings.update(level=to)


def default_of_a_keyword_beside_a_table() -> Case:
    table = np.array([1.0, 3.0])

    def scaled(x: Any, *, by: float = 2.0) -> Any:
        return table[0] * by * x

    return (lambda x: scaled(x)), lambda to: scaled.__kwdefaults__.update(by=to)  # type: ignore[union-attr]


def module_with_the_name_of_one_of_pythons() -> Case:
    own = types.ModuleType("colorsys")
    own.__file__ = str(Path(__file__).with_name("colorsys.py"))
    exec("level = 2.0\ndef scaled(x): return level * x", vars(own))
    sys.modules["colorsys"] = own
    return (lambda x: own.scaled(x)), lambda to: setattr(own, "level", to)


WAYS = [method_of_a_member, property_of_a_member_handed_on, members_one_after_the_other, member_by_its_name,
        another_class, other_bases, another_property, function_that_wraps_one_of_numpys, method_of_another_object,
        what_only_entries_tell, default_of_a_keyword_beside_a_table, module_with_the_name_of_one_of_pythons,
        operator_of_a_class, iterator, descriptor, data_behind_super, method_behind_super,
        method_of_an_object_handed_on, new_entry_of_a_class, class_of_a_dictionary, attribute_of_a_dictionary,
        method_of_a_dictionary, table_that_is_only_read, entry_of_a_module_by_another_name, value_of_a_member,
        behind_a_reference, variable_of_a_context]  # fmt: skip


def variable_by_its_name() -> Case:
    return (lambda x: globals()["LEVEL"] * x), set_level


@ml.kernel
def multiply(by: ml.Read, x: ml.Read, out: ml.Write):
    out[...] = by * x


@pytest.mark.filterwarnings("ignore:kernel apply reads variables by globals")
@pytest.mark.parametrize("reader", ["kernel", "kernel of a program", "program"])
@pytest.mark.parametrize("way", [*WAYS, variable_by_its_name])
def test_the_new_value_is_seen(way: Callable[[], Case], reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.use("numpy")
    monkeypatch.setitem(sys.modules, "colorsys", colorsys)  # which is put back
    formula, change = way()
    change(2.0)

    @ml.kernel
    def apply(x: ml.Read, out: ml.Write):
        out[...] = formula(x)

    cells = ml.Set(3, "cells")
    x, out = cells.field("x", data=[1.0, 2.0, 3.0]), cells.field("out")
    run: Callable[[], object] = lambda: apply(cells, x, out)  # noqa: E731
    if reader == "kernel of a program":
        run = ml.program(run).run
    elif reader == "program":
        run = ml.program(lambda: multiply(cells, formula(1.0), x, out)).run
    for level in (2.0, 5.0, 2.0):
        change(level)
        run()
        np.testing.assert_array_equal(out.numpy(), level * x.numpy())


@pytest.mark.parametrize("array", [
    np.ma.array([1.0, 2.0], mask=[False, True]), np.matrix([[1.0, 2.0], [3.0, 4.0]]),
], ids=["masked", "matrix"])  # fmt: skip
def test_arrays_that_mean_something_else_mean_it_in_a_kernel(array: np.ndarray) -> None:
    cells = ml.Set(2, "cells")
    out = cells.field("out")

    @ml.kernel
    def apply(out: ml.Write):
        out[...] = (array * array).sum()

    apply(cells, out)
    assert out.numpy()[0] == (array * array).sum()


def test_a_file_that_numpy_reads_is_no_constant(tmp_path: Path) -> None:
    """Nobody compares files at every call: a kernel is traced anew, and says so."""
    path, cells = tmp_path / "level.txt", ml.Set(2, "cells")
    out = cells.field("out")

    @ml.kernel
    def apply(out: ml.Write):
        out[...] = float(np.loadtxt(path))

    for level in (2.0, 5.0):
        path.write_text(str(level), encoding="utf-8")
        if level == 2.0:
            with pytest.warns(UserWarning, match="loadtxt.*traced every time"):
                apply(cells, out)
        else:
            apply(cells, out)
        assert out.numpy()[0] == level


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
