"""The equations of BookLeaf: compatible Lagrangian hydrodynamics on quadrilaterals, an ideal gas, edge viscosity.

Mass stays in its cell; the corners of the cells move. Forces of a cell on its corners come from pressure, artificial
viscosity and, as options, from sub-zonal pressures and an hourglass filter; the work they do is taken from the cell's
internal energy, so total energy is conserved up to the time integration. Functions of one cell, used by ``kernels``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meshloom.solvers.bookleaf.quad import (
    CORNERS,
    corner_cells,
    edges,
    following,
    preceding,
    turned,
    volume,
    volume_gradient,
)

FREE, SLIP_X, SLIP_Y, WALL = 0, 1, 2, 3  # kinds of nodes: no acceleration along x, along y, along either
OUTER = 0  # value of ``inner`` where a side lies on the boundary


@dataclass(frozen=True)
class BookLeafGas:
    """The constants of the equations and of the scheme, as they become literals of the compiled code."""

    gamma: float
    linear_viscosity: float  # cvisc1
    quadratic_viscosity: float  # cvisc2
    hourglass: float  # kappa; 0: no filter
    subzonal: float  # pmerit; 0: no sub-zonal pressures
    zero: float  # zerocut: nothing is divided by less
    degenerate: float  # zcut: a side with a smaller squared length is a point
    node_density: float  # dencut: a lighter node is not accelerated
    acceleration: float  # accut: a smaller acceleration is none
    pressure: float  # pcut: a smaller pressure is none
    sound2: float  # ccut: least square of the speed of sound
    cfl: float  # cfl_sf
    divergence: float  # div_sf


class Thermal(NamedTuple):
    """What the equation of state says."""

    pressure: Any
    sound2: Any  # speed of sound squared


def ideal_gas(gas: BookLeafGas, density: Any, energy: Any) -> Thermal:
    """Of a density and an internal energy per mass."""
    pressure = (gas.gamma - 1.0) * density * energy
    sound2 = gas.gamma * (gas.gamma - 1.0) * energy
    return Thermal(np.where(np.abs(pressure) < gas.pressure, 0.0, pressure), np.maximum(sound2, gas.sound2))


def at_least(size: float, value: Any) -> Any:
    """A value for a denominator: its sign is kept, its size at least the given one."""
    return np.where(value < 0.0, np.minimum(value, -size), np.maximum(value, size))


def length(a: np.ndarray) -> Any:
    return np.sqrt(a @ a)


# --- artificial viscosity ---------------------------------------------------------------------------------


def smoothness(
    gas: BookLeafGas, du: np.ndarray, dx: np.ndarray, beyond: list[tuple[np.ndarray, np.ndarray, Any, Any]]
) -> Any:
    """1 where the velocity changes along an edge as it does along the edges that go on before and behind it, and no
    viscosity is wanted; 0 in a shock.

    ``beyond`` holds for both continuations (du, dx, is it there, is the other one there). Compared are changes of the
    velocity's component along du per way along dx. At a boundary the flow counts as smooth, unless the cell touches
    boundaries on both sides.
    """
    way_per_change = (dx @ dx) / np.maximum(du @ du, gas.zero**2)
    first, second = (
        np.where(
            here != OUTER,
            (far_du @ du) / at_least(gas.zero, far_dx @ dx) * way_per_change,
            np.where(other != OUTER, np.ones_like(way_per_change), 0.0),
        )
        for far_du, far_dx, here, other in beyond
    )
    limit = np.minimum(np.minimum(0.5 * (first + second), 2.0 * np.minimum(first, second)), 1.0)
    return np.maximum(limit, 0.0)


def edge_viscosity(gas: BookLeafGas, smooth: Any, speed: Any, density: tuple[Any, Any], sound2: tuple[Any, Any]) -> Any:
    """Viscous momentum per area and speed, between the two cells of an edge whose ends part at ``speed``."""
    sound = np.sqrt(0.5 * (sound2[0] + sound2[1]))
    wave = gas.linear_viscosity * sound + gas.quadratic_viscosity * speed
    return 0.5 * (1.0 - smooth) * (density[0] + density[1]) * wave


def viscous_force(
    gas: BookLeafGas, viscosity: Any, du: np.ndarray, dx: np.ndarray, to_centre: np.ndarray
) -> np.ndarray:
    """Force (2,) that the first end of an edge gets and the second gives, through the line from the edge's middle to
    the centre of the cell; only where the two ends approach each other."""
    normal = turned(to_centre)
    across = normal @ du
    approach = np.where(normal @ dx < 0.0, across, -across)
    speed = length(du)
    is_line = (to_centre @ to_centre > gas.zero**2) & (dx @ dx > gas.zero**2)
    acts = (approach > gas.zero) & (speed > gas.zero) & is_line
    return np.where(acts, viscosity * approach / np.maximum(speed, gas.zero), 0.0) * du


class Viscosity(NamedTuple):
    force: np.ndarray  # (4, 2) on the corners
    sound2: Any  # what it adds to the square of the speed of sound in the time step


def viscosity(gas: BookLeafGas, x: np.ndarray, u: np.ndarray, far_x: np.ndarray, far_u: np.ndarray, inner: np.ndarray,
              density: list[Any], sound2: list[Any]) -> Viscosity:  # fmt: skip
    """Of one cell: corners x, u (4, 2); ``far_x``, ``far_u`` (8, 2) the nodes on which edge k goes on, backwards at
    2 k and forwards at 2 k + 1; ``inner`` (4,) whether a side has a neighbour; ``density`` and ``sound2`` (5,) of the
    cell itself and of its neighbours across the four edges."""
    du, dx = edges(u), edges(x)
    centre = 0.25 * (x[0] + x[1] + x[2] + x[3])
    forces, stiffest = [], 0.0
    for k in CORNERS:
        end, back, on = following(k), 2 * k, 2 * k + 1
        behind, beyond = inner[preceding(k)], inner[end]
        continued = [(u[k] - far_u[back], x[k] - far_x[back], behind, beyond),
                     (far_u[on] - u[end], far_x[on] - x[end], beyond, behind)]  # fmt: skip
        speed = length(du[k])
        q = edge_viscosity(gas, smoothness(gas, du[k], dx[k], continued), speed,
                           (density[0], density[1 + k]), (sound2[0], sound2[1 + k]))  # fmt: skip
        stiffest = np.maximum(stiffest, 2.0 * q * speed)
        forces.append(viscous_force(gas, q, du[k], dx[k], centre - 0.5 * (x[k] + x[end])))
    on_corners = np.stack([forces[k] - forces[preceding(k)] for k in CORNERS])
    return Viscosity(on_corners, stiffest / np.maximum(density[0], gas.zero))


# --- forces of a cell on its corners ----------------------------------------------------------------------


def subzonal_forces(gas: BookLeafGas, x: np.ndarray, corner_mass: np.ndarray, density: Any, sound2: Any) -> np.ndarray:
    """(4, 2) Forces that undo differences of density between a cell's four corner cells (Caramana & Shashkov)."""
    forces = [0.0 * x[k] for k in CORNERS]
    for k, part in enumerate(corner_cells(x)):
        excess = sound2 * (corner_mass[k] / volume(part) - density)
        own, middle_next, centre, middle_last = excess * volume_gradient(part)
        forces[k] = forces[k] + own + 0.5 * (middle_next + middle_last)
        forces[following(k)] = forces[following(k)] + 0.5 * middle_next
        forces[preceding(k)] = forces[preceding(k)] + 0.5 * middle_last
        forces = [force + 0.25 * centre for force in forces]
    return gas.subzonal * np.stack(forces)


def cell_forces(
    gas: BookLeafGas, x: np.ndarray, q: np.ndarray, corner_mass: np.ndarray, density: Any, pressure: Any, sound2: Any
) -> np.ndarray:
    """(4, 2) Of pressure, viscosity ``q`` (4, 2) and, where wanted, the sub-zonal pressures."""
    forces = pressure * volume_gradient(x) + q
    return forces + subzonal_forces(gas, x, corner_mass, density, sound2) if gas.subzonal else forces


def hourglass_forces(gas: BookLeafGas, u: np.ndarray, mass: Any, dt: Any) -> np.ndarray:
    """(4, 2) Forces against the motion in which opposite corners move together and neighbours apart (Hancock)."""
    pattern = u[0] - u[1] + u[2] - u[3]
    push = -gas.hourglass * mass / dt * pattern
    return np.stack([push, -push, push, -push])


def work(forces: np.ndarray, u: np.ndarray) -> Any:
    """Of the corner forces (4, 2) per time, at corner velocities (4, 2)."""
    return (forces * u).sum()
