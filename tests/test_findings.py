"""A rule for many rows lists everything that it finds."""

from __future__ import annotations

import pytest

from tests.findings import none_fails


def small(a: int, b: int = 0) -> None:
    assert a + b < 3, "too large"
    1 // (a + 1)


def test_all_findings_are_listed() -> None:
    none_fails([1, 2, (1, 1)], small)
    listed = r"(?s)3 of 5:\n7: too large.*\n\(2, 2\): too large.*\n-1: ZeroDivisionError: "
    with pytest.raises(AssertionError, match=listed):
        none_fails([7, 0, (2, 2), (0, 2), -1], small)


def test_nothing_to_look_at_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="a rule for nothing"):
        none_fails([], small)
