"""What the order of a mesh costs a loop: the measure of ``meshloom.order``, weighed with the bytes of its fields."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from meshloom.order import (
    Loads,
    conflicting_blocks,
    loads_by_elements,
    loads_by_targets,
    sampled_blocks,
    target_reuse,
)
from meshloom.schedule.choice.accesses import Accesses
from meshloom.schedule.choice.cost import greedy_colors, reloaded
from meshloom.schedule.strategies import SERIAL, serving
from meshloom.target import Target


class OrderOfLoop:
    """Statistics of the maps of a loop, each taken once, when it is asked for."""

    def __init__(self, counts: Accesses, target: Target):
        self.counts, self.spec, self.target = counts, counts.spec, target
        self.block = counts.block

    def _reloaded(self, loads: Loads, row_bytes: float) -> float:
        """Bytes that come from memory again where the loop runs, as a multiple of those needed."""
        return reloaded(loads, row_bytes, self.target.numbers.order)

    def _rows(self, m: int) -> np.ndarray:
        return self.counts.maps[m].positions[: self.counts.elements]

    def _written_rows(self, m: int) -> np.ndarray:
        """Of the slots of a racy map through which elements give something."""
        slots = self.spec.written_slots(m)
        return self._rows(m) if len(slots) == self.spec.maps[m].arity else self._rows(m)[:, slots]

    @cached_property
    def _by_elements(self) -> dict[int, Loads]:
        return {
            m: loads_by_elements(self._rows(m), self.counts.maps[m].distinct_targets) for m in self.counts.used_maps
        }

    def _by_written_slots(self, m: int) -> Loads:
        """The same of a racy map, for what elements give alone."""
        if len(self.spec.written_slots(m)) == self.spec.maps[m].arity and m in self._by_elements:
            return self._by_elements[m]
        return loads_by_elements(self._written_rows(m), self.counts.maps[m].distinct_targets)

    @cached_property
    def _by_targets(self) -> tuple[Loads, Loads]:
        """Of the first racy map: what its targets load of each other, and of the elements."""
        m = self.spec.racy_maps[0]
        return loads_by_targets(self._rows(m), self.counts.maps[m].target.total, through=self._written_rows(m))

    def loads(self) -> float:
        """How many times the targets that they need do blocks of elements load?"""
        return max((self._by_written_slots(m).rows for m in self.spec.racy_maps), default=1.0)

    def reloads_by_elements(self) -> tuple[float, float]:
        """Bytes that come from memory again when elements are visited in their order: read only, and added to."""
        read = added = 0.0
        for p, moved in self._moved().items():
            m = self.spec.params[p].map
            if m is not None and self.spec.racy_maps:
                loads = self._by_written_slots(m) if self.spec.params[p].racy else self._by_elements[m]
                reloads = moved * self._reloaded(loads, self._row_bytes(p))
                read, added = (read, added + reloads) if self.spec.params[p].racy else (read + reloads, added)
        return read, added

    def reloads_by_targets(self) -> float:
        """Bytes that come from memory again when targets are visited in their order, each with all its elements."""
        if not self.spec.racy_maps:
            return 0.0
        targets, elements = self._by_targets
        read = {p: moved for p, moved in self._moved().items() if not self.spec.params[p].racy}
        return sum(
            moved * self._reloaded(elements if self.spec.params[p].map is None else targets, self._row_bytes(p))
            for p, moved in read.items()
        )

    def reloads_of_maps(self) -> float:
        """Bytes of maps that come from memory again when targets ask for the rows of their elements."""
        if not self.spec.racy_maps:
            return 0.0
        stored = [one for m in self.counts.used_maps if not (one := self.spec.maps[m]).formula]
        widths = [one.arity * one.entry_bytes for one in stored]
        return self.counts.elements * sum(width * self._reloaded(self._by_targets[1], width) for width in widths)

    def reloads_of_elements(self, row_bytes: int) -> float:
        """The same for rows of so many bytes that elements keep for their targets, in bytes per element."""
        if not self.spec.racy_maps or not row_bytes:
            return 0.0
        return row_bytes * self._reloaded(self._by_targets[1], row_bytes)

    def target_reuse(self) -> float:
        """The share of the slots whose target the next element has, too; of the racy map where it is least."""
        return min((target_reuse(self._written_rows(m)) for m in self.spec.racy_maps), default=0.0)

    def contention(self) -> float:
        """The share of the updates that go to rows whose components lie together."""
        racy = [self.spec.params[o.param] for o in self.spec.racy_outputs]
        return sum(p.dim > 1 and p.layout.kind == "aos" for p in racy) / len(racy) if racy else 0.0

    def tiles(self) -> float:
        """Blocks of consecutive targets that an element touches on average, summed over the racy maps."""
        chosen, total = sampled_blocks(self.counts.elements, self.block), 0.0
        for m in self.spec.racy_maps:
            written = self._written_rows(m)
            rows = [np.sort(written[first:last] // self.block, axis=1) for first, last in chosen]
            if rows:
                blocks = np.concatenate(rows)
                total += 1.0 + float(np.count_nonzero(np.diff(blocks, axis=1))) / len(blocks)
        return total

    def colors(self) -> tuple[float, int]:
        """About how many colors do blocks of elements need, and how many blocks are there?"""
        elements = self.counts.elements
        block = serving(SERIAL).block(self.target, elements)
        blocks = -(-elements // block)
        sizes = {m: self.counts.maps[m].target.total for m in self.spec.racy_maps}
        conflicts = sum(conflicting_blocks(self._written_rows(m), size, block) for m, size in sizes.items())
        return greedy_colors(conflicts, blocks), blocks

    def _moved(self) -> dict[int, float]:
        """Compulsory bytes of each parameter."""
        weight: dict[tuple[int, int], int] = {}
        for (p, _, comp), times in self.counts.accesses.items():
            weight[p, comp] = max(weight.get((p, comp), 0), times)
        moved: dict[int, float] = {}
        for (p, comp), times in weight.items():
            size = self.spec.params[p].dtype.itemsize
            moved[p] = moved.get(p, 0.0) + times * size * self.counts.distinct_rows(p, comp)
        return moved

    def _row_bytes(self, p: int) -> int:
        """Bytes of a field that lie together for one element."""
        described = self.spec.params[p]
        return described.dtype.itemsize * (described.dim if described.layout.kind == "aos" else 1)
