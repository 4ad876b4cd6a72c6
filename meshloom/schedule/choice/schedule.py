"""Schedule: how a loop is executed. A value object that can be written in one word or in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from meshloom.errors import ScheduleError, known_name, nearest, shown, whole_number
from meshloom.mesh.layout import parse_layout
from meshloom.order import ORDERINGS
from meshloom.records import dataclass

VECTORS = (4, 8, 16, 32, 64)
MOST_ELEMENTS = 2**24  # of a block: far beyond any that is fast, and its product with anything fits 64 bits
_BOUNDS = {"block": (1, MOST_ELEMENTS), "registers": (16, 255), "vector": (4, 64), "shared": (0, 2**31 - 1)}


@dataclass(frozen=True)
class Schedule:
    """``strategy``: one of ``ml.strategies()``, "auto" (of the deterministic ones the best) or "fastest" (of all).

    ``block``: elements (or targets) per block, None to choose.
    ``layout``: put the loop's fields into this layout before it runs, None to leave them. ``order``: the order in which
    elements are visited ("given" or an ordering's name); fields stay where they are. ``registers``: the most a thread
    of a GPU may use, None for the compiler's choice. ``variant``: a form of the strategy, one of
    ``ml.variants(strategy)``. ``vector``: bytes of each component that a thread of a GPU takes where the layout allows
    it, one of ``VECTORS``, in loads of at most 16; None for 16 where that pays. ``shared``: bytes of shared memory that
    a block of a GPU may use at most, None for all there is; a schedule that needs more is refused. CPUs ignore
    registers, vector and shared.
    """

    strategy: str = "auto"
    block: int | None = None
    layout: str | None = None
    order: str = "given"
    registers: int | None = None
    variant: str = "plain"
    vector: int | None = None
    shared: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None:
                number = whole_number(f"schedule: {name}", value, low, high, error=ScheduleError)
                object.__setattr__(self, name, number)
        if self.vector is not None and self.vector not in VECTORS:
            allowed = ", ".join(map(str, VECTORS))
            raise ScheduleError(f"schedule: vector must be one of {allowed} bytes, got {self.vector}")
        for name in ("strategy", "order", "variant"):
            if not isinstance(getattr(self, name), str):
                raise ScheduleError(f"schedule: {name} is a name, got {shown(getattr(self, name))}")
        if self.order != "given":
            known_name("ordering", self.order, ORDERINGS, error=ScheduleError)
        if self.layout is not None:
            parse_layout(self.layout)

    def __str__(self) -> str:
        parts = [self.strategy]
        parts += [f"block={self.block}"] if self.block else []
        parts += [f"layout={self.layout}"] if self.layout else []
        parts += [f"order={self.order}"] if self.order != "given" else []
        parts += [f"registers={self.registers}"] if self.registers else []
        parts += [f"variant={self.variant}"] if self.variant != "plain" else []
        parts += [f"vector={self.vector}"] if self.vector else []
        parts += [f"shared={self.shared}"] if self.shared is not None else []
        return " ".join(parts)

    @property
    def whole_rows(self) -> bool:
        """May a thread of a GPU load rows of several numbers in pieces of 16 bytes?"""
        return self.vector is None or self.vector >= 16

    def having(self, **changes: Any) -> Schedule:
        """A copy with some entries changed."""
        return replace(self, **changes)


NOTHING_ASKED = Schedule()


def parse_schedule(value: Schedule | str | Mapping[str, Any] | None) -> Schedule:
    """A Schedule from a strategy's name, a mapping as in a configuration file, or a Schedule."""
    if value is None:
        return NOTHING_ASKED
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str):
        return Schedule(strategy=value)
    if not isinstance(value, Mapping):
        raise ScheduleError(f"schedule: a strategy's name, a mapping or a Schedule, got {shown(value)}")
    allowed = [f.name for f in fields(Schedule)]
    for key in value:
        if key not in allowed:
            raise ScheduleError(f"schedule: unknown key '{key}'{nearest(str(key), allowed)}")
    return Schedule(**value)
