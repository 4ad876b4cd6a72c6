"""Methods that solve along lines, by name."""

from __future__ import annotations

from collections.abc import Mapping

from meshloom.errors import ScheduleError, nearest
from meshloom.kernel.count import loads
from meshloom.schedule.choice.candidate import Candidate
from meshloom.schedule.lines import on_cpu, on_gpu, systems, systems_gpu
from meshloom.schedule.lines.base import LineMethod
from meshloom.schedule.lines.reference import direct, krylov
from meshloom.schedule.lines.spec import LineGeometry, LineSpec, LineTiling
from meshloom.schedule.nest.code import COUNT, Pass
from meshloom.schedule.plan.emitter import Emitter, Temporary
from meshloom.schedule.plan.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.target import Target

__all__ = ["LineMethod", "Segmented", "direct", "krylov", "method", "names"]


class Segmented(LineMethod):
    """One pass. On a GPU a line is cut into segments that threads hold in registers, joined by the carries of only so
    many neighbours as count in this precision; on a CPU a thread sweeps along some lines side by side."""

    name = "segmented"
    summary = "one pass: segments of lines in registers, joined by the carries of their neighbours"

    def tilings(
        self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target
    ) -> tuple[Candidate[LineTiling], ...]:
        if not target.is_simt:
            return on_cpu.tilings(spec, lines, target)
        if spec.systems:
            return systems.tilings(spec, lines, wish, target)
        return (Candidate(on_gpu.tiling(spec, lines, wish, target)),)

    def plan(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> Plan:
        if spec.systems:
            return systems.plan(self.name, spec, lines, target)
        return (on_gpu if target.is_simt else on_cpu).plan(self.name, spec, lines)

    def declines(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> str | None:
        in_place = {p for p, _, _ in loads(spec.operands)} & {o.param for o in spec.results}
        if spec.systems or not target.is_simt or not in_place or on_gpu.cut_of(spec, lines).chunks == 1:
            return None
        return (
            f"a line of {lines.length} points goes to several blocks, so it cannot be solved in place; use a second"
            " field"
        )

    def temporaries(self, spec: LoopSpec, plan: Plan) -> list[Temporary]:
        assert isinstance(spec, LineSpec)
        if spec.systems:
            return [("work", spec.dtype, COUNT * spec.values)] if spec.tiling.kind == systems.SWEPT else []
        return [("ends", spec.dtype, COUNT * on_gpu.ends_per_point(spec))] if spec.tiling.levels == 2 else []

    def line_passes(self, spec: LineSpec, plan: Plan, *, target: Target) -> list[Pass]:
        if not target.is_simt:
            return [(on_cpu.SystemsSweep if spec.systems else on_cpu.SweepNest)(spec, plan).made()]
        if spec.systems:
            return systems_gpu.passes(spec, plan, target.gpu.systems.unrolled_segments)
        return on_gpu.passes(spec, plan)


def method(name: str) -> LineMethod:
    """A method by name; "auto" is the one-pass solver."""
    found = Emitter.registry.get("segmented" if name == "auto" else name)
    if not isinstance(found, LineMethod):
        raise ScheduleError(f"unknown method '{name}' for lines{nearest(name, ('auto', *names()))}")
    return found


def names() -> tuple[str, ...]:
    """The methods by name."""
    return tuple(n for n, one in Emitter.registry.items() if isinstance(one, LineMethod))
