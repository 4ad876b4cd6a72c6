"""A headless Chromium that is told by pipe what to do: no package is needed, only the browser itself.

Messages are those of the browser's DevTools protocol, each ended by a NUL, on the handles 3 (to it) and 4 (from it).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0  # for any answer; a machine that is busy takes long to start a browser


def found() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A page at a time. ``problems``: what its console and its policy said, and exceptions; ``requests``: what it
    loaded."""

    def __init__(self, to: int, back: int):
        self._to, self._back, self._number, self._rest, self._session = to, back, 0, b"", ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []

    def tell(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._back, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._heard(message.get("method", ""), message.get("params", {}))
        return message

    def _heard(self, method: str, told: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.problems.append(str(told["entry"]))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(str(told["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def open(self, url: str, width: int = 1100, height: int = 900, *, scripts: bool = True) -> None:
        """Another page, in a tab of its own."""
        self._session = ""
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{room}.enable")
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.tell("Emulation.setScriptExecutionDisabled", value=not scripts)
        for known in (self._events, self.problems, self.requests):
            known.clear()
        self.tell("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._next()

    def value(self, expression: str) -> Any:
        """What a piece of JavaScript gives."""
        told = self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def picture(self, path: Path) -> None:
        told = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))


def _pipe() -> tuple[int, int]:
    """Handles above those that the browser expects to find."""
    made = os.pipe()
    found = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in made]
    for one in made:
        os.close(one)
    return found[0], found[1]


@contextmanager
def browser() -> Iterator[Browser]:
    path = found()
    assert path is not None
    (in_read, in_write), (out_read, out_write) = _pipe(), _pipe()
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage")  # fmt: skip
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        words = (path, *flags, f"--user-data-dir={home}", "about:blank")
        process = subprocess.Popen(words, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: (os.dup2(in_read, 3), os.dup2(out_write, 4)))  # fmt: skip
        os.close(in_read)
        os.close(out_write)
        try:
            yield Browser(in_write, out_read)
        finally:
            process.kill()
            process.wait()
            os.close(in_write)
            os.close(out_read)
