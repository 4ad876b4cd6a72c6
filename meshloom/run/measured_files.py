"""What a run measures, on the disk: rows of probes and integrals as they are due, faces of boundary groups beside the
fields, and lines as charts."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from meshloom.errors import RunError
from meshloom.io.monitors import SampleLog
from meshloom.io.vtk import Series
from meshloom.run.folder import RunFolder
from meshloom.run.guard import Guard
from meshloom.run.samples import Sampler
from meshloom.run.task import Point, RunTask, is_due


class MeasuredFiles:
    """Those of a run in a folder. ``after``: the iteration of the checkpoint of the run that is continued there."""

    def __init__(self, task: RunTask, folder: RunFolder, guard: Guard, after: int | None):
        self.task, self.folder, self.guard, self.after = task, folder, guard, after
        self.sampler = Sampler(task)
        self.surfaces = Series.resume(folder.surfaces) if after is not None else Series(folder.surfaces)
        self._logs: list[SampleLog | None] = []  # of probes and integrals; None where there are none
        self.last: dict[str, float] = {}  # what the newest rows say

    def begin(self) -> None:
        """The time loop starts. UserError where the run that is continued has measured something else."""
        sampler, time = self.sampler, ("time",) if self._is_timed else ()
        was_due = bool(self.after) and is_due(self.after or 0, self.task.wishes.rows_every)
        stays = self.after is None or not self.task.shows_checkpoints or was_due
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

    def write_if_due(self, at: Point) -> None:
        """Rows at the end, and after so many iterations."""
        if any(self._logs) and (at.is_last or is_due(at.iteration, self.task.wishes.rows_every)):
            time = [at.time] if self._is_timed else []
            with self.guard.trying(self.task.fields_method):
                names = self.sampler.probe_names, self.sampler.integral_names
                for log, titles, row in zip(self._logs, names, self.sampler.rows(), strict=True):
                    if log is not None:
                        log.append(at.iteration, np.concatenate((time, row)))
                        self.last |= dict(zip(titles, map(float, row), strict=True))

    def write_surface(self, at: Point) -> None:
        """The faces of boundary groups, where they are wanted."""
        if groups := self.task.wishes.surface:
            with self.guard.trying(self.task.fields_method):
                self.surfaces.add(at.time, self.task.write_surface(self.folder.surface(at.iteration), groups))

    def close(self, *, failed: bool) -> None:
        """No more rows."""
        logs, self._logs = self._logs, []
        for log in filter(None, logs):
            with suppress(*((RunError,) if failed else ())):
                log.close()
