"""Ways to solve along lines, each an emitter with its own plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from meshloom.errors import ScheduleError, nearest
from meshloom.kernel.count import loads
from meshloom.schedule.code import Pass
from meshloom.schedule.lines import on_cpu, on_gpu
from meshloom.schedule.lines.spec import Geometry, LineForm, LineSpec
from meshloom.schedule.plan import Plan
from meshloom.schedule.spec import LoopSpec
from meshloom.schedule.strategies.base import Emitter


class LineMethod(Emitter):
    """A way to solve along lines."""

    summary: ClassVar[str] = ""

    def declines(self, spec: LineSpec, lines: Geometry, *, simt: bool) -> str | None:
        """Why this method cannot do it; None when it can."""
        return None

    @abstractmethod
    def form(self, spec: LineSpec, lines: Geometry, wish: Mapping[str, int], *, simt: bool) -> LineForm:
        """How lines are cut up; ``wish``: entries of the form that somebody asked for."""

    @abstractmethod
    def plan(self, spec: LineSpec, lines: Geometry, *, simt: bool) -> Plan:
        """Tables and sizes for lines of this length."""

    def registers(self, spec: LineSpec) -> int | None:
        """Registers that a thread of a GPU should do with; None: as the compiler likes."""
        return None

    def passes(self, spec: LoopSpec, plan: Plan, *, simt: bool = False) -> list[Pass]:
        assert isinstance(spec, LineSpec)
        return self.line_passes(spec, simt=simt)

    @abstractmethod
    def line_passes(self, spec: LineSpec, *, simt: bool) -> list[Pass]:
        """The passes to emit."""


def line_sizes(lines: Geometry) -> dict[str, int]:
    """Sizes that say where lines are, by the names that generated code uses."""
    return {"length": lines.length, "step": lines.step, "lanes": lines.lanes, "outer": lines.outer,
            "inner": lines.inner, "outer_step": lines.outer_step, "inner_step": lines.inner_step,
            "offset": lines.offset}  # fmt: skip


def in_place(spec: LineSpec) -> bool:
    """Is a field written that the operands are made of?"""
    return bool({p for p, _, _ in loads(spec.operands)} & {o.param for o in spec.results})


class Segmented(LineMethod):
    """One pass. On a GPU a line is cut into segments that threads hold in registers, joined by the carries of only so
    many neighbours as count in this precision; on a CPU a thread sweeps along some lines side by side."""

    name = "segmented"
    summary = "one pass: segments of lines in registers, joined by the carries of their neighbours"

    def form(self, spec: LineSpec, lines: Geometry, wish: Mapping[str, int], *, simt: bool) -> LineForm:
        return on_gpu.form(spec, lines, wish) if simt else on_cpu.form(spec, lines)

    def plan(self, spec: LineSpec, lines: Geometry, *, simt: bool) -> Plan:
        if not simt:
            arrays, sizes = on_cpu.arrays(spec, lines)
            return Plan(self.name, 1, arrays, line_sizes(lines) | sizes)
        arrays, sizes, threads = on_gpu.arrays(spec, lines)
        return Plan(self.name, threads, arrays, line_sizes(lines) | sizes)

    def declines(self, spec: LineSpec, lines: Geometry, *, simt: bool) -> str | None:
        if not simt or not on_gpu.in_parts(spec, lines) or not in_place(spec):
            return None
        return f"a line of {lines.length} points goes to several blocks, so it cannot be solved in place; use a second field"

    def temporaries(self, spec: LoopSpec) -> list[tuple[str, np.dtype, int]]:
        assert isinstance(spec, LineSpec)
        return [("ends", spec.dtype, 1)] if spec.form.levels == 2 else []

    def registers(self, spec: LineSpec) -> int | None:
        return on_gpu.registers(spec)

    def line_passes(self, spec: LineSpec, *, simt: bool) -> list[Pass]:
        return on_gpu.passes(spec) if simt else on_cpu.passes(spec)


def method(name: str) -> LineMethod:
    """A method by name; "auto" is the fastest there is."""
    found = Emitter.registry.get("segmented" if name == "auto" else name)
    if not isinstance(found, LineMethod):
        raise ScheduleError(f"unknown method '{name}' for lines{nearest(name, ('auto', *names()))}")
    return found


def names() -> tuple[str, ...]:
    """The methods by name."""
    return tuple(n for n, one in Emitter.registry.items() if isinstance(one, LineMethod))
