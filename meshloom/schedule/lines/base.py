"""What every method along lines answers: does it apply, how are lines cut up, what plan and code it needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from meshloom.schedule.choice.candidate import Candidate
from meshloom.schedule.lines.spec import LineGeometry, LineSpec, LineTiling
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.nest.contraction import contracted
from meshloom.schedule.plan.emitter import Emitter
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.target import CPU, Target


class LineMethod(Emitter):
    """A method that solves along lines."""

    summary: ClassVar[str] = ""

    def declines(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> str | None:
        """Why this method cannot do it; None when it can."""
        return None

    @abstractmethod
    def tilings(
        self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target
    ) -> tuple[Candidate[LineTiling], ...]:
        """How lines may be cut up, ranked: the first is taken. ``wish``: entries of it that somebody asked for."""

    @abstractmethod
    def plan(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> Plan:
        """Tables and sizes for lines of this length."""

    def passes(self, spec: LoopSpec, plan: Plan, *, target: Target = CPU) -> list[Pass]:
        assert isinstance(spec, LineSpec)
        found = self.line_passes(spec, plan, target=target)
        return [replace(one, phases=tuple([replace(phase, body=contracted(phase.body)) for phase in one.phases]))
                for one in found]  # fmt: skip

    @abstractmethod
    def line_passes(self, spec: LineSpec, plan: Plan, *, target: Target) -> list[Pass]:
        """The passes to emit."""
