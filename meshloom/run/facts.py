"""What there is to tell about a run when it has ended: one account, which the terminal and the page render.

``report.json`` keeps all of it that no other file of the run holds, so that the page can be made again.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.backend.base import Backend
from meshloom.errors import MeshloomError, UserError, one_line
from meshloom.operation.operation import Operation
from meshloom.operation.replay import backends_of
from meshloom.process.ranks import as_launched
from meshloom.records import dataclass
from meshloom.run.pace import rate_text
from meshloom.run.page.numbers import number
from meshloom.run.report import WARNING, duration
from meshloom.run.task import RunTask, SettingRow
from meshloom.run.times import TimeTable, of_types
from meshloom.run.verdict import Verdict

FINISHED, STOPPED, FAILED, UNFINISHED = "finished", "stopped", "failed", "unfinished"
_FORMAT = 1
_MOST_BYTES = 20_000_000  # of a file that may be an account
_MOST_PARTS = 20  # of a run that was gone on with, the newest
_MOST_TEXT = 300_000  # letters of what loops explain

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Outcome:
    """What came out of a run."""

    finished: bool  # False: stopped by a person
    iteration: int
    monitors: dict[str, float]  # after the last iteration
    seconds: float  # the whole run
    seconds_to_first_iteration: float  # setting up, compiling, and that iteration
    seconds_iterating: float  # all iterations after that, without writing
    rate: float  # iterations per second (``Pace.rate``); 0: unknown, there was no second iteration
    failures: tuple[str, ...] = ()  # what the case could not show, a line each
    stopped_by: int = 0  # the signal that asked for it
    times: TimeTable | None = None  # where the time of the iterations went
    measured: Mapping[str, float] = field(default_factory=dict)  # by probes and integrals, at last
    verdict: Verdict | None = None  # on a run towards a steady state


@dataclass(frozen=True)
class Monitors:
    """Columns of numbers after every iteration, ``values`` (n, names)."""

    names: tuple[str, ...]
    values: np.ndarray


@dataclass(frozen=True)
class RunPart:
    """One go at a run: a run that is restarted has several."""

    command: str
    ended: str  # when, UTC
    first: int  # iteration that it began from
    last: int
    seconds: float
    how: str  # it ended: FINISHED, STOPPED, FAILED or UNFINISHED


@dataclass(frozen=True)
class ScheduleRow:
    """How one loop runs by itself, and why."""

    loop: str
    over: str
    schedule: str
    why: str


@dataclass(frozen=True)
class RunFacts:
    """The account of a run."""

    name: str
    title: str
    state: str
    reason: str  # of the end, where it is not the one that was asked for
    iteration: int
    summary: Rows
    settings: tuple[SettingRow, ...]
    going_on: str  # what a person types to go on
    parts: tuple[RunPart, ...] = ()
    machine: Rows = ()
    times: TimeTable | None = None
    schedules: tuple[ScheduleRow, ...] = ()
    explained: str = ""  # what the loops say of themselves, where that was asked for

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, allow_nan=True)


def read_facts(path: Path) -> RunFacts | None:
    """The account in a file; None where there is none. UserError where there is something else."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("too large")
        return _from_json(json.loads(path.read_bytes()))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise UserError(f"{path}: not the account of a run ({type(error).__name__}: {one_line(str(error))[:80]});"
                        " remove it, and the page is made without it") from None  # fmt: skip


def _from_json(found: Any) -> RunFacts:
    if found["format"] != _FORMAT:
        raise ValueError(f"format {found['format']}, this Meshloom reads {_FORMAT}")
    text = {name: str(found[name]) for name in ("name", "title", "state", "reason", "going_on", "explained")}
    return RunFacts(
        **text,
        iteration=int(found["iteration"]),
        summary=_rows(found["summary"]),
        settings=tuple(of_types(SettingRow(**row)) for row in found["settings"]),
        parts=tuple(of_types(RunPart(**row)) for row in found["parts"]),
        machine=_rows(found["machine"]),
        times=TimeTable.from_json(found["times"]) if found["times"] else None,
        schedules=tuple(of_types(ScheduleRow(**row)) for row in found["schedules"]),
    )


def _rows(found: Iterable[Any]) -> Rows:
    return tuple((str(label), str(text)) for label, text in found)


