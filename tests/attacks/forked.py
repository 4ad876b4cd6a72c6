"""A command in a forked process that is killed, or whose disk is full, at a chosen one of its file operations.

Every operation that changes something below the folder counts: making, renaming and removing files and folders, each
synchronising, and each write to a file that grows, before it and in the middle of it. So every state that a kill can
leave behind can be had, one after the other, without waiting for a lucky moment.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from meshloom.native.threads import THREADS_AFTER_FORK
from tests.attacks.campaign import Broken
from tests.attacks.pot import pot_is_known

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.rename": False, "os.remove": False, "os.rmdir": False, "os.mkdir": True}  # whether it needs room
_SECONDS = 60.0
_FORKED = f"meshloom: {THREADS_AFTER_FORK}\n"  # said where this process had run a loop before it forked: no fault


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, -9 when it was killed, what it said and how many operations it had made."""

    code: int
    text: str
    operations: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class _Operations:
    """Counts, and lets nothing pass from the chosen one on."""

    def __init__(self, folder: Path, kill_at: int, full_at: int):
        self.folder, self.kill_at, self.full_at = str(folder), kill_at, full_at
        self.done = 0

    def next(self, needs_room: bool) -> None:
        self.done += 1
        if self.done == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if 0 < self.full_at <= self.done and needs_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A hook of ``sys.addaudithook``: it is told of every operation before it is made."""
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and self._concerns(path):
                self.next(needs_room=bool(flags & os.O_CREAT))
        elif event in _CHANGES and self._concerns(arguments[0]):
            self.next(_CHANGES[event])

    def _concerns(self, path: Any) -> bool:
        return not isinstance(path, int) and os.path.abspath(os.fsdecode(path)).startswith(self.folder)


class _Torn:
    """A file whose every write may be cut off before it, and in its middle."""

    def __init__(self, file: Any, operations: _Operations):
        self._file, self._operations = file, operations

    def write(self, text: str) -> None:
        for part in (text[: len(text) // 2], text[len(text) // 2 :]):
            self._operations.next(needs_room=True)
            self._file.write(part)
            self._file.flush()

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


def forked(arguments: Sequence[str], folder: Path, *, kill_at: int = 0, full_at: int = 0) -> Ended:
    """``meshloom ARGUMENTS`` in ``folder``; from 1, which operation is not made. The disk stays full from then on."""
    warmed_up()
    said, (read, write) = folder.parent / f"{folder.name}.said", os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _become(arguments, folder, said, _Operations(folder, kill_at, full_at), write)
    os.close(write)
    try:
        status = _waited(child, arguments)
        count = os.read(read, 100)
    finally:
        os.close(read)
    text = said.read_text().replace(_FORKED, "")
    said.unlink()
    return Ended(os.waitstatus_to_exitcode(status), text, int(count or b"0") or kill_at)


def _waited(child: int, arguments: Sequence[str]) -> int:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise Broken(f"meshloom {' '.join(arguments)} goes on for ever")


def _become(arguments: Sequence[str], folder: Path, said: Path, operations: _Operations, write: int) -> None:
    """The child: the command, then the end, whatever happens."""
    code = 99
    try:
        output = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115  the process ends with it
        os.chdir(folder)
        code = _command(arguments, operations)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os.write(write, str(operations.done).encode())
        os._exit(code)


def _command(arguments: Sequence[str], operations: _Operations) -> int:
    from meshloom.io.files import write_atomically
    from meshloom.io.monitors import MonitorLog, SampleLog
    from meshloom.run import files

    def torn(append: Callable[..., None]) -> Callable[..., None]:
        def appended(log: Any, *row: Any) -> None:
            if not isinstance(log._file, _Torn):
                log._file = _Torn(log._file, operations)
            append(log, *row)

        return appended

    def counted(handle: int) -> None:  # but not done: no power fails here
        operations.next(needs_room=True)

    def quickly(case: Any, path: Path, picture: Any, title: str, history: Any) -> None:
        seen = {name: [*map(float, values)] for name, values in history.items()}
        write_atomically(path, repr((title, picture, seen)).encode())

    for kind in (MonitorLog, SampleLog):
        kind.append = torn(kind.append)  # type: ignore[attr-defined]
    os.fsync = counted  # type: ignore[assignment]
    assert files.draw  # what is drawn takes longer than all else, unless it is this that is replaced
    files.draw = quickly
    sys.addaudithook(operations.audit)
    with pot_is_known():
        return main_code(arguments)


def main_code(arguments: Sequence[str]) -> int:
    """The command line in this process; its exit code."""
    from meshloom.cli.main import main

    before = sys.argv
    sys.argv = ["meshloom", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def done_here(arguments: Sequence[str]) -> None:
    """The command in this process, which must work; the back end is put back."""
    import meshloom as ml

    used = ml.backend(), ml.threads()
    try:
        code = main_code(arguments)
        assert code == 0, code
    finally:
        ml.use(used[0], threads=used[1])


@cache
def warmed_up() -> None:
    """Everything that a command imports is imported here, so that no child has to."""
    with TemporaryDirectory() as folder, pot_is_known():
        done_here(("run", "pot", "--quiet", "--set", "output.plot=false", "--out", f"{folder}/run"))
        done_here(("finish", f"{folder}/run", "--quiet"))
