"""What may help a run that breaks down: every case says something, and names settings that it has."""

from __future__ import annotations

import re

import pytest

import meshloom as ml
from meshloom.case import BROKEN, Case
from meshloom.catalogue import case_names, find
from meshloom.config import Setting, build, flatten
from meshloom.run.limit import Limit
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
