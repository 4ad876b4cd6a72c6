"""The scheme of 2018: limited linear reconstruction in every cell, HLLC fluxes, and four stages per time step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import meshloom as ml
from meshloom.solvers.volna.flux import BED, H, Water, fastest, hllc, kinetic, mirrored, momenta, sides, state
from meshloom.solvers.volna.geometry import EDGES

VARIABLES = 4  # depth, u, v, bed


class SecondOrderKernels(NamedTuple):
    """The kernels of a step, in the order of first use."""

    reconstruct: ml.Kernel
    fluxes: ml.Kernel
    wall_fluxes: ml.Kernel
    start: ml.Kernel
    half: ml.Kernel
    renew: ml.Kernel
    blend: ml.Kernel
    finish: ml.Kernel


def gradients(w: np.ndarray, around: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """Slopes (variable, direction) by the differences to the three neighbours."""
    return sum(np.outer(around[k] - w, fit[2 * k : 2 * k + 2]) for k in range(EDGES))  # type: ignore[return-value]


def limiter(w: np.ndarray, around: np.ndarray, slopes: np.ndarray, reach: np.ndarray, dry: float) -> Any:
    """The share of the slopes that keeps every variable at every edge within the values around (Barth and
    Jespersen); none next to dry land."""

    def share(here: Any, room: Any, rise: Any) -> Any:
        # in the precision of the values: a rise below their last digit does not count
        return np.where((here + rise != here) & (rise != 0.0), room / rise, 1.0)

    least: Any = 1.0
    for variable in range(VARIABLES):
        here, values = w[variable], around[:, variable]
        rises = slopes[variable, 0] * reach[0::2] + slopes[variable, 1] * reach[1::2]
        up, down = np.maximum(rises.max(), 0.0), np.minimum(rises.min(), 0.0)
        high, low = np.maximum(here, values.max()), np.minimum(here, values.min())
        least = np.minimum(least, np.minimum(share(here, high - here, up), share(here, low - here, down)))
    beside_dry = np.minimum(w[H], around[:, H].min()) <= dry
    return np.where(beside_dry, 0.0, least)


def at_edge(w: np.ndarray, slopes: np.ndarray, way: np.ndarray) -> np.ndarray:
    """The state where ``way`` leads from the centre of its cell; water is never less than none."""
    there = w + slopes[0::2] * way[0] + slopes[1::2] * way[1]
    return np.stack([np.maximum(there[H], 0.0), there[1], there[2], there[BED]])


def slide(w: np.ndarray, near: np.ndarray, g: float) -> Any:
    """The push between the centre of a cell and its edge: of the slope of the water's surface, nothing else."""
    return 0.5 * g * (near[H] + w[H]) * ((near[H] - w[H]) + (near[BED] - w[BED]))


def floored(gain: np.ndarray, u: np.ndarray, dry: float) -> np.ndarray:
    """The gain of a cell that holds ``u`` at the start of the step, such that it never falls dry."""
    return np.stack([np.maximum(gain[0], dry - u[0]), gain[1], gain[2]])


def after(gain: np.ndarray, u: np.ndarray, bed: Any, dry: float) -> np.ndarray:
    """The state of a cell that held ``u`` and has gained since."""
    there = u + gain
    return state(np.stack([np.maximum(there[0], dry), there[1], there[2]]), np.maximum(there[0], dry), bed)


def kernels(water: Water) -> SecondOrderKernels:
    """The kernels; the constants of ``water`` become literals in the compiled code."""
    return SecondOrderKernels(*rate_kernels(water), *stage_kernels(water.dry))


