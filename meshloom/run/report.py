"""What a person sees while a case runs: a progress bar in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from meshloom.errors import one_line, yes_or_no
from meshloom.process import activity
from meshloom.process.ranks import launched
from meshloom.records import dataclass
from meshloom.run.pace import rate_text, updates_text

if TYPE_CHECKING:
    from rich.progress import Progress

WARNING = "warning"  # the word in front of a line that is one, in summaries and on pages, too
_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_BARS = 0.15  # drawing takes milliseconds, which belong to the loops
_LEAST_BAR = 10  # characters
_GAPS = 4  # characters between the five columns of the bar
_LONGEST_LEFT = len("59 min 59 s left")
_AT_MOST = "up to "
_LONGEST_CELL_RATE = len("1.23e+04 M points/s")
_LONGEST_RATE = len("1.234e+05 iterations/s, ") + _LONGEST_CELL_RATE
_LONGEST_SHORT_RATE = len("1.23e+05 it/s")
_DIGITS = (4, 2)  # behind the point, of monitors in a bar: as many as fit


@dataclass(frozen=True)
class Advance:
    """Where a run stands after a chunk."""

    iteration: int
    iterations: int
    monitors: dict[str, float]
    rate: float  # iterations per second (``Pace.rate``); 0 while unknown
    cells: int
    span: tuple[float, float] | None = None  # time now and at the end, of a case that ends at a time
    over: bool = False  # nothing is left, although there may be iterations to spare
    element_name: str = "cells"
    at_most: bool = False  # it may be over before that time
    began: float = 0.0  # the time at iteration 0
    has_end: bool = True  # False: nobody knows when it will be over
    recent: float = 0.0  # iterations per second of late, which tell the time left; 0: as ever

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1: by time where the case ends at one, unless the iterations end it earlier."""
        if not self.has_end:
            return float(self.over)
        by_iterations = self.iteration / self.iterations
        if self.span is None:
            return by_iterations
        now, end = self.span
        return max(by_iterations, (now - self.began) / (end - self.began))

    @property
    def is_last(self) -> bool:
        return self.over or self.iteration >= self.iterations

    def counter(self) -> str:
        """``25/100``, or ``25, time 0.002400/0.01``; ``25`` where the end is unknown."""
        if not self.has_end:
            return str(self.iteration)
        if self.span is None:
            return f"{self.iteration}/{self.iterations}"
        return f"{self.iteration}, time {self.span[0]:#.4g}/{self.span[1]:g}"

    def _told(self) -> list[tuple[str, float]]:
        """Monitors with their names in one line; without the time where the counter has it."""
        return [(one_line(n), value) for n, value in self.monitors.items() if n != "time" or self.span is None]

    def monitor_text(self) -> str:
        return "  ".join(f"{name} {value:.4e}" for name, value in self._told())

    def monitors_within(self, width: int) -> str:
        """Monitors in at most ``width`` characters: with fewer digits, and the last ones left out, where they must be.

        Each counts with a sign and an exponent of two digits, so that a run keeps to one choice.
        """
        shown = self._told()
        for count in range(len(shown), 0, -1):
            for digits in _DIGITS:
                longest = sum(len(f"  {name} {-1.5:.{digits}e}") for name, _ in shown[:count]) - 2
                if longest <= width:
                    return "  ".join(f"{name} {value:.{digits}e}" for name, value in shown[:count])
        return ""

    def rate_text(self) -> str:
        """Both rates, or '' while they are unknown."""
        return rate_text(self.rate, self.cells, self.element_name)

    def cell_rate_text(self) -> str:
        return updates_text(self.rate, self.cells, self.element_name)

    def short_rate_text(self) -> str:
        return f"{self.rate:.3g} it/s" if self.rate > 0.0 else ""

    def left_text(self) -> str:
        """``12 s left``, ``up to 12 s left`` if it may be over earlier; '' when that is unknown or nothing is left."""
        if self.is_last or self.rate <= 0.0 or self.share <= 0.0 or not self.has_end:
            return ""
        left = self.iterations - self.iteration if self.span is None else self.iteration * (1.0 / self.share - 1.0)
        return f"{_AT_MOST if self.at_most else ''}{duration(left / (self.recent or self.rate))} left"

    def fitting(self, width: int) -> tuple[str, str, str]:
        """Monitors, rate and time left in at most ``width`` characters, what the bar needs included: monitors give way
        first, then the bar, then the words of the rate.

        Rate and time left count with the longest they get, so that a run keeps to one choice from start to end.
        """
        left, room = self.left_text(), width - _LONGEST_LEFT - (len(_AT_MOST) if self.at_most else 0)
        everything = self.monitors_within(10**6)
        most = self.monitors_within(room - _LEAST_BAR - _LONGEST_RATE)
        if most and len(most) >= len(everything):
            return most, self.rate_text(), left
        if room - _LONGEST_CELL_RATE >= _LEAST_BAR:
            return self.monitors_within(room - _LEAST_BAR - _LONGEST_CELL_RATE), self.cell_rate_text(), left
        if room >= _LONGEST_SHORT_RATE:
            return "", self.short_rate_text(), left
        return "", "", left if room >= 0 else ""


