"""Incompressible Navier-Stokes equations by fractional steps on grids of cells."""

from meshloom.solvers.fractional_step.cavity import CubicCavity, SquareCavity

__all__ = ["CubicCavity", "SquareCavity"]
