"""Something done in a forked child, which may crash or hang without harm."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

from tests.attacks.campaign import Broken


def in_child(work: Callable[[], str], seconds: float) -> str:
    """What ``work`` answers in a child of this process; Broken where it crashes, raises or takes longer."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            answer, code = work(), 0
        except BaseException as error:
            answer, code = f"{type(error).__name__}: {error}", 1
        os.write(writing, answer.encode(errors="replace")[:4000])
        os._exit(code)
    os.close(writing)
    try:
        answer = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if answer is None:
        raise Broken(f"no end within {seconds:g} seconds")
    if not answer:
        raise Broken(f"the process died, by signal {os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0} at last")
    return answer


def _read(pipe: int, until: float) -> str | None:
    """All that is written to a pipe; None where it is not closed in time."""
    parts = []
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            part = os.read(pipe, 65536)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)
    return None
