"""Geometry of one hexahedron with corners x (8, 3): 0123 around the lower face, 4567 above them.

Vectors are arrays of three; every function works on numbers and on the symbols of a kernel alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Corners of the faces, the normal pointing outwards by the right-hand rule of (c+d-a-b) x (b+c-a-d).
FACES = ((0, 1, 2, 3), (0, 4, 5, 1), (1, 5, 6, 2), (2, 6, 7, 3), (3, 7, 4, 0), (4, 7, 6, 5))

#: For each corner, the six others that its part of the volume depends on.
_AROUND = ((1, 2, 3, 4, 5, 7), (2, 3, 0, 5, 6, 4), (3, 0, 1, 6, 7, 5), (0, 1, 2, 7, 4, 6),
           (7, 6, 5, 0, 3, 1), (4, 7, 6, 1, 0, 2), (5, 4, 7, 2, 1, 3), (6, 5, 4, 3, 2, 0))  # fmt: skip

#: Corners of the faces as the characteristic length takes them.
_SIZED_FACES = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))

#: Signs of the corners 0 to 3 along (xi, eta, zeta); 4 to 7 lie opposite to 2, 3, 0, 1.
_SIGNS = ((-1.0, -1.0, -1.0), (1.0, -1.0, -1.0), (1.0, 1.0, -1.0), (-1.0, 1.0, -1.0))
OPPOSITE = (6, 7, 4, 5)


def cross(a: Any, b: Any) -> np.ndarray:
    """Vector product."""
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def volume(x: np.ndarray) -> Any:
    """Exact for the trilinear hexahedron: three triple products."""

    def d(a: int, b: int) -> np.ndarray:
        return x[a] - x[b]

    triples = (
        (d(3, 1) + d(7, 2), d(6, 3), d(2, 0)),
        (d(4, 3) + d(5, 7), d(6, 4), d(7, 0)),
        (d(1, 4) + d(2, 5), d(6, 1), d(5, 0)),
    )
    return sum(a @ cross(b, c) for a, b, c in triples) / 12.0


def volume_gradient(x: np.ndarray) -> np.ndarray:
    """How the volume changes with the position of each corner, (8, 3)."""

    def part(y: Any, z: Any) -> Any:
        """One component, from the two other coordinates (6,) of the corners around."""
        return (
            (y[1] + y[2]) * (z[0] + z[1]) - (y[0] + y[1]) * (z[1] + z[2])
            + (y[0] + y[4]) * (z[3] + z[4]) - (y[3] + y[4]) * (z[0] + z[4])
            - (y[2] + y[5]) * (z[3] + z[5]) + (y[3] + y[5]) * (z[2] + z[5])
        ) / 12.0  # fmt: skip

    rows = []
    for around in _AROUND:
        at = x[list(around)]
        rows.append(np.stack([part(at[:, (c + 1) % 3], at[:, (c + 2) % 3]) for c in range(3)]))
    return np.stack(rows)


def corner_normals(x: np.ndarray) -> np.ndarray:
    """Outward area at each corner, (8, 3): a quarter of each of its three faces."""
    normals: list[Any] = [0.0] * 8
    for a, b, c, d in FACES:
        bisector, other = 0.5 * (x[d] + x[c] - x[b] - x[a]), 0.5 * (x[c] + x[b] - x[d] - x[a])
        area = 0.25 * cross(bisector, other)
        for corner in (a, b, c, d):
            normals[corner] = normals[corner] + area
    return np.stack(normals)


def characteristic_length(x: np.ndarray, volume_now: Any) -> Any:
    """Volume over the largest face: the shortest way that sound has through the element."""
    largest = 0.0
    for a, b, c, d in _SIZED_FACES:
        f, g = (x[c] - x[a]) - (x[d] - x[b]), (x[c] - x[a]) + (x[d] - x[b])
        largest = np.maximum((f @ f) * (g @ g) - (f @ g) ** 2, largest)
    return 4.0 * volume_now / np.sqrt(largest)


def centre_gradient(x: np.ndarray) -> tuple[np.ndarray, Any]:
    """Derivatives of the shape functions at the centre, times the volume there: (4, 3) for corners 0 to 3, and that
    volume. A corner's derivative is minus that of the opposite one."""
    t = [x[6] - x[0], x[5] - x[3], x[7] - x[1], x[4] - x[2]]
    xi = 0.125 * (t[0] + t[1] - t[2] - t[3])
    eta = 0.125 * (t[0] - t[1] + t[2] - t[3])
    zeta = 0.125 * (t[0] + t[1] + t[2] + t[3])
    cofactors = cross(eta, zeta), cross(zeta, xi), cross(xi, eta)
    rows = [sum(sign * part for sign, part in zip(signs, cofactors, strict=True)) for signs in _SIGNS]
    return np.stack(rows), 8.0 * (eta @ cofactors[1])
