"""Compressible Navier-Stokes equations with compact differences on grids: two cases."""

from meshloom.solvers.navier_stokes.taylor_green import TaylorGreen
from meshloom.solvers.navier_stokes.vortex import VortexOutflow

__all__ = ["TaylorGreen", "VortexOutflow"]
