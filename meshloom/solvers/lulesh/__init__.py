"""A blast wave on a moving mesh: the hydrodynamics of LULESH."""

from meshloom.solvers.lulesh.blast import Lulesh

__all__ = ["Lulesh"]
