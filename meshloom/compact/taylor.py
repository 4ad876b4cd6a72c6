"""What Taylor's series says about one row of a compact scheme, in exact fractions.

Put f(x + j h) = sum_n (j h)^n / n! f^(n)(x) on both sides of

    sum_j left[j] f^(p)(x + j h) h^p = sum_j right[j] f(x + j h)

and every f^(n) must have the same factor on both sides, for n from 0 up. The first n that has not gives the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import factorial

#: The order of a row without error, g[0] = f[0]. No other row of use agrees with Taylor's series so far.
EXACT = 64


def moment_gap(left: Mapping[int, Fraction], right: Mapping[int, Fraction], degree: int, n: int) -> Fraction:
    """By how much the factor of f^(n) on the right exceeds that on the left."""
    given = _moment(right, n) / factorial(n)
    return given if n < degree else given - _moment(left, n - degree) / factorial(n - degree)


def _moment(coefficients: Mapping[int, Fraction], power: int) -> Fraction:
    return sum((value * Fraction(offset) ** power for offset, value in coefficients.items()), Fraction(0))


def row_order(left: Mapping[int, Fraction], right: Mapping[int, Fraction], degree: int) -> int:
    """The order of a row: its error shrinks as h to this power; 0 or less where it is not consistent."""
    return next((n for n in range(EXACT) if moment_gap(left, right, degree, n)), EXACT) - degree


def error_constant(left: Mapping[int, Fraction], right: Mapping[int, Fraction], degree: int) -> Fraction:
    """C in the leading error C h^order f^(degree + order) of the row's own value, the left side scaled to sum 1."""
    order = row_order(left, right, degree)
    if order + degree >= EXACT:
        return Fraction(0)
    return moment_gap(left, right, degree, order + degree) / sum(left.values(), Fraction(0))


def taylor_weights(left: Mapping[int, Fraction], offsets: Sequence[int], degree: int) -> dict[int, Fraction]:
    """The right side on ``offsets`` that makes as many terms agree as there are offsets."""
    matrix = [[Fraction(j) ** n for j in offsets] for n in range(len(offsets))]
    wanted = [-factorial(n) * moment_gap(left, {}, degree, n) for n in range(len(offsets))]
    return dict(zip(offsets, solved(matrix, wanted), strict=True))


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """The solution of a small system in exact arithmetic, by elimination with exchange of rows."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i, row in enumerate(rows):
            if i != k and row[k]:
                rows[i] = [value - row[k] * above for value, above in zip(row, rows[k], strict=True)]
    return [row[-1] for row in rows]
