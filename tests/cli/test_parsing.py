"""How a command line is read, with any version of typer: its values are text."""

from __future__ import annotations

import click
import pytest
from typer.main import get_command

from meshloom.cli.main import app

GROUP = get_command(app)
PARAMETERS = [(command, one) for name in GROUP.list_commands(click.Context(GROUP))  # type: ignore[attr-defined]
              for command in [GROUP.get_command(click.Context(GROUP), name)]  # type: ignore[attr-defined]
              for one in command.params if not (one.required or getattr(one, "is_flag", False))]  # fmt: skip


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS, ids=lambda one: one.name)
def test_what_nobody_gives_is_what_click_makes_of_it(command: click.Command, parameter: click.Parameter) -> None:
    """Older versions of typer ask how many values there are of what may be given several times."""
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1
    assert parameter.process_value(click.Context(command), None) == (() if several else None)


def test_some_may_be_given_several_times() -> None:
    """Otherwise the test above would see nothing of them."""
    assert any(getattr(one, "multiple", False) or one.nargs == -1 for _, one in PARAMETERS)
