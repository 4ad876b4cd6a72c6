"""The orderings by name. Each is one function from a ``Task`` to a permutation, registered where it is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.errors import ScheduleError, known_name
from meshloom.order.task import Task

Ordering = Callable[[Task], np.ndarray]
ORDERINGS: dict[str, Ordering] = {}


def ordering(name: str) -> Callable[[Ordering], Ordering]:
    """Register the decorated function under ``name``."""

    def register(function: Ordering) -> Ordering:
        ORDERINGS[name] = function
        return function

    return register


def names() -> tuple[str, ...]:
    """The names of all orderings."""
    return tuple(ORDERINGS)


def find(name: str) -> Ordering:
    """The ordering of this name, or an error with the nearest one."""
    return ORDERINGS[known_name("ordering", name, ORDERINGS, error=ScheduleError)]
