"""What a loop accesses: which components of which rows, and how many of them differ."""

from __future__ import annotations

from functools import cached_property

from meshloom.kernel.count import loads
from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Map
from meshloom.schedule.spec import LoopSpec


class Accesses:
    """A loop over its set as far as its accesses are concerned. ``block``: elements that are visited together."""

    def __init__(
        self,
        spec: LoopSpec,
        elements: int,
        storages: tuple[Field | Global, ...],
        maps: tuple[Map, ...],
        block: int,
        box: Box | None = None,
    ):
        self.box = box
        self.spec, self.elements, self.storages, self.maps, self.block = spec, elements, storages, maps, block
        self._roots = [o.value for o in spec.outputs]

    @cached_property
    def accesses(self) -> dict[tuple[int, int, int], int]:
        """(parameter, slot, component) -> how often it is moved: 1 read or written, 2 both. Globals left out."""
        moved = dict.fromkeys(loads(self._roots), 1)
        for o in self.spec.outputs:
            key = (o.param, o.slot, o.comp)
            moved[key] = 2 if self.spec.params[o.param].mode.combine or key in moved else 1
        return {k: v for k, v in moved.items() if not self.spec.params[k[0]].is_global}

    @cached_property
    def used_maps(self) -> tuple[int, ...]:
        return tuple(sorted({m for p, _, _ in self.accesses if (m := self.spec.params[p].map) is not None}))

    def distinct_rows(self, param: int, comp: int) -> int:
        """How many different rows of a field the loop accesses for a component."""
        described = self.spec.params[param]
        if described.map is not None:
            return self.maps[described.map].distinct_targets
        if self.box is None or not described.offsets:
            return self.elements
        return self.box.touched(described.offsets[slot] for p, slot, c in self.accesses if (p, c) == (param, comp))
