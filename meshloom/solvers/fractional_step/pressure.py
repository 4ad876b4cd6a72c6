"""The pressure that makes the flow free of divergence: Poisson's equation, solved directly or by multigrid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import ConfigError, SolveError
from meshloom.solvers.fractional_step.cells import CellGrid

AUTO, FAST, MULTIGRID = SOLVERS = ("auto", "fast", "multigrid")
LEAST_SINGLE = 1e-5  # the least tolerance in single precision
ROUNDING = 100.0  # times that: what rounding may leave there where widths of cells differ much


class PressureSolver:
    """``solve()``: the pressure from its right-hand side ``b``, both fields of the cells; ``record()``: at every replay
    of a program.

    No slope is given at any side, so the pressure is known but for a constant, and has no mean.
    """

    def __init__(self, cells: CellGrid, solver: str = AUTO, tolerance: float = 1e-10):
        self.p, self.b = (cells.grid.field(name, dtype=cells.dtype) for name in ("pressure", "pressure_source"))
        edges = [None if one.even and one.periodic else one.edges for one in cells.axes]
        self.poisson = ml.linalg.Poisson(cells.grid, edges=edges, dtype=cells.dtype, name="pressure")
        self.kind = _chosen(cells) if solver == AUTO else solver
        if self.kind == MULTIGRID and cells.solid is not None:
            raise ConfigError("pressure.solver: multigrid does not know of solid cells; take fast")
        self.solid = cells.solid
        single = cells.dtype == np.float32
        self.tolerance = max(tolerance, LEAST_SINGLE) if single else tolerance
        self._most_left = ROUNDING * LEAST_SINGLE if single else 0.0
        self.solve: Callable[[], None] = self._fast() if self.kind == FAST else self._by_multigrid()

    def record(self) -> None:
        ml.call(self.solve, reads=(self.p, self.b), writes=(self.p,))

    def _fast(self) -> Callable[[], None]:
        fast = ml.linalg.FastPoisson(self.poisson, self.solid)

        def solve_pressure() -> None:
            fast.solve_only(self.p, self.b)

        return solve_pressure

    def _by_multigrid(self) -> Callable[[], None]:
        multigrid = ml.linalg.Multigrid(self.poisson)

        def solve_pressure() -> None:
            """From the pressure that there is: that of the stage before."""
            check(multigrid.solve(self.p, self.b, tol=self.tolerance), self.tolerance, self._most_left)

        return solve_pressure


def check(report: Any, tolerance: float, most_left: float = 0.0) -> None:
    """SolveError unless a solver has converged, or goes no further than to a residual that is small enough."""
    if not (report.converged or report.residual <= most_left):
        many = f"{report.iterations} iteration{'' if report.iterations == 1 else 's'}"
        raise SolveError(f"the pressure was not solved: {report.reason} after {many}, residual {report.residual:.2e} of"
                         f" pressure.tolerance = {tolerance:g}")  # fmt: skip


def _chosen(cells: CellGrid) -> str:
    """Directly, unless two or more axes have cells of several widths, and one of them so many that to transform it by a
    matrix takes longer than to iterate; around solids always."""
    if cells.solid is not None:
        return FAST
    stretched = sorted(len(one.widths) for one in cells.axes if not one.even)
    by_matrix = stretched[:-1]  # the longest is solved along
    return FAST if not by_matrix or max(by_matrix) <= ml.linalg.FastPoisson.most_by_matrix() else MULTIGRID