# ----- made of a run --------------------------------------------------------------------------------------------------
def gathered(task: RunTask, outcome: Outcome, folder: Path, first: int, reason: str, *, profile: bool) -> RunFacts:
    """The account of a run that has just ended. ``first``: the iteration it began from; ``reason``: why it failed."""
    from meshloom.backend.machine import machine_rows  # nobody needs it before a run has ended

    state = FAILED if reason else FINISHED if outcome.finished else STOPPED if outcome.stopped_by else UNFINISHED
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    part = RunPart(command(), ended, first, outcome.iteration, outcome.seconds, state)
    loops = [one for one in dict.fromkeys(task.program.loops) if not one.domain.all_memory]
    name, title = task.heading(folder)
    return RunFacts(
        name=one_line(name),
        title=one_line(title),
        state=state,
        reason=one_line(reason),
        iteration=outcome.iteration,
        summary=tuple(summary_rows(task, outcome)),
        settings=task.setting_rows(),
        going_on=task.going_on(folder, outcome.finished),
        parts=(part,),
        machine=tuple(machine_rows(_backend_of(loops))) if loops else (),
        times=outcome.times,
        schedules=tuple(map(_scheduled, loops)),
        explained=task.program.explain()[:_MOST_TEXT] if profile else "",
    )


def _backend_of(loops: Iterable[Operation]) -> Backend:
    """The first in the alphabet, where a script has loops on several."""
    return min(backends_of(loops), key=lambda one: one.name)


def _scheduled(loop: Operation) -> ScheduleRow:
    try:
        why = "" if loop.backend.name == "numpy" else loop.reason
        words = "whole arrays, one after the other" if loop.backend.name == "numpy" else loop.policy.words(loop)
    except MeshloomError as error:
        words, why = "", str(error)
    return ScheduleRow(one_line(loop.name), one_line(loop.over), one_line(words), one_line(why))


def joined(before: RunFacts | None, now: RunFacts) -> RunFacts:
    """The account of a run that goes on from where an earlier part of it ended: its parts stay listed, and what that
    has measured, where the new part did not iterate."""
    if before is None or (before.name != now.name and before.title != now.title):  # a folder may have another name now
        return now
    if now.times is None and before.times is not None and before.iteration == now.iteration:
        now = replace(now, times=before.times, summary=before.summary)
    return replace(now, parts=(*before.parts, *now.parts)[-_MOST_PARTS:])


def command() -> str:
    """What was typed to begin this process, as far as that can be told; '' in a notebook."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name in ("", "-c", "ipykernel_launcher.py"):
        return ""
    is_ours = program.name == "meshloom" or program.parts[-2:] == ("meshloom", "__main__.py")
    words = [*(["meshloom"] if is_ours else ["python", str(program)]), *sys.argv[1:]]
    return as_launched(one_line(shlex.join(words)))


# ----- in words -------------------------------------------------------------------------------------------------------
def summary_rows(task: RunTask, outcome: Outcome) -> list[tuple[str, str]]:
    """(label, text): final monitors, time and rate."""
    return [
        ("iterations", f"{outcome.iteration:,}"),
        *end_row(task),
        *((WARNING, one) for one in task.doubts()),
        *((("verdict", outcome.verdict.text),) if outcome.verdict is not None else ()),
        *((one_line(name), number(value, 10)) for name, value in outcome.monitors.items()),
        ("wall time", _time_text(outcome)),
        *_rate_row(task, outcome.rate),
        *((("numbering", words),) if (words := task.numbering()) else ()),
    ]


def end_row(task: RunTask) -> list[tuple[str, str]]:
    """Whether what may end the task before its time has done so; nothing where it has not come to an end."""
    if not (early := task.early_end()):
        return []
    now = task.recorded_now()
    span = task.time_span(now)
    if span is None or task.steps_left(now) != 0:
        return []
    return [("ended", early if span[0] < span[1] else f"at time {span[1]:g}, not yet {early}")]


def _rate_row(task: RunTask, rate: float) -> list[tuple[str, str]]:
    """What the last line of progress shows; nothing where it is unknown."""
    shown = rate_text(rate, task.elements, task.element_name)
    return [("rate", f"{shown}; {1e3 / rate:.3g} ms per iteration (without the first)")] if shown else []


def _time_text(outcome: Outcome) -> str:
    """The whole wall time and its parts, which add up to it."""
    if outcome.seconds_to_first_iteration == 0.0:
        return f"{duration(outcome.seconds)}, without an iteration"
    rest = outcome.seconds - outcome.seconds_to_first_iteration - outcome.seconds_iterating
    parts = [
        f"{duration(outcome.seconds_to_first_iteration)} until the first iteration (setting up, compiling)",
        f"{duration(outcome.seconds_iterating)} iterating",
        f"{duration(rest)} writing",
    ]
    return f"{duration(outcome.seconds)}: {', '.join(parts)}"
