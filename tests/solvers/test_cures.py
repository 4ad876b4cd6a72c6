"""What may help a run that breaks down: every case says something, and names settings that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

import meshloom as ml
from meshloom.case import BROKEN, Case
from meshloom.catalogue import case_names, find
from meshloom.config import Setting, build, flatten
from meshloom.run.task import Limit
from meshloom.run.verdict import GROWING, STALLED

NAMED = re.compile(r"\b[a-z_]+\.[a-z_]+\b")  # settings


def small(kind: type[Case]) -> Case:
    return kind(build(kind.Config, [Setting(tuple(k.split(".")), v, "test") for k, v in kind.small.items()]))


@pytest.mark.parametrize("name", case_names())
def test_every_case_says_what_may_help_when_it_breaks_down(name: str) -> None:
    ml.use("numpy")
    made = small(find(name))
    settings = set(flatten(made.config))
    assert made.cure(BROKEN).endswith(" may help") and NAMED.search(made.cure(BROKEN))
    said = [made.cure(state) for state in (BROKEN, STALLED, GROWING)] + [one.cure for one in made.limits.values()]
    for setting in NAMED.findall(" ".join(said)):
        assert setting in settings, f"{name} has no {setting}"
    for one in made.limits.values():
        assert isinstance(one, Limit) and "may help" not in one.why and "broken down" not in one.why


#: What hints depend on, with values to try.
TRIED: dict[str, tuple[Any, ...]] = {
    "scheme.order": (1, 2), "scheme.limiter": ("none", "barth_jespersen", "venkatakrishnan"),
    "scheme.fallback": ("none", "positive"), "time.method": ("explicit", "implicit"),
    "time.mode": ("steady", "unsteady"), "time.cfl": (0.0, 0.7, 80.0), "time.dt": (0.0, 0.01),
}  # fmt: skip


def idle_steps(name: str, settings: dict[str, Any]) -> set[str]:
    """Of time.cfl, time.cfl_max and time.dt those that do nothing."""
    cfl, dt = settings.get("time.cfl"), settings.get("time.dt")
    if "time.method" in settings and settings["time.method"] == "explicit":
        return {"time.cfl_max", "time.dt"}
    if "time.method" in settings and settings["time.mode"] == "unsteady":
        return {"time.cfl_max", "time.cfl"}
    if "time.method" in settings:
        return {"time.dt", "time.cfl" if settings["time.cfl_max"] > cfl else "time.cfl_max"}
    if name in ("advection1d", "rotating_cone", "tophat1d"):
        return {"time.dt"} if cfl else set()
    return {"time.cfl"} if dt else set()


def idle_schemes(settings: dict[str, Any]) -> set[str]:
    """Of what there is to choose of finite volumes."""
    if settings.get("scheme.order") == 1:
        return {"scheme.limiter", "scheme.limiter_constant", "scheme.fallback"}
    constant = {"scheme.limiter_constant"} if settings.get("scheme.limiter") != "venkatakrishnan" else set()
    has_fallback = settings.get("time.method") == "explicit" and settings.get("scheme.fallback") == "none"
    return constant if has_fallback else constant | {"scheme.fallback"}


def variants(kind: type[Case]) -> Iterator[Any]:
    """Configurations of a case with all that hints depend on."""
    usual = kind.Config()
    axes = {key: values for key, values in TRIED.items() if key in flatten(usual)}
    for values in product(*axes.values()):
        sections: dict[str, dict[str, Any]] = {}
        for key, value in zip(axes, values, strict=True):
            sections.setdefault(key.split(".")[0], {})[key.split(".")[1]] = value
        yield replace(usual, **{name: replace(getattr(usual, name), **given) for name, given in sections.items()})


@pytest.mark.parametrize("name", case_names())
def test_hints_name_settings_that_do_something_as_they_are(name: str) -> None:
    kind = find(name)
    made = object.__new__(kind)  # hints are about settings alone
    named_idle = set()
    for made.config in variants(kind):
        settings = flatten(made.config)
        named = {one for state in (BROKEN, STALLED, GROWING) for one in NAMED.findall(made.cure(state))}
        named_idle |= named & (idle_steps(name, settings) | idle_schemes(settings))
    assert not named_idle
