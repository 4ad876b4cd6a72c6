"""Work that is counted, since seconds tell more of the machine than of the code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def python_calls(action: Callable[[], Any], before: int = 3) -> int:
    """How many functions of Python are called, when it has been done so many times before."""
    for _ in range(before):
        action()
    counted = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal counted
        counted += event == "call"

    profile = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(profile)
    return counted
