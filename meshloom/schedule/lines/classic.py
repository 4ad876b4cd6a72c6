"""What the methods beside ``segmented`` share: they solve A x = f, one operand after the other, a line as a whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.schedule.code import Pass
from meshloom.schedule.declare import ANY, REALS, Array, Listed, Number, Part, Reals, holds
from meshloom.schedule.lines.base import LineMethod, LinePlan, line_places
from meshloom.schedule.lines.operator import LineOperator, lu
from meshloom.schedule.lines.spec import Geometry, LineForm, LinePointCode, LineSpec
from meshloom.schedule.plan import Plan, with_arrays
from meshloom.target import Target

#: The point that item ``i``, a line, begins at.
START_OF_LINE = "offset + ((i / lanes) / inner) * outer_step + ((i / lanes) % inner) * inner_step + i % lanes"


@dataclass(frozen=True, eq=False)
class FactorTables:
    """LU factors of one operator (the scale in the pivots) and the correction of a periodic line."""

    lower: Reals = holds(Array(REALS, ANY), "factors of the sweep forwards")
    inverse: Reals = holds(Array(REALS, ANY), "inverse pivots, scaled")
    upper: Reals = holds(Array(REALS, ANY), "factors of the sweep backwards")
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


Tables = FactorTables | MatrixTables


@dataclass(frozen=True, eq=False)
class ClassicPlan(LinePlan):
    """Tables of the operators, for methods that take a line as a whole."""

    operators: tuple[Tables, ...] = holds(
        Listed(Part(FactorTables, MatrixTables, RowTables)), "of each distinct operator"
    )
    lines: int = holds(Number(), "how many there are")
    padded_rows: int = holds(Number(), "rows that a line is padded to")

    def blocks(self, items: int) -> int:
        return super().blocks(self.lines)


class Classic(LineMethod):
    """A method for A x = f alone."""

    plans: type[ClassicPlan] = ClassicPlan
    shared_vectors = 0  # values per point that a block keeps in shared memory; 0: none
    shared_values = 0  # beside these
    threads = 128

    def declines(self, spec: LineSpec, lines: Geometry, *, target: Target) -> str | None:
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

    def form(self, spec: LineSpec, lines: Geometry, wish: Mapping[str, int], *, target: Target) -> LineForm:
        return LineForm("contiguous" if lines.contiguous else "strided", 1, 0, 1)

    def plan(self, spec: LineSpec, lines: Geometry, *, target: Target) -> Plan:
        found = tuple(self._tables(spec, one, lines.length) for one in spec.distinct)
        block, rows = self.threads if target.together else 16, self.rows(lines.length)
        return self.plans(self.name, block, line_places(lines), found, lines.lines, rows, **self.counts(lines))

    def _tables(self, spec: LineSpec, operator: LineOperator, n: int) -> Tables:
        return with_arrays(self.tables(operator, n), lambda t: np.ascontiguousarray(t, spec.dtype))

    def counts(self, lines: Geometry) -> dict[str, Any]:
        """What the plan of a method declares beside ``ClassicPlan``, by the names of its fields."""
        return {}

    @abstractmethod
    def tables(self, operator: LineOperator, n: int) -> Tables:
        """Tables of an operator for lines of n points."""

    def line_passes(self, spec: LineSpec, plan: Plan, *, target: Target) -> list[Pass]:
        code = LinePointCode(spec, plan)
        return [one for v in range(len(spec.operands)) for one in self.passes_of(spec, code, v, target=target)]

    @abstractmethod
    def passes_of(self, spec: LineSpec, code: LinePointCode, v: int, *, target: Target) -> list[Pass]:
        """The passes for one operand."""


def operand(code: LinePointCode, v: int, element: str) -> tuple[list[str], str]:
    """Statements for an operand at a point, and its name."""
    lines, names = code.operands(element, (v,))
    return lines, names[0]


def cornerless(operator: LineOperator, n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """A matrix without corners as rows (n, 3), and z (n,), m with x = y - z (y_0 + m y_{n-1}): Sherman and Morrison.

    For a closed line the matrix itself, and z = 0.
    """
    from scipy.linalg import solve_banded

    matrix = operator.matrix
    rows = matrix.rows(n)
    if not matrix.periodic:
        return rows, np.zeros(n), 0.0
    g = -matrix.diag
    rows[0, 1] -= g
    rows[-1, 1] -= matrix.lower * matrix.upper / g
    rows[0, 0] = rows[-1, 2] = 0.0
    bands = np.zeros((3, n))
    bands[0, 1:], bands[1], bands[2, :-1] = rows[:-1, 2], rows[:, 1], rows[1:, 0]
    u = np.zeros(n)
    u[0], u[-1] = g, matrix.upper
    z, m = solve_banded((1, 1), bands, u), matrix.lower / g
    return rows, z / (1.0 + z[0] + m * z[-1]), m


def factor_tables(operator: LineOperator, n: int) -> FactorTables:
    """For lines of n points."""
    rows, z, m = cornerless(operator, n)
    lower, inverse, upper = lu(rows).T
    return FactorTables(lower, inverse * operator.scale, upper, z, np.array([m]))


def row_tables(operator: LineOperator, n: int, padded: int) -> RowTables:
    """For lines of n points, padded to some rows."""
    rows, z, m = cornerless(operator, n)
    whole = np.tile([0.0, 1.0, 0.0], (padded, 1))
    whole[:n] = rows
    whole[0, 0] = whole[n - 1, 2] = 0.0
    a, b, c = whole.T
    return RowTables(a, b, c, np.array([operator.scale]), z, np.array([m]))
