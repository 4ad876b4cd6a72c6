"""Plans: the arrays a strategy needs, as pure functions of the maps, checked, and cached on disk by content.

Each strategy declares its own next to its code (``declare.py``). Here is what all have in common, and the one place
where a plan meets generated text: ``symbol`` tells what an array or a number of a plan is called there, ``part_of``
gives it to a nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.nest.nodes import Name
from meshloom.schedule.plan.declare import Pair, declared, sizes_of_type
from meshloom.schedule.plan.topology import Topology, topology

__all__ = [
    "Path",
    "Plan",
    "Topology",
    "alike",
    "arrays",
    "identifier",
    "leaves",
    "part_of",
    "sizes",
    "symbol",
    "topology",
    "with_arrays",
]

Path = tuple[str | int, ...]  # names of fields, and numbers of maps, target sets, axes, operators or slots
Anything = TypeVar("Anything")


@dataclass(frozen=True, eq=False)
class Plan:
    """What all plans have: whose it is, and the size of blocks. Subclasses declare what else they hold."""

    strategy: str
    block: int

    @cached_property
    def leaves(self) -> tuple[tuple[Path, Any], ...]:
        """Its arrays and numbers, and the way to each."""
        return tuple(leaves(self))

    def check(self, topology: Topology) -> None:
        """Raise PlanError unless the plan, whose schema is right, is right for these maps."""

    def blocks(self, items: int) -> int:
        """How many blocks may have a share of a Global, in a loop over so many items on a CPU."""
        return -(-items // self.block) + 1


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The arrays and numbers of a plan, sizes included, and the way to each; a slot leads to the other of its pair."""
    if value is None:
        return
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, tuple):
        for key, one in (one if isinstance(one, Pair) else (k, one) for k, one in enumerate(value)):
            yield from leaves(one, (*path, key))
    elif hasattr(value, "__dataclass_fields__"):
        for name in (*(d.name for d in declared(type(value))), *sizes_of_type(type(value))):
            yield from leaves(getattr(value, name), (*path, name))
    else:
        yield path, value


def identifier(*path: str | int) -> str:
    """What generated code calls the end of a path: its last word, then its numbers, as in near0_9 for map 0's table of
    the rows of map 9. Nobody reads such names back."""
    words, numbers = [one for one in path if isinstance(one, str)], [str(one) for one in path if isinstance(one, int)]
    return words[-1] + "_".join(numbers)


def symbol(plan: Plan, *path: str | int) -> str:
    """What generated code calls the array or number of a plan at the end of a path, which must be there."""
    found: Any = plan
    for step in path:
        found = getattr(found, step) if isinstance(step, str) else found[step]
    assert found is not None, path
    return identifier(*path)


def part_of(plan: Plan, *path: str | int) -> Name:
    """The array or number of a plan at the end of a path, which must be there, as a nest speaks of it."""
    return Name(symbol(plan, *path))


def arrays(plan: Plan) -> dict[str, np.ndarray]:
    """All arrays, by what generated code calls them."""
    return _named((path, one) for path, one in plan.leaves if isinstance(one, np.ndarray))


def sizes(plan: Plan) -> dict[str, int]:
    """All numbers, by what generated code calls them."""
    return _named((path, int(one)) for path, one in plan.leaves if not isinstance(one, np.ndarray))


def _named(found: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for path, one in found:
        name = identifier(*path)
        assert name not in named, f"two parts of a plan would be called {name}"
        named[name] = one
    return named


def with_arrays(value: Anything, change: Callable[[np.ndarray], np.ndarray], *, same: bool = False) -> Anything:
    """The same plan with every array changed. ``same``: they hold the same numbers, so sizes are not counted again."""
    made: Any = value
    if isinstance(value, np.ndarray):
        made = change(value)
    elif isinstance(value, dict):
        made = {key: with_arrays(one, change, same=same) for key, one in value.items()}
    elif isinstance(value, tuple) and not isinstance(value, Pair):
        made = tuple(with_arrays(one, change, same=same) for one in value)
    elif hasattr(value, "__dataclass_fields__"):
        parts = {d.name: with_arrays(getattr(value, d.name), change, same=same) for d in declared(type(value))}
        made = replace(made, **parts)
        vars(made).update({name: getattr(value, name) for name in sizes_of_type(type(value))} if same else {})
    return made


def alike(one: Any, other: Any) -> bool:
    """Do two plans, or parts of them, hold the same numbers at the same places?"""
    first, second = list(leaves(one)), list(leaves(other))
    return [path for path, _ in first] == [path for path, _ in second] and all(
        np.array_equal(a, b) for (_, a), (_, b) in zip(first, second, strict=True)
    )
