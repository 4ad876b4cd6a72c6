"""What a run measures, on the disk: rows of probes and integrals as they are due, faces of boundary groups next to the
fields, and lines as charts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshloom.io.monitors import SampleLog, read_table, write_table
from meshloom.io.vtk import Series
from meshloom.run.folder import RunFolder
from meshloom.run.guard import Guard
from meshloom.run.sampler import Sampler
from meshloom.run.task import Point, RunTask, is_due
from meshloom.run.views import Chart


def write_chart(folder: RunFolder, chart: Chart) -> None:
    """Its curves as columns of a CSV file."""
    columns = {chart.x_label: chart.x, **chart.columns, **chart.curves}
    write_table(folder.chart(chart.name, "csv"), tuple(columns), np.stack([*columns.values()], axis=1))


class MeasuredFiles:
    """Those of a run in a folder. ``after``: the iteration of the checkpoint of the run that is continued there."""

    def __init__(self, task: RunTask, folder: RunFolder, guard: Guard, after: int | None):
        self.task, self.folder, self.guard, self.after = task, folder, guard, after
        self.sampler = Sampler(task)
        self.surfaces = Series.resume(folder.surfaces) if after is not None else Series(folder.surfaces)
        self._logs: list[SampleLog | None] = []  # of probes and integrals; None where there are none
        self.last: dict[str, float] = {}  # what the newest rows say
        self._tracks: tuple[Chart, ...] | None = None  # at the end, when it has come

    def begin(self, at: Point) -> None:
        """The time loop starts. UserError where the run that is continued has measured something else."""
        sampler, time = self.sampler, ("time",) if self._is_timed else ()
        stays = self._is_due(at)  # else it was the row of an end that is none any more
        wanted = (self.folder.probes, sampler.probe_names), (self.folder.integrals, sampler.integral_names)
        logs = [SampleLog(path, (*time, *names), self.after, keep_last=stays) if names else None
                for path, names in wanted]  # fmt: skip
        for log in filter(None, logs):  # none before all are right
            log.open()
        self._logs = logs

    @property
    def _is_timed(self) -> bool:
        return self.task.time_span(self.task.recorded_now()) is not None

    def catch_up(self, at: Point) -> None:
        """What the run that is continued wrote after its checkpoint goes."""
        self.surfaces.drop_after(at.time)

    def _is_due(self, at: Point) -> bool:
        return at.is_last or (at.iteration > 0 and is_due(at.iteration, self.task.wishes.rows_every))

    def write_if_due(self, at: Point) -> None:
        """Rows at the end, and after so many iterations; none where there is one already. Lines at the end."""
        if at.is_last:
            with self.guard.trying("charts"):
                self._tracks = self.sampler.charts()
                for one in self._tracks:
                    write_chart(self.folder, one)
        if any(self._logs) and self._is_due(at):
            time = [at.time] if self._is_timed else []
            with self.guard.trying(self.task.fields_method):
                names = self.sampler.probe_names, self.sampler.integral_names
                for log, titles, row in zip(self._logs, names, self.sampler.rows(), strict=True):
                    if log is not None:
                        log.append(at.iteration, np.concatenate((time, row)))
                        self.last |= dict(zip(titles, map(float, row), strict=True))

    def tracks(self) -> tuple[Chart, ...]:
        """As they are at the end, or as they were there: a checkpoint of it need not hold the fields they are of."""
        if self._tracks is None:
            found = self.sampler.charts()
            self._tracks = found if self.task.shows_checkpoints else tuple(filter(None, map(self._as_written, found)))
        return self._tracks

    def _as_written(self, now: Chart) -> Chart | None:
        """The values of a line that are in its file; None where there is no such file."""
        x, *columns = [*read_table(self.folder.chart(now.name, "csv")).values()] or [np.empty(0)]
        if len(columns) != len(now.curves):
            return None
        return replace(now, x=x, curves=dict(zip(now.curves, columns, strict=True)))

    def write_surface(self, at: Point) -> None:
        """The faces of boundary groups, where they are wanted."""
        if groups := self.task.wishes.surface:
            with self.guard.trying(self.task.fields_method):
                self.surfaces.add(at.time, self.task.write_surface(self.folder.surface(at.iteration), groups))

    def sync(self) -> None:
        """What has been written is on the disk, not only with the system."""
        for log in filter(None, self._logs):
            log.sync()

    def close(self, *, failed: bool) -> None:
        """No more rows."""
        logs, self._logs = self._logs, []
        for log in filter(None, logs):
            log.close(failed=failed)
