"""Scalars carried by a known flow, with compact differences: the three problems whose exact solution is known."""

from meshloom.solvers.advection import cone, line

__all__ = ["cone", "line"]
