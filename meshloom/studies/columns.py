"""What a study can show of its runs, known before the first one starts: monitors, and what they integrate and probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from meshloom.errors import UserError, nearest, one_line, shown
from meshloom.launch import Job, may_miss, measured_by
from meshloom.process.activity import busy
from meshloom.studies.axes import Axes, Values, in_words
from meshloom.studies.table import OWN


class MeasuredColumns(NamedTuple):
    """The columns of what a run measures, and those among them that a person has named."""

    names: tuple[str, ...]
    wished: tuple[str, ...]


def check_columns(axes: Axes, jobs: Sequence[Job], show: Any) -> None:
    """UserError where a run would measure what is not there, or under a name that is taken, and where ``show`` names
    what no run has. ``jobs``: one for each combination."""
    case, found = jobs[0].case, list[MeasuredColumns]()
    is_known = show is None or show in case.monitors
    with busy(f"study of {case.name}: looking at what is measured"):
        for values, job in zip(axes.combinations(), jobs, strict=True):
            # What a case tells by itself is the same whatever its settings are: one that can be set up is enough.
            if may_miss(job) or not (is_known or found):
                found += _measured(values, job)
    for one in found:
        _check_apart(one.wished, (*axes.values, *case.monitors, *OWN))
    names = dict.fromkeys(name for one in found for name in one.names)
    if found and not is_known and show not in list(names):
        raise UserError(f"study: show names {shown(show)}{nearest(str(show), (*case.monitors, *names))}")


def _measured(values: Values, job: Job) -> list[MeasuredColumns]:
    """What one run measures; nothing where its case cannot be set up, which its row will tell."""
    try:
        found = measured_by(job)
    except UserError as error:
        raise UserError(one_line(f"study, {in_words(values)}: {error}")) from None
    return [] if found is None else [MeasuredColumns((*found.integral_names, *found.probe_names), found.wished_names)]


def _check_apart(names: Sequence[str], taken: Sequence[str]) -> None:
    if twice := [name for name in names if name in taken or names.count(name) > 1]:
        raise UserError(f"study: two columns of its table would be called {shown(twice[0])}; call the probe or integral"
                        " by another name")  # fmt: skip
