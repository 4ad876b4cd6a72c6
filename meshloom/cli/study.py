"""``meshloom study``: what was typed, as a study."""

from __future__ import annotations

from pathlib import Path

from meshloom.config import Setting, parse_set
from meshloom.errors import UserError, shown
from meshloom.studies import Study
from meshloom.studies.axes import axes_of
from meshloom.studies.from_file import is_study, plan_of
from meshloom.studies.sweep import StudyPlan, carry_out
from meshloom.toml import toml_key


def carried_out(
    target: str, over: list[str], settings: list[Setting], out: Path | None, workers: str | None, show: str | None,
    says: bool,
) -> Study:  # fmt: skip
    """The study, run."""
    if workers is not None and not workers.isdecimal():
        raise UserError(f"--workers must be a whole number from 1, got {shown(workers)}")
    return carry_out(_plan(target, over, settings), out, None if workers is None else int(workers), show, says)


def _plan(target: str, over: list[str], settings: list[Setting]) -> StudyPlan:
    file = Path(target)
    if is_study(file):
        if over:
            raise UserError(f"--over {shown(over[0])[1:-1]}: {file} says what varies in its [study]; change it there")
        return plan_of(file, settings)
    if not over:
        raise UserError(f"what varies? give --over flow.mach=[0.3,0.4], or a TOML file with a table [study]: {target}")
    given = [parse_set(text) for text in over]
    if twice := [one for k, one in enumerate(given) if one.key in [other.key for other in given[:k]]]:
        raise UserError(f"--over {twice[0].name} is given twice")
    return StudyPlan(target, axes_of({toml_key(one.key): one.value for one in given}, "--over"), settings)
