"""``ml.study``: a case for every combination of settings, in processes, with one table and one picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.backend import USUAL_THREADS, automatic_backend, cpu_count
from meshloom.catalogue import is_found_again
from meshloom.config import Setting, flatten
from meshloom.errors import UserError, interrupted, nearest, one_line, shown, whole_number, yes_or_no
from meshloom.launch import Job, Request, check, may_miss, measured_by
from meshloom.process.activity import busy
from meshloom.recording import refuse_in_program
from meshloom.run.folder import locked
from meshloom.studies import table
from meshloom.studies.axes import Axes, Values, axes_of, in_words
from meshloom.studies.processes import Wish, rows_of
from meshloom.studies.record import Record, StudyRow, opened
from meshloom.studies.single_run import path_of, plain, settings_of
from meshloom.toml import toml_key

PARENT = Path("studies")
_THREADS = "run.threads"


@dataclass(frozen=True)
class Study:
    """What came out of a study. As text it is its table."""

    name: str  # of the case
    axes: dict[str, tuple[Any, ...]]
    rows: tuple[StudyRow, ...] = field(repr=False)  # one for each combination, the last setting changing fastest
    folder: Path

    @property
    def failed(self) -> tuple[StudyRow, ...]:
        """Runs that came to no end; ``why`` says it in a line."""
        return tuple(row for row in self.rows if not row.is_done)

    def values(self, name: str) -> np.ndarray:
        """A monitor, probe or integral at the end of every run, with one axis for each setting that varies; NaN where a
        run failed."""
        known = table.number_names(self.rows)
        if name not in known:
            raise UserError(
                f"study of {self.name}: no monitor, probe or integral {shown(name)}{nearest(str(name), known)}"
            )
        return table.values_of(Axes(self.axes), self.rows, name)

    def __str__(self) -> str:
        return table.as_text(Axes(self.axes), self.rows)


def study(
    case: str | os.PathLike[str],
    over: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    show: str | None = None,
    progress: bool | None = None,
) -> Study:
    """Run a case once for every combination of the settings ``over``, such as {"flow.mach": [0.3, 0.4, 0.5]}.

    ``case``: a name, or a file (``"mine.py:Heat"``, TOML). ``settings``: what all runs share. ``out``: the folder of
    the study, otherwise ``studies/<case>``: a folder for each run, ``study.csv`` and ``study.png``. The same call goes
    on with a study that was stopped or killed: what is done is not run again, what was cut off goes on from its last
    checkpoint, what had failed is tried again; more values may be added. ``workers``: how many runs at a time, each a
    process of its own, which share the cores (on a GPU one). ``show``: what is in the picture: a monitor, otherwise the
    first one, or what runs integrate and probe, such as "lift" or "wake.mach", which is in the table as well.
    A run that fails is a row that says why. A line for each run, and the table, are printed unless ``progress=False``.
    """
    says = progress is None or yes_or_no("study: progress", progress)
    plan = StudyPlan(_target(case), axes_of(over), settings_of("study", settings))
    return carry_out(plan, path_of("study: out", out), workers, show, says)


@dataclass(frozen=True)
class StudyPlan:
    """What is to be run: a case, the settings that vary, and those that all runs share."""

    target: str
    axes: Axes
    common: list[Setting]


def carry_out(plan: StudyPlan, out: Path | None, workers: int | None, show: str | None, says: bool) -> Study:
    """Run all of it that has not been run yet."""
    refuse_in_program("a study", "run it outside")
    ml.world.check_alone("a study, which starts processes of its own,")
    axes, runs = plan.axes, plan.axes.combinations()
    jobs = _checked(plan)
    job = jobs[0]
    _check_columns(axes, jobs, show)
    count = _workers(workers, len(runs), job)
    folder = PARENT / job.case.name if out is None else out
    with locked(folder):
        record = opened(folder, Record(job.case.head(), _shared(job, axes), list(axes.values), {}))
        rows = [record.row(values) for values in runs]
        record.write(folder)
        _run_all(record, rows, folder, plan.target, _given(plan, job), count, says)
        found = Study(job.case.name, axes.values, tuple(record.row(values) for values in runs), folder)
        table.write_csv(folder / table.TABLE, axes, found.rows)
        picture = _draw(found, axes, show, job)
    if says:
        print(found, last_line(found, picture), sep="\n", flush=True)
    return found


def last_line(found: Study, picture: str) -> str:
    """Where the table is, what there is to say of the ``picture``, and how many runs did not converge."""
    missed = sum(row.converged is False for row in found.rows)
    verdict = f"; {missed} of {len(found.rows)} runs did not converge" if missed else ""
    return f"{found.folder / table.TABLE}{picture}{verdict}"


def threads_of_each(together: int) -> int:
    """Of runs that run together, so many of them, where nobody says: no more than ``OMP_NUM_THREADS``."""
    return min(USUAL_THREADS, max(1, cpu_count() // together))


def _run_all(
    record: Record, rows: Sequence[StudyRow], folder: Path, target: str, common: Values, workers: int, says: bool
) -> None:
    """All that are not done; the record is on the disk after each."""
    left = [row for row in rows if not row.is_done]
    if says and left and len(left) < len(rows):
        print(f"study: {len(rows) - len(left)} of {len(rows)} runs are done already", flush=True)
    share = threads_of_each(max(1, min(workers, len(left))))
    wishes = [Wish(row, target, {_THREADS: share, **common, **row.settings}, folder / row.run) for row in left]
    done = 0
    try:
        with closing(rows_of(wishes, workers)) as found:
            for row in found:
                record.put(row)
                record.write(folder)
                done += 1
                if says:
                    print(f"study: {done} of {len(left)}: {_words(row)}", flush=True)
    except KeyboardInterrupt:
        raise interrupted(f"study: stopped after {done} of {len(left)} runs; the same call goes on with it") from None


def _words(row: StudyRow) -> str:
    what = row.why if row.why else ", ".join(f"{name} {value:.6g}" for name, value in row.numbers.items())
    return f"{in_words(row.settings)}: {what} ({row.seconds:.1f} s)"


def _draw(found: Study, axes: Axes, show: str | None, job: Job) -> str:
    """What to say of the picture."""
    name = show or _first_monitor(job)
    path = found.folder / table.PICTURE
    try:
        drawn = bool(name) and table.draw(path, f"{found.name}: {name}", axes, found.rows, name)
        return f", {path}" if drawn else ", no picture: there is nothing to compare"
    except UserError as missing:
        return f", no picture: {missing}"


# ----- what can be shown, known before the first run starts: monitors, and what runs integrate and probe --------------
class _MeasuredColumns(NamedTuple):
    """The columns of what a run measures, and those among them that a person has named."""

    names: tuple[str, ...]
    wished: tuple[str, ...]


def _check_columns(axes: Axes, jobs: Sequence[Job], show: Any) -> None:
    """UserError where a run would measure what is not there, or under a name that is taken, and where ``show`` names
    what no run has. ``jobs``: one for each combination."""
    case, found = jobs[0].case, list[_MeasuredColumns]()
    is_known = show is None or show in case.monitors
    with busy(f"study of {case.name}: looking at what is measured"):
        for values, job in zip(axes.combinations(), jobs, strict=True):
            # What a case tells by itself is the same whatever its settings are: one that can be set up is enough.
            if may_miss(job) or not (is_known or found):
                found += _measured(values, job)
    for one in found:
        _check_apart(one.wished, (*axes.values, *case.monitors, *table.OWN))
    names = dict.fromkeys(name for one in found for name in one.names)
    if found and not is_known and show not in list(names):
        raise UserError(f"study: show names {shown(show)}{nearest(str(show), (*case.monitors, *names))}")


def _measured(values: Values, job: Job) -> list[_MeasuredColumns]:
    """What one run measures; nothing where its case cannot be set up, which its row will tell."""
    try:
        found = measured_by(job)
    except UserError as error:
        raise UserError(one_line(f"study, {in_words(values)}: {error}")) from None
    return [] if found is None else [_MeasuredColumns((*found.integral_names, *found.probe_names), found.wished_names)]


def _check_apart(names: Sequence[str], taken: Sequence[str]) -> None:
    if twice := [name for name in names if name in taken or names.count(name) > 1]:
        raise UserError(f"study: two columns of its table would be called {shown(twice[0])}; call the probe or integral"
                        " by another name")  # fmt: skip


# ----- what a person gives --------------------------------------------------------------------------------------------
def _target(case: Any) -> str:
    if isinstance(case, type):
        raise UserError(_only_here(case))
    if not isinstance(case, str | os.PathLike) or isinstance(os.fspath(case), bytes):
        raise UserError(f"study: expected the name of a case or a file, got {shown(case)}")
    return str(os.fspath(case))


def _only_here(case: type) -> str:
    name = case.__name__
    return f'study: other processes cannot find the class {name}; give the file that it is in, "mine.py:{name}"'


def _checked(plan: StudyPlan) -> list[Job]:
    """Every combination is looked at before anything starts: their jobs."""
    if both := [key for one in plan.common if (key := toml_key(one.key)) in plan.axes.values]:
        raise UserError(f"study: {both[0]} varies, and is among the settings that all runs share; give it once")
    runs = plan.axes.combinations()
    jobs = [check(Request(plan.target, (*plan.common, *settings_of("study", values)))) for values in runs]
    if not is_found_again(jobs[0].case):
        raise UserError(_only_here(jobs[0].case))
    return jobs


def _given(plan: StudyPlan, job: Job) -> Values:
    """The settings that all runs share, as far as they were given, for another process: paths begin at the root."""
    known = flatten(job.config)
    return {key: plain(known.get(key, one.value)) for one in plan.common for key in [toml_key(one.key)]}


def _shared(job: Job, axes: Axes) -> Values:
    """Every setting that all runs share; how many threads run them is none of their numbers' business."""
    found = {key: plain(value) for key, value in flatten(job.config).items() if key != _THREADS}
    return {
        key: value for key, value in found.items() if not any(f"{one}.".startswith(f"{key}.") for one in axes.values)
    }


def _first_monitor(job: Job) -> str:
    """The one to look at where nobody says: the first that is shown, and is no clock."""
    names = job.case.monitors if job.case.shown is None else job.case.shown
    return next((name for name in names if name not in ("time", "step", "steps", "dt")), "")


def _workers(given: Any, runs: int, job: Job) -> int:
    if given is not None:
        return whole_number("study: workers", given, 1, 1024)
    backend = job.config.run.backend
    name = automatic_backend(ml.backends()) if backend == "auto" else backend
    return 1 if name in ("cuda", "hip") else min(runs, cpu_count())
