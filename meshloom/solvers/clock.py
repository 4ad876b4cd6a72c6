"""The time step: as long as the fastest wave allows in the cell that needs the shortest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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


class WaveClock:
    """``time`` and ``pace``, the last step before it was trimmed, are state; ``dt`` is the last step, ``limit`` what
    the fastest wave allowed."""

    def __init__(self, timing: Timing, dtype: Any):
        self.timing, self.set = timing, ml.Set(1, "clock")
        self.time = ml.Global(0.0, "time")
        self.pace, self.dt, self.limit = (
            ml.Global(value, name, dtype=dtype) for name, value in (("pace", np.inf), ("dt", 0.0), ("limit", 0.0))
        )
        self._time_limit, self._tick = kernels(timing)

    def tick(self, volume: ml.Field, waves: ml.Field) -> None:
        """The next step, for cells of a volume, or area, of which ``waves`` sweep so much per time."""
        self.limit.value = np.inf
        self._time_limit(volume.set, volume, waves, volume.like("longest_step"), self.limit)
        self._tick(self.set, self.limit, self.pace, self.dt, self.time)


def kernels(timing: Timing) -> tuple[ml.Kernel, ml.Kernel]:
    """The two kernels of the clock, in the order of use."""

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

    return time_limit, tick
