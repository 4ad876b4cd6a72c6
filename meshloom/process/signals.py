"""Signals: held back while something must not be left half done; what is undone where one of them ends the process.

Needs nothing but the standard library: the command installs its handlers before anything else is imported.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
CHECKPOINT = tuple(getattr(signal, name) for name in ("SIGUSR1",) if hasattr(signal, name))

_wishes = [False]  # for a checkpoint: SIGUSR1 may come while the case is still being set up
_undo: dict[Hashable, Callable[[], object]] = {}  # the latest last


def in_charge() -> bool:
    """Python gives signals to the main thread alone."""
    return threading.current_thread() is threading.main_thread()


def replaced(numbers: tuple[int, ...], handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Install a handler; returns what was there, to put back. A signal that is ignored (``nohup``) stays ignored."""
    if not in_charge():
        return {}
    before = {number: signal.getsignal(number) for number in numbers}
    known = {number: found for number, found in before.items() if found not in (signal.SIG_IGN, None)}
    for number in known:
        signal.signal(number, handler)
    return known


def put_back(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def exit_code(number: int) -> int:
    """What shells call a process that a signal has ended: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + number


def want_checkpoint(number: int, frame: FrameType | None) -> None:
    """Handler of SIGUSR1."""
    _wishes[0] = True


def take_wish() -> bool:
    """Whether a checkpoint has been wanted since this was asked last."""
    wished, _wishes[0] = _wishes[0], False
    return wished


# ---- undoing ----------------------------------------------------------------------------------------------------


def undo_if_stopped(key: Hashable, action: Callable[[], object]) -> None:
    """Have ``action`` called where a signal ends the process, until ``key`` is forgotten. It may come too late or find
    nothing: whatever it raises is dropped."""
    _undo[key] = action


def _disown() -> None:
    """In a process made by fork: what its parent has begun is not for it to undo, and signals end it as any other."""
    _undo.clear()
    for number in STOPPING:
        if in_charge() and str(getattr(signal.getsignal(number), "__module__", "")).startswith("meshloom.process"):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def forget(key: Hashable) -> None:
    _undo.pop(key, None)


@contextmanager
def undone_if_stopped(action: Callable[[], object]) -> Iterator[None]:
    """The same during a block."""
    key = object()
    undo_if_stopped(key, action)
    try:
        yield
    finally:
        forget(key)


def undo_all() -> None:
    """The latest first. For whoever ends the process at once."""
    while _undo:
        with suppress(Exception):
            _undo.popitem()[1]()


# ---- holding back -----------------------------------------------------------------------------------------------


@contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """Python's handlers of signals that stop wait until the function that is given is called, or until the end.

    It answers True where a handler raised KeyboardInterrupt; anything else that a handler raises goes through. Python
    gives signals to the main thread alone: in others there is nothing to hold back.
    """
    if not in_charge():
        yield lambda: False
        return
    waiting: list[tuple[int, FrameType | None]] = []
    before = {number: found for number in STOPPING if callable(found := signal.getsignal(number))}

    def handle() -> bool:
        stop = False
        while waiting:
            number, frame = waiting.pop(0)
            try:
                before[number](number, frame)
            except KeyboardInterrupt:
                stop = True
        return stop

    def note(number: int, frame: Any) -> None:
        waiting.append((number, frame))

    try:
        for number in before:
            signal.signal(number, note)
        yield handle
    finally:  # also after an error: a signal that waited is not lost with it
        try:
            put_back({number: found for number, found in before.items() if number != signal.SIGINT})
        finally:  # last the one whose handler raises
            put_back({number: found for number, found in before.items() if number == signal.SIGINT})
        if handle():
            raise KeyboardInterrupt
