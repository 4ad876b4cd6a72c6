"""What reads many files, or tries many values, by one rule: one test, which lists everything that it finds.

A test for each of a thousand files costs a run more than reading the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def none_fails(rows: Iterable[Any], check: Callable[..., None], shown: Callable[[Any], object] = str) -> None:
    """``check(row)``, or ``check(*row)`` of a tuple, holds for every row; the failure lists all for which it does not,
    each in some lines. No row at all is a failure, too."""
    found, tried = [], 0
    for row in rows:
        tried += 1
        try:
            check(*row) if isinstance(row, tuple) else check(row)
        except AssertionError as error:
            found.append(f"{shown(row)}: {error}")
        except Exception as error:
            found.append(f"{shown(row)}: {type(error).__name__}: {error}")
    assert tried, "a rule for nothing cannot fail"
    assert not found, f"{len(found)} of {tried}:\n" + "\n".join(found)
