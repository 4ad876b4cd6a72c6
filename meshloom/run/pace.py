"""How fast a run goes: the size of the next chunk, the rate to show, the mean to report."""

from __future__ import annotations

_CHUNK_SECONDS = 0.1  # Ctrl-C is answered between two of them
_SMOOTHING = 0.3  # weight of the newest chunk in the rate shown


class Pace:
    """Fed with the time of every chunk. The first one may include compiling, so no rate and no mean contains it."""

    def __init__(self) -> None:
        self.rate = 0.0  # iterations per second, smoothed; 0 before the second chunk
        self.seconds = 0.0  # of all chunks but the first
        self._iterations = 0  # of all chunks but the first
        self._first = 0.0  # seconds per iteration in the first chunk
        self._newest = 0.0  # seconds per iteration in the newest chunk

    def chunk(self) -> int:
        """Iterations that take about a tenth of a second; 1 before anything is known."""
        return max(1, round(_CHUNK_SECONDS / self._newest)) if self._newest > 0.0 else 1

    def done(self, iterations: int, seconds: float) -> None:
        """A chunk took so long."""
        seconds = max(seconds, 1e-9)
        is_first = self._newest == 0.0
        self._newest = seconds / iterations
        if is_first:
            self._first = self._newest
            return
        rate_now = 1.0 / self._newest
        self.rate = (1.0 - _SMOOTHING) * self.rate + _SMOOTHING * rate_now if self.rate > 0.0 else rate_now
        self._iterations += iterations
        self.seconds += seconds

    @property
    def seconds_per_iteration(self) -> float:
        """The mean, without the first chunk where there were more."""
        return self.seconds / self._iterations if self._iterations else self._first
