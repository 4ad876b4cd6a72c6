"""The time loop of any task: chunks of iterations, and between them whatever is due.

A chunk is a number of iterations that takes about a tenth of a second, so that Python costs little and a person
still sees the bar move and can stop the run. Chunks end where a file is due, and where a task that ends at a time
might end. How a run is cut into chunks changes nothing in its numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from meshloom.errors import MeshloomError, RunError, SolveError, UserError, one_line
from meshloom.io.field_rows import all_finite
from meshloom.process.ranks import ranks
from meshloom.records import dataclass
from meshloom.run.diagnose import Snapshot, breakdown, healthy, take_snapshot
from meshloom.run.facts import Monitors, Outcome, gathered
from meshloom.run.files import Files, NoFiles, Start
from meshloom.run.folder import RunFolder
from meshloom.run.guard import Guard
from meshloom.run.names import REPORT
from meshloom.run.pace import Pace
from meshloom.run.place import is_mistake, mistake_text
from meshloom.run.rank_table import between
from meshloom.run.report import Advance, RunReport
from meshloom.run.resume import history
from meshloom.run.stop import StopRequest
from meshloom.run.task import Point, RunTask
from meshloom.run.times import RunTimes

_SNAPSHOT_SECONDS = 1.0  # between copies of the state at least: not before every chunk
_SNAPSHOT_SHARE = 0.02  # of the time of a run that they may take: one of a large state on a GPU takes seconds


@dataclass(frozen=True)
class _Good:
    """A state known to be finite, to repeat from when a later one is not."""

    iteration: int
    until: float  # ``time.monotonic`` when a later one may take its place
    state: Snapshot


class Runner:
    """One run of a task, into a folder where there is one. ``began`` is when the person's waiting began
    (``time.perf_counter``). ``profile``: measure the limit of the loops, too, and let them explain themselves."""

    def __init__(
        self, task: RunTask, folder: RunFolder | None, report: RunReport, start: Start | None = None,
        began: float | None = None, *, profile: bool = False,
    ):  # fmt: skip
        self.task, self.report, self.profile = task, report, profile
        self.begins_anew = start is None
        self.first = self.iteration = start.checkpoint.iteration if start else 0
        self.history = [history(task, start.checkpoint) if start else np.empty((0, len(task.monitors)))]
        self.began = time.perf_counter() if began is None else began
        self.until_first, self.stopped_by = 0.0, 0
        self.recorded = task.recorded_now()
        self.pace, self.guard = Pace(), Guard(task, report)
        self.files = NoFiles() if folder is None else Files(task, folder, self.guard, report, start)
        self.folder = folder
        self.good = self._good_now()
        self.times = RunTimes(task.program)

    def run(self) -> Outcome:
        """From where the task stands to the last iteration, or until a signal asks to stop."""
        with self._until_the_end(), StopRequest() as stop:
            with self._monitors_open():
                self.files.catch_up(self._point(), self.all_monitors())
                if self._left() == 0 and self.begins_anew:  # where it ends: its files are all that there is to make
                    self._write_what_is_due(now=False)
                while self._left() > 0 and not stop:
                    self._advance()
                    self._write_what_is_due(now=stop.checkpoint_wanted())
            self.stopped_by = stop.number if stop else 0
            self._say_why()
            if self._left() > 0:
                self._write_checkpoint()
            outcome = self._shown() if self._left() == 0 else self._told()
        return outcome

    def _shown(self) -> Outcome:
        """The pictures, and then the page."""
        self.report.close()  # the bar stays as it is, and what is to come gets a line of its own
        with self.report.busy(f"{self.task.name}: drawing"):
            self.files.show(self._point(), self.by_name())
            return self._told()

    def _told(self) -> Outcome:
        outcome = self._outcome()
        self._tell(outcome)
        return outcome

    def _say_why(self) -> None:
        """Where a monitor has ended the run, which is not the end that was announced."""
        stop = self.task.stops_at
        if stop is not None and self._has_converged():
            values = self.by_name()[stop.monitor]
            self.report.message(f"ended after iteration {self.iteration}: {stop.text(values[0], values[-1])}")

    def finish(self) -> Outcome:
        """What a run leaves at its end, made again from where the task stands, without an iteration.

        Of a run that has not reached its end nothing is removed: rows and fields that it wrote after the checkpoint
        stay until it goes on.
        """
        if self._left() == 0:
            return self.run()
        with self._until_the_end():
            self.files.remake(self._point(), self.history[0])
            return self._shown()

    @contextmanager
    def _until_the_end(self) -> Iterator[None]:
        """Whatever ends the run: what it leaves is a run that can go on, or the one of before."""
        try:
            yield
        except BaseException as error:
            ranks().arrive(one_line(mistake_text(error)), 1)  # all are here, or ended: they go on as one
            self.files.give_back()
            said = f"{error}{self.files.kept()}" if isinstance(error, RunError) else mistake_text(error)
            refused = isinstance(error, UserError) and not isinstance(error, RunError)  # nothing has happened
            if is_mistake(error) and not isinstance(error, MemoryError) and not refused:
                self._tell(reason=said)
            if isinstance(error, RunError):
                raise RunError(said) from error
            raise
        finally:
            self.report.close()

    @contextmanager
    def _monitors_open(self) -> Iterator[None]:
        self.files.begin(self._point(), self.history[0])
        try:
            yield
        except BaseException:
            self.files.close(failed=True)
            raise
        self.files.close(failed=False)

    # --- computing

    def _advance(self) -> None:
        """One chunk, checked."""
        if ranks().broadcast(time.monotonic() > self.good.until):
            self.good = self._good_now()
        start = time.perf_counter()
        with np.errstate(all="ignore"):  # what is not finite is found here, with loop and cell
            with self._first_words():
                recorded = self._iterated(min(ranks().broadcast(self.pace.chunk()), self._until_due()))
            count = len(recorded)
            rows = self._monitor_rows(recorded)
            good = np.ones(count, bool)
            if rows is not None and self.task.watched is not None:
                good = healthy(self.task, recorded, rows)
            rows = np.full((count, len(self.task.monitors)), np.nan) if rows is None else rows
            self.pace.done(count, time.perf_counter() - start)
            if not good.all():
                self.files.append(rows[: np.argmin(good)])
                raise RunError(breakdown(self.task, self.good.state, self.good.iteration, self.iteration + count).text)
        if self.iteration == self.first:
            self.until_first = time.perf_counter() - self.began
        self.iteration += count
        self.recorded = recorded[-1]
        self.history.append(rows)
        self.files.append(rows)
        self.report.advance(self._standing())

    def _first_words(self) -> AbstractContextManager[None]:
        """Solvers make themselves ready in the first iteration, before there is a bar."""
        if self.iteration > self.first:
            return nullcontext()
        return self.report.busy(f"{self.task.name}: first iteration")

    def _iterated(self, count: int) -> np.ndarray:
        """At most so many iterations: the values (n, recorded) after each. RunError where a system was not solved."""
        before, sent = time.perf_counter(), ranks().sent()
        try:
            found = self.task.advance(count)
        except SolveError as error:
            last = self.iteration + error.replays + 1
            why = breakdown(self.task, self.good.state, self.good.iteration, last)
            again = f"{error} in iteration {last}; repeated from the last good state, it did not fail again"
            raise RunError(again if why.iteration is None else why.text) from None
        self.times.done(len(found), time.perf_counter() - before, between(sent, ranks().sent()))
        return found

    def _good_now(self) -> _Good:
        """The state as it is; RunError where it is not good."""
        before = time.monotonic()
        if self.iteration > self.first:
            self._check_state()
        state = take_snapshot(self.task)
        now = time.monotonic()
        return _Good(self.iteration, now + max(_SNAPSHOT_SECONDS, (now - before) / _SNAPSHOT_SHARE), state)

    def _check_state(self) -> None:
        """RunError where something that is watched is not finite: monitors do not show everything."""
        with np.errstate(all="ignore"):
            if not all_finite(self.task.watched or ()):
                found = breakdown(self.task, self.good.state, self.good.iteration, self.iteration)
                if found.iteration is not None:
                    self._forget_from(found.iteration)
                raise RunError(found.text)

    def _forget_from(self, iteration: int) -> None:
        """It broke down in an iteration of before: what followed is no part of the run."""
        self.iteration = iteration - 1
        self.history = [self.all_monitors()[: self.iteration]]
        self.files.rewrite(self.history[0])

    def _monitor_rows(self, recorded: np.ndarray) -> np.ndarray | None:
        """Monitors (n, monitors); None where the case fails to say them: then nobody can tell whether it is healthy."""
        expected = len(recorded), len(self.task.monitors)
        with self.guard.trying("monitor_rows"):
            rows = np.asarray(self.task.monitor_rows(recorded), np.float64)
            if rows.shape == expected:
                return rows
            self.guard.note("monitor_rows", f"it gives an array of shape {rows.shape} where {expected} is right")
        return None

    def _left(self) -> int:
        """Iterations to go: exactly, or at least so many where the task ends at a time; 0 at the end."""
        most = self.task.iterations - self.iteration
        if self._has_converged():
            return 0
        least = self.task.steps_left(self.recorded)
        return most if least is None else max(0, min(most, least))

    def _has_converged(self) -> bool:
        """Whether the monitor that ends the run is below its limit."""
        stop = self.task.stops_at
        first = next((part for part in self.history if len(part)), None)  # not all: there is a part for every chunk
        if stop is None or first is None:
            return False
        column = self.task.monitors.index(stop.monitor)
        return stop.is_met(self.iteration, float(first[0, column]), float(self.history[-1][-1, column]))

    def _until_due(self) -> int:
        """Iterations until the next file or the (earliest) end."""
        options, stop = self.task.output, self.task.stops_at
        rows = self.task.wishes.rows_every if self.folder is not None else 0
        every = [n for n in (options.every, options.checkpoint_every, rows, stop.every if stop else 0) if n > 0]
        return min([self._left(), *(n - self.iteration % n for n in every)])

    def _standing(self) -> Advance:
        task, span = self.task, self.task.time_span(self.recorded)
        may_end = bool(task.early_end() or task.stops_at)
        monitors = self._monitors()
        names = task.monitors if task.shown is None else task.shown
        return Advance(
            self.iteration, task.iterations, {name: monitors[name] for name in names}, self.pace.rate, task.elements,
            span, self._left() == 0, task.element_name, at_most=may_end, began=task.beginning(),
            has_end=task.has_end, recent=self.pace.recent,
        )  # fmt: skip

    def _point(self) -> Point:
        """The files of a series are listed by the time of a task that has one, else by the iteration."""
        span = self.task.time_span(self.recorded)
        return Point(self.iteration, self.recorded, self.iteration if span is None else span[0], self._left() == 0)

    # --- what is known by now

    def all_monitors(self) -> np.ndarray:
        """After every iteration, (iterations, monitors)."""
        return np.concatenate(self.history)

    def by_name(self) -> dict[str, np.ndarray]:
        """The same by name, (iterations,) each."""
        return dict(zip(self.task.monitors, self.all_monitors().T, strict=True))

    def _monitors(self) -> dict[str, float]:
        last = self.history[-1]
        return dict(zip(self.task.monitors, map(float, last[-1]), strict=True)) if len(last) else {}

    # --- writing

    def _write_what_is_due(self, *, now: bool) -> None:
        """The checkpoint last: a run that goes on from it repeats nothing of what comes before, and a kill between the
        two would lose that for good. What lies behind a checkpoint goes, and comes again. Where the others cannot be
        written, and so end the run, it is what is left of it. ``now``: it was asked for."""
        at = self._point()
        wanted = at.is_last or now or self.files.checkpoint_is_due(at)
        if wanted:
            self._check_state()
        failed: MeshloomError | None = None
        try:
            self.files.write_fields_if_due(at)
        except MeshloomError as error:
            failed = error
        if wanted:
            self.files.write_checkpoint(at, self.all_monitors())
        if failed is not None:
            raise failed
        if now and self.folder is not None:
            self.report.message(f"checkpoint of iteration {self.iteration}: {self.folder.checkpoint}")

    def _write_checkpoint(self) -> None:
        """Of a state that may be gone on with: a good checkpoint never gives way to one that is broken."""
        self._check_state()
        self.files.write_checkpoint(self._point(), self.all_monitors())

    # --- the end

    def _outcome(self) -> Outcome:
        return Outcome(
            finished=self._left() == 0,
            iteration=self.iteration,
            monitors=self._monitors(),
            seconds=time.perf_counter() - self.began,
            seconds_to_first_iteration=self.until_first,
            seconds_iterating=self.pace.seconds,
            rate=self.pace.rate,
            failures=self.guard.failures,
            stopped_by=self.stopped_by,
            times=self.times.table(measured=self.profile),
            measured=self.files.last_measured(),
            verdict=self.task.verdict(self.by_name()),
        )

    def _tell(self, outcome: Outcome | None = None, reason: str = "") -> None:
        """The page of the run; where that fails, one line says so, and nothing else has happened. ``reason``: why the
        run failed."""
        if self.folder is None or not self.files.is_own():
            return
        try:
            found = self._outcome() if outcome is None else outcome
            facts = gathered(self.task, found, self.folder.path, self.first, reason, profile=self.profile)
            self.files.tell(facts, Monitors(tuple(self.task.monitors), self.all_monitors()))
        except BaseException as error:  # whatever it is: the run is complete without a page
            if not is_mistake(error):
                raise
            self.report.message(f"no {REPORT}: {one_line(mistake_text(error))}")
