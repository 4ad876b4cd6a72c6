"""miniAero: three-dimensional compressible flow, inviscid or viscous, on hexahedra; three cases."""

from meshloom.solvers.miniaero.case import FlatPlate, MiniAero, Ramp, Sod

__all__ = ["FlatPlate", "MiniAero", "Ramp", "Sod"]
