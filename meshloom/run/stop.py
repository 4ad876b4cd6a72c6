"""Ctrl-C, SIGTERM and SIGHUP ask a run to stop, a second Ctrl-C or SIGTERM ends it; SIGUSR1 asks for a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from meshloom.process.ranks import ranks
from meshloom.process.signals import (
    CHECKPOINT,
    STOPPING,
    exit_code,
    put_back,
    replaced,
    take_wish,
    undo_all,
    want_checkpoint,
)  # fmt: skip

_SHOW_CURSOR = "\x1b[?25h"
_TOGETHER = 0.5  # seconds in which signals are one request: ``timeout`` and launchers tell a process and its group
_AT_ONCE = "meshloom: ended at once by a second signal; a checkpoint written before is kept"


class StopRequest:
    """While open, true after the first signal that asks to stop. The run looks at it between chunks: a signal to one
    rank is one to all, which ask together."""

    def __init__(self) -> None:
        self.number = 0  # of the signal
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        self.number = ranks().largest(self.number)
        return self.number != 0

    def checkpoint_wanted(self) -> bool:
        """Whether SIGUSR1 has come since this was asked last."""
        return bool(ranks().largest(take_wish()))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self._since = number, time.monotonic()
        # A terminal that is closed tells its processes more than once: by the system and by the shell.
        elif number in (signal.SIGINT, signal.SIGTERM) and time.monotonic() - self._since > _TOGETHER:
            undo_all()
            _say_the_end()
            os._exit(exit_code(number))

    def __enter__(self) -> StopRequest:
        self._before = replaced(STOPPING, self._on_signal) | replaced(CHECKPOINT, want_checkpoint)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        put_back(self._before)


def _say_the_end() -> None:
    """The line of a run that ends at once; a progress bar has hidden the cursor, and stands in the same line."""
    with suppress(OSError, ValueError, AttributeError):
        before = f"{_SHOW_CURSOR}\n" if sys.stderr.isatty() else ""
        os.write(sys.stderr.fileno(), f"{before}{_AT_ONCE}\n".encode())
