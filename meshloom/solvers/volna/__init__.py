"""Shallow water on triangles after the tsunami code Volna: four pools with known answers, and a tsunami."""

from meshloom.solvers.volna import cases as cases
from meshloom.solvers.volna import tsunami as tsunami
