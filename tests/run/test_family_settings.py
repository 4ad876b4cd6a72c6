"""Settings of a family of cases: what one of them has by default is all that it says again."""
# ruff: noqa: RUF009  section() and table() are dataclasses.field(): a new value for every instance

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from meshloom.case import FamilyConfig, defaults
from meshloom.config import described, option, section


@dataclass(frozen=True)
class Pan:
    size: int = option(1, "its size")
    depth: int = option(2, "its depth")


@dataclass(frozen=True)
class KitchenConfig(FamilyConfig):
    first: Pan = section(Pan, "The first pan.", size=5)
    second: Pan = section(Pan, "The second pan.")


@dataclass(frozen=True)
class SmallKitchenConfig(KitchenConfig):
    second = defaults(depth=7)
    first = defaults(depth=3)


def test_the_rest_of_a_section_is_that_of_the_family() -> None:
    assert SmallKitchenConfig() == SmallKitchenConfig(Pan(5, 3), Pan(1, 7))
    assert KitchenConfig() == KitchenConfig(Pan(5, 2), Pan(1, 2))
    assert [(one.name, one.metadata["doc"]) for one in fields(SmallKitchenConfig)] == [
        ("first", "The first pan."), ("second", "The second pan.")
    ]  # fmt: skip
    usual = [row[2] for row in described(SmallKitchenConfig())]
    assert usual == [5, 3, 1, 7]


def test_what_the_family_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError):
        type("Other", (KitchenConfig,), {"third": defaults(size=1), "__annotations__": {}})
    with pytest.raises(TypeError, match="colour"):
        dataclass(frozen=True)(type("Other", (KitchenConfig,), {"first": defaults(colour=1), "__annotations__": {}}))()