def rate_kernels(water: Water) -> tuple[ml.Kernel, ...]:
    """What flows into every cell: reconstruct, fluxes, wall_fluxes."""
    g, dry = water.gravity, water.dry

    @ml.kernel
    def reconstruct(fit: ml.Read, reach: ml.Read, w: ml.Read, around: ml.Read, slopes: ml.Write):
        """Slopes of all variables in a cell."""
        steep = gradients(w, around, fit)
        slopes[...] = (limiter(w, around, steep, reach, dry) * steep).reshape(-1)

    @ml.kernel
    def fluxes(normal: ml.Read, length: ml.Read, way: ml.Read, w: ml.Read, slopes: ml.Read,
               inflow: ml.Inc, waves: ml.Inc):  # fmt: skip
        """Through an edge between two cells; nothing moves between two dry ones."""
        near = [at_edge(w[cell], slopes[cell], way[2 * cell : 2 * cell + 2]) for cell in (0, 1)]
        left, right = sides(near[0], near[1], normal, g)
        flux = hllc(left, right, normal, water)
        wet = (w[0, H] > dry) | (w[1, H] > dry)
        for cell, sign, momentum in ((0, -1.0, flux.from_left), (1, 1.0, flux.to_right)):
            through = np.stack([flux.water, *(momentum + slide(w[cell], near[cell], g) * normal)])
            inflow[cell] += np.where(wet, sign * length * through, 0.0)
        speed = fastest(left, right) * length
        waves[0] += speed
        waves[1] += speed

    @ml.kernel
    def wall_fluxes(normal: ml.Read, length: ml.Read, w: ml.Read, inflow: ml.Inc, waves: ml.Inc):
        """Against a wall: as if the same water came from behind it."""
        left, right = sides(w[0], mirrored(w[0], normal), normal, g)
        flux = hllc(left, right, normal, water)
        inflow[0] -= np.where(w[0, H] > dry, length * np.stack([flux.water, *flux.from_left]), 0.0)
        waves[0] += fastest(left, right) * length

    return reconstruct, fluxes, wall_fluxes


def stage_kernels(dry: float) -> tuple[ml.Kernel, ...]:
    """The stages of a step: start, half, renew, blend, finish.

    They keep what was gained since the start of the step, not where that led: so a third of it is rounded, and not a
    third of all the water.
    """

    @ml.kernel
    def start(area: ml.Read, w: ml.Read, dt: ml.Read, inflow: ml.Read, rate: ml.Write, gain: ml.Write, mid: ml.Write):
        """Half a step by the rates at the start, which are kept."""
        u, change = momenta(w), inflow / area
        gained = floored(0.5 * dt * change, u, dry)
        rate[...] = change
        gain[...] = gained
        mid[...] = after(gained, u, w[BED], dry)

    @ml.kernel
    def half(area: ml.Read, w: ml.Read, dt: ml.Read, inflow: ml.Read, gain: ml.ReadWrite, mid: ml.Write):
        """Another half step from where the last one ended."""
        u = momenta(w)
        gained = floored(gain + 0.5 * dt * inflow / area, u, dry)
        gain[...] = gained
        mid[...] = after(gained, u, w[BED], dry)

    @ml.kernel
    def blend(w: ml.Read, dt: ml.Read, rate: ml.Read, gain: ml.ReadWrite, mid: ml.Write):
        """Back to the middle of the step: a third of what was gained, with another half step by ``rate``."""
        u = momenta(w)
        gained = floored((gain + 0.5 * dt * rate) / 3.0, u, dry)
        gain[...] = gained
        mid[...] = after(gained, u, w[BED], dry)

    @ml.kernel
    def finish(area: ml.Read, gain: ml.Read, dt: ml.Read, inflow: ml.Read, w: ml.ReadWrite, depth: ml.Write,
               lowest: ml.Min, volume: ml.Sum, energy: ml.Sum):  # fmt: skip
        """The last half step; and what there is now."""
        u = momenta(w)
        gained = gain + 0.5 * dt * inflow / area
        there = after(floored(gained, u, dry), u, w[BED], dry)
        w[...] = there
        depth[...] = u[0] + gained[0]
        lowest[...] = u[0] + gained[0]
        volume += area * there[H]
        energy += area * kinetic(there)

    @ml.kernel
    def renew(area: ml.Read, inflow: ml.Read, rate: ml.Write):
        """Rates of the last stage in place of those of the first."""
        rate[...] = inflow / area

    return start, half, renew, blend, finish
