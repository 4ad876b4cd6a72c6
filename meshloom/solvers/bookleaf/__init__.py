"""BookLeaf: Lagrangian hydrodynamics on quadrilaterals, with the problems of the UK mini-application of that name.

``quad`` is the geometry of a cell, ``physics`` the equations, ``kernels`` the loops of a step, ``connect`` the
neighbours of a cell, ``problems`` the starts, ``options`` the settings, ``case`` the cases.
"""

from meshloom.solvers.bookleaf.case import Blast, NohCase, Saltzmann, SedovCase, SodCase

__all__ = ["Blast", "NohCase", "Saltzmann", "SedovCase", "SodCase"]
