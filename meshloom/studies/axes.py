"""The grid of a study: which settings take which values, and every combination of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from meshloom.errors import UserError, shown
from meshloom.studies.single_run import key_of, plain
from meshloom.toml import toml_key

MOST_RUNS = 10_000
Values = dict[str, Any]  # of settings, by dotted key: one combination


@dataclass(frozen=True)
class Axes:
    """Settings and the values that each takes, in the order given."""

    values: dict[str, tuple[Any, ...]]

    def combinations(self) -> list[Values]:
        """Every one of them, the last setting changing fastest."""
        return [dict(zip(self.values, one, strict=True)) for one in product(*self.values.values())]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.values.values())


def in_words(values: Values) -> str:
    """``flow.mach = 0.3, mesh.i = 20``."""
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def axes_of(given: Any, what: str = "study") -> Axes:
    """{"flow.mach": [0.3, 0.4]} as axes; UserError in one line for what is none."""
    example = '{"flow.mach": [0.3, 0.4, 0.5]}'
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"{what}: say which settings take which values, such as {example}, got {shown(given)}")
    found: dict[str, tuple[Any, ...]] = {}
    for key, several in given.items():
        name = toml_key(key_of(what, key))
        if name in found:
            raise UserError(f"{what}: {name} is given twice")
        found[name] = _values(what, name, several)
    runs = math.prod(map(len, found.values()))
    if runs > MOST_RUNS:
        raise UserError(f"{what}: {runs:,} runs, at most {MOST_RUNS:,} make a study; take fewer values")
    return Axes(found)


def _values(what: str, name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, list | tuple | range | np.ndarray) or len(given) == 0:
        raise UserError(f"{what}: {name} takes a list of values, such as [0.3, 0.4], got {shown(given)}")
    values = [plain(value) for value in given]
    texts = [as_key({name: value}, what) for value in values]
    if len(set(texts)) < len(texts):
        twice = values[next(k for k, text in enumerate(texts) if text in texts[:k])]
        raise UserError(f"{what}: {name} has the value {shown(twice)} twice")
    return tuple(values)


def as_key(values: Values, what: str = "study") -> str:
    """A combination as text: the same for the same values."""
    try:
        return json.dumps(values, sort_keys=True)
    except (TypeError, ValueError):
        raise UserError(f"{what}: {shown(values)} is no value of a setting") from None
