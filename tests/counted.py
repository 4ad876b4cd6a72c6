"""Work that is counted, since seconds tell more of the machine than of the code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def python_calls(action: Callable[[], Any]) -> int:
    """How many functions of Python are called, when it is not done for the first time."""
    for _ in range(3):
        action()
    counted = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal counted
        counted += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return counted
