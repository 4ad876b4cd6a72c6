"""Every error Meshloom raises on purpose, in one place.

``UserError`` means "what you gave me is wrong" (exit code 2 on the command line); ``RunError`` means
"the run itself failed" (exit code 1). The message is one line: what, where, what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MeshloomError(Exception):
    """Root of all deliberate errors."""

    exit_code = 1


class UserError(MeshloomError, ValueError):
    """Wrong input: the message says what, where and what would be right."""

    exit_code = 2


class MeshError(UserError):
    """Sets, maps, fields or mesh files that do not fit together."""


class KernelError(UserError):
    """A kernel that breaks its access modes or the rules of tracing; names the user's file and line."""


class ScheduleError(UserError):
    """A schedule that cannot be used for this loop, or an unknown strategy, layout or ordering."""


class SchemeError(UserError):
    """A compact scheme that is not consistent or not solvable, or does not fit the field it is used on."""


class ConfigError(UserError):
    """A configuration key or value that is not allowed; names file and line."""


class CompilerError(MeshloomError):
    """No usable compiler, or generated code that did not compile."""


class PlanError(MeshloomError):
    """A plan that the verifier rejects: a wrong color, a missing element, an index out of bounds."""


class RunError(MeshloomError):
    """The run failed: NaN in the solution, disk full, checkpoint that could not be written."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A hint for a misspelt name: ``"; did you mean 'mach'?"`` or the list of allowed names."""
    names = [str(a) for a in allowed]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; allowed: {', '.join(names)}"


def install(extra: str) -> str:
    """What a person types to get an extra: Meshloom is installed from its folder, not from an index of packages."""
    return f"pip install '.[{extra}]' in the folder of Meshloom"
