"""The time step: as long as the fastest wave allows in the cell that needs the shortest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import meshloom as ml


@dataclass(frozen=True)
class Timing:
    """When to end and how the step may change."""

    end: float  # seconds
    trim: bool  # shorten the last step to end exactly there
    growth: float  # a step may be so many times as long as the one before
    cfl: float  # of the time step that the fastest wave allows

    def steps_left(self, time: float, pace: float) -> int:
        """Steps still to go at least, by the fastest growth that is allowed; ``pace`` is the last untrimmed step."""
        left = self.end - time
        if left <= 0.0:
            return 0
        if not math.isfinite(pace):
            return 1
        growth = self.growth * (1.0 + 1e-6)  # single precision rounds the product up at times
        return max(1, math.floor(math.log1p(left * (growth - 1.0) / (growth * pace)) / math.log(growth) - 1e-9))


class ClockKernels(NamedTuple):
    """In the order of use."""

    time_limit: ml.Kernel
    tick: ml.Kernel


def kernels(timing: Timing) -> ClockKernels:
    """The two kernels of the clock."""

    @ml.kernel
    def time_limit(area: ml.Read, waves: ml.Read, longest: ml.Write, limit: ml.Min):
        """How long a step each cell allows: until its waves have crossed it."""
        allowed = 2.0 * area / waves
        longest[...] = allowed
        limit[...] = allowed

    @ml.kernel
    def tick(limit: ml.Read, pace: ml.ReadWrite, dt: ml.Write, time: ml.ReadWrite):
        """The next step, and the time at its end."""
        step = np.minimum(timing.cfl * limit, timing.growth * pace)
        pace[...] = step
        if timing.trim:
            left = timing.end - time
            dt[...] = np.minimum(step, left)
            time[...] = np.where(step >= left, timing.end, time + step)
        else:
            dt[...] = step
            time[...] = time + step

    return ClockKernels(time_limit, tick)
