"""The loops of one step: each kernel puts phases of ``physics`` together so that nothing in between reaches memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.lulesh.hexahedron import volume
from meshloom.solvers.lulesh.options import LuleshConfig
from meshloom.solvers.lulesh.physics import (
    LuleshGas,
    equation_of_state,
    hourglass_force,
    new_geometry,
    stress_force,
    viscosity,
)

NO_LIMIT = 1.0e20  # a time step that nothing limits
_ALMOST_STILL = 1.0e-20

#: Faces of an element (numbers of CellKind.faces) at the lower and upper end of xi, eta and zeta.
ENDS = ((5, 3), (2, 4), (0, 1))


def mirror_bit(face: int) -> int:
    """Marks an element with a plane of symmetry behind a face."""
    return 1 << face


def free_bit(face: int) -> int:
    """Marks an element with nothing behind a face."""
    return 1 << (face + 6)


class LuleshKernels(NamedTuple):
    """One step's kernels, in order."""

    increment: ml.Kernel
    forces: ml.Kernel
    move: ml.Kernel
    kinematics: ml.Kernel
    material: ml.Kernel
    watch_origin: ml.Kernel
    watch_symmetry: ml.Kernel


def kernels(config: LuleshConfig) -> LuleshKernels:
    """The kernels of a step; constants become literals in the compiled code."""
    forces, move = _node_kernels(config)
    kinematics, material = _element_kernels(config)
    return LuleshKernels(increment_kernel(config), forces, move, kinematics, material, *_watching())


@ml.kernel
def masses(x: ml.Read, volume0: ml.Write, mass: ml.Inc):
    """At the start: the volume of every element, and an eighth of it (density 1) for each of its nodes."""
    now = volume(x)
    volume0[...] = now
    for corner in range(8):
        mass[corner] += now / 8.0


def increment_kernel(config: LuleshConfig) -> ml.Kernel:
    """The clock: the next step from what sound and expansion allow; then what this step is to reduce starts afresh."""
    t = config.time

    @ml.kernel
    def increment(courant: ml.ReadWrite, hydro: ml.ReadWrite, dt: ml.ReadWrite, time: ml.ReadWrite, cycle: ml.ReadWrite,
                  least_volume: ml.Write, largest_q: ml.Write, max_abs: ml.Write, total_abs: ml.Write,
                  max_rel: ml.Write):  # fmt: skip
        old, left = dt + 0.0, t.end - time
        new = np.where(courant < NO_LIMIT, t.courant * courant, NO_LIMIT)
        new = np.where(hydro < new, hydro * 2.0 / 3.0, new)
        ratio = new / old
        grown = np.where(ratio < t.least_growth, old, np.where(ratio > t.growth, old * t.growth, new))
        new = np.minimum(np.where(ratio >= 1.0, grown, new), t.largest)
        new = np.where(cycle > 0, new, old)
        # Where one more step would leave a sliver, two of similar length end it.
        left = np.where((left > new) & (left < 4.0 * new / 3.0), 2.0 * new / 3.0, left)
        new = np.minimum(new, left)
        dt[...] = new
        time += new
        cycle += 1
        courant[...], hydro[...] = NO_LIMIT, NO_LIMIT
        least_volume[...], largest_q[...] = np.inf, -np.inf
        max_abs[...], total_abs[...], max_rel[...] = 0.0, 0.0, 0.0

    return increment


def _node_kernels(config: LuleshConfig) -> tuple[ml.Kernel, ml.Kernel]:
    m = config.material

    @ml.kernel
    def forces(x: ml.Read, velocity: ml.Read, p: ml.Read, q: ml.Read, v: ml.Read, sound: ml.Read, volume0: ml.Read,
               force: ml.Inc):  # fmt: skip
        """An element pushes and damps its eight nodes; its mass is its initial volume (density 1)."""
        push = stress_force(x, p, q)
        push = push + hourglass_force(x, velocity, volume0 * v, sound, volume0, m.hourglass)
        for corner in range(8):
            force[corner] += push[corner]

    @ml.kernel
    def move(dt: ml.Read, mass: ml.Read, mirrors: ml.Read, force: ml.Read, velocity: ml.ReadWrite, x: ml.ReadWrite):
        """Newton's law; nodes on a plane of symmetry stay there."""
        for c in range(3):
            held = (mirrors & mirror_bit(c)) != 0
            new = velocity[c] + np.where(held, 0.0, force[c] / mass) * dt
            new = np.where(np.abs(new) < m.cut, 0.0, new)
            velocity[c] = new
            x[c] = x[c] + new * dt

    return forces, move


