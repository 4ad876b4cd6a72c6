"""The ``[schedule]`` table of a case: how a person wants its loops executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import meshloom as ml
from meshloom.config import table
from meshloom.errors import ConfigError, ScheduleError, nearest, shown
from meshloom.toml import toml_key

DEFAULT = "default"  # the entry for all loops that the table does not name
_WHOLE_NUMBERS = ("block", "registers", "vector", "shared")  # the keys of a schedule that are no words


def schedule_table(example: str) -> Any:
    """The ``[schedule]`` table of a case; ``example`` is a loop where a strategy matters.

    Which loops there are, the program of the case knows: names are checked when it has been recorded.
    """
    return table(
        f'How loops are executed, where the automatic choice shall not do: a line such as {example} = "color" or'
        f' {example} = {{strategy = "color", block = 512}}, and default for all loops that are not named.',
        check_schedule,
    )


def loops_text(names: Sequence[str]) -> str:
    """What to add to the documentation of a ``[schedule]`` table where the loops are known."""
    return f"Loops: {', '.join(names)}."


def check_schedule(loop: str, value: Any) -> None:
    """The check of an entry: ``loop = "strategy"`` or ``loop = {strategy = ..., block = ...}``, whatever the loop."""
    if not isinstance(value, str | dict):
        raise ValueError(f'must be a strategy or a table {{strategy = "color", block = 512}}, got {shown(value)}')
    schedule = _schedule(value)
    _check_name("strategy", schedule.strategy, ("auto", "fastest", *ml.strategies()))
    _check_name("order", schedule.order, ml.orderings())
    _check_name("variant", schedule.variant, ml.variants(schedule.strategy))


def _schedule(value: str | dict[str, Any]) -> ml.Schedule:
    """An entry of the table as a Schedule; ValueError when a key or the type of its value is wrong."""
    parts = {"strategy": value} if isinstance(value, str) else value
    known = [f.name for f in fields(ml.Schedule)]
    for key, part in parts.items():
        if key not in known:
            raise ValueError(f"has the unknown key {shown(key)}{nearest(key, known)}")
        kind, words = (int, "a whole number") if key in _WHOLE_NUMBERS else (str, "a string")
        if type(part) is not kind:
            raise ValueError(f"has {key} {shown(part)}; it must be {words}")
    try:
        return ml.Schedule(**parts)
    except ScheduleError as error:
        raise ValueError(f"does not fit: {str(error).removeprefix('schedule: ')}") from None


def _check_name(key: str, name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise ValueError(f"has {key} {shown(name)}{nearest(name, allowed)}")


class UnknownLoop(ConfigError):
    """A ``[schedule]`` table names what is no loop of the program."""

    def __init__(self, name: str, program: ml.Program):
        line_loops = {loop.name for loop in program.loops if loop.domain.along_lines}
        along_lines = "is solved along lines, where strategies do not apply"
        what = along_lines if name in line_loops else "is no loop of this case"
        self.key = ("schedule", name)
        super().__init__(f"{toml_key(self.key)} {what}{nearest(name, (DEFAULT, *loop_names(program)))}")


def loop_names(program: ml.Program) -> tuple[str, ...]:
    """What the table may name, in the order of the program."""
    return tuple(dict.fromkeys(loop.name for loop in program.loops if loop.domain.visits_elements))


def apply_schedules(wishes: Mapping[str, Any], program: ml.Program) -> None:
    """Each loop by its own entry, else by ``default`` where that strategy applies, else by the automatic choice."""
    names = loop_names(program)
    for name in wishes:
        if name not in (DEFAULT, *names):
            raise UnknownLoop(name, program)
    default = _schedule(wishes[DEFAULT]) if DEFAULT in wishes else None
    for loop in dict.fromkeys(program.loops):
        if not loop.domain.visits_elements:
            continue
        if loop.name in wishes:
            loop.reschedule(_schedule(wishes[loop.name]))
        elif default is not None and loop.can_run(default):
            loop.reschedule(default)
