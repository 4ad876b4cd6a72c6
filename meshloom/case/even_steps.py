"""The clock of cases in steps of one length: how many are left, and the loop that sets it on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import MeshError
from meshloom.records import dataclass

_ROUNDINGS = 4.0  # of one time: a product, a quotient and the end as it was given
_SAME = 1e-8  # of a step: what the rounding of a step may add up to, and be no reason for another length
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

    def is_whole(self, time: float) -> bool:
        """Whether a run from 0 comes to that time by whole steps, as ``tick`` has it for double precision."""
        multiple = math.floor(time / self.step + 0.5) * self.step
        return bool(abs(multiple - time) <= rounding(time, self.step, np.float64))

    def after(self, time: float) -> tuple[float, float]:
        """What ``tick`` does, for steps that Python takes: the length of the next one, and the time after it."""
        length, then = _ticked(time, self.step, self.end, np.float64)
        return float(length), float(then)


def rounding(time: Any, step: Any, dtype: Any) -> Any:
    """How far a time may be from a multiple of the step, and still be meant to be one: by roundings of the time, and of
    the step, which was computed, in each of the steps to there."""
    of_time = _ROUNDINGS * float(np.finfo(dtype).eps) * np.abs(time)
    return np.maximum(of_time, np.minimum(of_time * np.abs(time) / step, _SAME * step))


def _ticked(time: Any, step: Any, end: Any, dtype: Any) -> tuple[Any, Any]:
    """The length of the next step, and the time after it."""
    done = np.floor(time / step + 0.5)
    regular = np.abs(done * step - time) <= rounding(time, step, dtype)
    after = np.where(regular, (done + 1.0) * step, time + step)
    left = end - time
    last = np.logical_and(left > 0.0, left <= step * (1.0 + SLACK))
    uncut = np.abs(after - end) <= rounding(end, step, dtype)
    length = np.where(np.logical_and(last, np.logical_not(uncut)), left, step)
    return length, np.where(last, end, after)


@ml.kernel
def tick(dt: ml.Write, time: ml.ReadWrite, step: ml.Read, end: ml.Read):
    """The next step of ``EvenSteps``, and the time after it; beyond the end steps are whole again, and not 0 long.

    Times are multiples of the step for as long as steps are whole, and a last step that differs from the others by
    rounding alone is as long as they are: whoever goes on later has the bits of a run in one go.
    """
    length, after = _ticked(time, step, end, time.dtype)
    dt[...] = length
    time[...] = after


class Clock:
    """The time of a case in ``EvenSteps``: set as ``self.run_clock``, it ends the run. ``time`` belongs to ``state``
    and ``recorded`` of the case; ``dt`` is the step that ``tick()``, the first loop of a program, sets."""

    def __init__(self, step: float, end: float, dtype: Any = np.float64):
        self.steps = EvenSteps(float(step), float(end))
        self.time, self.dt = (ml.Global(0.0, name, dtype=dtype) for name in ("time", "dt"))
        self._set = ml.Set(1, "clock")

    def tick(self) -> None:
        """The next step, and the time after it."""
        tick(self._set, self.dt, self.time, self.steps.step, self.steps.end)
