"""What a turbulent flow between walls is in the mean: profiles over the height, gathered step by step in loops.

Means are taken over x and z and over the time after a given one, each step weighted by its length. The flux of momentum
through the faces between planes is gathered as the scheme itself has it (with central convection), so that the shear
stress in the mean obeys the balance of momentum of the discrete equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.solvers.fractional_step.cells import CellGrid, along, moved
from meshloom.solvers.fractional_step.flow import IncompressibleFlow
from meshloom.solvers.fractional_step.plane_sums import PlaneSums

Y = 1  # the axis across the channel


class ChannelStatistics:
    """``gather`` is recorded at the end of each step; ``state`` is what restarts need."""

    def __init__(self, cells: CellGrid, flow: IncompressibleFlow, after: float):
        self.cells, self.flow, self.after = cells, flow, after
        self.sums = PlaneSums(cells, Y, 2 * cells.rank + 1)
        planes = self.sums.planes
        self.totals, self.first = planes.field("totals", 2 * cells.rank + 1), planes.field("first_mean")
        self.gathered, self.weight = ml.Global(0.0, "gathered"), ml.Global(0.0, "weight")
        self._clock = ml.Set(1, "statistics_clock")

    @property
    def state(self) -> tuple[ml.Field | ml.Global, ...]:
        return self.totals, self.first, self.gathered

    def gather(self) -> None:
        flow = self.flow
        self.sums.take(self._sample)
        share = self.cells.shape[Y] / float(np.prod(self.cells.shape))
        weigh_step(self._clock, flow.time, flow.dt, self.after, self.weight, self.gathered)
        keep_first_mean(self.sums.planes, self.sums.at_planes, share, self.gathered, self.first)
        add_profiles(self.sums.planes, self.sums.at_planes, share, self.weight, self.totals)

    def _sample(self, box: Any, offsets: tuple[tuple[int, ...], ...], sums: ml.Field) -> None:
        sampling = _sampling(self.cells.rank, offsets, self.flow.staggered)
        places = self.cells.grid.offsets(*sampling.places)
        sampling.kernel(box, self.flow.velocity[places], self.flow.faces[places], sums)

    def profiles(self) -> Profiles | None:
        """The means so far; None where nothing has been gathered."""
        time = float(self.gathered.value)
        if time <= 0.0:
            return None
        rank, totals = self.cells.rank, self.totals.numpy() / time
        mean = totals[:, :rank]
        return Profiles(
            self.cells.axes[Y].centres, self.cells.edges[Y], time, mean,
            np.maximum(totals[:, rank : 2 * rank] - mean**2, 0.0), totals[:, -1], self.first.numpy(),
        )  # fmt: skip


@dataclass(frozen=True)
class Profiles:
    """Over the planes of cells (n,) at ``y`` with ``edges`` (n + 1,): mean velocities (n, dim), mean squares of what
    deviates from them (n, dim), and the flux of momentum along x through the first face of each plane (n,), gathered
    over ``time``; ``first``: the mean velocity along x (n,) at the beginning of that time."""

    y: np.ndarray
    edges: np.ndarray
    time: float
    mean: np.ndarray
    squares: np.ndarray
    flux: np.ndarray
    first: np.ndarray

    def viscous_shear(self, viscosity: float) -> np.ndarray:
        """nu dU/dy at all edges (n + 1,)."""
        places = np.concatenate([self.edges[:1], self.y, self.edges[-1:]])
        return viscosity * np.diff(np.concatenate([[0.0], self.mean[:, 0], [0.0]])) / np.diff(places)

    def reynolds_shear(self) -> np.ndarray:
        """-<u'v'> at all edges (n + 1,): nothing passes the walls, nor, in the mean, any plane."""
        return np.concatenate([-self.flux, [0.0]])

    def gain(self, now: np.ndarray) -> np.ndarray:
        """What the fluid below each edge (n + 1,) gained of momentum per time, ``now`` (n,) the mean velocity."""
        rates = (now - self.first) / self.time * np.diff(self.edges)
        return np.concatenate([[0.0], np.cumsum(rates)])


def folded(values: np.ndarray, sign: float) -> np.ndarray:
    """The mean of both halves of a profile as seen from either wall; sign -1 for what changes it from one to the
    other. The middle, where there is one, is left as it is, or what is left of it."""
    half = (len(values) + 1) // 2
    return 0.5 * (values[:half] + sign * values[::-1][:half])


# --- kernels ----------------------------------------------------------------------------------------------------------


@ml.kernel
def weigh_step(time: ml.Read, dt: ml.Read, after: ml.Read, weight: ml.Write, gathered: ml.ReadWrite):
    """How much the step that ends now counts."""
    now = np.where(time > after, 1.0, 0.0) * dt
    weight[...] = now
    gathered += now


@ml.kernel
def keep_first_mean(sums: ml.Read, share: ml.Read, gathered: ml.Read, first: ml.ReadWrite):
    """That at the end of the last step which does not count."""
    first[...] = np.where(gathered > 0.0, first, share * sums[0, 0])


@ml.kernel
def add_profiles(sums: ml.Read, share: ml.Read, weight: ml.Read, totals: ml.Inc):
    totals += weight * share * sums[0]


@dataclass(frozen=True)
class _Sampling:
    places: tuple[tuple[int, ...], ...]
    kernel: ml.Kernel


@cache
def _sampling(rank: int, offsets: tuple[tuple[int, ...], ...], staggered: bool) -> _Sampling:
    """Sums over cells at offsets of the velocities, of their squares, and of the flux of u through the first face along
    y; and the places that they are made of."""
    here, back, below, above = (0,) * rank, along(rank, 0, -1), along(rank, Y, -1), along(rank, Y, 1)

    def at_centres(at: tuple[int, ...], u: Any, faces: Any) -> list[Any]:
        parts = [u[at][c] for c in range(rank)]
        flux = faces[at][Y] * 0.5 * (u[at][0] + u[moved(at, below)][0])
        return [*parts, *(one * one for one in parts), flux]

    def at_faces(at: tuple[int, ...], u: Any, faces: Any) -> list[Any]:
        """Each velocity at its own place, but for those along y, which are between planes."""
        low, high = faces[at][Y], faces[moved(at, above)][Y]
        parts, squares = [faces[at][c] for c in range(rank)], [faces[at][c] * faces[at][c] for c in range(rank)]
        parts[Y], squares[Y] = 0.5 * (low + high), 0.5 * (low * low + high * high)
        through = 0.5 * (low + faces[moved(at, back)][Y])
        return [*parts, *squares, through * 0.5 * (faces[at][0] + faces[moved(at, below)][0])]

    sample = at_faces if staggered else at_centres

    @ml.kernel
    def sample_planes(u: ml.Read, faces: ml.Read, sums: ml.Write):
        samples = [sample(at, u, faces) for at in offsets]
        sums[...] = np.stack([sum(parts) for parts in zip(*samples, strict=True)])

    places = dict.fromkeys(moved(at, by) for at in offsets for by in (here, back, below, above))
    return _Sampling(tuple(places), sample_planes)
