"""The maps through which the elements of a loop meet: what every plan is made from, and checked against."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property

import numpy as np

from meshloom.mesh.box import Box
from meshloom.native.algorithms import incidence
from meshloom.records import dataclass
from meshloom.schedule.choice.symmetry import seen_alike, swapped_maps
from meshloom.schedule.spec import LoopSpec

Made = np.ndarray | Callable[[], np.ndarray]  # rows of a map, or what makes them: a formula's are made for who asks


class WhenAsked(Mapping[int, np.ndarray]):
    """Rows by the number of their map, made each time that somebody asks for them."""

    def __init__(self, made: Mapping[int, Made]):
        self._made = made

    def __getitem__(self, number: int) -> np.ndarray:
        return _rows(self._made[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _rows(made: Made) -> np.ndarray:
    return made if isinstance(made, np.ndarray) else made()


@dataclass(frozen=True)
class Topology:
    """The maps through which a loop's elements meet. ``maps``: map number -> (indices (n, arity), number of targets).

    ``spaces`` numbers the target set of each map: maps into one set conflict with each other. ``order`` is the order
    in which elements are visited, None as given. ``in_order``: are the terms of a target to be added in the order of
    elements, because the kernel is strict or results are to be reproducible? ``written``: of maps through some of whose
    slots nothing is given, the others: elements do not meet at targets that they only read. ``alike``: maps through
    which an element gives the same to the last bit, seen from either side.
    """

    elements: int
    maps: dict[int, tuple[np.ndarray, int]]
    spaces: dict[int, int]
    order: np.ndarray | None = None
    digest: str = ""
    others: Mapping[int, np.ndarray] = field(default_factory=dict)  # the loop's other maps, only read through
    swapped: dict[int, frozenset[int]] = field(default_factory=dict)  # symmetric maps: see symmetry.py
    box: Box | None = None  # of a loop over a grid, and what is done there
    spec: LoopSpec | None = None
    in_order: bool = False
    written: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    alike: frozenset[int] = frozenset()

    @cached_property
    def visit(self) -> np.ndarray:
        """Elements in the order of visit."""
        return self.order if self.order is not None else np.arange(self.elements, dtype=self.index_type)

    @property
    def index_type(self) -> np.dtype:
        largest = max(
            [
                self.elements * max((i.shape[1] for i, _ in self.maps.values()), default=1),
                *(t for _, t in self.maps.values()),
            ]
        )
        return np.dtype(np.int32 if largest < 2**31 else np.int64)

    def rows(self) -> dict[int, np.ndarray]:
        """The rows (elements, arity) of all maps of the loop, racy or only read through, by number."""
        racy = {m: indices for m, (indices, _) in self.maps.items()}
        return {m: indices[: self.elements] for m, indices in sorted((racy | dict(self.others)).items())}

    def slots(self, number: int) -> tuple[int, ...]:
        """Those of a racy map through which elements give something."""
        return self.written.get(number) or tuple(range(self.maps[number][0].shape[1]))

    def written_rows(self, number: int) -> np.ndarray:
        """(elements, slots): where these lead."""
        rows = self.maps[number][0][: self.elements]
        return np.ascontiguousarray(rows[:, self.written[number]] if number in self.written else rows)

    def conflicts(self) -> tuple[list[np.ndarray], list[int]]:
        """Index arrays and target counts, one for each target set (maps into one set side by side)."""
        arrays, counts = [], []
        for space in sorted(set(self.spaces.values())):
            members = [m for m in self.maps if self.spaces[m] == space]
            parts = [self.written_rows(m) for m in members]
            arrays.append(np.ascontiguousarray(np.concatenate(parts, axis=1)) if len(parts) > 1 else parts[0])
            counts.append(self.maps[members[0]][1])
        return arrays, counts

    def incidence(self, map_number: int) -> tuple[np.ndarray, np.ndarray]:
        """For each target the entries (element*arity + slot) that lead to it, ascending: (offsets, entries)."""
        offsets, entries = incidence(self.written_rows(map_number), self.maps[map_number][1])
        return offsets, self.entries(map_number, entries)

    def entries(self, number: int, packed: np.ndarray) -> np.ndarray:
        """Entries (element * arity + slot) of a map, from those of its ``written_rows``."""
        if number not in self.written:
            return packed
        slots = np.array(self.written[number], packed.dtype)
        element, slot = np.divmod(packed, len(slots))
        return (element.astype(self.index_type) * self.maps[number][0].shape[1] + slots[slot]).astype(self.index_type)

    def packed(self, number: int, entries: np.ndarray) -> np.ndarray:
        """The other way round; -1 for an entry through which nothing is given."""
        if number not in self.written:
            return entries
        slots, arity = self.written[number], self.maps[number][0].shape[1]
        place = np.full(arity, -1, entries.dtype)
        place[list(slots)] = range(len(slots))
        element, slot = np.divmod(entries, arity)
        return np.where(place[slot] < 0, -1, element * len(slots) + place[slot]).astype(entries.dtype)


def topology(
    spec: LoopSpec,
    elements: int,
    maps: Mapping[int, tuple[Made, int, str]],
    order: np.ndarray | None = None,
    box: Box | None = None,
) -> Topology:
    """The racy part of a loop; ``maps``: map number -> (indices, or what makes them, number of targets, digest)."""
    racy = spec.racy_maps
    described = (f"{m}:{spec.maps[m].target}:{maps[m][2]}:{m in racy}" for m in maps)
    swapped = {m: found for m in racy if (found := swapped_maps(spec, m)) is not None}
    in_order = ["in order"] if spec.in_order and swapped else []
    slots = {m: spec.written_slots(m) for m in racy}
    written = {m: some for m, some in slots.items() if len(some) < spec.maps[m].arity}
    some = [f"written {written}"] if written else []
    alike = frozenset(m for m in racy if seen_alike(spec, m))
    sides = [str({m: sorted(s) for m, s in swapped.items()}), *([f"alike {sorted(alike)}"] if alike else [])]
    text = "|".join([str(elements), *described, *sides, *in_order, *some])
    digest = hashlib.sha256(text.encode())
    if order is not None:
        digest.update(np.ascontiguousarray(order).data)
    return Topology(
        elements,
        {m: (_rows(maps[m][0]), maps[m][1]) for m in racy},
        {m: spec.maps[m].target for m in racy},
        order,
        digest.hexdigest(),
        WhenAsked({m: maps[m][0] for m in maps if m not in racy}),
        swapped,
        box,
        spec if box is not None else None,
        spec.in_order,
        written,
        alike,
    )
