"""Where kinetic energy goes: what viscosity, forces and sides do not account for has been lost by the scheme.

    lost = E(0) - E(t) + integral of the power of viscosity, forces and sides

The power is that of the discrete terms themselves, at the ends of steps, and its integral that of trapezoids: of second
order in the step. What is left is the work of convection and pressure, which have none to do, and the error in time.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.boundary_conditions import LOW, Boundaries, Side
from meshloom.solvers.fractional_step.cells import Offset, along, spacings
from meshloom.solvers.fractional_step.operators import area

LOST, BEFORE = "energy_lost", "energy_before"


class EnergyBudget:
    """``lost``: kinetic energy that the scheme has lost since the start, negative where it has made some. ``power``:
    what viscosity, forces and sides do per unit of time; who owns the budget sums it up before ``close``."""

    names: ClassVar[tuple[str, ...]] = (LOST, BEFORE)  # of its state

    def __init__(self, energy: ml.Global, dt: ml.Global, time: ml.Global, staggered: bool):
        self._energy, self._dt, self._time, self._staggered = energy, dt, time, float(staggered)
        self.lost, self.power = ml.Global(0.0, LOST), ml.Global(0.0, "power")
        #: Energy and power at the end of the step before; of what time, and whether of staggered velocities.
        self._before = ml.Global(np.zeros(4), BEFORE)
        self._once = ml.Set(1, "budget")

    @property
    def state(self) -> tuple[ml.Global, ...]:
        return self.lost, self._before

    def begin(self) -> None:
        """From the energy and the power that there are now, outside of programs."""
        self._before.value = [float(one.value) for one in (self._energy, self.power, self._time)] + [self._staggered]

    @property
    def is_of_now(self) -> bool:
        """Whether it goes on where the flow stands: a checkpoint may have none, or that of the other arrangement."""
        return tuple(self._before.value[2:]) == (float(self._time.value), self._staggered)

    def close(self) -> None:
        """The end of a step; inside a program this is recorded."""
        known = (self._energy, self.power, self._dt, self._time, self._staggered)
        close_step(self._once, *known, self._before, self.lost)


@ml.kernel
def close_step(
    energy: ml.Read, power: ml.Read, dt: ml.Read, time: ml.Read, form: ml.Read, before: ml.ReadWrite, lost: ml.ReadWrite
):
    lost[...] = lost + (before[0] - energy + 0.5 * dt * (before[1] + power))
    before[...] = np.stack([energy, power, time, form])


def add_power_of_sides(
    boundaries: Boundaries, faces: ml.Field, u: ml.Field, p: ml.Field, staggered: bool, power: ml.Global
) -> None:
    """What flows in through sides that let fluid through, kinetic energy and the work of the pressure; inside a program
    this is recorded. ``u``: velocities at centres, whose ghosts count where they are not ``staggered``."""
    cells = boundaries.cells
    for side in boundaries.sides:
        if side.lets_through:
            kernel = _power_of_side(side.axis, _cells_of(side), staggered, cells.even)
            kernel(side.faces, faces, *(cells.before(one) for one in (u, p)), side.outwards, power, *cells.widths)


def _cells_of(side: Side) -> tuple[Offset, Offset]:
    """From a face of the side to the cell inside, and to the ghost beyond."""
    here, before = along(side.cells.rank, side.axis, 0), along(side.cells.rank, side.axis, -1)
    return (here, before) if side.end == LOW else (before, here)


@cache
def _power_of_side(axis: int, cells: tuple[Offset, Offset], staggered: bool, even: tuple[bool, ...]) -> ml.Kernel:
    inside, beyond = cells

    @ml.kernel
    def power_of_side(
        faces: ml.Read, u: ml.Read, p: ml.Read, outwards: ml.Read, power: ml.Sum, *widths: ml.Read
    ):  # fmt: skip
        through, axes = faces[axis], spacings(widths, even)
        pairs = [(u[inside][c], u[inside if staggered else beyond][c]) for c in range(len(even))]
        if staggered:
            pairs[axis] = through, through
        kinetic = 0.5 * sum(one * other for one, other in pairs)
        power += -outwards * through * area(axes, axis) * (kinetic + p[inside])

    return power_of_side
