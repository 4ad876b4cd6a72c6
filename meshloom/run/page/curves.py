"""Monitors as curves: thinned out for a page, and where their lines go, for whoever has no JavaScript (``page.html``
draws that; ``page.js`` the same, and lets a person hover, zoom and choose).

Not by matplotlib: 24 curves, light and dark, take it 8.7 s and 1.3 MB, the page with these 0.4 s and 0.13 MB of them,
and whoever lacks the extra ``plot`` would have none (bench/results/2026-11-17_drawing_aarch64.json).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from meshloom.records import dataclass
from meshloom.run.facts import Monitors
from meshloom.run.page.numbers import tick_labels

MOST_POINTS = 2000  # of a curve
_ALL_POINTS = 40_000  # of all curves together
DRAWN_POINTS = 600  # of the drawing, which has no more pixels
MOST_CURVES = 24
_DECADES = 10.0  # largest by smallest value from which a curve of positive ones is drawn logarithmically
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 220, 70, 12, 10, 26  # of a drawing and its margins
LABEL_ROOM = LEFT - 8  # pixels to the left of the axis
_LETTER = 7  # pixels of one, at most


@dataclass(frozen=True)
class Curve:
    """One monitor as it is shown: ``y`` (k,) after iterations ``x`` (k,), of ``rows`` in all."""

    name: str
    x: np.ndarray
    y: np.ndarray
    rows: int

    @property
    def thinned(self) -> bool:
        return len(self.x) < self.rows

    @property
    def logarithmic(self) -> bool:
        """Is it better seen by decades?"""
        finite = self.y[np.isfinite(self.y)]
        over_decades = finite.size > 0 and bool(finite.min() > 0.0) and bool(finite.max() >= _DECADES * finite.min())
        return over_decades and not self.rises_evenly

    @property
    def rises_evenly(self) -> bool:
        """Does it rise all the time, and not by decades in the second half, as a time does, whatever its name is? It
        spans decades because it begins near 0."""
        if len(self.y) < 2 or not np.isfinite(self.y).all() or not (np.diff(self.y) > 0.0).all():
            return False
        middle = float(np.interp(0.5 * (self.x[0] + self.x[-1]), self.x, self.y))
        return bool(self.y[-1] - self.y[0] < _DECADES * (middle - self.y[0]))


def curves_of(monitors: Monitors) -> list[Curve]:
    """The first ``MOST_CURVES`` monitors, each with as many points as a page has room for."""
    names = monitors.names[:MOST_CURVES]
    most = min(MOST_POINTS, _ALL_POINTS // max(1, len(names)))
    found = []
    for k, name in enumerate(names):
        values = monitors.values[:, k]
        kept = thinned(values, most)
        found.append(Curve(name, kept + 1, values[kept], len(values)))
    return found


def thinned(values: np.ndarray, most: int) -> np.ndarray:
    """Positions (k,) of at most so many values (n,), ascending: the first and the last, and of every stretch between
    them the smallest and the largest, so that no peak is lost; of a stretch with something that is not finite, that
    too."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    edges = np.linspace(0, count, max(2, (most - 2) // 3) + 1).astype(np.int64)
    kept = {0, count - 1}
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        stretch = values[low:high]
        finite = np.isfinite(stretch)
        if not finite.all():
            kept.add(low + int(np.argmin(finite)))
        if finite.any():
            kept.add(low + int(np.argmin(np.where(finite, stretch, np.inf))))
            kept.add(low + int(np.argmax(np.where(finite, stretch, -np.inf))))
    return np.array(sorted(kept))


