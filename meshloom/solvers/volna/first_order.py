"""The scheme of 2017: HLL fluxes between cell averages, and two stages (Heun) per time step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.volna.flux import BED, H, Water, fastest, hll, kinetic, mirrored, momenta, sides, state


class FirstOrderKernels(NamedTuple):
    """The kernels of a step, in the order of first use."""

    fluxes: ml.Kernel
    wall_fluxes: ml.Kernel
    predict: ml.Kernel
    correct: ml.Kernel


def kernels(water: Water) -> FirstOrderKernels:
    """The kernels; the constants of ``water`` become literals in the compiled code."""
    g, dry = water.gravity, water.dry

    @ml.kernel
    def fluxes(normal: ml.Read, length: ml.Read, w: ml.Read, inflow: ml.Inc, waves: ml.Inc):
        """Through an edge between two cells."""
        left, right = sides(w[0], w[1], normal, g)
        flux = hll(left, right, normal, water)
        inflow[0] -= length * np.stack([flux.water, *flux.from_left])
        inflow[1] += length * np.stack([flux.water, *flux.to_right])
        speed = fastest(left, right) * length
        waves[0] += speed
        waves[1] += speed

    @ml.kernel
    def wall_fluxes(normal: ml.Read, length: ml.Read, w: ml.Read, inflow: ml.Inc, waves: ml.Inc):
        """Against a wall: as if the same water came from behind it."""
        left, right = sides(w[0], mirrored(w[0], normal), normal, g)
        flux = hll(left, right, normal, water)
        inflow[0] -= length * np.stack([flux.water, *flux.from_left])
        waves[0] += fastest(left, right) * length

    @ml.kernel
    def predict(area: ml.Read, w: ml.Read, dt: ml.Read, inflow: ml.Read, predicted: ml.Write, mid: ml.Write):
        """A whole step forward by the rates at its start."""
        there = momenta(w) + dt * inflow / area
        predicted[...] = there
        mid[...] = state(there, np.maximum(there[0], dry), w[BED])

    @ml.kernel
    def correct(area: ml.Read, predicted: ml.Read, dt: ml.Read, inflow: ml.Read, w: ml.ReadWrite, depth: ml.Write,
                lowest: ml.Min, volume: ml.Sum, energy: ml.Sum):  # fmt: skip
        """The mean of the rates at both ends of the step; and what there is now."""
        there = 0.5 * (dt * inflow / area + predicted + momenta(w))
        after = state(np.stack([np.maximum(there[0], dry), there[1], there[2]]), np.maximum(there[0], dry), w[BED])
        w[...] = after
        depth[...] = there[0]
        lowest[...] = there[0]
        volume += area * after[H]
        energy += area * kinetic(after)

    return FirstOrderKernels(fluxes, wall_fluxes, predict, correct)
