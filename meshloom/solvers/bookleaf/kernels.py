"""The loops of one BookLeaf step, in the order in which they run; the equations are in ``physics`` and ``quad``.

Names: x, u, mean_u are position, velocity and its mean over the step, at a cell's four corners or at a node; density,
energy (internal, per mass), pressure, sound2 (speed of sound squared) and mass are the cell's own; q and force hold a
vector for each corner; corner_mass is the mass of the four corner cells. Constants of the gas become literals in the
compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.bookleaf.physics import (
    SLIP_X,
    SLIP_Y,
    WALL,
    BookLeafGas,
    cell_forces,
    hourglass_forces,
    ideal_gas,
    length,
    viscosity,
    work,
)
from meshloom.solvers.bookleaf.quad import CORNERS, corner_volumes, volume, volume_gradient, width_squared


@dataclass(frozen=True)
class BookLeafClock:
    """How long a time step may be."""

    initial: float
    longest: float
    growth: float  # from one step to the next


class BookLeafKernels(NamedTuple):
    """One step's kernels, in the order of use."""

    artificial_viscosity: ml.Kernel
    time_step: ml.Kernel
    advance_clock: ml.Kernel
    predict: ml.Kernel
    corner_forces: ml.Kernel
    accelerate: ml.Kernel
    correct: ml.Kernel


def _corners(values: Any) -> Any:
    """Eight values of a cell as the vectors (4, 2) of its corners."""
    return np.reshape(values, (4, 2))


@cache
def kernels(gas: BookLeafGas, clock: BookLeafClock) -> BookLeafKernels:
    """The kernels for a gas; made once for the same constants, because tracing them takes a second."""
    return BookLeafKernels(*_at_the_start(gas, clock), *_to_the_middle(gas), *_to_the_end(gas))


def _at_the_start(gas: BookLeafGas, clock: BookLeafClock) -> tuple[ml.Kernel, ml.Kernel, ml.Kernel]:
    @ml.kernel
    def artificial_viscosity(x: ml.Read, u: ml.Read, far_x: ml.Read, far_u: ml.Read, inner: ml.Read, density: ml.Read,
                             near_density: ml.Read, sound2: ml.Read, near_sound2: ml.Read,
                             q: ml.Write, q_sound2: ml.Write):  # fmt: skip
        """At the start of the step; it stays the same for both halves."""
        found = viscosity(gas, x, u, far_x, far_u, inner,
                          [density, *near_density], [sound2, *near_sound2])  # fmt: skip
        q[...] = np.reshape(found.force, 8)
        q_sound2[...] = found.sound2

    @ml.kernel
    def time_step(x: ml.Read, u: ml.Read, sound2: ml.Read, q_sound2: ml.Read, cell_dt: ml.Write, least_dt: ml.Min):
        """A part of the time that sound needs through the cell, or in which its volume changes."""
        by_sound = gas.cfl * np.sqrt(width_squared(x, gas.degenerate) / (sound2 + q_sound2))
        divergence = np.abs(work(volume_gradient(x), u)) / volume(x)
        by_volume = gas.divergence / np.maximum(divergence, gas.zero)
        cell_dt[...] = np.minimum(by_sound, by_volume)
        least_dt[...] = np.minimum(by_sound, by_volume)

    @ml.kernel
    def advance_clock(least_dt: ml.Read, dt: ml.ReadWrite, time: ml.ReadWrite, steps: ml.ReadWrite):
        """No step is longer than a cell bears, than the longest, or much longer than the one before."""
        usual = np.where(steps == 0, clock.initial, np.minimum(clock.longest, clock.growth * dt))
        new_dt = np.minimum(usual, least_dt)
        dt[...], time[...], steps[...] = new_dt, time + new_dt, steps + 1

    return artificial_viscosity, time_step, advance_clock


