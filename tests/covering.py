"""Combinations that cover all pairs: every value of every axis meets every value of every other one, in few tests.

A mistake that one value makes, or two together, shows in some combination of a covering design; the whole product only
says how often. Tests take the design in every run and the rest of the product as ``slow``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from bench.covering import covering


def label(value: object) -> str:
    """What a value is called in the name of a test."""
    return "double" if value is np.float64 else "single" if value is np.float32 else str(value)


def every_value(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """As ``every_pair``, but in every run only as many rows as show each value once: where a pair tells nothing that
    its two values do not, as where the same text goes through another compiler."""
    return every_pair(strength=1, **axes)


def every_pair(
    together: Iterable[tuple[str, ...]] = (), strength: int = 2, **axes: Sequence[Any]
) -> pytest.MarkDecorator:
    """``pytest.mark.parametrize`` over the product of the axes: a covering design in every run, the rest ``slow``."""
    names = [*axes]
    chosen = covering(
        tuple(len(values) for values in axes.values()),
        frozenset(tuple(names.index(name) for name in group) for group in together),
        strength,
    )
    rows = []
    for numbers in product(*(range(len(values)) for values in axes.values())):
        row = [values[k] for values, k in zip(axes.values(), numbers, strict=True)]
        marks = () if numbers in chosen else (pytest.mark.slow,)
        rows.append(pytest.param(*row, id="-".join(map(label, row)), marks=marks))
    return pytest.mark.parametrize(names, rows)
