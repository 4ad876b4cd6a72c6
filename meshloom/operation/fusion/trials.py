"""Graphs of a program that are weighed against each other, by what they take when they are fused."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.cost import seconds_at_points
from meshloom.operation.fusion.fused_program import FusedProgram


class Trials:
    """What a pass asks that does something where the whole program then takes less time. ``fuse``: gives the program of
    a graph, which takes long, so each is fused once; ``notes``: what there is to say of what was done or not."""

    def __init__(self, fuse: Callable[[Dataflow], FusedProgram]):
        self._fuse = fuse
        self._fused: dict[Dataflow, FusedProgram] = {}
        self._seconds: dict[Dataflow, float] = {}
        self._notes: dict[str, None] = {}

    def fused(self, graph: Dataflow) -> FusedProgram:
        """The program of a graph."""
        if graph not in self._fused:
            self._fused[graph] = self._fuse(graph)
        return self._fused[graph]

    def seconds(self, graph: Dataflow) -> float:
        """Estimated for one replay of it."""
        if graph not in self._seconds:
            program = self.fused(graph)
            (rates,) = {step.backend.target.rates for step in program.operations if not step.domain.all_memory}
            self._seconds[graph] = program.seconds(rates, seconds_at_points)
        return self._seconds[graph]

    def forget(self, graph: Dataflow) -> None:
        """Another one was better: its buffers are needed no more."""
        del self._fused[graph], self._seconds[graph]

    def note(self, *texts: str) -> None:
        """Something to say, once."""
        self._notes |= dict.fromkeys(texts)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)
