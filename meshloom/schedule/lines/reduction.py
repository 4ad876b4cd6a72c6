"""cyclic_reduction and pcr: a block solves a line in shared memory, in as many steps as the line has doublings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshloom.schedule.code import ROUND, Pass, Phase, Scratch
from meshloom.schedule.declare import Number, holds
from meshloom.schedule.lines.classic import START_OF_LINE, Classic, ClassicPlan, RowTables, operand, row_tables
from meshloom.schedule.lines.operator import LineOperator
from meshloom.schedule.lines.spec import Geometry, LinePointCode, LineSpec
from meshloom.schedule.lines.text import raw
from meshloom.schedule.nest.nodes import INDEX, Cast, Grouped, Name, value
from meshloom.target import Target

ROWS, DOUBLINGS = Name("padded_rows"), Name("doublings")
_ROWS = ("below", "middle", "above")


@dataclass(frozen=True, eq=False)
class ReductionPlan(ClassicPlan):
    """A line in as many steps as it has doublings."""

    doublings: int = holds(Number(), "of one row to all")


class _Reduction(Classic):
    plans = ReductionPlan

    def rows(self, length: int) -> int:
        return 1 << (length - 1).bit_length()

    def tables(self, operator: LineOperator, n: int) -> RowTables:
        return row_tables(operator, n, self.rows(n))

    def counts(self, lines: Geometry) -> dict[str, Any]:
        return {"doublings": self.rows(lines.length).bit_length() - 1}

    def start(self, spec: LineSpec, code: LinePointCode, v: int) -> Phase:
        """Rows and right-hand sides of the block's line to shared memory."""
        k = spec.number(v)
        load, name = operand(code, v, "start + j * step")
        rows = [f"s_{row}[j] = {code.table(k, row)}[j];" for row in _ROWS]
        right = f"s_right[j] = {name} * {code.table(k, 'scale')}[0];"
        body = ["const ml_index j = i;", *rows, "s_right[j] = 0;",
                "if (j < length) {", *start_of_block(), *load, right, "}"]  # fmt: skip
        return Phase(raw(body), value(0), ROWS)

    def finish(self, spec: LineSpec, code: LinePointCode, v: int, solution: str) -> Phase:
        """The solution, corrected on a periodic line, to the fields. ``solution``: C expression with {}."""
        k, t = spec.number(v), spec.ctype
        x = solution.format("j")
        if spec.periodic:
            ends = f"({solution.format('0')} + {code.table(k, 'mix')}[0] * {solution.format('length - 1')})"
            x = f"{x} - {code.table(k, 'corner')}[j] * {ends}"
        body = ["const ml_index j = i;", *start_of_block(), f"const {t} x = {x};",
                *code.after("start + j * step", ["x"], (v,))]  # fmt: skip
        return Phase(raw(body), value(0), Name("length"))

    def scratch(self, spec: LineSpec, copies: int) -> tuple[Scratch, ...]:
        return tuple(Scratch(spec.ctype, f"s_{n}", copies * ROWS) for n in (*_ROWS, "right"))


def start_of_block() -> list[str]:
    """Where the block's line begins."""
    place = START_OF_LINE.replace("(i / lanes)", "(b / lanes)").replace("i % lanes", "b % lanes")
    return [f"const ml_index start = {place};"]


class CyclicReduction(_Reduction):
    """Half of the unknowns is eliminated in each step, and found again on the way back. Threads that work are
    neighbours, as in the sum of a tree: equation k of a step belongs to thread k."""

    name = "cyclic_reduction"
    summary = "a line in shared memory, halved in every step"
    shared_vectors = 4

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        t = spec.ctype
        halve = (
            "const ml_index h = (ml_index)1 << c, k = (i + 1) * 2 * h - 1, up = k + h;",
            "const bool there = up < padded_rows;",
            f"const {t} alpha = -s_below[k] / s_middle[k - h], gamma = there ? -s_above[k] / s_middle[up] : 0;",
            "s_middle[k] += alpha * s_above[k - h] + (there ? gamma * s_below[up] : 0);",
            "s_right[k] += alpha * s_right[k - h] + (there ? gamma * s_right[up] : 0);",
            "s_below[k] = alpha * s_below[k - h];",
            "s_above[k] = there ? gamma * s_above[up] : 0;",
        )
        back = (
            "const ml_index h = padded_rows >> (c + 1), k = i * 2 * h + h - 1;",
            f"const {t} before = k >= h ? s_right[k - h] : 0;",
            "s_right[k] = (s_right[k] - s_below[k] * before - s_above[k] * s_right[k + h]) / s_middle[k];",
        )
        last = ("s_right[padded_rows - 1] /= s_middle[padded_rows - 1];",)
        phases = (
            self.start(spec, code, v),
            Phase(raw(halve), value(0), ROWS >> Grouped(ROUND + 1), repeat=DOUBLINGS),
            Phase(raw(last), value(0), value(1)),
            Phase(raw(back), value(0), Cast(INDEX, value(1)) << ROUND, repeat=DOUBLINGS),
            self.finish(spec, code, v, "s_right[{}]"),
        )
        return [Pass("halved", Name("lines"), phases, blocked=True, scratch=self.scratch(spec, 1))]


class ParallelCyclicReduction(_Reduction):
    """Every equation loses its neighbours in each step, until it stands alone: twice the shared memory, half the
    steps, no thread idle."""

    name = "pcr"
    summary = "a line in shared memory, every equation reduced in every step"
    shared_vectors = 8

    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        t = spec.ctype
        reduce = (
            "const ml_index h = (ml_index)1 << c, old = (c & 1) * padded_rows, now = padded_rows - old, k = i;",
            "const ml_index m = old + ml_max<ml_index>(k - h, 0), o = old + k;",
            "const ml_index p = old + ml_min<ml_index>(k + h, padded_rows - 1);",
            f"const {t} alpha = k >= h ? -s_below[o] / s_middle[m] : 0;",
            f"const {t} gamma = k + h < padded_rows ? -s_above[o] / s_middle[p] : 0;",
            "s_middle[now + k] = s_middle[o] + alpha * s_above[m] + gamma * s_below[p];",
            "s_right[now + k] = s_right[o] + alpha * s_right[m] + gamma * s_right[p];",
            "s_below[now + k] = alpha * s_below[m];",
            "s_above[now + k] = gamma * s_above[p];",
        )
        at = "(doublings & 1) * padded_rows + {0}"
        phases = (
            self.start(spec, code, v),
            Phase(raw(reduce), value(0), ROWS, repeat=DOUBLINGS),
            self.finish(spec, code, v, f"(s_right[{at}] / s_middle[{at}])"),
        )
        return [Pass("reduced", Name("lines"), phases, blocked=True, scratch=self.scratch(spec, 2))]