def data(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """The curves for ``page.js``; six digits, and None where a value is not finite."""
    return [
        {
            "name": one.name,
            "x": one.x.tolist(),
            "y": [float(f"{y:.6g}") if math.isfinite(y) else None for y in one.y.tolist()],
            "log": one.logarithmic,
            "even": one.rises_evenly,
        }
        for one in curves
    ]


# ----- drawn ----------------------------------------------------------------------------------------------------------
class Tick(NamedTuple):
    """A line of the grid, and its label: where they are, in pixels, and whether the label is set closer to fit."""

    place: float
    label: str
    label_at: float
    squeezed: bool = False


class Drawing(NamedTuple):
    """A curve with its axes, in pixels; ``path`` are the commands of SVG."""

    x_ticks: list[Tick]
    y_ticks: list[Tick]
    path: str


def drawing(curve: Curve) -> Drawing | None:
    """Where a curve and its axes are drawn; None where no value is finite."""
    at = thinned(curve.y, DRAWN_POINTS)
    x, y = curve.x[at].astype(float), curve.y[at].astype(float)
    log = curve.logarithmic
    with np.errstate(all="ignore"):
        y = np.log10(y) if log else y
    finite = y[np.isfinite(y)]
    if not finite.size:
        return None
    x_range, y_range = _range(x, 0.0), _range(finite, 0.04)
    return Drawing(_x_ticks(x_range), _y_ticks(y_range, log=log), _path(x, y, x_range, y_range))


def _range(values: np.ndarray, margin: float) -> tuple[float, float]:
    """From the smallest to the largest, and a little more; never empty."""
    low, high = float(values.min()), float(values.max())
    if not high > low or not math.isfinite(high - low):
        around = abs(low) * 0.05 or 1.0
        return max(low - around, -1e300), min(high + around, 1e300)
    more = margin * (high - low)
    return low - more, high + more


def _place(value: float, span: tuple[float, float], start: float, end: float) -> float:
    return start + (value - span[0]) / (span[1] - span[0]) * (end - start)


def _path(x: np.ndarray, y: np.ndarray, x_range: tuple[float, float], y_range: tuple[float, float]) -> str:
    """The curve, broken where a value is not finite."""
    parts, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if not math.isfinite(b):
            pen = "M"
            continue
        across = _place(a, x_range, LEFT, WIDTH - RIGHT)
        parts.append(f"{pen}{across:.1f} {_place(b, y_range, HEIGHT - BOTTOM, TOP):.1f}")
        pen = "L"
    return "".join(parts)


def _x_ticks(span: tuple[float, float]) -> list[Tick]:
    """Labels stand below their lines, but all of each within the drawing."""
    values = ticks(*span)
    places = [_place(value, span, LEFT, WIDTH - RIGHT) for value in values]
    return [
        Tick(round(across, 1), label, round(min(across, WIDTH - 0.5 * _LETTER * len(label)), 1))
        for across, label in zip(places, tick_labels(values), strict=True)
    ]


def _y_ticks(span: tuple[float, float], *, log: bool) -> list[Tick]:
    """A label with more letters than the margin has room for is set closer: none is cut."""
    values = (log_ticks if log else ticks)(*span)
    places = [_place(value, span, HEIGHT - BOTTOM, TOP) for value in values]
    labels = tick_labels([10.0**one if log else one for one in values])
    return [
        Tick(round(up, 1), label, round(up + 4.0, 1), _LETTER * len(label) > LABEL_ROOM)
        for up, label in zip(places, labels, strict=True)
    ]


def log_ticks(low: float, high: float) -> list[float]:
    """Decimal logarithms, within a range of them, of 1, 2 and 5 times powers of ten; of these alone in a long range; of
    other round numbers in one that has hardly any of them."""
    if high - low > 3.0:
        return [value for value in ticks(low, high) if value == round(value)]
    found = [k + math.log10(one) for k in range(math.floor(low), math.ceil(high) + 1) for one in (1.0, 2.0, 5.0)]
    inside = [value for value in found if low <= value <= high]
    return inside if len(inside) > 1 else ticks(low, high)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers within a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1.0, 2.0, 5.0, 10.0):
        if (high - low) / (step * factor) <= most:
            step *= factor
            break
    first = math.ceil(low / step)
    count = math.floor(high / step) - first + 1
    return [round((first + k) * step, 12) if abs(step) > 1e-9 else (first + k) * step for k in range(max(count, 0))]
