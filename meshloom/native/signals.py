"""Ctrl-C held back while something must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """Python's handlers of Ctrl-C and SIGTERM wait until the function that is given is called, or until the end.

    It answers True where a handler raised KeyboardInterrupt; anything else that a handler raises goes through. Python
    gives signals to the main thread alone: in others there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    waiting: list[tuple[int, FrameType | None]] = []
    before = {number: found for number in _SIGNALS if callable(found := signal.getsignal(number))}

    def handle() -> bool:
        stop = False
        while waiting:
            number, frame = waiting.pop(0)
            try:
                before[signal.Signals(number)](number, frame)
            except KeyboardInterrupt:
                stop = True
        return stop

    def note(number: int, frame: Any) -> None:
        waiting.append((number, frame))

    for number in before:
        signal.signal(number, note)
    try:
        yield handle
    finally:  # also after an error: a signal that waited is not lost with it
        for number, handler in before.items():
            signal.signal(number, handler)
        if handle():
            raise KeyboardInterrupt