class RunReport:
    """The silent one, and the interface of the others."""

    def message(self, text: str) -> None:
        """One line for the person."""

    def warning(self, text: str) -> None:
        """One that says what may go wrong, and that it does so."""
        self.message(f"{WARNING}: {text}")

    def advance(self, now: Advance) -> None:
        """A chunk is done."""

    def busy(self, words: str) -> AbstractContextManager[None]:
        """The block may take long, and no bar is there: ``words`` say what it does, where somebody looks."""
        return nullcontext()

    def close(self) -> None:
        """The time loop is over."""


class QuietReport(RunReport):
    """Warnings alone, where errors go."""

    def warning(self, text: str) -> None:
        with activity.line.room():
            print(f"meshloom: {WARNING}: {text}", file=sys.stderr, flush=True)


class _SpokenReport(RunReport):
    """One that somebody reads, perhaps on a terminal."""

    def busy(self, words: str) -> AbstractContextManager[None]:
        return activity.busy(words)


class PlainReport(_SpokenReport):
    """Lines of text, at most one every few seconds, and the last iteration."""

    def __init__(self, stream: TextIO):
        self.stream = stream
        self._last = time.monotonic()

    def message(self, text: str) -> None:
        with activity.line.room():
            print(text, file=self.stream, flush=True)

    def advance(self, now: Advance) -> None:
        if not now.is_last and time.monotonic() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = time.monotonic()
        speed = ", ".join(filter(None, (now.rate_text(), now.left_text())))
        parts = (f"iteration {now.counter()}", now.monitor_text(), speed)
        self.message("  ".join(filter(None, parts)))


class BarReport(_SpokenReport):
    """A rich progress bar with monitors, rate and time left."""

    def __init__(self, stream: TextIO):
        from rich.console import Console

        self.console = Console(file=stream, highlight=False)
        self._progress: Progress | None = None
        self._task: Any = None
        self._drawn = -math.inf  # when

    def message(self, text: str) -> None:
        with activity.line.room():
            self.console.print(text, markup=False, soft_wrap=True)

    def advance(self, now: Advance) -> None:
        if self._progress is None:
            self._progress = self._started()
            self._task = self._progress.add_task("", total=1.0, counter="", monitors="", rate="", left="")
        if not now.is_last and time.monotonic() - self._drawn < _SECONDS_BETWEEN_BARS:
            return
        self._drawn = time.monotonic()
        counter = now.counter()
        room = max(len(counter), 2 * len(str(now.iterations)) + 1)
        monitors, rate, left = now.fitting(self.console.width - room - _GAPS)
        self._progress.update(
            self._task, completed=now.share, counter=counter, monitors=monitors, rate=rate, left=left, refresh=True
        )

    def _started(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        columns = (("monitors", "cyan"), ("rate", "none"), ("left", "dim"))
        # Columns that may not wrap keep their width; the bar takes what they leave.
        counter = TextColumn("[green]{task.fields[counter]}", table_column=Column(no_wrap=True))
        bar = (counter, BarColumn(bar_width=None, finished_style="green"))
        # Drawn after every chunk, not by a thread of its own: the cores belong to the loops.
        # Monitors have names of people's own choice, which are no markup.
        texts = [TextColumn(f"{{task.fields[{name}]}}", style=style, markup=False) for name, style in columns]
        progress = Progress(*bar, *texts, console=self.console, expand=True, auto_refresh=False)
        progress.start()
        return progress

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def make_report(stream: TextIO, *, quiet: bool = False) -> RunReport:
    """The report that suits the stream."""
    if quiet:
        return _begun(QuietReport())
    return _begun(BarReport(stream) if stream.isatty() else PlainReport(stream), logs=True)


def _begun(report: RunReport, *, logs: bool = False) -> RunReport:
    """``logs``: what takes long, such as compiling, is told where there is no terminal, too."""
    activity.line.logs = logs
    return report


def script_report(what: str, progress: Any) -> RunReport:
    """For scripts: a bar on a terminal; elsewhere nothing, unless it is asked for. ``what`` is run, for messages."""
    if progress is not None:
        progress = yes_or_no(f"{what}: progress", progress)
    stream = sys.stderr
    if stream is None or progress is False or launched().rank > 0:
        return _begun(RunReport())
    if stream.isatty():
        return _begun(BarReport(stream))
    return _begun(PlainReport(stream), logs=True) if progress else _begun(RunReport())


def duration(seconds: float) -> str:
    """``0.42 s``, ``12 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
