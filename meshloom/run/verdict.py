"""What the history of a residual says about a run towards a steady state: did it come there, and if not, why not?

A pure function of the numbers, whatever their scale and however many: residuals count by their logarithms, and parts of
the run by shares of its length.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from meshloom.records import dataclass

CONVERGED, FALLING, STALLED, SWINGING, GROWING, BROKEN, TOO_SHORT = (
    "converged", "falling", "stalled", "swinging", "growing", "broken down", "too short",
)  # fmt: skip
USUAL_FALL = 1e3  # three orders of magnitude: what counts as converged where nobody has said what does
_SHORTEST = 8  # iterations: fewer say nothing
_SHORTEST_REST = 32  # iterations: in a quarter of fewer no swing, up and down for two rows each, is seen twice
_BLOCKS = 16  # of a run, in each of which the median counts, so that ringing, noise and a lone 0 do not
_MOVED = 1.1  # times as large or small as a quarter of the run before: less is standing still
_ANOTHER = 2.0  # times as large or small is another level
_ROUNDING = 1e-13  # of logarithms: closer values are the same
_FEW = 3  # residuals have a median that a lone one does not move


@dataclass(frozen=True)
class Verdict:
    """``state`` in a word, since which iteration (0: that means nothing), and a sentence."""

    converged: bool
    state: str
    since: int
    text: str

    def with_cure(self, cure: str) -> Verdict:
        """The same, and what may help."""
        return replace(self, text=f"{self.text}; {cure}") if cure else self


def judged(name: str, residuals: np.ndarray, limit: float | None = None) -> Verdict | None:
    """The verdict on the residual ``name`` after every iteration, (n,). ``limit``: below it a run has converged; None:
    when it has fallen by ``USUAL_FALL`` since the first. None where there was no iteration."""
    r = np.abs(np.asarray(residuals, np.float64))
    if not r.size:
        return None
    if not np.isfinite(r).all():
        since = int(np.argmin(np.isfinite(r))) + 1
        return Verdict(False, BROKEN, since, f"broken down: {name} is not finite since iteration {since}")
    if r[-1] == 0.0 or (limit is not None and r[-1] < limit):
        below = "" if limit is None else f", below {limit:.3g}"
        return Verdict(True, CONVERGED, r.size, f"converged: {name} is {r[-1]:.3g}{below}")
    if r.size < _SHORTEST:
        return _too_short(r.size)
    return _of_levels(name, r, limit)


def _too_short(count: int) -> Verdict:
    few = "1 iteration is" if count == 1 else f"{count} iterations are"
    return Verdict(False, TOO_SHORT, 0, f"not converged: {few} too few to judge")


def _slow_swing(logs: np.ndarray) -> int:
    """Iterations that the slowest swing of (2 quarter,) values about the line through the medians of both halves takes
    at least; 0 where each half holds two of them, or there is none.

    Half of each half lies on either side of that line, so that stretches on one side last half as long even where a
    swing is slower than what is seen of it, or where there is none: one swing in a half says nothing about its length,
    two are the least that do. Between medians of windows that hold fewer, a swing may hide a fall.
    """
    quarter = len(logs) // 2
    first, second = np.median(logs[:quarter]), np.median(logs[quarter:])
    share = (np.arange(2 * quarter) - quarter + 0.5) / quarter  # 0 between the halves, +-1/2 in their middles
    about = logs - (0.5 * (first + second) + (second - first) * share)
    side = np.where(np.abs(about) > _ROUNDING * np.abs(logs).max(), np.sign(about), 0.0)
    begins = np.flatnonzero(np.diff(side, prepend=np.nan))
    stretches = np.diff(np.append(begins, side.size))[side[begins] != 0.0]
    at_least = 2 * (int(stretches.max(initial=1)) - 1)  # from crossing to crossing it is more than what lies between
    return at_least if 2 * at_least > quarter else 0


def _rests(logs: np.ndarray, count: int) -> bool:
    """Whether the last ``count`` residuals of a run stand still: between their halves they have moved by less than a
    tenth a quarter of the run, and swings in them are over often enough, or too small to hide a fall."""
    middle = count // 2
    last, little = logs[-2 * middle :], np.log(_MOVED) * 4.0 * middle / logs.size
    levels = [np.median(part) for part in np.array_split(last, 4)]
    moved = np.median(last[middle:]) - np.median(last[:middle])
    return bool(abs(moved) < little and (np.ptp(levels) < 2.0 * little or _slow_swing(last) == 0))


def _lower_before(logs: np.ndarray) -> bool:
    """Whether a whole quarter of the run, after its highest one, was lower than the last: then what falls there comes
    down from a bump, or swings."""
    medians = np.array([np.median(one) for one in np.array_split(logs, 4)])
    return bool(medians[-1] > medians[int(np.argmax(medians)) :].min() + np.log(_MOVED))


def _of_fall(name: str, r: np.ndarray, logs: np.ndarray, limit: float | None, decades: float) -> Verdict | None:
    """The verdict where the last quarter is lower than the one before; None: it is no fall, the run stands still."""
    few = f"{r.size} iterations are too few to tell"
    if r.size >= _SHORTEST_REST and _lower_before(logs):
        least = int(np.argmin(r))
        return None if _rests(logs, r.size // 8) else Verdict(
            False, SWINGING, 0, f"not yet converged: {name} falls, but was lower before, {r[least]:.3g} in iteration"
            f" {least + 1}: {few} whether it swings")  # fmt: skip
    short = f"is still above {limit:.3g}" if limit is not None else f"has fallen by {decades:.1f} decades"
    if r.size >= _SHORTEST_REST and _rests(logs, r.size // 4):
        now = np.exp(np.median(logs[-(r.size // 8) :]))
        return Verdict(False, SWINGING, 0, f"not yet converged: {name} {short}, and stands still at {now:.3g} of late:"
                       f" {few} whether it falls on")  # fmt: skip
    return Verdict(False, FALLING, r.size, f"not yet converged: {name} {short}, and falls; more iterations help")


def _of_levels(name: str, r: np.ndarray, limit: float | None) -> Verdict:
    """By the medians of logarithms in parts of the run."""
    floor = float(np.finfo(np.float64).eps) ** 2 * r.max()  # a 0 between others is as good as that
    logs = np.log(np.maximum(r, floor))
    ends = np.linspace(0, r.size, min(_BLOCKS, r.size) + 1).astype(int)
    levels = np.array([np.median(logs[a:b]) for a, b in pairwise(ends)])
    quarter = r.size // 4
    change = np.median(logs[-quarter:]) - np.median(logs[-2 * quarter : -quarter])
    decades = max(0.0, (logs[0] - levels[-1]) / np.log(10.0))  # since the first: the largest may be a spike
    now, least = (float(np.exp(level)) for level in (levels[-1], levels.min()))
    at_the_end = r.size >= _FEW * len(levels) and levels[-1] - levels[-2] > np.log(_ANOTHER)
    if (change > np.log(_MOVED) or at_the_end) and now > _ANOTHER * least:
        lowest = int(np.argmin(levels))
        first, last = ends[max(lowest - 1, 0)], ends[min(lowest + 2, len(levels))]
        since = int(first + np.argmin(r[first:last])) + 1
        return Verdict(False, GROWING, since,
                       f"not converged: {name} grows since iteration {since}, from {least:.3g} to {now:.3g}")
    if limit is None and decades >= np.log10(USUAL_FALL):
        return Verdict(True, CONVERGED, r.size, f"converged: {name} has fallen by {decades:.1f} decades")
    falls = change < -np.log(_MOVED)
    if falls and (found := _of_fall(name, r, logs, limit, decades)) is not None:
        return found
    swing = 0 if falls else _slow_swing(logs[-2 * quarter :])
    if swing > 0 and change - np.ptp(levels[len(levels) // 2 :]) < -np.log(_MOVED):
        return Verdict(False, SWINGING, 0, f"not yet converged: {name} swings slowly about {now:.3g}, for {swing}"
                       f" iterations or longer at a time: {r.size} iterations are too few to tell whether it falls")
    if r.size < _SHORTEST_REST:
        return _too_short(r.size)
    apart = np.flatnonzero(np.abs(levels - levels[-1]) > np.log(_ANOTHER))
    since = int(ends[apart[-1] + 1]) + 1 if apart.size else 1
    return Verdict(False, STALLED, since, f"not converged: {name} has stalled at {now:.3g} since iteration {since}")
