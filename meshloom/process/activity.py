"""What this process is busy with: one line of a terminal, there for as long as it takes and gone afterwards; in the log
of a batch job a line now and then.

Somebody who waits for a compiler wants to see what for. The line is drawn when the work begins and again by a thread
of its own, which counts the seconds and ends with the work: loops that run have all cores to themselves. Where stderr
is no terminal, a command (and whoever wants lines there) writes what takes long as lines that stay, every ten seconds
at most; with MESHLOOM_QUIET=1 nothing is written.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar

from meshloom.process.ranks import launched
from meshloom.process.signals import forget, in_charge, undo_if_stopped
from meshloom.process.streams import ERASED

Words = str | Callable[[], str]

_SECONDS_BETWEEN = 0.5
_SILENT_FOR = 2.0  # seconds that go by before they are counted
_SECONDS_BETWEEN_LINES = 10.0  # of a log, and before the first one: what is quick is not told


class StatusLine:
    """The line, and what it is about: the innermost of the blocks that say something."""

    def __init__(self) -> None:
        self.quiet, self.logs = False, False  # ``logs``: where there is no terminal, lines are wanted
        self._last_line = 0.0
        self.shown: list[tuple[Words, float]] = []  # blocks that have begun, and when
        self._drawing = threading.RLock()
        self._drawn = False
        self._over = threading.Event()

    def begin(self, words: Words) -> None:
        """Show it from now on."""
        with self._drawing:
            now = time.monotonic()
            if not self.shown:
                self._last_line = now
            self.shown.append((words, now))
            self.draw()
        if len(self.shown) == 1:
            self._over = threading.Event()
            threading.Thread(target=self._keep_drawing, args=(self._over,), daemon=True).start()
            undo_if_stopped(self, self.erase)

    def end(self) -> None:
        """Go back to what is left in ``shown``."""
        with self._drawing:
            if self.shown:
                self.draw()
                return
            self._over.set()
            self.erase()
        forget(self)

    def close(self) -> None:
        """Whatever was shown, nothing is from now on."""
        self.shown.clear()
        self.end()

    def draw(self) -> None:
        """In the width of the terminal, whatever it is now; a line of a log where one is due."""
        with self._drawing:
            if not self.shown:
                return
            words, since = self.shown[-1]
            now, in_log = time.monotonic(), not _has_terminal()
            if in_log and now - self._last_line < _SECONDS_BETWEEN_LINES:
                return
            text, seconds = words if isinstance(words, str) else words(), now - since
            if seconds >= _SILENT_FOR:
                text = f"{text} ({seconds:.0f} s)"
            if in_log:
                self._last_line = now
                self._write(f"{text if text.startswith('meshloom: ') else f'meshloom: {text}'}\n")
                return
            self._write(ERASED + text[: _columns() - 1])
            self._drawn = True

    def erase(self) -> None:
        """Nothing is shown until it is drawn again."""
        with self._drawing:
            if self._drawn:
                self._drawn = False
                self._write(ERASED)

    @contextmanager
    def room(self) -> Iterator[None]:
        """Something else is printed in the block; the line is drawn again at the earliest behind it."""
        with self._drawing:
            self.erase()
            yield

    def _keep_drawing(self, over: threading.Event) -> None:
        while not over.wait(_SECONDS_BETWEEN) and over is self._over and self.shown:  # also where no end was told
            self.draw()

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError, AttributeError):  # of a terminal that is gone
            sys.stderr.write(text)
            sys.stderr.flush()


line = StatusLine()
_place: ContextVar[str] = ContextVar("_place", default="")  # which of how many there are to do, in words


@contextmanager
def busy(words: Words) -> Iterator[None]:
    """The block may take long: ``words`` tell what it does. In the main thread of a process with a terminal, or with a
    log that wants lines; elsewhere nothing happens."""
    if not _may_show():
        yield
        return
    shown, depth = line.shown, len(line.shown)
    try:  # an interrupt may come behind any call, also of what begins and ends it
        line.begin(words)
        yield
    finally:
        del shown[depth:]  # fewer where somebody has closed it in the meantime
        line.end()


def announce(words: Words) -> None:
    """The same until ``line.close()``, for whoever cannot say yet what is to come."""
    if _may_show():
        line.begin(words)


def _may_show() -> bool:
    wanted = not line.quiet and os.environ.get("MESHLOOM_QUIET", "") in ("", "0")
    return wanted and in_charge() and (line.logs or _has_terminal()) and launched().rank == 0


@contextmanager
def part(number: int, total: int) -> Iterator[None]:
    """The block makes one of several things ready, counted from 1."""
    before = _place.get()
    try:
        _place.set(f"{number} of {total}: ")
        yield
    finally:
        _place.set(before)


def compiling(name: str) -> AbstractContextManager[None]:
    """The block waits for a compiler: ``compiling 3 of 38: rhs_x``."""
    return busy(f"compiling {_place.get()}{name}")


def _has_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (ValueError, AttributeError):  # closed, or none at all
        return False


def _columns() -> int:
    try:
        return max(os.get_terminal_size(sys.stderr.fileno()).columns, 20)
    except (OSError, ValueError):
        return 80
