"""The end of a run at a residual: when a monitor is below a limit, which is looked at after so many iterations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResidualStop:
    """``relative``: the limit counts in units of the monitor's value after the first iteration."""

    monitor: str
    below: float
    relative: bool = False
    every: int = 10

    def limit(self, first: float) -> float:
        """What the monitor must be below, where it was ``first`` after the first iteration."""
        return self.below * abs(first) if self.relative else self.below

    def is_met(self, iteration: int, first: float, now: float) -> bool:
        """Whether the run ends here; never where the monitor is not a number."""
        return iteration > 0 and iteration % self.every == 0 and abs(now) < self.limit(first)

    def text(self, first: float, now: float) -> str:
        """What has been reached, in words."""
        begun = f", {self.below:g} of its first value" if self.relative else ""
        return f"{self.monitor} is {now:.4g}, below {self.limit(first):.4g}{begun}"
