"""The first thing that the command does, before anything that takes time is imported: from here on a signal ends it
with one line and its exit code, never with a traceback, and streams that go away do no harm.

``import meshloom`` imports this module first. In a program that uses Meshloom as a library nothing happens, unless it
is a rank: that ends with what has started it.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any

from meshloom.process.activity import announce, line
from meshloom.process.parents import end_with_parent
from meshloom.process.ranks import launched
from meshloom.process.signals import (
    CHECKPOINT,
    STOPPING,
    exit_code,
    in_charge,
    put_back,
    replaced,
    undo_all,
    want_checkpoint,
)  # fmt: skip
from meshloom.process.streams import secure, write_to_stderr


class Command:
    """What becomes of this process if a signal comes now. (No dataclass: importing that takes longer than all else.)"""

    def __init__(self) -> None:
        self.if_stopped = "stopped"  # the line that tells
        self.code: int | None = None  # once everything is done: how it ends, signal or not
        self.prints_only = True  # what goes to stdout is all that there is
        self.watching = False


command = Command()


def is_command(arguments: list[str], original: list[str]) -> bool:
    """Whether a process is ``meshloom ...`` or ``python -m meshloom ...``, by ``sys.argv`` and ``sys.orig_argv``.

    While Python looks for the module of ``-m``, which imports the package around it, the first argument is ``-m``.
    """
    if arguments[:1] == ["-m"]:
        return "-mmeshloom" in original or ("-m", "meshloom") in pairwise(original)
    return bool(arguments) and os.path.basename(arguments[0]) in ("meshloom", "meshloom.exe")


def _end(number: int, frame: FrameType | None) -> None:
    """Handler of the signals that stop. Nothing is raised: an exception may be lost in the middle of an import."""
    _ignore(STOPPING)
    undo_all()
    if command.code is None:
        write_to_stderr(f"meshloom: {command.if_stopped}")
    os._exit(exit_code(number) if command.code is None else command.code)


def _ignore(numbers: tuple[int, ...]) -> None:
    for number in numbers:
        if in_charge():
            signal.signal(number, signal.SIG_IGN)


def begin() -> dict[int, Any]:
    """Take over signals and streams; returns the handlers that were there."""
    if command.watching or not in_charge():
        return {}
    command.watching = True
    before = replaced(STOPPING, _end) | replaced(CHECKPOINT, want_checkpoint)
    secure()
    return before


@contextmanager
def as_command() -> Iterator[None]:
    """The block is the command. Called by a program (or a test), signals and streams are as before at the end."""
    streams, begun = (sys.stdout, sys.stderr), command.watching
    before = begin()
    try:
        yield
    finally:
        if begun:  # Python is about to end, and would put back what ends a process at once: too late for a signal
            _ignore(STOPPING + CHECKPOINT)
        else:
            put_back(before)
            sys.stdout, sys.stderr = streams
            vars(command).update(vars(Command()))
            line.logs = False


def _first_word(arguments: list[str]) -> None:
    """Of a run, which a person waits for, before the packages that it needs are loaded: that takes most of a second."""
    if arguments[:1] in (["run"], ["finish"]) and not {"-q", "--quiet", "--help"} & set(arguments):
        announce("meshloom: starting")


def _in_a_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """What Meshloom has to say while it is imported: a line as later ones, not Python's two with a path."""
    return f"meshloom: {message}\n" if category is UserWarning else _as_python(message, category, *where, **more)


_as_python = warnings.formatwarning
if is_command(getattr(sys, "argv", []), sys.orig_argv):
    begin()
    _first_word(sys.argv[1:])
    warnings.formatwarning = _in_a_line
if launched().size > 1:
    end_with_parent(launched().rank)
