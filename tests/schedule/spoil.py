"""Plans with something wrong in them: one array put in another's place; and a memory that keeps no plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from meshloom.schedule.plan.plan import Plan, arrays, with_arrays

Some = TypeVar("Some", bound=Plan)


def replaced(plan: Some, name: str, new: np.ndarray) -> Some:
    """The plan with another array."""
    old = arrays(plan)[name]
    return with_arrays(plan, lambda one: new if one is old else one)


def spoilt(plan: Some, name: str, change: Callable[[np.ndarray], object]) -> Some:
    """The plan with a copy of an array that was changed in place."""
    array = arrays(plan)[name].copy()
    change(array)
    return replaced(plan, name, array)


class Forgetful(dict[str, Plan]):
    """Nobody has a plan: it comes from the disk."""

    def get(self, key: str, default: Any = None) -> Any:
        return None
