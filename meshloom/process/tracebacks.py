"""Tracebacks of errors that are raised on purpose: the user's frames, without those of the package.

Python, or IPython, shows an error that nobody has caught; before, frames of the package are cut from it and from what
led to it. ``MESHLOOM_TRACEBACK=full`` in the environment leaves them all. Errors that are caught keep theirs.
"""

from __future__ import annotations

import os
import re
import sys
from types import FrameType, TracebackType
from typing import Any

VARIABLE = "MESHLOOM_TRACEBACK"
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
#: The script that pip makes of the command, and who reads its arguments.
_STARTS_COMMAND = re.compile(r"[\\/](bin[\\/]meshloom|Scripts[\\/]meshloom\S*|site-packages[\\/](typer|click)[\\/].*)$")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def shorten(kind: type[BaseException]) -> None:
    """From now on, for errors of a kind; whoever shows errors shows them as ever, but for the frames."""
    before = sys.excepthook

    def hook(type_: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if (isinstance(error, kind) or knows_where(error)) and wanted_short():
            shortened(error)
            traceback = error.__traceback__
        before(type_, error, traceback)

    sys.excepthook = hook
    _shorten_in_ipython(kind)


def knows_where(error: BaseException) -> bool:
    """Ctrl-C that was raised on purpose, with words on where it stopped; Python's own has none."""
    return isinstance(error, KeyboardInterrupt) and bool(error.args)


def shortened(error: BaseException) -> None:
    """Cut the package's frames from an error and all that led to it; what happened in the package alone is left out."""
    error.__traceback__ = _users(error.__traceback__) or error.__traceback__
    seen = [error]
    while True:
        led = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if led is None or any(led is one for one in seen):
            return
        users = _users(led.__traceback__)
        if users is None:
            error.__cause__, error.__suppress_context__ = None, True
            return
        led.__traceback__ = users
        seen.append(led)
        error = led


def _users(traceback: TracebackType | None) -> TracebackType | None:
    """Its frames that are not the package's; None where all are."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for one in reversed(frames):
        if not os.path.abspath(one.tb_frame.f_code.co_filename).startswith(_PACKAGE):
            kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def running_line() -> str:
    """``script.py:12``: the innermost line that is executed now and is not the package's; '' where there is none."""
    return line_of(sys._getframe(1))


def line_of(frame: FrameType | None) -> str:
    """The same of what a frame executes, or whoever has called it."""
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def failing_line(error: BaseException) -> str:
    """The same of the lines that led to an error."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        if _is_users(file := traceback.tb_frame.f_code.co_filename):
            found = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def _is_users(file: str) -> bool:
    """Neither the package's nor of Python's own library, which has what is installed inside, nor of what starts the
    command."""
    path = os.path.abspath(file)
    pythons = file.startswith("<frozen ") or (path.startswith(_LIBRARY) and "site-packages" not in path)
    return not path.startswith(_PACKAGE) and not pythons and not _STARTS_COMMAND.search(path)


def wanted_short() -> bool:
    """Are the package's frames cut?"""
    return os.environ.get(VARIABLE, "").strip().lower() != "full"


def _shorten_in_ipython(kind: type[BaseException]) -> None:
    """IPython asks no hook of Python's; where a user has told it what to do with errors, that stays."""
    known = sys.modules.get("IPython")
    shell: Any = known.get_ipython() if known is not None and hasattr(known, "get_ipython") else None
    if shell is None or shell.custom_exceptions:
        return

    def show(self: Any, type_: Any, error: Any, traceback: Any, tb_offset: Any = None) -> None:
        if wanted_short():
            shortened(error)
        self.showtraceback((type_, error, error.__traceback__), tb_offset=tb_offset)

    shell.set_custom_exc((kind,), show)
