"""How long a time step may be: waves and viscosity in every cell against the four Runge-Kutta stages."""

from __future__ import annotations

import numpy as np

import meshloom as ml
from meshloom.solvers.finite_volume.stability import longest_cfl
from meshloom.solvers.miniaero.gas import MiniAeroGas
from meshloom.solvers.runge_kutta import amplification, largest_step


def longest_step(mesh: ml.Mesh, gas: MiniAeroGas, V: np.ndarray, order: int, *, viscous: bool) -> float:
    """In seconds, for a state V (5, cells): where the flow becomes faster or hotter, less is stable.

    Half of what goes through the faces of a cell, by its volume, is the sum of the Courant numbers along its axes; the
    symbol of the viscous term is -4 nu / h^2 along each of them.
    """
    volume, sound = mesh.cell_volumes, gas.sound_speed(V)
    factor = max(4.0 / 3.0, gas.gamma / gas.prandtl) if viscous else 0.0  # of momentum, and of heat
    diffusivity = factor * gas.viscosity(V[4]) / V[0]
    waves, damping = np.zeros(len(volume)), np.zeros(len(volume))
    for cells, area in ((mesh.face_cells, mesh.face_normals), (mesh.boundary_cells, mesh.boundary_normals)):
        size = np.linalg.norm(area, axis=1)
        for own in cells.indices.T:
            through = np.abs((area * V[1:4, own].T).sum(axis=1)) + sound[own] * size
            waves += np.bincount(own, 0.5 * through / volume[own], len(volume))
            damping += np.bincount(own, 2.0 * diffusivity[own] * (size / volume[own]) ** 2, len(volume))
    longest = longest_cfl(order, 0.0, amplification), largest_step(np.array([-1.0]))
    return 1.0 / float((waves / longest[0] + damping / longest[1]).max())
