"""A study as a TOML file: a case and its settings as for a run, and a table ``[study]`` of what varies."""

from __future__ import annotations

from pathlib import Path

from meshloom.catalogue import names_a_file
from meshloom.config import Setting, read_settings
from meshloom.errors import ConfigError
from meshloom.launch import CASE, CASE_TEXT
from meshloom.studies.axes import axes_of
from meshloom.studies.sweep import StudyPlan
from meshloom.toml import toml_key

_TABLE = "study"


def is_study(path: Path) -> bool:
    """Whether a file says by itself what varies."""
    return path.suffix == ".toml" and any(one.key[0] == _TABLE for one in read_settings(path))


def plan_of(path: Path, more: list[Setting]) -> StudyPlan:
    """What a file asks for, with further settings for all runs."""
    settings = read_settings(path)
    named = [one for one in settings if one.key == CASE]
    if not named or not isinstance(named[0].value, str):
        raise ConfigError(f'{path}: no case is named; put a line such as case = "airfoil" at the top')
    case = str(named[0].base / named[0].value) if names_a_file(named[0].value) else named[0].value
    over = {toml_key(one.key[1:]): one.value for one in settings if one.key[0] == _TABLE and len(one.key) > 1}
    rest = [one for one in settings if one.key not in (CASE, CASE_TEXT) and one.key[0] != _TABLE]
    return StudyPlan(case, axes_of(over, f"{path}: [{_TABLE}]"), [*rest, *more])
