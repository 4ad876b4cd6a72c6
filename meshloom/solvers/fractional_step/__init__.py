"""Incompressible flow by fractional steps on collocated grids."""
