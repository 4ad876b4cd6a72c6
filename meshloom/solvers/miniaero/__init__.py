"""miniAero: three-dimensional compressible flow, inviscid or viscous, on hexahedra; three cases."""

from meshloom.solvers.miniaero.case import FlatPlate, MiniAero, Ramp, ShockTube

__all__ = ["FlatPlate", "MiniAero", "Ramp", "ShockTube"]
