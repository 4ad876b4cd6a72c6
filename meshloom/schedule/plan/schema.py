"""The schema of a plan: does it hold what its type declares, of the declared types and shapes?

Checked before anything else about a plan: code follows what arrays say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from meshloom.errors import PlanError
from meshloom.schedule.plan.declare import Array, Holding, Listed, Pair, Pairs, Part, Place, PlanNumber, Table, declared
from meshloom.schedule.plan.plan import Path, Plan, Topology

_COUNT = 2**40  # more than any size


def check_schema(plan: Plan, topology: Topology) -> None:
    """Raise PlanError unless the plan holds just what its type declares."""
    _SchemaCheck(plan).check(plan, Place(topology, (plan,)), ())


def demand(condition: Any, plan: Plan, what: str) -> None:
    """PlanError unless the condition holds."""
    if not bool(condition):
        raise PlanError(f"plan of '{plan.strategy}' (block {plan.block}) is wrong: {what}")


class _SchemaCheck:
    """The check of one plan; everything is told by where it stands."""

    def __init__(self, plan: Plan):
        self.plan = plan

    def _demand(self, condition: Any, path: Path, what: str) -> None:
        demand(condition, self.plan, f"{'.'.join(map(str, path))} {what}")

    def check(self, value: Any, place: Place, path: Path) -> None:
        """The fields of an object, which stand at ``place``."""
        for one in declared(type(value)):
            found, here, needed = getattr(value, one.name), (*path, one.name), one.needed(place)
            if found is None:
                self._demand(not needed, here, "is missing")
            else:
                self._demand(needed is not False, here, "should not be there")
                self._value(found, one.holding, place, here)

    def _value(self, value: Any, holding: Holding, place: Place, path: Path) -> None:
        match holding:
            case Array():
                self._array(value, holding, place, path)
            case PlanNumber(low):
                is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
                self._demand(is_integer and low <= value < _COUNT, path, f"is {value}")
            case Part():
                self._demand(type(value) in holding.kinds, path, f"is a {type(value).__name__}")
                self.check(value, replace(place, objects=(*place.objects, value)), path)
            case Table():
                self._table(value, holding, place, path)
            case Listed(of):
                self._demand(isinstance(value, tuple), path, "is no tuple")
                for number, one in enumerate(value):
                    self._value(one, of, _at(place, number), (*path, number))
            case Pairs():
                fits = isinstance(value, tuple) and all(isinstance(one, Pair) and min(one) >= 0 for one in value)
                self._demand(fits, path, "does not hold pairs of slots")

    def _table(self, value: Any, holding: Table, place: Place, path: Path) -> None:
        keys = holding.keys(place)
        fits = isinstance(value, dict) and (value.keys() <= set(keys) if holding.some else value.keys() == set(keys))
        self._demand(fits, path, f"is not for {', '.join(map(str, sorted(keys)))}")
        for number, one in value.items():
            self._value(one, holding.of, _at(place, number), (*path, number))

    def _array(self, value: Any, holding: Array, place: Place, path: Path) -> None:
        self._demand(isinstance(value, np.ndarray), path, "is no array")
        plain = value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative
        expected = f"is of {value.dtype}, expected {' or '.join(holding.types)}"
        self._demand(plain and value.dtype.name in holding.types, path, expected)
        shape = tuple(one(place) if callable(one) else one for one in holding.shape)
        fits = value.ndim == len(shape) and all(s is None or s == n for s, n in zip(shape, value.shape, strict=False))
        self._demand(fits, path, f"has {' x '.join(map(str, value.shape))} entries, expected {shape}")


def _at(place: Place, number: int) -> Place:
    return replace(place, numbers=(*place.numbers, number))
