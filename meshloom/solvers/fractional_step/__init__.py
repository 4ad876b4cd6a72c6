"""Incompressible Navier-Stokes equations by fractional steps on grids of cells."""

from meshloom.solvers.fractional_step.backward_step import BackwardStep
from meshloom.solvers.fractional_step.cavity import CubicCavity, SquareCavity
from meshloom.solvers.fractional_step.channel import Channel
from meshloom.solvers.fractional_step.taylor_green import DecayingVortices

__all__ = ["BackwardStep", "Channel", "CubicCavity", "DecayingVortices", "SquareCavity"]
