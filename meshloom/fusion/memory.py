"""Where the values of fields are while a fused program runs."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.errors import KernelError
from meshloom.fusion.groups import Operation, reads
from meshloom.mesh.core import Field


class Memory:
    """Where the values of fields are between two groups; a field that was never moved is at home."""

    def __init__(self, cycle: Sequence[Operation], constants: dict[Field, float]):
        self.cycle, self.constants = list(cycle), constants
        self.at: dict[Field, Field | None] = {}  # None: nowhere, nobody will ask
        self.spare: dict[Field, list[Field]] = {}
        self.position = 0  # in the cycle: what comes next

    def buffer(self, one: Field) -> Field:
        where = self.at.get(one, None if one.transient else one)
        if where is None:
            raise KernelError(
                f"field {one.name} is transient, but a program reads it before it is written; write it first, or make"
                " it an ordinary field"
            )
        return where

    def needed_later(self, one: Field) -> bool:
        """Will the value be asked for before it is written again? Others than transient fields belong to the user."""
        if not one.transient:
            return True
        for operation in self.cycle[self.position :] + self.cycle[: self.position]:
            if one in reads(operation):
                return True
            if one in operation.writes:
                return False
        return False

    def place_for(self, one: Field, taken: set[Field]) -> Field:
        """A buffer to write a field to: its home, else a spare one, made at need."""
        spare = self.spare.setdefault(one, [])
        free = next((b for b in (one, *spare) if b not in taken), None)
        if free is None:
            free = Field(one.set, f"{one.name}_{len(spare) + 2}", one.dim, dtype=one.dtype, layout=one.layout)
            spare.append(free)
        return free
