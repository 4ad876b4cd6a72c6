"""What a scheme does to a wave, and how accurate it is: pure functions of the scheme's coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from meshloom.compact.scheme import Row, Scheme
from meshloom.compact.taylor import error_constant, row_order


def orders(scheme: Scheme) -> dict[str, int]:
    """The order of every row by its place: ``interior``, ``low 0``, ``low 1``, ..."""
    return {place: row_order(row.left, row.right, scheme.degree) for place, row in scheme.rows()}


def order(scheme: Scheme) -> int:
    """The order in the interior, which is that on a periodic line."""
    return orders(scheme)["interior"]


def error_constants(scheme: Scheme) -> dict[str, Fraction]:
    """The factor C of the leading error C h^order f^(degree + order), for every row by its place."""
    return {place: error_constant(row.left, row.right, scheme.degree) for place, row in scheme.rows()}


def symbol(scheme: Scheme, theta: np.ndarray) -> np.ndarray:
    """What the interior row makes of the wave exp(i theta x / h), as a complex factor times h^-degree."""
    return _sum(scheme.interior.right, theta) / _sum(scheme.interior.left, theta)


def modified_wavenumber(scheme: Scheme, theta: np.ndarray) -> np.ndarray:
    """The wavenumber times h that a derivative answers with for waves of wavenumber ``theta`` = k h, in 0 to pi.

    Complex for a first derivative: the imaginary part is damping (negative for waves to the right) and 0 for central
    schemes. For a second derivative it is what stands for (k h)^2, for a filter the factor of the wave.
    """
    answer = symbol(scheme, np.asarray(theta, np.float64))
    return {0: answer.real, 1: answer / 1j, 2: -answer.real}[scheme.degree]


def matrices(scheme: Scheme, points: int, *, periodic: bool) -> tuple[np.ndarray, np.ndarray]:
    """Dense A and B (points, points) of A g = h^-degree B f on one line: for tests, and for the eigenvalues."""
    left, right = np.zeros((points, points)), np.zeros((points, points))
    rows: list[Row] = [scheme.interior] * points
    if not periodic:
        high = scheme.high_rows
        rows = [*scheme.low, *[scheme.interior] * (points - len(scheme.low) - len(high)), *reversed(high)]
    for i, row in enumerate(rows):
        for matrix, coefficients in ((left, row.left), (right, row.right)):
            for offset, value in coefficients.items():
                matrix[i, (i + offset) % points if periodic else i + offset] += float(value)
    return left, right


def _sum(coefficients: Mapping[int, Fraction], theta: np.ndarray) -> np.ndarray:
    waves = np.exp(1j * np.multiply.outer(theta, np.array(list(coefficients))))
    return waves @ np.array([float(value) for value in coefficients.values()])
