"""Monitors as curves: thinned out for a page, and drawn as SVG for whoever has no JavaScript (``page.js`` draws the
same, and lets a person hover, zoom and choose)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from meshloom.run.facts import Monitors
from meshloom.run.page.numbers import tick_labels

MOST_POINTS = 2000  # of a curve
_ALL_POINTS = 40_000  # of all curves together
_STATIC_POINTS = 600  # of the drawing, which has no more pixels
MOST_CURVES = 24
_DECADES = 10.0  # largest by smallest value from which a curve of positive ones is drawn logarithmically
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 220, 70, 12, 10, 26  # of a drawing and its margins
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
def drawing(curve: Curve) -> str:
    """A curve with its axes, as SVG."""
    inside = _inside(curve)
    label = escape(f"{curve.name} over iterations", quote=True)
    return f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{inside}</svg>'


def _inside(curve: Curve) -> str:
    at = thinned(curve.y, _STATIC_POINTS)
    x, y = curve.x[at].astype(float), curve.y[at].astype(float)
    log = curve.logarithmic
    with np.errstate(all="ignore"):
        y = np.log10(y) if log else y
    finite = y[np.isfinite(y)]
    if not finite.size:
        return f'<text x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">no finite value</text>'
    x_range, y_range = _range(x, 0.0), _range(finite, 0.04)
    return "".join((*_axes(x_range, y_range, log=log), f'<path class="line" d="{_path(x, y, x_range, y_range)}"/>'))


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


def _axes(x_range: tuple[float, float], y_range: tuple[float, float], *, log: bool) -> Iterator[str]:
    values = ticks(*x_range)
    for value, label in zip(values, tick_labels(values), strict=True):
        across = _place(value, x_range, LEFT, WIDTH - RIGHT)
        yield f'<path class="grid" d="M{across:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{_inside_x(across, label):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>'
    values = (log_ticks if log else ticks)(*y_range)
    for value, label in zip(values, tick_labels([10.0**one if log else one for one in values]), strict=True):
        up = _place(value, y_range, HEIGHT - BOTTOM, TOP)
        yield f'<path class="grid" d="M{LEFT} {up:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 6}" y="{up + 4:.1f}" text-anchor="end"{_squeezed(label)}>{label}</text>'


def _inside_x(across: float, label: str) -> float:
    """Where the middle of a label stands: below its tick, but all of it within the drawing."""
    return min(across, WIDTH - 0.5 * _LETTER * len(label))


def _squeezed(label: str) -> str:
    """A label with more letters than the margin has room for is set closer: none is cut."""
    room = LEFT - 8
    return f' textLength="{room}" lengthAdjust="spacingAndGlyphs"' if _LETTER * len(label) > room else ""


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
