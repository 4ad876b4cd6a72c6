"""The page of a run made again from the files in its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from meshloom.errors import UserError, one_line
from meshloom.io.monitors import read_monitors
from meshloom.records import dataclass
from meshloom.run.facts import UNFINISHED, Monitors, RunFacts, read_facts
from meshloom.run.folder import RunFolder, claim, is_run, recover
from meshloom.run.names import CHECKPOINT, REPORT, restart_command
from meshloom.run.page.numbers import number
from meshloom.run.page.render import write_page
from meshloom.run.task import SettingRow

_CUT_OFF = "the run did not come to an end of which it could tell: what is known is in its other files"


@dataclass(frozen=True)
class FromSettings:
    """What the settings of a run tell: which case, and every setting."""

    name: str
    title: str
    settings: tuple[SettingRow, ...]


def rebuild_page(run: Path, read_settings: Callable[[Path], FromSettings]) -> Path:
    """Write the page of the run in a folder again; returns it. ``read_settings`` reads the ``run.toml`` of a case.

    UserError where there is no run, where one is being written, and where its account is something else.
    """
    if not os.path.isdir(run):  # of a Path, it fails for names that are too long
        raise UserError(f"{run}: no such folder; give the folder of a run")
    if not is_run(run):
        raise UserError(f"{run}: this folder holds no run; give one such as runs/airfoil-001")
    recover(run)
    folder = claim(run.name, run, goes_on=True)
    try:
        monitors = _monitors(folder)
        facts = read_facts(folder.facts) or _without_account(folder, read_settings)
        reached = len(monitors.values)
        if facts.iteration != reached:  # it went on, and was killed
            facts = replace(facts, state=UNFINISHED, reason=_CUT_OFF, iteration=reached, summary=_last(monitors))
        write_page(folder, facts, monitors)
    finally:
        folder.release()
    return run / REPORT


def _monitors(folder: RunFolder) -> Monitors:
    if not folder.monitors.is_file():
        return Monitors((), np.empty((0, 0)))
    names, values = read_monitors(folder.monitors)
    return Monitors(names, values)


def _without_account(folder: RunFolder, read_settings: Callable[[Path], FromSettings]) -> RunFacts:
    """Of a run that was killed: what its files say."""
    of_case = folder.config.is_file()
    told = read_settings(folder.config) if of_case else FromSettings(folder.path.resolve().name, "", ())
    there = (folder.path / CHECKPOINT).is_file()
    on = restart_command(folder.checkpoint) if of_case else "the same script with restart=True in ml.march"
    return RunFacts(told.name, told.title, UNFINISHED, _CUT_OFF, -1, (), told.settings, on if there else "")


def _last(monitors: Monitors) -> tuple[tuple[str, str], ...]:
    if not len(monitors.values):
        return ()
    return tuple(
        (one_line(name), number(value, 10)) for name, value in zip(monitors.names, monitors.values[-1], strict=True)
    )
