"""What the methods next to ``segmented`` share: they solve A x = f, one operand after the other, a line as a whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.base import LineMethod, LinePlan, line_places
from meshloom.schedule.lines.spec import LineForm, LineGeometry, LinePointCode, LineSpec
from meshloom.schedule.lines.tables import FactorTables
from meshloom.schedule.lines.terms import ALONG_LINE, start_of_line
from meshloom.schedule.nest.code import Pass
from meshloom.schedule.nest.nodes import Expr, Let, Statement, let
from meshloom.schedule.plan.declare import ANY, REALS, Array, Listed, Part, PlanNumber, Reals, holds
from meshloom.schedule.plan.plan import Plan, with_arrays
from meshloom.target import Target


@dataclass(frozen=True, eq=False)
class CornerTables(FactorTables):
    """LU factors of one operator (the scale in the pivots) and the correction of a periodic line."""

    corner: Reals = holds(Array(REALS, ANY), "what the ends of a periodic line add to each point")
    mix: Reals = holds(Array(REALS, 1), "the share of the last point in that")


@dataclass(frozen=True, eq=False)
class MatrixTables:
    """Rows of one operator's matrix."""

    below: Reals = holds(Array(REALS, ANY), "entries below the diagonal")
    middle: Reals = holds(Array(REALS, ANY), "the diagonal")
    above: Reals = holds(Array(REALS, ANY), "entries above the diagonal")
    scale: Reals = holds(Array(REALS, 1), "of the right-hand side")


@dataclass(frozen=True, eq=False)
class RowTables(MatrixTables):
    """Rows without corners, those beyond the end being x = 0, and the correction of a periodic line."""

    corner: Reals = holds(Array(REALS, ANY), "what the ends of a periodic line add to each point")
    mix: Reals = holds(Array(REALS, 1), "the share of the last point in that")


Tables = CornerTables | MatrixTables


@dataclass(frozen=True, eq=False)
class ClassicPlan(LinePlan):
    """Tables of the operators, for methods that take a line as a whole."""

    operators: tuple[Tables, ...] = holds(
        Listed(Part(CornerTables, MatrixTables, RowTables)), "of each distinct operator"
    )
    lines: int = holds(PlanNumber(), "how many there are")
    padded_rows: int = holds(PlanNumber(), "rows that a line is padded to")

    def blocks(self, items: int) -> int:
        return super().blocks(self.lines)


class Classic(LineMethod):
    """A method for A x = f alone."""

    plans: type[ClassicPlan] = ClassicPlan
    shared_vectors = 0  # values per point that a block keeps in shared memory; 0: none
    shared_values = 0  # beside these
    threads = 128

    def declines(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> str | None:
        if spec.systems:
            return "its coefficients are constant; only 'segmented' takes some that vary"
        if any(one.stencil.inner != {0: 1.0} or one.stencil.closures for one in spec.operators):
            return "it solves A x = f alone; only 'segmented' takes a stencil for the right-hand side"
        if len(spec.operands) > 1 and not spec.separable:
            return "it takes one operand after the other, but a result needs several of them"
        needed = (self.shared_vectors * self.rows(lines.length) + self.shared_values) * spec.dtype.itemsize
        if self.shared_vectors and target.together and needed > target.shared:
            return (
                f"a line of {lines.length} points needs {needed:,} bytes of shared memory, a block has"
                f" {target.shared:,}"
            )
        return None

    def rows(self, length: int) -> int:
        """Rows that a line is padded to."""
        return length

    def form(self, spec: LineSpec, lines: LineGeometry, wish: Mapping[str, int], *, target: Target) -> LineForm:
        return LineForm("contiguous" if lines.contiguous else "strided", 1, 0, 1)

    def plan(self, spec: LineSpec, lines: LineGeometry, *, target: Target) -> Plan:
        found = tuple(self._tables(spec, one, lines.length) for one in spec.distinct)
        block, rows = self.threads if target.together else 16, self.rows(lines.length)
        return self.plans(self.name, block, line_places(lines), found, lines.count, rows, **self.counts(lines))

    def _tables(self, spec: LineSpec, operator: OperatorAlong, n: int) -> Tables:
        return with_arrays(self.tables(operator, n), lambda t: np.ascontiguousarray(t, spec.dtype))

    def counts(self, lines: LineGeometry) -> dict[str, Any]:
        """What the plan of a method declares next to ``ClassicPlan``, by the names of its fields."""
        return {}

    @abstractmethod
    def tables(self, operator: OperatorAlong, n: int) -> Tables:
        """Tables of an operator for lines of n points."""

    def line_passes(self, spec: LineSpec, plan: Plan, *, target: Target) -> list[Pass]:
        code = LinePointCode(spec, plan)
        return [one for v in range(len(spec.operands)) for one in self.passes_of(spec, code, v, target=target)]

    @abstractmethod
    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        """The passes for one operand."""


def operand(code: LinePointCode, v: int) -> tuple[list[Statement], Expr]:
    """Statements for an operand at point ``j`` of a line, and its value."""
    computed, found = code.operands(ALONG_LINE, (v,))
    return computed, found[0]


def stored(code: LinePointCode, v: int, result: Expr) -> list[Statement]:
    """Statements that bring what the solution of an operand gives to the fields, at point ``j`` of a line."""
    return code.after(ALONG_LINE, [result], (v,))


def start_of(line: Expr) -> Let:
    """Where a line begins."""
    return let("start", start_of_line(line))


def corner_tables(operator: OperatorAlong, n: int) -> CornerTables:
    """For lines of n points."""
    made = operator.matrix.cornerless(n)
    lower, inverse, upper = made.factors.T
    return CornerTables(lower, inverse * operator.scale, upper, made.corner, np.array([made.mix]))


def row_tables(operator: OperatorAlong, n: int, padded: int) -> RowTables:
    """For lines of n points, padded to some rows."""
    made = operator.matrix.cornerless(n)
    all_rows = np.tile([0.0, 1.0, 0.0], (padded, 1))
    all_rows[:n] = made.rows
    all_rows[0, 0] = all_rows[n - 1, 2] = 0.0
    a, b, c = all_rows.T
    return RowTables(a, b, c, np.array([operator.scale]), made.corner, np.array([made.mix]))
