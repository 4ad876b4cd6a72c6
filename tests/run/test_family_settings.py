"""Settings of a family of cases: what one of them has by default is all that it says again."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from meshloom.case import CaseConfig, FamilyConfig, defaults
from meshloom.config import described, option, section
from meshloom.errors import ConfigError


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
    for name, given, message in (
        ("third", defaults(size=1), "Other: third = .* no such section; allowed: first"),
        ("frist", defaults(size=1), "Other: frist = .* no such section; did you mean 'first'"),
        ("first", defaults(colour=1), "Other: first = defaults.colour=....: the family has no such option; allowed: "),
    ):
        with pytest.raises(ConfigError, match=message):
            type("Other", (KitchenConfig,), {name: given, "__annotations__": {}})


def test_a_case_of_ones_own_may_have_other_defaults() -> None:
    @dataclass(frozen=True)
    class Mine(CaseConfig):
        run = defaults(iterations=5)

    assert Mine().run.iterations == 5 != CaseConfig().run.iterations and Mine().run.precision == "double"
