"""How fast a run goes: the size of the next chunk, the rate to show, the mean to report."""

from __future__ import annotations

_CHUNK_SECONDS = 0.2
_SMOOTHING = 0.3  # weight of the newest chunk in the rate shown


class Pace:
    """Fed with the time of every chunk. The first chunk is one iteration and may include compiling."""

    def __init__(self) -> None:
        self.rate = 0.0  # iterations per second, smoothed
        self._newest = 0.0  # seconds per iteration in the newest chunk
        self._first = 0.0  # seconds of the first iteration
        self._iterations, self._seconds = 0, 0.0

    def chunk(self) -> int:
        """Iterations that take about a fifth of a second; 1 before anything is known."""
        return max(1, round(_CHUNK_SECONDS / self._newest)) if self._newest > 0.0 else 1

    def done(self, iterations: int, seconds: float) -> None:
        """A chunk took so long."""
        seconds = max(seconds, 1e-9)
        self._newest = seconds / iterations
        fresh = 1.0 / self._newest
        if self._iterations == 0:
            self._first = seconds
        self.rate = fresh if self._iterations <= 1 else (1.0 - _SMOOTHING) * self.rate + _SMOOTHING * fresh
        self._iterations += iterations
        self._seconds += seconds

    @property
    def seconds_per_iteration(self) -> float:
        """The mean, without the first iteration where there were more."""
        if self._iterations <= 1:
            return self._first
        return (self._seconds - self._first) / (self._iterations - 1)
