"""Where the values of fields are while a fused program runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field
from typing import NamedTuple

from meshloom.errors import KernelError
from meshloom.mesh.core import Field
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.domain import EVERYWHERE, Part
from meshloom.operation.operation import Operation
from meshloom.records import dataclass


class Moves(NamedTuple):
    """What steps that were put together do to memory: where fields are then, which of them are constant no more, and
    on which constants the steps count."""

    buffers: dict[Field, Field | None]
    stored: frozenset[Field]
    counted_on: dict[Field, float]


@dataclass(frozen=True, eq=False)
class FusionCache:
    """What all trials to fuse a program share, and graphs that differ in few of their operations: second buffers,
    groups that were put together, and which operations join which, each by all that it depends on."""

    doubles: dict[Field, list[Field]] = field(default_factory=dict)
    groups: dict[Hashable, tuple[list[Operation], Moves]] = field(default_factory=dict)
    joins: dict[Hashable, bool] = field(default_factory=dict)


class Memory:
    """Where the values of fields are between two groups; a field that was never moved is in its own buffer.

    A field that every replay leaves as one number starts as that. Until something else is stored there, nobody has to
    load the number, or to store it again.
    """

    def __init__(self, cycle: Dataflow, cache: FusionCache | None = None):
        self.graph, self.cache = cycle, FusionCache() if cache is None else cache
        self.constants = cycle.uniform_at_end()  # fields whose memory still holds the number that it started with
        self.counted_on: dict[Field, float] = {}  # those of which a step took that for granted
        self.buffers: dict[Field, Field | None] = {}  # None: nowhere, nobody will ask
        self.position = 0  # in the cycle: what comes next
        self.steps: set[Operation] = set()  # that were put together for it
        self.register_bound: set[Operation] = set()  # loops that run apart because of register pressure
        loops = (one for one in cycle.operations if not one.domain.all_memory)
        self.backend = next((one.backend for one in loops), None)  # what they run on

    def saved(self) -> Callable[[], None]:
        """What brings everything back to as it is now."""
        # second buffers stay: they are there for the next who asks
        buffers, constants, counted_on = dict(self.buffers), dict(self.constants), dict(self.counted_on)

        def restore() -> None:
            self.buffers, self.constants, self.counted_on = dict(buffers), dict(constants), dict(counted_on)

        return restore

    def state(self, parts: Dataflow, part: Part | None) -> Hashable:
        """All that matters of it to a group: where its fields are, which of them are constant, and live afterwards, and
        which buffers that it could write to hold what others will ask for. ``part``: of a grid, where the group is."""
        fields = [one for one in parts.storages if isinstance(one, Field)]
        written = [one for one in fields if one in parts.written]
        places = {place for one in written for place in (one, *self.cache.doubles.get(one, ()))}
        held = ((one, place) for one, place in self.buffers.items() if place in places and one not in written)
        # a number by its text: 0.0 and -0.0 are two
        found = [(one, one in self.buffers, self.buffers.get(one), repr(self.constants.get(one))) for one in fields]
        live = frozenset(one for one in written if self.is_live(one, part))
        return tuple(found), live, frozenset(place for one, place in held if self.is_live(one))

    def moved_by(self, make: Callable[[], list[Operation]]) -> tuple[list[Operation], Moves]:
        """Steps that are put together now, and what they do to it."""
        buffers, constants, counted_on = dict(self.buffers), set(self.constants), self.counted_on
        self.counted_on = {}  # all that they count on, not only what nobody has before
        steps = make()
        moved = {one: place for one, place in self.buffers.items() if one not in buffers or buffers[one] is not place}
        found = Moves(moved, frozenset(constants - set(self.constants)), self.counted_on)
        self.counted_on = counted_on | self.counted_on
        return steps, found

    def move(self, moves: Moves) -> None:
        """The same once more."""
        self.buffers |= moves.buffers
        self.counted_on |= moves.counted_on
        for one in moves.stored:
            self.constants.pop(one, None)

    def buffer(self, one: Field) -> Field:
        where = self.buffers.get(one, None if self.graph.is_temporary(one) else one)
        if where is None:
            raise KernelError(
                f"field {one.name} is temporary, but a program reads it before it is written; write it first, or make"
                " it an ordinary field"
            )
        return where

    def number(self, one: Field) -> float | None:
        """What all of a field is, where that is known; whoever asks counts on it."""
        if one in self.constants:
            self.counted_on[one] = self.constants[one]
        return self.constants.get(one)

    def stored(self, one: Field, place: Field) -> None:
        """A field was written, and its values are there."""
        self.buffers[one] = place
        self.constants.pop(one, None)

    def is_live(self, one: Field, part: Part | None = None) -> bool:
        """Will the value be asked for before it is replaced? After a replay the user may ask for any field but the
        temporary ones, and the next replay for these. ``part``: of a grid, where the value was written."""
        return self.graph.is_live(one, self.position, part or EVERYWHERE)

    def place_for(self, one: Field, taken: set[Field]) -> Field:
        """A buffer to write a field to: its own, else a second one, made at need."""
        doubles = self.cache.doubles.setdefault(one, [])
        free = next((b for b in (one, *doubles) if b not in taken), None)
        if free is None:
            free = Field(one.set, f"{one.name}_{len(doubles) + 2}", one.components, dtype=one.dtype, layout=one.layout)
            doubles.append(free)
        return free
