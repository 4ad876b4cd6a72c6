"""The conformal map from the outside of a circle to that of an airfoil: O-grids without a skew cell.

1. Karman and Trefftz: a power of (z - tail) / (z - focus of the nose) opens the corner at the trailing edge and turns
   the airfoil into a nearly round, smooth curve.
2. Theodorsen: that curve is r(angle); ln(r) as a Fourier series in the angle on a circle, whose conjugate gives the
   angle on the curve, is found by repeated transforms. The series, continued outwards, maps the whole plane.

Sections are symmetric: all coefficients are real, and the trailing edge stays at angle 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meshloom.records import dataclass

#: Fourier terms, of which half are kept. On NACA 0012, 1024 leave 1e-6 chords between the map and the section.
_TERMS = 1024
_ITERATIONS = 60


@dataclass(frozen=True)
class AirfoilMap:
    """``at`` maps points outside the unit circle to the plane of an airfoil from x = 0 to 1; 1 goes to its tail."""

    power: float  # of the corner: 2 - (angle between the sides of the tail) / pi
    focus: float  # x of the singular point inside the nose
    centre: float
    series: np.ndarray  # coefficients of ln(zeta / eta) in 1/eta

    def at(self, eta: np.ndarray) -> np.ndarray:
        """Complex places in the plane of the airfoil of complex ``eta`` with |eta| >= 1."""
        logarithm = np.zeros_like(eta)
        for coefficient in self.series[::-1]:
            logarithm = logarithm / eta + coefficient
        zeta = self.centre + eta * np.exp(logarithm)
        ratio = ((zeta - 1) / (zeta + 1)) ** self.power
        with np.errstate(invalid="ignore", divide="ignore"):
            half = (1 - self.focus) / 2
            return (1 + self.focus) / 2 + half * (1 + ratio) / (1 - ratio)

    @property
    def radius(self) -> float:
        """Chords at a large distance for each unit of |eta|."""
        return float(np.exp(self.series[0]) * (1 - self.focus) / (2 * self.power))


def airfoil_map(
    half_thickness: Callable[[np.ndarray], np.ndarray], nose_radius: float, tail_slope: float
) -> AirfoilMap:
    """The map of a symmetric section from its half thickness on 0 <= x <= 1, which is 0 at both ends.

    ``tail_slope`` is the derivative there at x = 1, negative. The map is singular half a radius inside the nose.
    """
    from scipy.interpolate import CubicSpline  # here, because importing it takes longer than making a mesh

    power, focus = 2 + 2 * np.arctan(tail_slope) / np.pi, nose_radius / 2
    x = (1 + np.cos(np.linspace(0, np.pi, 2 * _TERMS + 1))) / 2  # from the tail to the nose
    z = x + 1j * half_thickness(x)
    ratio = ((z - 1) / (z - focus)) ** (1 / power)
    zeta = (1 + ratio) / (1 - ratio)
    zeta[-1] = zeta[-1].real
    centre = (1 + zeta[-1].real) / 2
    away = zeta - centre
    log_radius = CubicSpline(np.angle(away), np.log(np.abs(away)), bc_type="clamped")  # the curve is symmetric
    on_circle = np.linspace(0, np.pi, _TERMS + 1)
    angle = on_circle
    for _ in range(_ITERATIONS):
        series = _cosine_series(log_radius(angle))[: _TERMS // 2]
        angle = on_circle - _sines(series, _TERMS)
    return AirfoilMap(power, focus, centre, series)


def _cosine_series(values: np.ndarray) -> np.ndarray:
    """Coefficients of cos(k t) of values at equal steps from t = 0 to pi."""
    terms = np.fft.rfft(np.concatenate((values, values[-2:0:-1]))).real / (len(values) - 1)
    terms[[0, -1]] /= 2
    return terms


def _sines(series: np.ndarray, steps: int) -> np.ndarray:
    """The sum of series[k] sin(k t) at equal steps from t = 0 to pi."""
    spectrum = np.zeros(steps + 1, complex)
    spectrum[: len(series)] = -1j * series * steps
    return np.fft.irfft(spectrum, 2 * steps)[: steps + 1]
