"""Is that a case? Asked of classes that others have written, before anything is made of one."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from meshloom.case import Case, OutputOptions, RunOptions
from meshloom.config import Setting, build, check_definition
from meshloom.errors import ConfigError, UserError, shown
from meshloom.mesh.core import Field, Global
from meshloom.run.names import file_name

_SECTIONS = {"run": RunOptions, "output": OutputOptions}
_COUNTER = "iteration"
_NEEDED = {
    "name": 'a word, such as name = "heat"',
    "title": "one line about it, for meshloom cases",
    "Config": "its settings: a dataclass derived from CaseConfig",
    "monitors": 'the names of what is shown while it runs, such as monitors = ("hottest",)',
}


def check_case(case: Any, where: str) -> None:
    """UserError, which begins with ``where``, unless that is a class that the runner can ask all it asks of a case."""
    if not (isinstance(case, type) and issubclass(case, Case)):
        raise UserError(f"{where}expected a class derived from meshloom.case.Case, got {shown(case)}")
    try:
        _check_answers(case)
        _check_config(case)
    except ValueError as problem:
        raise UserError(f"{where}class {case.__name__} {problem}") from None


def _check_answers(case: type[Case]) -> None:
    for name, what in _NEEDED.items():
        if not hasattr(case, name):
            raise ValueError(f"has no {name}: {what}")
    if not isinstance(case.not_on_ranks, str):
        raise ValueError(f"has not_on_ranks = {shown(case.not_on_ranks)}; it must be text: why it does not run on"
                         " several ranks, or '' where it does")  # fmt: skip
    for name in ("name", "title"):
        if not isinstance(getattr(case, name), str) or not getattr(case, name).strip():
            raise ValueError(f"has {name} = {shown(getattr(case, name))}; it must be text")
    if file_name(case.name) != case.name or case.name.startswith((".", "-")):
        raise ValueError(f"has name = {shown(case.name)}, which no folder can have; take letters, digits and _")
    monitors = case.monitors
    if not isinstance(monitors, tuple) or not all(isinstance(one, str) for one in monitors):
        raise ValueError(f'has monitors = {shown(monitors)}; it must be a tuple of names, such as ("hottest",)')
    if unfit := [one for one in monitors if not one.strip() or one == _COUNTER]:
        raise ValueError(f"has a monitor {shown(unfit[0])}; it needs a name, other than that of the first column of"
                         f" monitors.csv, {_COUNTER}")  # fmt: skip
    if len(set(monitors)) < len(monitors):
        raise ValueError(f"has two monitors called '{max(monitors, key=monitors.count)}'")
    if case.shown is not None and (unknown := [one for one in case.shown if one not in monitors]):
        raise ValueError(f"shows {shown(unknown[0])}, which is none of its monitors")
    if missing := sorted(case.__abstractmethods__):
        raise ValueError(f"lacks {', '.join(f'{name}()' for name in missing)}")


def check_made(case: Case) -> None:
    """UserError unless a case that was made has a state and what is recorded, as things that can be saved."""
    for name, kinds, what in (("state", (Field, Global), "fields and globals"), ("recorded", (Global,), "globals")):
        found = getattr(case, name)
        if not isinstance(found, tuple | list) or not all(isinstance(one, kinds) for one in found):
            raise UserError(f"case '{case.name}' has self.{name} = {shown(found)}; it must be a tuple of {what}")


def _check_config(case: type[Case]) -> None:
    config = case.Config
    if not (isinstance(config, type) and is_dataclass(config)):
        raise ValueError(f"has Config = {shown(config)}; it must be a dataclass derived from CaseConfig")
    check_definition(config)
    made: Any = config()
    for name, kind in _SECTIONS.items():
        if not isinstance(getattr(made, name, None), kind):
            raise ValueError(f"has a Config without the section {name}; derive it from CaseConfig")
    if not isinstance(getattr(made, "schedule", None), dict):
        raise ValueError("has a Config without the table schedule; derive it from CaseConfig")
    try:
        build(config, [Setting(tuple(key.split(".")), value, "small") for key, value in case.small.items()])
    except ConfigError as problem:
        raise ValueError(f"has a wrong {problem}") from None
