"""Solvers along the lines of a grid: ``ml.linalg``."""

from meshloom.linalg import tridiagonal
from meshloom.linalg.lines import LineLoop, line_loop
from meshloom.schedule.lines.operator import LineOperator, Stencil, Tridiagonal

__all__ = ["LineLoop", "LineOperator", "Stencil", "Tridiagonal", "line_loop", "tridiagonal"]
