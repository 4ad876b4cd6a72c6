"""Standard streams that may go away: a pipe whose reader has ended, a full disk, a closed terminal.

What cannot be written is dropped, and the reason kept: whoever needs it to be written asks ``loss_of``. Nothing but the
standard library is imported here.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

ERASED = "\r\x1b[2K"  # wipes the line of a terminal that it stands in


class Outlet(io.FileIO):
    """A file descriptor for writing that takes everything; ``lost`` is why the other end does not get it any more."""

    lost: OSError | None = None
    when_lost: Callable[[OSError], None] | None = None  # called once, if it has been open

    def write(self, data: Any) -> int:
        while self.lost is None:
            try:
                written = super().write(data)
                if written is None:  # somebody has made it not wait: wait here
                    select.select([], [self], [])
            except OSError as error:
                self.lost = error
                if self.when_lost is not None:
                    self.when_lost(error)
            else:
                if written is not None:
                    return written
        return memoryview(data).nbytes


def open_closed() -> frozenset[int]:
    """Which of the descriptors 0, 1 and 2 are closed (``>&-``). They are opened to nothing: the next file that is
    opened would get their number, and whatever is printed would go into it."""
    closed = set()
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free
            os.set_inheritable(number, True)
    return frozenset(closed)


def outlet(number: int, like: Any, closed: bool) -> io.TextIOWrapper:
    """A text stream to a descriptor, in the encoding of ``like``; characters that this one has not are escaped."""
    raw = Outlet(number, "w", closefd=False)
    if closed:
        raw.lost = OSError(errno.EBADF, "it is closed")
    # A buffered writer over any raw stream: mypy's stubs ask for more than that.
    buffer: Any = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        encoding=getattr(like, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=getattr(like, "line_buffering", False),
        write_through=getattr(like, "write_through", False),
    )


def secure() -> None:
    """Put outlets in place of this process's own streams; others (of a test, of a notebook) are left alone."""
    closed = open_closed()
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, outlet(number, stream, number in closed))


def _raw(stream: Any) -> Outlet | None:
    found = getattr(getattr(stream, "buffer", None), "raw", None)
    return found if isinstance(found, Outlet) else None


def loss_of(stream: Any) -> OSError | None:
    """Why something that was printed there cannot be read; None where all of it can."""
    raw = _raw(stream)
    if raw is None:
        return None
    stream.flush()
    return raw.lost


def tell_when_lost(stream: Any, tell: Callable[[OSError], None]) -> None:
    """Call it once when what is printed there cannot be written. That is in the midst of a write, whose locks are held,
    and another stream may lead to this one (that of a progress bar does): to say so, ``write_to_stderr``."""
    raw = _raw(stream)
    if raw is not None:
        raw.when_lost = tell


def write_to_stderr(line: str) -> None:
    """A line straight to the descriptor, past all streams of Python and their locks; nothing where it is gone, too."""
    with suppress(OSError):
        os.write(2, f"{ERASED if os.isatty(2) else ''}{line}\n".encode(errors="backslashreplace"))
