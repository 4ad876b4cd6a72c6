"""Dataclasses of ``meshloom.records`` mean what those of the standard library mean, and take fewer texts to compile."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np
import pytest

from meshloom import records

MAKERS: dict[str, Any] = {"standard": dataclasses.dataclass, "ours": records.dataclass}
Maker = Callable[..., Any]


def of_both(make: Callable[[Maker], Any]) -> tuple[Any, Any]:
    return make(MAKERS["standard"]), make(MAKERS["ours"])


def answers(kind: Any, *given: tuple[Any, ...]) -> list[object]:
    """What objects say of themselves and of each other; an error by its type."""
    made = [kind(*values) for values in given]
    said: list[object] = [repr(one) for one in made]
    for one in made:
        said += [one == other for other in made] + [one != made[0], one == 1, dataclasses.astuple(one)]
        try:
            said.append(hash(one))
        except TypeError as error:
            said.append(type(error))
    return said


def plain(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Kind:
        a: int
        b: str = "b"

    return Kind


def mutable(dataclass: Maker) -> Any:
    @dataclass
    class Kind:
        a: int
        b: str = "b"

    return Kind


def single(dataclass: Maker) -> Any:
    @dataclass(frozen=True, slots=True)
    class Kind:
        a: object

    return Kind


def empty(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Kind:
        pass

    return Kind


def by_identity(dataclass: Maker) -> Any:
    @dataclass(frozen=True, eq=False, repr=False)
    class Kind:
        a: int

        def __repr__(self) -> str:
            return "itself"

        def __hash__(self) -> int:
            return 7

    return Kind


def left_out(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Kind:
        a: int
        b: int = field(default=1, compare=False)
        c: int = field(default=2, hash=False, repr=False)

    return Kind


def derived(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Base:
        a: int

    @dataclass(frozen=True)
    class Kind(Base):
        b: int = 2

    return Kind


def with_methods(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Kind:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "mine"

    return Kind


def with_a_hash(dataclass: Maker) -> Any:
    @dataclass
    class Kind:
        a: int

        def __hash__(self) -> int:
            return 5

    return Kind


@pytest.mark.parametrize("make", [plain, mutable, single, empty, by_identity, left_out, derived, with_methods,
                                  with_a_hash])  # fmt: skip
def test_they_say_what_those_of_the_standard_library_say(make: Callable[[Maker], Any]) -> None:
    standard, ours = of_both(make)
    rows = [(), ()] if make is empty else [(1,), (1,), (2,)]
    assert answers(ours, *rows) == answers(standard, *rows)
    if len(dataclasses.fields(ours)) > 1:
        rows = [(1, 2), (1, 2), (1, 3), (2, 2)]
        assert answers(ours, *rows) == answers(standard, *rows)


def test_objects_of_another_class_are_others() -> None:
    one, other = plain(MAKERS["ours"]), plain(MAKERS["ours"])
    assert one(1) != other(1) and derived(MAKERS["ours"])(1, 2) != plain(MAKERS["ours"])(1, 2)


def test_a_single_value_is_compared_as_in_a_tuple() -> None:
    """An array is equal to itself, with one answer."""
    kind, array = single(MAKERS["ours"]), np.zeros(3)
    assert (kind(array) == kind(array)) is True and kind(float("nan")) != kind(float("nan"))


def test_an_object_that_holds_itself_has_a_text() -> None:
    kind = mutable(MAKERS["ours"])
    one = kind(1)
    one.b = one
    assert repr(one) == f"{kind.__qualname__}(a=1, b=...)"


@records.dataclass(frozen=True)
class Kept:
    a: int


def test_they_are_dataclasses_and_do_not_change() -> None:
    one = Kept(3)
    assert dataclasses.is_dataclass(one) and dataclasses.replace(one, a=4) == Kept(4)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 5  # type: ignore[misc]


def test_fewer_texts_are_compiled() -> None:
    """The methods that begin an object and keep it as it is; the standard library compiles at least that."""
    texts, counting = list[object](), True

    def noted(event: str, arguments: tuple[object, ...]) -> None:
        if counting and event == "compile":
            texts.append(arguments[0])

    sys.addaudithook(noted)
    counts = {}
    for name, maker in MAKERS.items():
        texts.clear()
        plain(maker)
        counts[name] = len(texts)
    counting = False
    assert counts["ours"] <= 3 and counts["ours"] <= counts["standard"]
