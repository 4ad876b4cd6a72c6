"""Ctrl-C and SIGTERM ask a run to stop; a second one stops it at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

EXIT_CODE = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"


class StopRequest:
    """While open, true after the first signal. The run looks at it between chunks."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self._asked

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            if sys.stderr.isatty():  # a progress bar hides the cursor
                os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
            os._exit(EXIT_CODE)
        self._asked = True

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python gives signals to no other
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
