"""Numbers as the page writes them: these functions, and the same two in ``page.js``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_FEWEST, _MOST = 3, 16  # digits of a tick's label
_TRUE_TO = 0.01  # of the distance between two ticks: so much may a label be off


def number(value: float, digits: int = 6) -> str:
    """At most so many digits that count, in scientific form where a plain one has many zeros: 0.25, 3.00558e-06."""
    return f"{value + 0.0:.{digits}g}"  # + 0.0: there is no -0


def tick_labels(values: Sequence[float]) -> list[str]:
    """The ticks of one axis, ascending, with no more digits than it takes to tell them apart."""
    apart = min((b - a for a, b in pairwise(values)), default=0.0)
    for digits in range(_FEWEST, _MOST):
        found = [number(value, digits) for value in values]
        if all(abs(float(text) - value) <= _TRUE_TO * apart for text, value in zip(found, values, strict=True)):
            return found
    return [number(value, _MOST if len(values) > 1 else 6) for value in values]
