"""What a fused program is: steps that are done once, and for every replay; and which of several takes less time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from meshloom.errors import one_line
from meshloom.mesh.core import Field
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.cost import seconds_by_count
from meshloom.operation.fusion.groups import fusion_blocker
from meshloom.operation.operation import Operation
from meshloom.records import dataclass
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.schedule.choice.cost import Cost
from meshloom.target import Rates, Target


@dataclass(frozen=True, eq=False, repr=False)
class FusedProgram(Dataflow):
    """The graph of a program with its loops fused: ``prologue`` once, then ``operations`` for every replay.
    ``constants``: what fields must hold at the start. ``gathers``: could loops over other sets take part? Where that
    would have gained too little they could not.
    ``notes``: what loops compute again instead of loading it, and what not. ``register_bound``: loops
    that could be one with others, and are not, because of register pressure."""

    operations: tuple[Operation, ...]
    prologue: tuple[Operation, ...] = ()
    constants: Mapping[Field, float] = field(default_factory=dict)
    gathers: bool = True
    notes: tuple[str, ...] = ()
    register_bound: frozenset[Operation] = frozenset()

    @cached_property
    def unfused(self) -> bool:
        """Is nothing of it fused, on a CPU, where the loops by themselves are best?"""
        steps = (*self.prologue, *self.operations)
        together = any(step.backend.target.is_simt for step in steps if not step.domain.all_memory)
        return not together and not any(step.composed for step in steps)

    def seconds(self, rates: Rates, of: Callable[[Operation, Rates], float] = seconds_by_count) -> float:
        """Estimated for one replay; the same steps in another order take the same time, to the last bit. What sets a
        Global takes none. ``of``: the estimate of a step (``fusion/cost.py`` has two, and says why).

        On a GPU arithmetic is nearly free, and bytes and registers decide. A CPU pays for elements that two chunks
        evaluate, and a buffer that has to be copied back may cost more than a loop that is saved.
        """
        counted = (step for step in self.operations if step.domain.set is not None)
        return math.fsum(of(step, rates) for step in counted)

    def _apart(self, step: Operation) -> str:
        """That a loop runs by itself, and why."""
        if step.domain.all_memory:
            return ""
        if step.composed:
            return f" over {step.over}" if step.domain.visits_elements else " in one pass over its lines"
        pressure = "register pressure would be too high with the loop next to it" if step in self.register_bound else ""
        why = fusion_blocker(step, gathers=self.gathers) or pressure
        return f" by itself{f': {why}' if why else ': it cannot join a loop next to it'}"

    def explain(self, measured: Sequence[float] = ()) -> str:
        """One line for every step; ``measured``: seconds of each, where they are known."""
        if self.unfused:
            mixed = len({step.strict for step in self.operations if step.domain.visits_elements}) > 1
            notes = (*self.notes, *(["strict loops and others stay apart"] if mixed else ()))
            return "\n  ".join(["loop by loop: no loops would be faster as one", *map(one_line, notes)])
        text_lines = ["fused program, each replay:"]
        for k, step in enumerate(self.operations):
            took = f"; measured {1e3 * measured[k]:.4g} ms" if len(measured) and math.isfinite(measured[k]) else ""
            as_one = step.policy.as_one
            text_lines.append(f"  {step.explain() if as_one else step.name + self._apart(step)}{took}")
        text_lines += [f"  {note}" for note in self.notes]
        if self.prologue:
            names = " + ".join(step.name for step in self.prologue)
            text_lines.append(f"  before the first one: {names}; later ones find it done by the one before")
        text_lines += [f"  {f.name} is {v:g} everywhere between replays, so it is "
                       + ("not loaded at the start of one" if f in self.written else "neither loaded nor stored")
                       for f, v in self.constants.items()]  # fmt: skip
        return "\n".join(map(one_line, text_lines))


def ranked(programs: Iterable[FusedProgram], target: Target) -> tuple[Candidate[FusedProgram], ...]:
    """Fused programs, ranked by the time of a replay; whoever takes one takes the first of equals.

    A prologue is done once for every run, so that many replays share what it moves, and it counts for nothing. On a GPU
    its launches count as if every replay had them: the host starts them one by one, where those of a replay follow each
    other by themselves, and as many less in every replay do not make up for that.
    """
    return rank(_candidate(one, target) for one in programs)


def _candidate(one: FusedProgram, target: Target) -> Candidate[FusedProgram]:
    launches = len(one.prologue) if target.is_simt else 0
    parts = {"steps": one.seconds(target.rates), "prologue": Cost(0.0, 0.0, launches=launches).seconds(target.rates)}
    found = Candidate(one, parts, {"steps": len(one.operations), "prologue": len(one.prologue)})
    return replace(found, ranked_by=float(f"{found.seconds:.9g}"))  # the same work, added up otherwise, is as long
