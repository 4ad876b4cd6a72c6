"""How a command line is read: commands by their names and misspelt ones, and values, which are text."""

from __future__ import annotations

import difflib
from typing import Any

from typer.core import TyperCommand, TyperGroup

from meshloom.errors import UserError, shown

_ALIASES = {"list": "cases"}  # of commands: what people try first


class _PlainHelp:
    """Commands whose --help is shown as a flag; see ``main.py``."""

    def get_help_option(self, context: Any) -> Any:
        found = super().get_help_option(context)  # type: ignore[misc]
        if found is not None:
            found.metavar = ""
            _take_as_it_is(found)
        return found


class OneCommand(_PlainHelp, TyperCommand):
    """Commands whose parameters are flags or text: what text must say, those who use it tell."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for one in self.params:
            if not getattr(one, "is_flag", False):
                _take_as_it_is(one)


def _take_as_it_is(parameter: Any) -> None:
    """Newer versions of typer have pydantic look at every value, which takes longer to import than typer itself: text
    is what it is without, and so are several, and one that is not given. What else there may be goes that way."""
    checked = type(parameter).process_value

    def process_value(context: Any, value: Any) -> Any:
        several = value if isinstance(value, list | tuple) else [value]
        if all(isinstance(one, str) for one in several):
            return value
        if value is None and not parameter.required:
            return () if getattr(parameter, "multiple", False) or parameter.nargs == -1 else None
        return checked(parameter, context, value)

    parameter.process_value = process_value


class CommandGroup(_PlainHelp, TyperGroup):
    """Commands by their names, and by those that people try first."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """One that is misspelt is told by the name that the help has: what typer suggests depends on its version."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            meant = _meant(name, self.list_commands(ctx))
            hint = f"; did you mean '{meant}'?" if meant else ""
            raise UserError(f"No such command {shown(name)}{hint}; see {ctx.command_path} --help")
        return super().resolve_command(ctx, args)


def _meant(name: str, commands: list[str]) -> str:
    """The command that a misspelt one is nearest to; 'run airfoil' for the name of a case; '' where nobody knows."""
    from meshloom.catalogue import names_a_case

    if names_a_case(name):
        return f"run {name}"
    usual = {one: one for one in commands} | _ALIASES
    return next((usual[one] for one in difflib.get_close_matches(name.lower(), usual, n=1)), "")
