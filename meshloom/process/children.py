"""Programs that are started and waited for, and end when we do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from meshloom.process.signals import forget, held_back, undo_if_stopped

_GRACE = 2.0  # seconds to remove temporary files in
_PATIENCE = 0.05  # seconds between looks whether a program is to be ended
_of_thread = threading.local()
#: Becomes a program, beside a watcher in its group, which ends the group when the other end of pipe $1 is closed: by us
#: when the program has ended, or with us when we are killed.
_WATCHED = '(read _ < /dev/fd/$1; kill -TERM 0) < /dev/null > /dev/null 2>&1 & shift; exec "$@"'


class NobodyWaits(RuntimeError):
    """A program was ended because nobody waits for it any more."""


@contextmanager
def stopping(wanted: threading.Event) -> Iterator[None]:
    """Programs that this thread starts in the block are ended when the event is set, with ``NobodyWaits``."""
    _of_thread.stop = wanted
    try:
        yield
    finally:
        _of_thread.stop = None


def still_wanted() -> None:
    """NobodyWaits where what ends the programs of this thread (``stopping``) is set: for work that is no program."""
    if (stop := _stop_of_thread()) is not None and stop.is_set():
        raise NobodyWaits("the work was given up: nobody waits for it")


def _stop_of_thread() -> threading.Event | None:
    return getattr(_of_thread, "stop", None)


def run_apart(
    command: list[str], seconds: float | None = None, *, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """A program's output, as text; it reads what is given, if anything. TimeoutExpired where it takes longer than it
    may.

    It has a session of its own: Ctrl-C in the terminal comes to us alone, and we end the program with all that it has
    started, whether a signal ends us or raises something here. It ends, too, where we are killed.
    """
    process: subprocess.Popen[str] | None = None
    try:
        with _ended_with_us(command) as (watched, inherited):
            with _to_read(given) as stdin, held_back():  # none is started that nobody knows how to end
                process = subprocess.Popen(
                    watched, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    errors="replace", start_new_session=True, pass_fds=inherited,
                )  # fmt: skip
                undo_if_stopped(process, partial(end_group, process.pid))
            out, err = _output(process, seconds, _stop_of_thread())
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except BaseException:
        if process is not None:
            with process:  # which closes its pipes
                end_group(process.pid)
        raise
    finally:
        forget(process)


@contextmanager
def _ended_with_us(command: list[str]) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """A command that runs another one and ends it when we are no longer there, and what it must inherit. Not by the
    kernel (PR_SET_PDEATHSIG): that follows threads, and would have to be asked for between fork and exec."""
    shell = shutil.which("sh")
    if shell is None or shutil.which(command[0]) is None or not os.path.isdir("/dev/fd"):
        yield command, ()
        return
    watched, ours = os.pipe()
    try:
        yield [shell, "-c", _WATCHED, "sh", str(watched), *command], (watched,)
    finally:
        os.close(watched)
        os.close(ours)


@contextmanager
def _to_read(given: str | None) -> Iterator[int]:
    """What a program reads from: a file without a name, because ``communicate``, called again after a time-out, never
    writes what a pipe had no room for."""
    if given is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(given.encode(errors="surrogatepass"))
        file.seek(0)
        yield file.fileno()


def _output(process: subprocess.Popen[str], seconds: float | None, stop: threading.Event | None) -> tuple[str, str]:
    """What a program has printed, when it ends."""
    if stop is None:
        return process.communicate(timeout=seconds)
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise NobodyWaits("the program was ended: nobody waits for it") from None
            if deadline is not None and time.monotonic() > deadline:
                raise


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
