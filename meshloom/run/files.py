"""What a run writes into its folder: monitors as they come, fields and checkpoints when they are due, charts and
pictures at the end. A run without a folder has ``NoFiles``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import UserError
from meshloom.io import checkpoint as checkpoints
from meshloom.io.checkpoint import Checkpoint
from meshloom.io.field_rows import saved_rows
from meshloom.io.files import write_atomically
from meshloom.io.monitors import MonitorLog
from meshloom.io.vtk import Series
from meshloom.process.ranks import by_root, on_root, ranks
from meshloom.records import dataclass
from meshloom.run.facts import Monitors, RunFacts, joined, read_facts
from meshloom.run.folder import RunFolder
from meshloom.run.guard import Guard
from meshloom.run.measured_files import MeasuredFiles, write_chart
from meshloom.run.output import draw
from meshloom.run.report import RunReport
from meshloom.run.task import Point, RunTask, is_due
from meshloom.run.views import Chart


@dataclass(frozen=True)
class Start:
    """A checkpoint to go on from, its file, and the settings of the run that wrote it."""

    path: Path
    checkpoint: Checkpoint
    config: Any = None
    identity: tuple[int, ...] = ()  # of the file when it was read


class NoFiles:
    """The ones of a run that writes nothing, and the interface of the others."""

    def begin(self, at: Point, history: np.ndarray) -> None:
        """The time loop starts; ``history`` (n, monitors) is known already."""

    def append(self, rows: np.ndarray) -> None:
        """The next monitors, (n, monitors)."""

    def rewrite(self, history: np.ndarray) -> None:
        """The monitors are these alone, (n, monitors)."""

    def close(self, *, failed: bool) -> None:
        """No more monitors."""

    def catch_up(self, at: Point, history: np.ndarray) -> None:
        """The run that is continued may have been killed: what it wrote after its checkpoint goes. What was due with
        that and is missing (of a version that wrote it later, or removed by somebody) is made where it can be."""

    def checkpoint_is_due(self, at: Point) -> bool:
        """Whether one comes now: at the end, after so many iterations, or after so long."""
        return False

    def write_checkpoint(self, at: Point, history: np.ndarray) -> None:
        """What the run needs to go on from here."""

    def write_fields_if_due(self, at: Point) -> None:
        """At the end, and after so many iterations."""

    def remake(self, at: Point, history: np.ndarray) -> None:
        """What a run has written by now, as far as it is missing; fields in any case."""

    def show(self, at: Point, history: Mapping[str, np.ndarray]) -> None:
        """Charts and pictures of the run as far as it is, from all monitors (n,) by name."""

    def last_measured(self) -> dict[str, float]:
        """What the newest rows of probes and integrals say, by name."""
        return {}

    def is_own(self) -> bool:
        """Does the folder hold this run, and not the one that it was to replace?"""
        return False

    def tell(self, facts: RunFacts, monitors: Monitors) -> None:
        """The page of the run, and what it is made of."""

    def give_back(self) -> None:
        """The run failed."""

    def kept(self) -> str:
        """What there is to go on from, in words, for the end of an error."""
        return ""


class Files(NoFiles):
    """Those of a run in a folder. ``start``: the checkpoint that it begins from."""

    def __init__(self, task: RunTask, folder: RunFolder, guard: Guard, report: RunReport, start: Start | None):
        self.task, self.folder, self.guard, self.report = task, folder, guard, report
        self.options = task.output
        self.before = start if folder.goes_on else None  # the run that is there, and continued
        self.last_good = (start.path, start.checkpoint.iteration) if start else None  # checkpoint
        self.series = Series.resume(folder.series) if folder.goes_on else Series(folder.series)
        self.checkpoint_time = time.monotonic()
        self._log: MonitorLog | None = None
        after = start.checkpoint.iteration if start and folder.goes_on else None
        self.measured = MeasuredFiles(task, folder, guard, after)

    def begin(self, at: Point, history: np.ndarray) -> None:
        self.folder.begin()
        self.measured.begin(at)
        self._write_settings()
        self._log = MonitorLog(self.folder.monitors, self.task.monitors, history)

    def _write_settings(self) -> None:
        if text := self.task.settings():
            write_atomically(self.folder.config, text.encode())

    def append(self, rows: np.ndarray) -> None:
        if self._log is not None:
            self._log.append(rows)

    def rewrite(self, history: np.ndarray) -> None:
        if self._log is not None:
            self._log.close()
            self._log = MonitorLog(self.folder.monitors, self.task.monitors, history)

    def close(self, *, failed: bool) -> None:
        self.measured.close(failed=failed)
        if self._log is not None:
            self._log.close(failed=failed)
            self._log = None

    def catch_up(self, at: Point, history: np.ndarray) -> None:
        if self.before is None:
            return
        self.series.drop_after(at.time)
        self.measured.catch_up(at)
        self.folder.remove_fields_after(at.iteration)
        if at.is_last and self.task.settings(comments=False) != self.before.checkpoint.config:
            self.write_checkpoint(at, history)  # no other will come that says with which settings this is the end
        if not self.task.shows_checkpoints:
            return
        has_fields = self.series.has(at.time, self.folder.fields(at.iteration))
        were_due = self.task.had_fields(at, self.before.config)
        if (were_due and not has_fields) or (at.is_last and self.options.vtu):
            self._write_fields(at)
        self.measured.write_if_due(at)

    def checkpoint_is_due(self, at: Point) -> bool:
        by_clock = 0.0 < self.options.checkpoint_seconds <= time.monotonic() - self.checkpoint_time
        return at.is_last or ranks().broadcast(by_clock) or is_due(at.iteration, self.options.checkpoint_every)

    def write_checkpoint(self, at: Point, history: np.ndarray) -> None:
        self.folder.check_place()
        if not self.task.checkpointed:  # a script wants none: its other files are all that there will be
            self.folder.keep()
            return
        self.measured.sync()
        checkpoints.save(
            self.folder.checkpoint,
            Checkpoint(
                case=self.task.name,
                iteration=at.iteration,
                precision=self.task.precision,
                mesh=self._digest,
                config=self.task.settings(comments=False),
                state={name: saved_rows(one) for name, one in self.task.checkpointed.items()},
                monitor_names=self.task.monitors,
                monitors=history,
            ),
        )
        self.last_good, self.checkpoint_time = (self.folder.checkpoint, at.iteration), time.monotonic()
        self.folder.keep()

    @cached_property
    def _digest(self) -> str:
        return self.task.digest()

    def write_fields_if_due(self, at: Point) -> None:
        self.measured.write_if_due(at)
        if self.options.vtu and (at.is_last or is_due(at.iteration, self.options.every)):
            self._write_fields(at)

    def _write_fields(self, at: Point) -> None:
        self.folder.check_place()
        with self.guard.trying(self.task.fields_method):
            self.series.add(at.time, self.task.write_fields(self.folder.fields(at.iteration)))
        self.measured.write_surface(at)

    def remake(self, at: Point, history: np.ndarray) -> None:
        if not on_root(self.folder.config.exists):
            self._write_settings()
        if not on_root(self.folder.monitors.exists):
            MonitorLog(self.folder.monitors, self.task.monitors, history).close()
        if self.options.vtu:
            self._write_fields(at)

    def show(self, at: Point, history: Mapping[str, np.ndarray]) -> None:
        charts = self._write_charts(history)
        if self.options.plot:
            self._draw(at, history, charts)

    def _write_charts(self, history: Mapping[str, np.ndarray]) -> tuple[Chart, ...]:
        """Curves of the whole run, as text; the monitors have them too, but not under their own axis. They are given
        back, to be drawn: finding them may take a while."""
        charts: tuple[Chart, ...] = ()
        with self.guard.trying("charts"):
            charts = (*self.task.charts(history), *self.measured.tracks())  # which somebody wished for
            for chart in charts:
                write_chart(self.folder, chart)
        return charts

    def _draw(self, at: Point, history: Mapping[str, np.ndarray], charts: tuple[Chart, ...]) -> None:
        span = self.task.time_span(at.recorded)
        title = f"{self.task.name} after {at.iteration} iterations" + (f", time {span[0]:.4g}" if span else "")
        try:
            with self.guard.trying("picture"):
                picture = self.task.picture()
                if picture is not None:
                    draw(self.task, self.folder.picture, picture, title, history)
            with self.guard.trying("maps"):
                for name, extra in self.task.maps().items():
                    draw(self.task, self.folder.map(name), extra, title, {})
            with self.guard.trying("charts"):
                for chart in charts:
                    draw(self.task, self.folder.chart(chart.name, "png"), chart, title, {})
        except UserError as missing:
            self.report.message(f"no picture: {missing}")

    def last_measured(self) -> dict[str, float]:
        return self.measured.last

    def is_own(self) -> bool:
        # One that has failed before its first checkpoint has given the folder back.
        return not self.folder.replaces or (self.last_good or (None,))[0] == self.folder.checkpoint

    @by_root
    def tell(self, facts: RunFacts, monitors: Monitors) -> None:
        from meshloom.run.page.render import write_page

        self.folder.check_place()
        before = None
        if self.before is not None:
            with suppress(UserError):  # one that cannot be read is made anew
                before = read_facts(self.folder.facts)
        write_page(self.folder, joined(before, facts), monitors)

    def give_back(self) -> None:
        self.folder.give_back()

    def kept(self) -> str:
        if self.last_good is None:
            before = f", {self.folder.path} holds the run of before" if self.folder.replaces else ""
            return f"; no checkpoint had been written yet{before}"
        path, iteration = self.last_good
        if not path.exists():
            return f"; its last good checkpoint, of iteration {iteration}, is not at {path} any more"
        return f"; the last good checkpoint is {path} (iteration {iteration})"
