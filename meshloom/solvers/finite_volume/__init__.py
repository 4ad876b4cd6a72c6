"""Compressible flow on any mesh, in the plane and in space: cell-centred finite volumes of second order."""

from meshloom.solvers.finite_volume.bodies import Cylinder, TransonicAirfoil
from meshloom.solvers.finite_volume.case import FiniteVolume, FiniteVolumeCase
from meshloom.solvers.finite_volume.plate import TurbulentPlate
from meshloom.solvers.finite_volume.shock_tube import Sod3d
from meshloom.solvers.finite_volume.wing import OneraM6

__all__ = ["Cylinder", "FiniteVolume", "FiniteVolumeCase", "OneraM6", "Sod3d", "TransonicAirfoil", "TurbulentPlate"]