def _to_the_middle(gas: BookLeafGas) -> tuple[ml.Kernel, ml.Kernel]:
    @ml.kernel
    def predict(x: ml.Read, u: ml.Read, q: ml.Read, q_sound2: ml.Read, mass: ml.Read, corner_mass: ml.Read,
                energy: ml.Read, dt: ml.Read, density: ml.ReadWrite, pressure: ml.ReadWrite,
                sound2: ml.ReadWrite, cell_volume: ml.Write, least_volume: ml.Min):  # fmt: skip
        """The cell half a step later, with the velocities and forces of the start."""
        forces = cell_forces(gas, x, _corners(q), corner_mass, density, pressure, sound2 + q_sound2)
        new_volume = volume(x + 0.5 * dt * u)
        new_density = mass / new_volume
        gas_then = ideal_gas(gas, new_density, energy - 0.5 * dt * work(forces, u) / mass)
        density[...], pressure[...], sound2[...] = new_density, gas_then.pressure, gas_then.sound2
        cell_volume[...] = least_volume[...] = new_volume

    @ml.kernel
    def corner_forces(x: ml.Read, u: ml.Read, q: ml.Read, mass: ml.Read, corner_mass: ml.Read, density: ml.Read,
                      pressure: ml.Read, sound2: ml.Read, dt: ml.Read, force: ml.Write, pull: ml.Inc):  # fmt: skip
        """The forces in the middle of the step, kept for the energy, and what each node gets: force and volume."""
        half_way = x + 0.5 * dt * u
        forces = cell_forces(gas, half_way, _corners(q), corner_mass, density, pressure, sound2)
        if gas.hourglass:
            forces = forces + hourglass_forces(gas, u, mass, dt)
        force[...] = np.reshape(forces, 8)
        volumes = corner_volumes(half_way)
        for k in CORNERS:
            pull[k] += np.stack([forces[k, 0], forces[k, 1], volumes[k]])

    return predict, corner_forces


def _to_the_end(gas: BookLeafGas) -> tuple[ml.Kernel, ml.Kernel]:
    @ml.kernel
    def accelerate(mass: ml.Read, kind: ml.Read, dt: ml.Read, pull: ml.Read, u: ml.ReadWrite, mean_u: ml.Write,
                   x: ml.ReadWrite):  # fmt: skip
        """A node under its forces; the boundary takes components away, and tiny ones are dropped."""
        free = np.stack([(kind != SLIP_X) & (kind != WALL), (kind != SLIP_Y) & (kind != WALL)])
        heavy = mass > gas.node_density * pull[2]
        a = np.where(free & heavy, pull[:2] / mass, 0.0)
        a = np.where(length(a) < gas.acceleration, 0.0, a)
        new_u = u + dt * a
        mean_u[...] = u + 0.5 * dt * a
        x[...] = (x + 0.5 * dt * u) + 0.5 * dt * new_u
        u[...] = new_u

    @ml.kernel
    def correct(x: ml.Read, u: ml.Read, mean_u: ml.Read, force: ml.Read, mass: ml.Read, dt: ml.Read,
                energy: ml.ReadWrite, density: ml.Write, pressure: ml.Write, sound2: ml.Write,
                cell_volume: ml.Write, least_volume: ml.Min, total_mass: ml.Sum, internal: ml.Sum, kinetic: ml.Sum,
                density_min: ml.Min, density_max: ml.Max, pressure_min: ml.Min, pressure_max: ml.Max):  # fmt: skip
        """The cell at the end of the step: it pays for the work of its forces. Totals and extremes are watched."""
        new_volume = volume(x)
        new_density = mass / new_volume
        new_energy = energy - dt * work(_corners(force), mean_u) / mass
        now = ideal_gas(gas, new_density, new_energy)
        energy[...], density[...], pressure[...], sound2[...] = new_energy, new_density, now.pressure, now.sound2
        cell_volume[...] = least_volume[...] = new_volume
        total_mass += mass
        internal += mass * new_energy
        kinetic += 0.5 * new_density * (corner_volumes(x) * (u * u).sum(axis=1)).sum()
        density_min[...], density_max[...] = new_density, new_density
        pressure_min[...], pressure_max[...] = now.pressure, now.pressure

    return accelerate, correct
