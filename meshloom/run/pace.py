"""How fast a run goes: the size of the next chunk, and the one rate that progress and summary show.

The rate of a run is the mean over all of its iterations but those of the first chunk, which is one iteration and may
compile: their number over the seconds that they took, files not counted. It is unknown, 0, before a second chunk.
"""

from __future__ import annotations

_CHUNK_SECONDS = 0.1  # Ctrl-C is answered between two of them
_SMOOTHING = 0.3  # weight of the newest chunk where the time left is guessed


class Pace:
    """Fed with the time of every chunk."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of all chunks but the first
        self.recent = 0.0  # iterations per second, the newest chunks most: what is likely to come
        self._iterations = 0  # of all chunks but the first
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
            return
        rate_now = 1.0 / self._newest
        self.recent = (1.0 - _SMOOTHING) * self.recent + _SMOOTHING * rate_now if self.recent > 0.0 else rate_now
        self._iterations += iterations
        self.seconds += seconds

    @property
    def rate(self) -> float:
        """Iterations per second, as above; 0 while unknown."""
        return self._iterations / self.seconds if self._iterations else 0.0


def rate_text(rate: float, elements: int, element_name: str) -> str:
    """``198.2 iterations/s, 0.0127 M cells/s``; '' where the rate is unknown."""
    return f"{rate:.4g} iterations/s, {updates_text(rate, elements, element_name)}" if rate > 0.0 else ""


def updates_text(rate: float, elements: int, element_name: str) -> str:
    """Million updates of elements per second; '' where the rate is unknown."""
    return f"{rate * elements / 1e6:.3g} M {element_name}/s" if rate > 0.0 else ""
