"""The clock of flows in steps of one length: how many are left, and the loop that sets it on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import meshloom as ml
from meshloom.errors import MeshError

SLACK = 1e-3  # of a step: what rounding of the time adds up to in many steps, and more, is left to the last one


@dataclass(frozen=True)
class EvenSteps:
    """Steps of one length until the end; the last one is cut to end there, or a little longer: no step is so short that
    nothing but rounding happens in it."""

    step: float
    end: float

    def __post_init__(self) -> None:
        if not (0.0 < self.step < math.inf) or math.isnan(self.end):
            raise MeshError(f"a step must be a number above 0 and the end a number, got {self.step!r} and {self.end!r}")

    @property
    def longest(self) -> float:
        """What no step is longer than."""
        return self.step * (1.0 + SLACK)

    def steps_left(self, time: float) -> int:
        return max(math.ceil((self.end - time) / self.step - SLACK), 0)


@ml.kernel
def tick(dt: ml.Write, time: ml.ReadWrite, step: ml.Read, end: ml.Read):
    """The next step of ``EvenSteps``, and the time after it; beyond the end steps are whole again, and not 0 long."""
    left = end - time
    last = np.logical_and(left > 0.0, left <= step * (1.0 + SLACK))
    dt[...] = np.where(last, left, step)
    time[...] = np.where(last, end, time + step)
