"""``ml.run_case``: a case from Python, as ``meshloom run`` runs it."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.case import Case
from meshloom.catalogue import check_case
from meshloom.config import Setting
from meshloom.errors import UserError, interrupted, shown, yes_or_no
from meshloom.launch import Job, Request, check, folder_for, iterate, prepare
from meshloom.recording import refuse_in_program
from meshloom.run.folder import Options, RunFolder
from meshloom.run.report import RunReport, script_report
from meshloom.run.times import Profile, TimeTable
from meshloom.toml import key_and_rest

PYTHON = Options("out", "overwrite=True", "restart='{checkpoint}'")


@dataclass(frozen=True)
class CaseRun:
    """What came out of a run of a case."""

    name: str
    monitors: dict[str, float]  # at the end
    measured: dict[str, float]  # what probes and integrals say at the end, by the names of their columns
    history: dict[str, np.ndarray] = field(repr=False)  # after every iteration, (iterations,) each
    fields: dict[str, np.ndarray] = field(repr=False)  # what is written for ParaView, at the end
    folder: Path
    iterations: int  # in all, those before a restart included
    seconds: float  # of this call
    failures: tuple[str, ...] = ()  # what the case could not show, a line each
    converged: bool | None = None  # to a steady state; None where the case seeks none
    verdict: str = ""  # on that, in a sentence
    times: TimeTable | None = field(default=None, repr=False)  # by loop, of the iterations; prints as a table


def run_case(
    case: str | os.PathLike[str] | type[Case],
    settings: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    restart: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    changed: bool = False,
    progress: bool | None = None,
    profile: bool = False,
) -> CaseRun:
    """Run a case: its name, the file that it is in (``"mine.py:Heat"``), a TOML file, or a class derived from ``Case``.

    ``settings``: {"flow.mach": 0.3}, by dotted key, checked before anything starts. ``out``: the folder for its files,
    otherwise the next free ``runs/<case>-001``. ``restart``: a run, or its checkpoint, to go on from, with its settings
    unless changed. ``overwrite``: take the place of the run in ``out``. ``changed``: go on although the Python file of
    the case has changed. ``progress``: the bar is there on a terminal; True gives lines elsewhere, too, False nothing.
    ``profile``: print at the end which loop took how long, as ``meshloom run --profile`` does.

    The back end is that of ``run.backend``; the one in use is so again afterwards. Ctrl-C ends the iteration, writes a
    checkpoint and raises KeyboardInterrupt, which has a ``done``.
    """
    refuse_in_program("running a case", "run it outside")
    began = time.perf_counter()
    report = script_report("run_case", progress)
    request = Request(
        _target(case), tuple(settings_of("run_case", settings)), path_of("run_case: out", out),
        path_of("run_case: restart", restart), yes_or_no("run_case: overwrite", overwrite),
        changed=yes_or_no("run_case: changed", changed), profile=yes_or_no("run_case: profile", profile),
    )  # fmt: skip
    profiled = Profile(request.profile, progress is None or bool(progress))
    job = check(request)
    with ml.using(ml.backend()):  # and what else the settings choose is as it was again
        return _run(job, folder_for(request, job, PYTHON), report, began, profiled)


def _run(job: Job, folder: RunFolder, report: RunReport, began: float, profiled: Profile) -> CaseRun:
    made, runner = prepare(job, folder, report, began)
    outcome = iterate(job, folder, runner)
    profiled.tell(outcome.times)
    fields: dict[str, np.ndarray] = {}
    if outcome.finished:
        with runner.guard.trying("fields_by_name"):
            # Copies: the fields themselves live on the back end of the run.
            fields = {name: np.array(values) for name, values in made.fields_by_name().items()}
    failures = runner.guard.failures
    for failure in failures:
        warnings.warn(f"{failure}; everything else is there", stacklevel=3)
    done = CaseRun(made.name, outcome.monitors, dict(outcome.measured), runner.by_name(), fields, folder.path,
                   outcome.iteration, outcome.seconds, failures,
                   outcome.verdict.converged if outcome.verdict else None,
                   outcome.verdict.text if outcome.verdict else "", outcome.times)  # fmt: skip
    if outcome.stopped_by == signal.SIGINT:
        go_on = f"go on with restart={str(folder.path)!r}"
        raise interrupted(f"run_case {made.name}: stopped after iteration {outcome.iteration}; {go_on}", done=done)
    if outcome.stopped_by:
        os.kill(os.getpid(), outcome.stopped_by)
    return done


def _target(case: Any) -> str | type[Case]:
    if isinstance(case, type):
        check_case(case, "run_case: ")
        return case
    if not isinstance(case, str | os.PathLike) or isinstance(os.fspath(case), bytes):
        raise UserError(f"run_case: expected the name of a case, a file or a class, got {shown(case)}")
    return str(os.fspath(case))


def path_of(what: str, given: Any) -> Path | None:
    """A path as a person gives it."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike) or not str(given):
        raise UserError(f"{what} is the path of a folder, got {shown(given)}")
    return Path(given)


def settings_of(what: str, given: Any) -> list[Setting]:
    """{"flow.mach": 0.3} as settings, which say where they come from; they are checked by the case they are for."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise UserError(f'{what}: settings are a dict such as {{"flow.mach": 0.3}}, got {shown(given)}')
    return [Setting(key_of(what, key), plain(value), f"{what}: {shown(key)}") for key, value in given.items()]


def key_of(what: str, given: Any) -> tuple[str, ...]:
    """The parts of a dotted key."""
    found = key_and_rest(f"{given}=") if isinstance(given, str) else None
    if found is None or found[1]:
        raise UserError(f'{what}: {shown(given)} is no key of a setting; one is written as "flow.mach"')
    return found[0]


def plain(value: Any) -> Any:
    """A value as TOML has them: numbers and arrays of NumPy, paths and tuples become those of Python."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise UserError(f"settings: the keys of a table are names, got {shown(wrong[0])}")
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value
