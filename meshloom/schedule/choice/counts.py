"""What a loop costs: flops by kind, and bytes three ways.

*issued*: every access of every element. *compulsory*: each datum once, maps included, what is incremented read and
written (the ``sum w S`` of the locality paper). *lines*: whole cache lines, each once per block, from the real maps,
layouts and block size; large loops are sampled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from meshloom.kernel.count import (
    arithmetic,
    combining_flops,
    combining_instructions,
    flops_by_kind,
    instructions,
    loads,
)
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.markup import table
from meshloom.mesh.core import Field
from meshloom.native.algorithms import distinct
from meshloom.order import sampled_blocks
from meshloom.records import dataclass
from meshloom.schedule.choice.accesses import Accesses
from meshloom.schedule.choice.cost import Work
from meshloom.schedule.choice.loads import OrderOfLoop
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.common.gather import columns_of
from meshloom.target import Target

LINE = 64  # bytes


@dataclass(frozen=True)
class Bytes:
    """Bytes of one execution of the loop; see the module."""

    issued: int
    compulsory: int
    cache_lines: int


class Counts(Accesses):
    """Counts of a loop over its set. ``flops`` and ``flops_by_kind`` are per element, ``bytes`` per execution."""

    def __repr__(self) -> str:
        return f"Counts({self.spec.name}: {self.flops} flops per element, {self.compulsory:,} compulsory bytes)"

    def _repr_html_(self) -> str:
        """Figures for a notebook; cache lines, which take long to count, where they are known already."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.flops_by_kind.items() if count)
        known = vars(self).get("bytes")
        rows: list[tuple[object, object]] = [
            ("elements", f"{self.elements:,}"),
            ("flops", f"{self.flops} each: {kinds or 'none'}"),
            ("bytes issued", f"{self._issued():,}"),
            ("bytes compulsory", f"{self.compulsory:,}, {self.bytes_per_flop:.3g} for each flop"),
            *([("bytes in cache lines", f"{known.cache_lines:,}")] if known else []),
        ]
        return table(f"Counts of {self.spec.name}", rows)

    @cached_property
    def flops_by_kind(self) -> dict[str, int]:
        """Operations per element by kind: add, mul, div, sqrt, minmax, special; sign, select and integer apart."""
        total = flops_by_kind(self._roots)
        for kind, count in combining_flops(self.spec.params, self.spec.outputs).items():
            total[kind] = total.get(kind, 0) + count
        return total

    @property
    def flops(self) -> int:
        """Floating-point operations per element."""
        return arithmetic(self.flops_by_kind)

    @cached_property
    def bytes(self) -> Bytes:
        """Bytes three ways, for one execution."""
        return Bytes(self._issued(), self.compulsory, self._cache_lines())

    def _issued(self) -> int:
        values = sum(times * self.spec.params[p].dtype.itemsize for (p, _, _), times in self.accesses.items())
        entries = {(self.spec.params[p].map, slot) for p, slot, _ in self.accesses}
        indices = sum(self.spec.maps[m].entry_bytes for m, _ in entries if m is not None)
        return self.elements * (values + indices)

    @cached_property
    def compulsory(self) -> int:
        """Those of ``bytes``, by themselves: counting cache lines takes much longer."""
        total = sum(self.elements * self.spec.maps[m].arity * self.spec.maps[m].entry_bytes for m in self.used_maps)
        weight: dict[tuple[int, int], int] = {}
        for (p, _, comp), times in self.accesses.items():
            weight[p, comp] = max(weight.get((p, comp), 0), times)
        for (p, comp), times in weight.items():
            total += times * self.distinct_rows(p, comp) * self.spec.params[p].dtype.itemsize
        return total

    def _cache_lines(self) -> int:
        """Lines touched by blocks of consecutive elements, sampled evenly, times the size of a line."""
        chosen = sampled_blocks(self.elements, self.block)
        visited = sum(last - first for first, last in chosen)
        total = sum(self._lines_of_block(first, last) for first, last in chosen)
        return round(total * LINE * self.elements / visited) if visited else 0

    def _lines_of_block(self, first: int, last: int) -> int:
        total = sum(
            -(-(last - first) * self.spec.maps[m].arity * self.spec.maps[m].entry_bytes // LINE) for m in self.used_maps
        )
        touched: dict[int, list[np.ndarray]] = {}
        weight: dict[int, int] = {}
        for (p, slot, comp), times in self.accesses.items():
            touched.setdefault(p, []).append(self._addresses(p, self._rows(p, slot, first, last), comp) // LINE)
            weight[p] = max(weight.get(p, 0), times)
        return total + sum(weight[p] * len(distinct(np.concatenate(parts))) for p, parts in touched.items())

    def _rows(self, param: int, slot: int, first: int, last: int) -> np.ndarray:
        described = self.spec.params[param]
        if described.map is not None:
            return self.maps[described.map].positions[first:last, slot].astype(np.int64)
        if self.box is None:
            return np.arange(first, last)
        return self.box.rows(described.offsets[slot] if described.offsets else None, first, last)

    def _addresses(self, param: int, rows: np.ndarray, comp: int) -> np.ndarray:
        described, storage = self.spec.params[param], self.storages[param]
        dim, layout, size = described.dim, described.layout, described.dtype.itemsize
        if layout.kind == "soa":  # as it would lie in that layout, which need not be the field's yet
            total = storage.set.total if isinstance(storage, Field) else 1
            return (comp * layout.stride(total) + rows) * size
        if layout.kind == "aosoa":
            return (rows // layout.width * dim * layout.width + comp * layout.width + rows % layout.width) * size
        return (rows * dim + comp) * size

    @property
    def vector_scalar_ratio(self) -> float:
        """V/S: values of vector fields (dim above 1) per value of scalar fields that an element accesses."""
        vector = sum(1 for p, _, _ in self.accesses if self.spec.params[p].dim > 1)
        scalar = len(self.accesses) - vector
        return vector / scalar if scalar else math.inf

    @property
    def bytes_per_flop(self) -> float:
        """B/F: compulsory bytes per floating-point operation."""
        flops = self.flops * self.elements
        return self.compulsory / flops if flops else math.inf

    @cached_property
    def reuse(self) -> float:
        """How often a target of the racy (else the first) map is used per load by a block of consecutive elements."""
        numbers = self.spec.racy_maps or self.used_maps
        chosen = sampled_blocks(self.elements, self.block)
        if not numbers or not chosen:
            return 1.0
        indices = self.maps[numbers[0]].positions
        loaded = sum(len(distinct(indices[first:last])) for first, last in chosen)
        return sum(indices[first:last].size for first, last in chosen) / loaded

    def work(self, target: Target) -> Work:
        """The input of the cost model for some target; most of it asks the maps for their order."""
        racy, order = self.spec.racy_maps, OrderOfLoop(self, target)
        staged = sum(
            len(c.nodes) * self.spec.params[c.param].dtype.itemsize for m in racy for c in columns_of(self.spec, m)
        )
        colors, blocks = order.colors()
        reload_reads, reload_updates = order.reloads_by_elements()
        return Work(
            elements=self.elements,
            targets=sum(self.maps[m].target.total for m in racy),
            touched=sum(self.maps[m].distinct_targets for m in racy),
            incidences=self.elements * sum(len(self.spec.written_slots(m)) for m in racy),
            components=len(self.spec.racy_outputs),
            flops=float(self.flops * self.elements),
            compulsory=float(self.compulsory),
            staged=float(staged * self.elements),
            requested=float(self.elements * self._read(self._roots)),
            gathered=float(self.elements * self._read_in_visits(target)),
            tiles=order.tiles(),
            loads=order.loads(),
            reload_reads=reload_reads,
            reload_updates=reload_updates,
            reload_gathers=order.reloads_by_targets(),
            reload_maps=order.reloads_of_maps(),
            reload_stage=order.reloads_of_elements(staged) * self.elements,
            target_reuse=order.target_reuse(),
            contention=order.contention(),
            colors=colors,
            blocks=blocks,
        )

    def _read(self, roots: Sequence[Node], known: tuple[int, int] | None = None) -> int:
        """Bytes of fields that some values need, but for those of a (map, slot) that are at hand."""
        needed = [(self.spec.params[p], slot) for p, slot, _ in loads(roots)]
        return sum(p.dtype.itemsize for p, slot in needed if not p.is_global and (p.map, slot) != known)

    def _read_in_visits(self, target: Target) -> int:
        """Bytes that the targets of one element need from it and its other ends, for what it gives to each."""
        given: dict[tuple[int, int], list[Node]] = {}
        for o in self.spec.racy_outputs:
            given.setdefault((self.spec.params[o.param].map or 0, o.slot), []).append(o.value)
        rest = self._rest_of_lines if target.is_simt else lambda roots, target: 0
        return sum(self._read(roots, known=place) + rest(roots, target) for place, roots in given.items())

    def _rest_of_lines(self, roots: Sequence[Node], target: Target) -> int:
        """Bytes that are loaded as well where a visit takes a part of a long row of its element: the rest of the row,
        or of a line. They are of no use to the targets around, which take parts of other rows."""
        parts: dict[int, int] = {}
        for p, _, _ in loads(roots):
            described = self.spec.params[p]
            if described.map is None and not described.is_global:
                parts[p] = parts.get(p, 0) + described.dtype.itemsize
        rows = {p: self.spec.params[p].dim * self.spec.params[p].dtype.itemsize for p in parts}
        short, line = (int(target.gpu.layouts["long_rows"][word]) for word in ("bytes", "line"))
        return sum(max(0, min(rows[p], line) - part) for p, part in parts.items() if part < rows[p] > short)

    def __str__(self) -> str:
        kinds = ", ".join(f"{n} {k}" for k, n in self.flops_by_kind.items())
        return (
            f"{self.flops} flops per element ({kinds or 'none'}); bytes: issued {self.bytes.issued:,}, compulsory"
            f" {self.bytes.compulsory:,}, lines {self.bytes.cache_lines:,}; V/S {self.vector_scalar_ratio:.2f},"
            f" B/F {self.bytes_per_flop:.2f}"
        )


def instructions_per_element(spec: LoopSpec, outputs: Iterable[Output]) -> Counter[tuple[str, str]]:
    """What some outputs of one element take of floating-point units, by kind and type, merging them included."""
    found = tuple(outputs)
    return instructions(o.value for o in found) + combining_instructions(spec.params, found)


def flops_per_element(spec: LoopSpec, outputs: Iterable[Output]) -> float:
    """Floating-point operations for some outputs of one element, those that merge them included."""
    found = tuple(outputs)
    counted = dict(flops_by_kind(o.value for o in found))
    for kind, count in combining_flops(spec.params, found).items():
        counted[kind] = counted.get(kind, 0) + count
    return float(arithmetic(counted))
