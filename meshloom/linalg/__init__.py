"""Solvers: along the lines of a grid, and of sparse systems: ``ml.linalg``."""

from meshloom.linalg import tridiagonal
from meshloom.linalg.gmres import GMRES, gmres
from meshloom.linalg.iteration import Report
from meshloom.linalg.krylov import BiCGStab, ConjugateGradients, bicgstab, cg
from meshloom.linalg.lines import LineLoop, line_loop
from meshloom.schedule.lines.operator import LineOperator, Stencil, Tridiagonal

__all__ = ["GMRES", "BiCGStab", "ConjugateGradients", "LineLoop", "LineOperator", "Report", "Stencil", "Tridiagonal",
           "bicgstab", "cg", "gmres", "line_loop", "tridiagonal"]  # fmt: skip