def _element_kernels(config: LuleshConfig) -> tuple[ml.Kernel, ml.Kernel]:
    m, gas, expansion = config.material, LuleshGas(config.material), config.time.expansion

    @ml.kernel
    def kinematics(dt: ml.Read, x: ml.Read, velocity: ml.Read, volume0: ml.Read, v_new: ml.Write,
                   spread: ml.Write, length: ml.Write, gradients: ml.Write, lengths: ml.Write,
                   least_volume: ml.Min):  # fmt: skip
        """What the motion of its nodes does to an element."""
        found = new_geometry(x, velocity, dt, volume0)
        v_new[...], spread[...], length[...], gradients[...], lengths[...] = found
        least_volume[...] = found[0]

    @ml.kernel
    def material(sides: ml.Read, gradients: ml.Read, along_xi: ml.Read, along_eta: ml.Read, along_zeta: ml.Read,
                 lengths: ml.Read, spread: ml.Read, length: ml.Read, v_new: ml.Read, v: ml.ReadWrite,
                 e: ml.ReadWrite, p: ml.ReadWrite, q: ml.ReadWrite, sound: ml.Write,
                 courant: ml.Min, hydro: ml.Min, largest_q: ml.Max):  # fmt: skip
        """Viscosity, equation of state, and what they allow the next time step to be.

        ``along_xi`` and so on: the gradients of the two elements next to this one in that direction.
        """
        behind = (along_xi, along_eta, along_zeta)

        def seen(c: int, end: int) -> Any:
            """The gradient along c behind one of the two ends: a mirror shows one's own, free space none."""
            face = ENDS[c][end]
            mirrored = np.where((sides & mirror_bit(face)) != 0, gradients[c], behind[c][end, c])
            return np.where((sides & free_bit(face)) != 0, 0.0, mirrored)

        neighbours = [[seen(c, end) for end in (0, 1)] for c in range(3)]
        ql, qq = viscosity(gradients, neighbours, lengths, spread, 1.0 / v_new, m)
        e_new, p_new, q_new, sound_new = equation_of_state(gas, (e + 0.0, p + 0.0, q + 0.0), v_new, v_new - v, ql, qq)
        e[...], p[...], q[...], sound[...] = e_new, p_new, q_new, sound_new
        v[...] = np.where(np.abs(v_new - 1.0) < m.volume_cut, 1.0, v_new)
        largest_q[...] = q_new

        moves = spread != 0.0
        shocked = np.where(spread < 0.0, 64.0 * m.courant_q**2 * length**2 * spread**2, 0.0)
        courant[...] = np.where(moves, length / np.sqrt(sound_new**2 + shocked), NO_LIMIT)
        hydro[...] = np.where(moves, expansion / (np.abs(spread) + _ALMOST_STILL), NO_LIMIT)

    return kinematics, material


def _watching() -> tuple[ml.Kernel, ml.Kernel]:
    @ml.kernel
    def watch_origin(e: ml.Read, origin: ml.Write):
        origin[...] = e[0]

    @ml.kernel
    def watch_symmetry(e: ml.Read, largest: ml.Max, total: ml.Sum, relative: ml.Max):
        """Elements of the lowest layer that mirror each other should hold the same energy."""
        difference = np.abs(e[0] - e[1])
        largest[...] = difference
        total += difference
        relative[...] = np.where(e[1] != 0.0, difference / np.abs(e[1]), 0.0)

    return watch_origin, watch_symmetry
