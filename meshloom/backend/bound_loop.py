"""A loop with its data, as back ends take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Map
from meshloom.records import dataclass
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec


@dataclass(frozen=True)
class BoundLoop:
    """A loop with its data: what a back end executes. ``plan()`` builds (or fetches) the plan when it is needed."""

    spec: LoopSpec
    elements: int
    storages: tuple[Field | Global, ...]
    maps: tuple[Map, ...]
    schedule: Schedule
    plan: Callable[[], Plan]
    box: Box | None = None  # of a grid: the elements are its points
    serial: bool = False  # does one thread of a CPU go through the elements in their order? bits are the same
    pinned: dict[Any, Any] = field(default_factory=dict)  # what stays loaded for loops of the same form, by back end
