"""Runs of a study in processes of their own, some at a time. One that fails, or dies, is an answer like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import meshloom as ml
from meshloom.errors import one_line
from meshloom.process.signals import held_back, undone_if_stopped
from meshloom.studies.axes import Values
from meshloom.studies.record import StudyRow

_COMMAND = (sys.executable, "-P", "-m", "meshloom.studies.worker")
_BETWEEN_LOOKS = 0.05  # seconds
_GRACE = 30.0  # seconds to write a checkpoint in
_LOG = 20_000  # bytes of what a run printed, from its end, that are looked at


@dataclass(frozen=True)
class Wish:
    """A run that is asked for."""

    row: StudyRow
    case: str
    settings: Values  # all of them
    out: Path


class _Child:
    """A process that runs one."""

    def __init__(self, wish: Wish):
        self.wish, self.began = wish, time.perf_counter()
        self.answers: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self.process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=self.answers, stderr=self.log, env=_environment(),
            start_new_session=True,  # Ctrl-C in the terminal comes to us, and we tell it
        )  # fmt: skip
        line = json.dumps({"case": wish.case, "settings": wish.settings, "out": str(wish.out)}) + "\n"
        with suppress(BrokenPipeError):  # it is dead already, which is seen later
            assert self.process.stdin is not None
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()  # and stays open: when it ends, it stops

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def row(self) -> StudyRow:
        """What came out, in the end."""
        self.answers.seek(0)
        try:
            found: dict[str, Any] = json.loads(self.answers.read())
        except ValueError:
            found = {"why": self._death()}
        found.setdefault("seconds", time.perf_counter() - self.began)
        return StudyRow(self.wish.row.settings, self.wish.row.run, **found)

    def _death(self) -> str:
        """Why there is no answer."""
        code = self.process.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - _LOG))
        said = [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        return one_line(f"its process {how}{f': {said[-1]}' if said else ''}")

    def close(self) -> None:
        """Its files; a process that still runs sees that we are gone."""
        for file in (self.process.stdin, self.answers, self.log):
            if file is not None:
                with suppress(OSError):
                    file.close()


def rows_of(wishes: Sequence[Wish], workers: int) -> Generator[StudyRow]:
    """Run them, so many at a time, and give what came out of each as it comes. Whoever stops asking stops those that
    run, which write checkpoints."""
    waiting, running = list(reversed(wishes)), list[_Child]()
    with undone_if_stopped(partial(_stop, running)):
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    with held_back():  # none is started that nobody knows how to stop
                        running.append(_Child(waiting.pop()))
                for child in [one for one in running if one.has_ended]:
                    running.remove(child)
                    row = child.row()
                    child.close()
                    yield row
                time.sleep(_BETWEEN_LOOKS if running else 0.0)
        finally:
            _stop(running)


def _stop(running: list[_Child]) -> None:
    for child in running:
        with suppress(OSError):
            child.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while running:
        child = running.pop()
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
        with suppress(OSError, subprocess.TimeoutExpired):
            child.process.kill()
            child.process.wait(1.0)
        child.close()


def _environment() -> dict[str, str]:
    """This one, in which the package that is running is found, wherever it was imported from."""
    home = str(Path(ml.__file__).parents[1])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
