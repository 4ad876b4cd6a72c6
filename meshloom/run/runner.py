"""The time loop of any case: chunks of iterations, and between them whatever is due.

A chunk is a number of iterations that takes about a fifth of a second, so that Python costs nothing and a person
still sees the bar move and can stop the run. Chunks end where a file is due, and where a case that ends at a time
might end. How a run is cut into chunks changes nothing in its numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.case import Case, GridCase, loops_text
from meshloom.config import flatten, to_toml
from meshloom.errors import RunError, SolveError, UserError
from meshloom.io import checkpoint as checkpoints
from meshloom.io.checkpoint import Checkpoint
from meshloom.io.files import write_atomically
from meshloom.io.monitors import MonitorLog, write_table
from meshloom.io.vtk import Series
from meshloom.run.diagnose import Snapshot, breakdown, healthy, take_snapshot
from meshloom.run.folder import RunFolder
from meshloom.run.guard import Guard
from meshloom.run.output import draw, write_fields
from meshloom.run.pace import Pace
from meshloom.run.report import Advance, RunReport
from meshloom.run.stop import StopRequest

_SNAPSHOT_SECONDS = 1.0  # a copy of the state costs some milliseconds on large meshes: not before every chunk


@dataclass(frozen=True)
class Start:
    """A checkpoint to go on from, its file, and the configuration of the run that wrote it."""

    path: Path
    checkpoint: Checkpoint
    config: Any
    identity: tuple[int, ...] = ()  # of the file when it was read


@dataclass(frozen=True)
class Outcome:
    """What came out of a run."""

    finished: bool  # False: stopped by a person
    iteration: int
    monitors: dict[str, float]  # after the last iteration
    seconds: float  # the whole run
    seconds_to_first_iteration: float  # setting up, compiling, and that iteration
    seconds_iterating: float  # all iterations after that, without writing
    seconds_per_iteration: float
    failures: tuple[str, ...] = ()  # what the case could not show, a line each
    stopped_by: int = 0  # the signal that asked for it


@dataclass(frozen=True)
class _Good:
    """A state known to be finite, to repeat from when a later one is not."""

    iteration: int
    time: float
    state: Snapshot


class Runner:
    """One run of a case into a folder. ``began`` is when the person's waiting began (``time.perf_counter``)."""

    def __init__(
        self, case: Case, folder: RunFolder, report: RunReport, start: Start | None = None, began: float | None = None
    ):
        self.case, self.folder, self.report = case, folder, report
        self.options, self.iterations = case.config.output, case.config.run.iterations
        self.first = self.iteration = start.checkpoint.iteration if start else 0
        self.history = [start.checkpoint.monitors if start else np.empty((0, len(case.monitors)))]
        self.kept = (start.path, self.iteration) if start else None  # the last good checkpoint
        self.began = time.perf_counter() if began is None else began
        self.until_first, self.stopped_by = 0.0, 0
        self.recorded = case.recorded_now()
        self.before = start if folder.goes_on else None  # the run that is there, and continued
        self.series = Series.resume(folder.series) if folder.goes_on else Series(folder.series)
        self.pace, self.guard = Pace(), Guard(case, report)
        self.good = _Good(self.iteration, time.monotonic(), take_snapshot(case))
        self.checkpoint_time = time.monotonic()

    def run(self) -> Outcome:
        """From where the case stands to the last iteration, or until a signal asks to stop."""
        with self._until_the_end(), StopRequest() as stop:
            self.folder.begin()
            write_atomically(self.folder.config, self._config_text().encode())
            with MonitorLog(self.folder.monitors, self.case.monitors, self.history[0]) as log:
                self._catch_up()
                while self._left() > 0 and not stop:
                    self._advance(log)
                    self._write_what_is_due(now=stop.checkpoint_wanted())
            self.stopped_by = stop.number
            if self._left() > 0:
                self._write_checkpoint()
            else:
                self._show()
        return self._outcome()

    def finish(self) -> Outcome:
        """What a run leaves at its end, made again from where the case stands, without an iteration.

        Of a run that has not reached its end nothing is removed: rows and fields that it wrote after the checkpoint
        stay until it goes on.
        """
        if self._left() == 0:
            return self.run()
        with self._until_the_end():
            if not self.folder.config.exists():
                write_atomically(self.folder.config, self._config_text().encode())
            if not self.folder.monitors.exists():
                MonitorLog(self.folder.monitors, self.case.monitors, self.history[0]).close()
            if self.options.vtu:
                self._write_fields()
            self._show()
        return self._outcome()

    @contextmanager
    def _until_the_end(self) -> Iterator[None]:
        """Whatever ends the run: what it leaves is a run that can go on, or the one of before."""
        try:
            yield
        except BaseException as error:
            self.folder.give_back()
            if isinstance(error, RunError):
                raise RunError(f"{error}; {self._kept_text()}") from error
            raise
        finally:
            self.report.close()

    # --- computing

    def _advance(self, log: MonitorLog) -> None:
        """One chunk, checked."""
        if time.monotonic() - self.good.time > _SNAPSHOT_SECONDS:
            self.good = _Good(self.iteration, time.monotonic(), take_snapshot(self.case))
        count = min(self.pace.chunk(), self._until_due())
        start = time.perf_counter()
        with np.errstate(all="ignore"):  # what is not finite is found here, with loop and cell
            recorded = self._iterated(count)
            rows = self._monitor_rows(recorded)
            good = np.ones(count, bool) if rows is None else healthy(self.case, recorded)
            rows = np.full((count, len(self.case.monitors)), np.nan) if rows is None else rows
            self.pace.done(count, time.perf_counter() - start)
            if not good.all():
                log.append(rows[: np.argmin(good)])
                raise RunError(breakdown(self.case, self.good.state, self.good.iteration, self.iteration + count))
        if self.iteration == self.first:
            self.until_first = time.perf_counter() - self.began
        self.iteration += count
        self.recorded = recorded[-1]
        self.history.append(rows)
        log.append(rows)
        self.report.advance(self._standing())

    def _iterated(self, count: int) -> np.ndarray:
        """So many iterations: the values (count, recorded) after each. RunError where a system was not solved."""
        try:
            return self.case.program.run(count, record=self.case.recorded)
        except SolveError as error:
            last = self.iteration + error.replays + 1
            raise RunError(breakdown(self.case, self.good.state, self.good.iteration, last)) from None

    def _monitor_rows(self, recorded: np.ndarray) -> np.ndarray | None:
        """Monitors (n, monitors); None where the case fails to say them: then nobody can tell whether it is healthy."""
        expected = len(recorded), len(self.case.monitors)
        with self.guard.trying("monitor_rows"):
            rows = np.asarray(self.case.monitor_rows(recorded), np.float64)
            if rows.shape == expected:
                return rows
            self.guard.note("monitor_rows", f"it gives an array of shape {rows.shape} where {expected} is right")
        return None

    def _left(self) -> int:
        """Iterations to go: exactly, or at least so many where the case ends at a time; 0 at the end."""
        most = self.iterations - self.iteration
        least = self.case.steps_left(self.recorded)
        return most if least is None else min(most, least)

    def _until_due(self) -> int:
        """Iterations until the next file or the (earliest) end."""
        every = [n for n in (self.options.every, self.options.checkpoint_every) if n > 0]
        return min([self._left(), *(n - self.iteration % n for n in every)])

    def _standing(self) -> Advance:
        case, span = self.case, self.case.time_span(self.recorded)
        monitors = self._monitors()
        shown = {name: monitors[name] for name in self.case.shown or self.case.monitors}
        over = self._left() == 0
        return Advance(
            self.iteration, self.iterations, shown, self.pace.rate, case.elements, span, over, case.element_name,
            at_most=bool(case.early_end()),
        )  # fmt: skip

    def _series_time(self) -> float:
        """What the files of a series are listed by: the time of a case that has one, else the iteration."""
        span = self.case.time_span(self.recorded)
        return self.iteration if span is None else span[0]

    def _monitors(self) -> dict[str, float]:
        last = self.history[-1]
        return dict(zip(self.case.monitors, map(float, last[-1]), strict=True)) if len(last) else {}

    # --- writing

    def _catch_up(self) -> None:
        """The run that is continued may have been killed: it leaves what it wrote after its checkpoint, which goes, and
        lacks the fields that were due with it.
        """
        if self.before is None:
            return
        now, is_last = self._series_time(), self._left() == 0
        self.series.drop_after(now)
        self.folder.remove_fields_after(self.iteration)
        if is_last and self._config_text(comments=False) != self.before.checkpoint.config:
            self._write_checkpoint()  # no other will come that says with which settings this is the end
        has_fields = self.series.has(now, self.folder.fields(self.iteration))
        if (self._were_due(self.before.config) and not has_fields) or (is_last and self.options.vtu):
            self._write_fields()

    def _were_due(self, config: Any) -> bool:
        """Whether a run with that configuration writes fields after this iteration."""
        span, end = self.case.time_span(self.recorded), flatten(config).get(self.case.end_setting)
        was_last = self.iteration >= config.run.iterations or (span is not None and end is not None and span[0] >= end)
        return config.output.vtu and (was_last or _is_due(self.iteration, config.output.every))

    def _write_what_is_due(self, *, now: bool) -> None:
        """The checkpoint first: whatever happens to the other files, the run can go on. ``now``: it was asked for."""
        options, last = self.options, self._left() == 0
        by_clock = 0.0 < options.checkpoint_seconds <= time.monotonic() - self.checkpoint_time
        if last or now or by_clock or _is_due(self.iteration, options.checkpoint_every):
            self._write_checkpoint()
        if now:
            self.report.message(f"checkpoint of iteration {self.iteration}: {self.folder.checkpoint}")
        if options.vtu and (last or _is_due(self.iteration, options.every)):
            self._write_fields()

    def _write_checkpoint(self) -> None:
        self.folder.check_place()
        case = self.case
        checkpoints.save(
            self.folder.checkpoint,
            Checkpoint(
                case=case.name,
                iteration=self.iteration,
                precision=case.config.run.precision,
                mesh=self._mesh_digest,
                config=self._config_text(comments=False),
                state={field.name: field.saved() for field in case.state},
                monitor_names=case.monitors,
                monitors=np.concatenate(self.history),
            ),
        )
        self.kept, self.checkpoint_time = (self.folder.checkpoint, self.iteration), time.monotonic()
        self.folder.keep()

    def _write_fields(self) -> None:
        self.folder.check_place()
        with self.guard.trying("grid_fields" if isinstance(self.case, GridCase) else "cell_fields"):
            self.series.add(self._series_time(), write_fields(self.case, self.folder.fields(self.iteration)))

    def _show(self) -> None:
        """Charts and pictures of the run as far as it is."""
        self._write_charts()
        if self.options.plot:
            self._draw()

    def _write_charts(self) -> None:
        """Curves of the whole run, as text; the monitors have them too, but not under their own axis."""
        with self.guard.trying("charts"):
            for chart in self.case.charts(self._history()):
                values = np.stack((chart.x, *chart.curves.values()), axis=1)
                write_table(self.folder.chart(chart.name, "csv"), (chart.x_label, *chart.curves), values)

    def _draw(self) -> None:
        history, span = self._history(), self.case.time_span(self.recorded)
        title = f"{self.case.name} after {self.iteration} iterations" + (f", time {span[0]:.4g}" if span else "")
        try:
            with self.guard.trying("picture"):
                picture = self.case.picture()
                if picture is not None:
                    draw(self.case, self.folder.picture, picture, title, history)
            with self.guard.trying("maps"):
                for name, extra in self.case.maps().items():
                    draw(self.case, self.folder.map(name), extra, title, {})
            with self.guard.trying("charts"):
                for chart in self.case.charts(history):
                    draw(self.case, self.folder.chart(chart.name, "png"), chart, title, {})
        except UserError as missing:
            self.report.message(f"no picture: {missing}")

    def _history(self) -> dict[str, np.ndarray]:
        """All monitors after every iteration."""
        return dict(zip(self.case.monitors, np.concatenate(self.history).T, strict=True))

    def _config_text(self, *, comments: bool = True) -> str:
        remarks = {"schedule": loops_text(self.case.loop_names)}
        return to_toml(self.case.config, {"case": self.case.name}, comments=comments, remarks=remarks)

    @cached_property
    def _mesh_digest(self) -> str:
        return self.case.digest()

    # --- the end

    def _kept_text(self) -> str:
        if self.kept is None:
            before = f", {self.folder.path} holds the run of before" if self.folder.replaces else ""
            return f"no checkpoint had been written yet{before}"
        if not self.kept[0].exists():
            return f"its last good checkpoint, of iteration {self.kept[1]}, is not at {self.kept[0]} any more"
        return f"the last good checkpoint is {self.kept[0]} (iteration {self.kept[1]})"

    def _outcome(self) -> Outcome:
        return Outcome(
            finished=self._left() == 0,
            iteration=self.iteration,
            monitors=self._monitors(),
            seconds=time.perf_counter() - self.began,
            seconds_to_first_iteration=self.until_first,
            seconds_iterating=self.pace.seconds,
            seconds_per_iteration=self.pace.seconds_per_iteration,
            failures=self.guard.failures,
            stopped_by=self.stopped_by,
        )


def _is_due(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0
