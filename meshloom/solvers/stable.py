"""A step that is longer than what is known to be stable: one policy for all cases.

Where steps are in time and theory says that waves grow, it is refused: numbers that look like a solution would be none.
Where a case goes towards a steady state, or its limit is a rule of thumb, it is a doubt: a warning of the run before it
starts, in its summary and as JSON; the verdict on the run tells whether it mattered.
"""

from __future__ import annotations

import math
from typing import Any

from meshloom.errors import ConfigError


def refuse_longer(key: str, value: float, limit: float, where: str = "") -> None:
    """ConfigError where a setting asks for longer steps than ``limit``, in its own measure."""
    if value > limit:
        raise ConfigError(f"{key} = {value:g}: longer than the scheme is stable for{where}; at most {below(limit)}")


def doubts_longer(key: str, value: float, limit: float) -> tuple[str, ...]:
    """The same as a line that warns; none where there is no doubt."""
    if not value > limit:
        return ()
    if limit <= 0.0:
        return (f"{key} = {value:g}: no step is known to be stable",)
    return (f"{key} = {value:g} is longer than what is known to be stable, which is {below(limit)}",)


def step_settings(time: Any) -> str:
    """What shortens steps that are ``time.dt`` long or, where that is 0, as ``time.cfl`` says."""
    return "time.dt" if time.dt else "time.cfl, time.dt"


def below(value: float) -> str:
    """A number above 0 with three digits, rounded down: what a person may type."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / unit) * unit:.3g}"
