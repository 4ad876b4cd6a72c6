"""``meshloom study``: what was typed, or a TOML file says, as a study.

A file has a case and its settings as for a run, and a table ``[study]`` of what varies.
"""

from __future__ import annotations

from pathlib import Path

from meshloom.catalogue import names_a_file
from meshloom.config import Setting, parse_set, read_settings
from meshloom.errors import ConfigError, UserError, shown
from meshloom.launch import CASE, CASE_TEXT
from meshloom.studies import Study
from meshloom.studies.axes import axes_of
from meshloom.studies.sweep import StudyPlan, carry_out
from meshloom.toml import toml_key

_TABLE = "study"


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
    written = read_settings(file) if file.suffix == ".toml" else []
    if any(one.key[0] == _TABLE for one in written):  # it says by itself what varies
        if over:
            raise UserError(f"--over {shown(over[0])[1:-1]}: {file} says what varies in its [study]; change it there")
        return _plan_of(file, written, settings)
    if not over:
        raise UserError(f"what varies? give --over flow.mach=[0.3,0.4], or a TOML file with a table [study]: {target}")
    given = [parse_set(text) for text in over]
    if twice := [one for k, one in enumerate(given) if one.key in [other.key for other in given[:k]]]:
        raise UserError(f"--over {twice[0].name} is given twice")
    return StudyPlan(target, axes_of({toml_key(one.key): one.value for one in given}, "--over"), settings)


def _plan_of(path: Path, settings: list[Setting], more: list[Setting]) -> StudyPlan:
    """What the settings in a file ask for, with further ones for all runs."""
    named = [one for one in settings if one.key == CASE]
    if not named or not isinstance(named[0].value, str):
        raise ConfigError(f'{path}: no case is named; put a line such as case = "airfoil" at the top')
    case = str(named[0].base / named[0].value) if names_a_file(named[0].value) else named[0].value
    over = {toml_key(one.key[1:]): one.value for one in settings if one.key[0] == _TABLE and len(one.key) > 1}
    rest = [one for one in settings if one.key not in (CASE, CASE_TEXT) and one.key[0] != _TABLE]
    return StudyPlan(case, axes_of(over, f"{path}: [{_TABLE}]"), [*rest, *more])
