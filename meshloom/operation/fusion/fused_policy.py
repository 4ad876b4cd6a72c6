"""How loops that became one run: by a plan that was made with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from meshloom.kernel.count import loads, repeated
from meshloom.mesh.core import Field, Global, Map
from meshloom.operation.operation import Operation
from meshloom.operation.policy import ExecutionPolicy
from meshloom.records import dataclass
from meshloom.schedule.choice.counts import flops_per_element, instructions_per_element
from meshloom.schedule.choice.explain import REPRODUCIBLE
from meshloom.schedule.choice.per_thread import chosen_per_thread, in_words
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.fused.chunks import ChunkPlan, Touching
from meshloom.schedule.fused.fused import FusedGather, FusedPlan, FusedSpec
from meshloom.schedule.plan.plan import Plan


@dataclass(frozen=True, eq=False)
class FusedPolicy(ExecutionPolicy):
    """A group of loops as one, over the elements where they meet."""

    as_one = True
    made: FusedSpec
    by: Plan
    schedule: Schedule
    used: tuple[Map, ...]

    def maps(self, of: Operation) -> tuple[Map, ...]:
        return self.used

    def spec(self, of: Operation) -> FusedSpec:
        return self.made

    def chosen(self, of: Operation) -> tuple[Schedule, str]:
        return self.schedule, "loops of a program as one"

    def plan(self, of: Operation, schedule: Schedule | None = None) -> Plan:
        return self.by

    @property
    def gathers(self) -> Mapping[int, FusedGather | Touching]:
        """What is gathered for its elements, by the number of the map."""
        return self.by.gathers if isinstance(self.by, FusedPlan | ChunkPlan) else {}

    def evaluations(self, m: int) -> int:
        """How many times elements are evaluated for the targets of racy map ``m``."""
        found = self.gathers[m]
        return len(found.tile_elements if isinstance(found, Touching) else found.entries)

    def _rows(self, of: Operation, param: int, slots: Sequence[int]) -> int:
        """How many rows of a parameter's buffer are used, where these slots of it are read."""
        offsets = self.made.params[param].offsets
        storage = of.storages[param]
        if of.box is None:  # not all of its memory: a layout rounds that up, and where there are none there is one row
            return storage.set.total if isinstance(storage, Field) else 1
        return of.box.touched(offsets[slot] for slot in slots) if offsets else of.box.size

    def compulsory(self, of: Operation) -> int:
        """Bytes that must be moved once: every buffer read, written or both, every table and map that is used."""
        spec = self.made
        loaded = loads(o.value for o in (*spec.outputs, *spec.starts))
        read = {(param, comp) for param, _, comp in loaded}
        written = {(o.param, o.comp) for o in spec.other_outputs}
        moved: dict[tuple[Field | Global, int], int] = {}
        for k, comp in read | written:
            storage = of.storages[k]
            if not spec.params[k].is_global and not spec.params[k].racy:
                ways, place = ((k, comp) in read) + ((k, comp) in written), (storage, comp)
                rows = self._rows(of, k, [slot for param, slot, c in loaded if (param, c) == (k, comp)])
                moved[place] = max(moved.get(place, 0), ways * rows * storage.dtype.itemsize)
        every = range(len(of.maps))
        used: Collection[int] = spec.own_maps if isinstance(self.by, FusedPlan) else every
        described = ((of.maps[k], spec.maps[k]) for k in used)
        own = sum(one.source.total * one.arity * entry.entry_bytes for one, entry in described)
        return sum(moved.values()) + own + sum(one.read_by_all for one in self.gathers.values())

    def flops(self, of: Operation) -> float:
        """Those of gathered elements as often as chunks evaluate them."""
        own = of.elements * flops_per_element(self.made, (*self.made.other_outputs, *self.made.starts))
        return float(own) + sum(self._gathered(m) for m in self.made.racy_maps)

    def _gathered(self, m: int) -> float:
        """Operations of the elements of a map, each as often as chunks evaluate it."""
        outputs = [o for o in self.made.racy_outputs if self.made.params[o.param].map == m]
        return self.evaluations(m) * flops_per_element(self.made, outputs)

    def instructions(self, of: Operation) -> Counter[tuple[str, str]]:
        """The same of units of a processor."""
        own = (*self.made.other_outputs, *self.made.starts)
        found = repeated(of.elements, instructions_per_element(self.made, own))
        for m in self.made.racy_maps:
            outputs = [o for o in self.made.racy_outputs if self.made.params[o.param].map == m]
            found += repeated(self.evaluations(m), instructions_per_element(self.made, outputs))
        return found

    def words(self, of: Operation) -> str:
        """What there is to say about how it runs: what a thread of a GPU takes, or the chunks of a CPU."""
        if isinstance(self.by, FusedPlan):
            return in_words(chosen_per_thread(self.made, self.schedule, of.set.owned, of.backend.target), of.set.owned)
        visited = sum(map(self.evaluations, self.gathers))
        there = sum(of.maps[m].source.owned for m in self.gathers)
        again = f"{100 * (visited / there - 1):.0f}" if there else "0"
        chunks = f"; chunks of {min(self.by.block, of.set.owned):,}" if there else ""
        return chunks if again == "0" else f"{chunks}, {again} % evaluated again"

    def explain(self, of: Operation) -> str:
        bytes_apart = sum(part.compulsory for part in dict.fromkeys(_as_recorded(of)))
        here, apart = (f"{moved / max(of.elements, 1):.0f}" for moved in (of.compulsory, bytes_apart))
        instead = "" if here == apart else f" instead of {apart}"
        said = [*(["formulas as written (strict)"] if of.strict else []),
                *([f"sums {REPRODUCIBLE}"] if self.made.binned else [])]  # fmt: skip
        words = "".join([self.words(of), *(f", {one}" for one in said)])
        return f"{of.name} as one loop over {of.over}: {here} bytes per element{instead}{words}"


def _as_recorded(one: Operation) -> Iterator[Operation]:
    """The loops that became one, as a program has recorded them."""
    for part in one.composed:
        if part.domain.visits_elements:
            yield from _as_recorded(part) if part.composed else (part,)
