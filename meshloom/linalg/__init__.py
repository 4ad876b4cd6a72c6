"""Solvers: along the lines of a grid, and of sparse systems: ``ml.linalg``."""

from meshloom.linalg import grid_matrix, map_matrix, tridiagonal  # noqa: F401 - kinds of matrices register themselves
from meshloom.linalg.boundary_conditions import Dirichlet, Neumann
from meshloom.linalg.colored_sgs import ColoredSGS
from meshloom.linalg.fast_poisson import FastPoisson
from meshloom.linalg.gmres import GMRES, gmres
from meshloom.linalg.iteration import Report
from meshloom.linalg.krylov import BiCGStab, ConjugateGradients, bicgstab, cg
from meshloom.linalg.lines import LineLoop, line_loop
from meshloom.linalg.multigrid import Multigrid
from meshloom.linalg.operator import LineOperator, LineStencil, Tridiagonal
from meshloom.linalg.piccg import PICCG
from meshloom.linalg.poisson import Poisson
from meshloom.linalg.systems import LineSystems

Stencil = LineStencil  # what programs called it before the word had another meaning in kernels

__all__ = ["GMRES", "PICCG", "BiCGStab", "ColoredSGS", "ConjugateGradients", "Dirichlet", "FastPoisson", "LineLoop",
           "LineOperator", "LineStencil", "LineSystems", "Multigrid", "Neumann", "Poisson", "Report", "Stencil",
           "Tridiagonal", "bicgstab", "cg", "gmres", "line_loop", "tridiagonal"]  # fmt: skip
