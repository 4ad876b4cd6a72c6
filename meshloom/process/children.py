"""Programs that are started and waited for, and end when we do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial

from meshloom.process.signals import forget, held_back, undo_if_stopped

_GRACE = 2.0  # seconds to remove temporary files in


def run_apart(command: list[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """A program's output, as text; it reads nothing. TimeoutExpired where it takes longer than it may.

    It has a session of its own: Ctrl-C in the terminal comes to us alone, and we end the program with all that it has
    started, whether a signal ends us or raises something here.
    """
    process: subprocess.Popen[str] | None = None
    try:
        with held_back():  # none is started that nobody knows how to end
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
            undo_if_stopped(process, partial(end_group, process.pid))
        out, err = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except BaseException:
        if process is not None:
            with process:  # which closes its pipes
                end_group(process.pid)
        raise
    finally:
        forget(process)


def end_group(leader: int) -> None:
    """End a child that leads its own group, and the group: asked first, so that compilers remove what they made."""
    if not hasattr(os, "killpg"):
        with suppress(OSError):
            os.kill(leader, signal.SIGTERM)
        return
    with suppress(OSError):
        os.killpg(leader, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    with suppress(OSError):  # somebody else has waited for it already
        while not _has_ended(leader) and time.monotonic() < deadline:
            time.sleep(0.01)
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    with suppress(OSError):
        os.waitpid(leader, 0)


def _has_ended(leader: int) -> bool:
    """Whether it has, without waiting for it: until somebody does, no other process gets its number."""
    if not hasattr(os, "waitid"):
        return False
    return os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
