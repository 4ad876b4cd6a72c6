"""The schemes that come with Meshloom.

Coefficients are those of Lele (J. Comput. Phys. 103, 1992), Deng, Maekawa and Shen (AIAA 96-1972) and Gaitonde and
Visbal (AIAA J. 38, 2000). A left side and the points of the right side say all: Taylor's series does the rest, exactly.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb
from typing import Any

from meshloom.compact.scheme import Row, Scheme
from meshloom.errors import SchemeError

_THREE, _FIVE = (-1, 0, 1), (-2, -1, 0, 1, 2)
_FIRST_FOUR = (0, 1, 2, 3)
FILTER_ORDERS = (2, 4, 6, 8, 10)


def _first_derivative_closures() -> tuple[Row, Row]:
    """The end point, one-sided, and the one next to it, Pade's: both of fourth order."""
    return Row.fitted({0: 1, 1: 3}, _FIRST_FOUR, 1), Row.fitted({-1: "1/4", 0: 1, 1: "1/4"}, _THREE, 1)


def _second_derivative_closures() -> tuple[Row, Row]:
    """The end point, one-sided and of third order, and the one next to it, Pade's of fourth."""
    return Row.fitted({0: 1, 1: 11}, _FIRST_FOUR, 2), Row.fitted({-1: "1/10", 0: 1, 1: "1/10"}, _THREE, 2)


#: Fourth-order first derivative of Pade: three points on either side of the equation.
PADE4 = Scheme("PADE4", 1, Row.fitted({-1: "1/4", 0: 1, 1: "1/4"}, _THREE, 1), _first_derivative_closures()[:1])

#: Sixth-order first derivative of Lele.
LELE6 = Scheme("LELE6", 1, Row.fitted({-1: "1/3", 0: 1, 1: "1/3"}, _FIVE, 1), _first_derivative_closures())

#: Sixth-order second derivative of Lele.
SECOND6 = Scheme("SECOND6", 2, Row.fitted({-1: "2/11", 0: 1, 1: "2/11"}, _FIVE, 2), _second_derivative_closures())


def deng5(delta: Any, name: str = "") -> Scheme:
    """The fifth-order first derivative of Deng: Lele's with weights shifted upwind by ``delta``.

    alpha (1 - delta) g[-1] + g[0] + alpha (1 + delta) g[1] = a (f[1] - f[-1]) / 2h + b (f[2] - f[-2]) / 4h
        + delta d (f[1] - 2 f[0] + f[-1]) / h + 2 delta e (f[2] - 2 f[0] + f[-2]) / 4h

    with alpha = 1/3, a = 14/9, b = 1/9, d = 4/9, e = 1/9. Negative ``delta`` damps waves that travel to the right,
    positive ``delta`` those to the left; zero is LELE6.
    """
    shift = Fraction(delta)
    alpha, a, b, d, e = Fraction(1, 3), Fraction(14, 9), Fraction(1, 9), Fraction(4, 9), Fraction(1, 9)
    left = {-1: alpha * (1 - shift), 0: 1, 1: alpha * (1 + shift)}
    right = {
        -2: -b / 4 + shift * e / 2,
        -1: -a / 2 + shift * d,
        0: -2 * shift * d - shift * e,
        1: a / 2 + shift * d,
        2: b / 4 + shift * e / 2,
    }
    return Scheme(name or f"deng5({shift})", 1, Row.of(left, right), _first_derivative_closures())


#: For the flux F+ of a split, what travels to the right.
DENG5_PLUS = deng5(Fraction(-1, 4), "DENG5_PLUS")
#: For the flux F-, what travels to the left.
DENG5_MINUS = deng5(Fraction(1, 4), "DENG5_MINUS")


@cache
def filters(order: int, alpha: Any) -> Scheme:
    """The low-pass filter of an even order from 2 to 10 with -1/2 < ``alpha`` < 1/2: the nearer 1/2, the sharper.

    It passes waves of wavenumber k by the factor 1 - (1 - 2 alpha) sin(k h/2)^order / (1 + 2 alpha cos(k h)): the
    shortest wave is removed whole. At a closed end point i from it gets the filter of order 2 i; the end point stays.
    """
    if order not in FILTER_ORDERS:
        raise SchemeError(f"filters: order {order}; known are {', '.join(map(str, FILTER_ORDERS))}")
    share = Fraction(alpha).limit_denominator(10**6)
    if not -Fraction(1, 2) < share < Fraction(1, 2):
        raise SchemeError(f"filters: alpha {float(share):g}; it must lie between -0.5 and 0.5")
    closures = tuple(_filter_row(2 * i, share) for i in range(order // 2))
    return Scheme(f"filters({order}, {float(share):g})", 0, _filter_row(order, share), closures)


def _filter_row(order: int, alpha: Fraction) -> Row:
    """sin(k h/2)^order is a difference of that order: binomial coefficients with changing signs, over 2^order."""
    if order == 0:
        return Row.of({0: 1}, {0: 1})
    half = order // 2
    left = {-1: alpha, 0: Fraction(1), 1: alpha}
    shortest = (1 - 2 * alpha) / 2**order
    removed = {j: shortest * (-1) ** abs(j) * comb(order, half + j) for j in range(-half, half + 1)}
    return Row.of(left, {j: left.get(j, Fraction(0)) - part for j, part in removed.items()})
