"""What line loops ask of an operator y = scale * A^-1 B f along a line; ``linalg.LineOperator`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

Offsets = Mapping[int, float]  # from a row's own point -> coefficient
Row = tuple[float, float, float]  # lower, diag, upper


class Cornerless(NamedTuple):
    """A matrix as one without corners, and what makes up for them: x = y - ``corner`` (y_0 + ``mix`` y_{n-1})."""

    rows: np.ndarray  # (n, 3)
    factors: np.ndarray  # (n, 3), as those of ``MatrixAlong``
    corner: np.ndarray  # (n,), zeros for a closed line
    mix: float


class MatrixAlong(Protocol):
    """A tridiagonal A, its rows constant but for some at the ends."""

    @property
    def periodic(self) -> bool: ...
    @property
    def low(self) -> tuple[Row, ...]: ...
    @property
    def high(self) -> tuple[Row, ...]: ...
    @property
    def constants(self) -> Row:
        """(l, 1/d, p) of the factors far from the ends."""

    def rows(self, n: int) -> np.ndarray:
        """All rows of a line of n points, (n, 3)."""

    def factors(self, n: int) -> np.ndarray:
        """(n, 3): l, 1/d, p of every row; forward g = r - l g(before), backward x = g/d - p x(behind)."""

    def cornerless(self, n: int) -> Cornerless:
        """The same matrix without the corners of a periodic line."""

    def parts(self, n: int, size: int) -> list[np.ndarray]:
        """The rows of every part of ``size`` points of a line, as they stand in the matrix."""

    def separate_factors(self, n: int, size: int) -> np.ndarray:
        """(n, 3): factors of the parts as if each were a line of its own."""

    def joints(self, n: int, size: int) -> np.ndarray:
        """(2c, 2c): from the ends of c parts solved by themselves to what they really are."""


class StencilAlong(Protocol):
    """A banded B; rows at the ends of a closed line have coefficients of their own."""

    @property
    def inner(self) -> Offsets: ...
    @property
    def low(self) -> tuple[Offsets, ...]: ...
    @property
    def high(self) -> tuple[Offsets, ...]: ...
    @property
    def reach(self) -> int: ...
    @property
    def closures(self) -> tuple[Offsets, ...]: ...


class OperatorAlong(Protocol):
    """y = scale * A^-1 B f."""

    @property
    def matrix(self) -> MatrixAlong: ...
    @property
    def stencil(self) -> StencilAlong: ...
    @property
    def scale(self) -> float: ...
    def applied(self, f: np.ndarray) -> np.ndarray:
        """y for operands f (n, lines): the reference."""


class SystemsAlong(Protocol):
    """Tridiagonal systems with coefficients of their own at every point, factored: forwards h = inverse (f - lower
    h(before)), backwards x = h - inverse upper x(behind). Around a periodic line both go on where they began."""

    @property
    def periodic(self) -> bool: ...
    @property
    def varying(self) -> tuple[str, ...]:
        """Which of "inverse", "lower", "upper" are given at every point of the grid, in this order."""

    def table(self, name: str) -> np.ndarray:
        """(n,): a coefficient that is the same for all lines."""

    def solved(self, right: np.ndarray, given: Mapping[str, np.ndarray]) -> np.ndarray:
        """x for right-hand sides (n, lines), by the ``varying`` coefficients (n, lines): the reference."""
