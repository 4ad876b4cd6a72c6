"""What a line loop applies along a line: y = scale * A^-1 B f, with a constant tridiagonal A and a banded B.

Rows at the ends of a closed line may differ from the others. All arithmetic here is NumPy's, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshloom.errors import MeshError, shown, yes_or_no
from meshloom.schedule.lines.along import Cornerless, Offsets, Row

MOST_GROWTH = 1e6  # of a row divided by its pivot: beyond it the solution loses that many digits


@dataclass(frozen=True)
class Tridiagonal:
    """A tridiagonal matrix whose rows are (``lower``, ``diag``, ``upper``) but for some at the ends of a closed line.

    ``low[k]`` is row k, ``high[k]`` row n - 1 - k, each (lower, diag, upper) in the direction of growing index. Without
    them the end rows are the others without what sticks out. Every other row must be dominated by its diagonal.
    """

    lower: float
    diag: float
    upper: float
    periodic: bool = False
    low: tuple[Row, ...] = ()
    high: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, tuple(_row(name, k, r) for k, r in enumerate(getattr(self, name))))
        numbers = _row("matrix", 0, (self.lower, self.diag, self.upper))
        for name, number in zip(("lower", "diag", "upper"), numbers, strict=True):
            object.__setattr__(self, name, number)
        yes_or_no("tridiagonal matrix: periodic", self.periodic, error=MeshError)
        if not abs(self.diag) > abs(self.lower) + abs(self.upper):
            raise MeshError(
                f"tridiagonal matrix: row ({self.lower:g}, {self.diag:g}, {self.upper:g}) is not dominated by its"
                " diagonal; |diag| must be larger than |lower| + |upper|"
            )
        if self.periodic and (self.low or self.high):
            raise MeshError("tridiagonal matrix: a periodic line has no ends, so it takes no rows low or high")
        if not self.periodic:
            object.__setattr__(self, "low", self.low or ((0.0, self.diag, self.upper),))
            object.__setattr__(self, "high", self.high or ((self.lower, self.diag, 0.0),))
            if self.low[0][0] != 0.0 or self.high[0][2] != 0.0:
                raise MeshError(
                    "tridiagonal matrix: low[0] is the first row, so its lower entry must be 0, and high[0] the last,"
                    " so its upper entry must be 0"
                )

    @property
    def constants(self) -> Row:
        """(l, 1/d, p) of the factors far from the ends: A = (1 + l S-) d (1 + p S+), with shifts S."""
        root = math.sqrt(self.diag**2 - 4.0 * self.lower * self.upper)
        pivot = 0.5 * (self.diag + math.copysign(root, self.diag))
        return self.lower / pivot, 1.0 / pivot, self.upper / pivot

    def rows(self, n: int) -> np.ndarray:
        """All rows of a line of n points, (n, 3)."""
        rows = np.tile([self.lower, self.diag, self.upper], (n, 1)).astype(np.float64)
        for k, row in enumerate(self.low):
            rows[k] = row
        for k, row in enumerate(self.high):
            rows[n - 1 - k] = row
        return rows

    def factors(self, n: int) -> np.ndarray:
        """(n, 3): l, 1/d, p of every row; forward g = r - l g(before), backward x = g/d - p x(behind)."""
        if self.periodic:
            return np.tile(np.array(self.constants), (n, 1))
        return lu(self.rows(n))

    def cornerless(self, n: int) -> Cornerless:
        """The same matrix without the corners of a periodic line, and what makes up for them: Sherman and Morrison."""
        from scipy.linalg import solve_banded

        if not self.periodic:
            rows = self.rows(n)
            return Cornerless(rows, lu(rows), np.zeros(n), 0.0)
        rows, u, m = self.split(n)
        z = solve_banded((1, 1), _bands(rows), u)
        return Cornerless(rows, lu(rows), z / (1.0 + z[0] + m * z[-1]), m)

    def split(self, n: int) -> tuple[np.ndarray, np.ndarray, float]:
        """A periodic A = T + u v^T: the rows of T, which is tridiagonal, u = (g, 0, ..., upper), and m of
        v = (1, 0, ..., m)."""
        rows, u, g = self.rows(n), np.zeros(n), -self.diag
        rows[0, 1] -= g
        rows[-1, 1] -= self.lower * self.upper / g
        rows[0, 0] = rows[-1, 2] = 0.0
        u[0], u[-1] = g, self.upper
        return rows, u, self.lower / g

    # ----- parts of a line by themselves, joined by their ends ----------------------------------------------------
    def parts(self, n: int, size: int) -> list[np.ndarray]:
        """The rows of every part of ``size`` points of a line, as they stand in the matrix; the last may be shorter."""
        rows = self.rows(n)
        return [rows[first : first + size] for first in range(0, n, size)]

    def separate_factors(self, n: int, size: int) -> np.ndarray:
        """(n, 3): factors of the parts as if each were a line of its own."""
        found: list[np.ndarray] = []
        known: dict[bytes, np.ndarray] = {}
        for part in self.parts(n, size):
            key = part.tobytes()
            if key not in known:
                known[key] = lu(part)
                known[key][-1, 2] = 0.0  # nothing comes from behind
            found.append(known[key])
        return np.concatenate(found)

    def joints(self, n: int, size: int) -> np.ndarray:
        """(2c, 2c): from the ends of c parts solved by themselves to what they really are."""
        from scipy.linalg import solve_banded

        parts = self.parts(n, size)
        count = 2 * len(parts)
        system = np.eye(count)
        for c, part in enumerate(parts):
            loads = np.zeros((len(part), 2))
            loads[0, 0], loads[-1, 1] = part[0, 0], part[-1, 2]
            spikes = solve_banded((1, 1), _bands(part), loads)
            for row, where in ((2 * c, 0), (2 * c + 1, -1)):
                system[row, (2 * c - 1) % count] += spikes[where, 0]
                system[row, (2 * c + 2) % count] += spikes[where, 1]
        return np.linalg.inv(system)


def _bands(rows: np.ndarray) -> np.ndarray:
    """Rows (n, 3) as scipy wants them, (3, n): what sticks out at the ends is left away."""
    bands = np.zeros((3, len(rows)))
    bands[0, 1:], bands[1], bands[2, :-1] = rows[:-1, 2], rows[:, 1], rows[1:, 0]
    return bands


def lu(rows: np.ndarray) -> np.ndarray:
    """Factors (n, 3), as in ``Tridiagonal.factors``, of rows (n, 3); those that repeat the ones before are copied."""
    n, found = len(rows), np.zeros((len(rows), 3))
    same = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1  # rows that differ from the one before
    pivot, above, k = 1.0, 0.0, 0
    while k < n:
        lower, diag, upper = rows[k]
        factor = lower / pivot if k else 0.0
        pivot = diag - factor * above
        above = upper
        if not abs(pivot) * MOST_GROWTH > np.abs(rows[k]).max():
            raise MeshError(f"tridiagonal matrix: row {k} of {n} makes it singular (pivot {pivot:.3g})")
        found[k] = factor, 1.0 / pivot, upper / pivot
        k += 1
        if k > 1 and k < n and (found[k - 1] == found[k - 2]).all() and (rows[k - 1] == rows[k - 2]).all():
            until = next((s for s in same if s >= k), n)  # until the rows change, nothing else will come out
            found[k:until] = found[k - 1]
            k = int(until)
    return found


def _row(name: str, number: int, given: Any) -> Row:
    try:
        values = tuple(float(v) for v in given)
    except (TypeError, ValueError):
        values = ()
    if len(values) != 3 or not all(map(math.isfinite, values)):
        where = f"tridiagonal matrix: {name}[{number}]"
        raise MeshError(f"{where} must be three numbers (lower, diag, upper), got {shown(given)}")
    return values


@dataclass(frozen=True)
class LineStencil:
    """A banded right-hand side: offset from a row's own point -> coefficient.

    ``low[k]`` belongs to row k and ``high[k]`` to row n - 1 - k of a closed line.
    """

    inner: Offsets
    low: tuple[Offsets, ...] = ()
    high: tuple[Offsets, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", _offsets("inner", self.inner))
        object.__setattr__(self, "low", tuple(_offsets(f"low[{k}]", r) for k, r in enumerate(self.low)))
        object.__setattr__(self, "high", tuple(_offsets(f"high[{k}]", r) for k, r in enumerate(self.high)))
        for k, row in enumerate(self.low):
            if min(row) < -k:
                raise MeshError(f"stencil: low[{k}] reaches {-min(row)} points back, but only {k} are there")
        for k, row in enumerate(self.high):
            if max(row) > k:
                raise MeshError(f"stencil: high[{k}] reaches {max(row)} points on, but only {k} are there")

    @property
    def reach(self) -> int:
        """Points to either side that an inner row uses."""
        return max(map(abs, self.inner))

    @property
    def closures(self) -> tuple[Offsets, ...]:
        """The rows at the ends: those at the low one, then those at the high one, counted inwards."""
        return (*self.low, *self.high)

    def apply(self, f: np.ndarray, periodic: bool) -> np.ndarray:
        """B f for operands f (n, ...)."""
        n = len(f)
        if periodic:
            return sum((c * np.roll(f, -o, axis=0) for o, c in self.inner.items()), np.zeros_like(f))
        result = np.zeros_like(f)
        first, last = len(self.low), n - len(self.high)
        for o, c in self.inner.items():
            result[first:last] += c * f[first + o : last + o]
        for k, row in enumerate(self.low):
            result[k] = sum(c * f[k + o] for o, c in row.items())
        for k, row in enumerate(self.high):
            result[n - 1 - k] = sum(c * f[n - 1 - k + o] for o, c in row.items())
        return result


def _offsets(name: str, given: Any) -> dict[int, float]:
    try:
        found = {int(o): float(c) for o, c in dict(given).items()}
    except (TypeError, ValueError):
        found = {}
    if not found or not all(map(math.isfinite, found.values())):
        raise MeshError(f"stencil: {name} must map offsets to coefficients, such as {{-1: -0.5, 1: 0.5}}, got {given}")
    return dict(sorted(found.items()))


IDENTITY = LineStencil({0: 1.0})


@dataclass(frozen=True)
class LineOperator:
    """y = ``scale`` * A^-1 B f along a line; without ``stencil`` B is the identity."""

    matrix: Tridiagonal
    stencil: LineStencil = field(default=IDENTITY)
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.stencil is None:
            object.__setattr__(self, "stencil", IDENTITY)
        reach = self.stencil.reach
        if self.matrix.periodic and self.stencil.closures:
            raise MeshError("line operator: a periodic line has no ends, so its stencil takes no rows low or high")
        for name in () if self.matrix.periodic else ("low", "high"):
            there = len(getattr(self.stencil, name))
            if there < reach:
                raise MeshError(
                    f"line operator: the stencil reaches {reach} points, so {reach} rows at each end need stencils of"
                    f" their own; {name} has {there}"
                )

    @property
    def shortest(self) -> int:
        """The least number of points of a line."""
        stencil, matrix = self.stencil, self.matrix
        width = max((max(row) - min(row) + 1 for row in stencil.closures), default=1)
        far = [k + max(max(row) + 1, min(row) + width) for k, row in enumerate(stencil.low)]
        far += [k + max(1 - min(row), width - max(row)) for k, row in enumerate(stencil.high)]
        ends = max(len(matrix.low) + len(matrix.high), len(stencil.low) + len(stencil.high))
        return max(2 * stencil.reach + 1, ends, *far, 2)

    def applied(self, f: np.ndarray) -> np.ndarray:
        """y for operands f (n, lines), by the LU factors of the banded matrix: the reference."""
        right = self.scale * self.stencil.apply(f.astype(np.float64), self.matrix.periodic)
        return solved(self.matrix, right)


def solved(matrix: Tridiagonal, right: np.ndarray) -> np.ndarray:
    """A^-1 r for right-hand sides (n, lines), by scipy's banded LU; a periodic corner by Sherman and Morrison."""
    from scipy.linalg import solve_banded

    if not matrix.periodic:
        return solve_banded((1, 1), _bands(matrix.rows(len(right))), right, check_finite=False)
    rows, u, m = matrix.split(len(right))
    both = solve_banded((1, 1), _bands(rows), np.concatenate([right, u[:, None]], axis=1), check_finite=False)
    y, z = both[:, :-1], both[:, -1:]
    return y - z * ((y[0] + m * y[-1]) / (1.0 + z[0] + m * z[-1]))


def as_operators(given: LineOperator | Sequence[LineOperator], values: int) -> tuple[LineOperator, ...]:
    """One operator for each of ``values`` operands; a single one serves all."""
    found = (given,) * values if isinstance(given, LineOperator) else tuple(given)
    if len(found) != values or not all(isinstance(one, LineOperator) for one in found):
        raise MeshError(f"line loop: {values} operands take one LineOperator, or {values} of them, got {given!r}")
    if len({one.matrix.periodic for one in found}) > 1:
        raise MeshError("line loop: either all operators are periodic or none")
    return found
