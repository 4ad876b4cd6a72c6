"""Schemes as data: coefficients against the literature, orders by Taylor's series, bad schemes refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from meshloom import compact
from meshloom.compact.taylor import row_order
from meshloom.errors import SchemeError

FIRST = (compact.PADE4, compact.LELE6, compact.DENG5_PLUS, compact.DENG5_MINUS)


def fractions(coefficients) -> dict[int, Fraction]:
    return {offset: Fraction(value) for offset, value in coefficients.items()}


def test_the_right_sides_found_by_taylor_are_those_of_the_literature():
    lele = compact.LELE6.interior.right  # a = 14/9 over 2h, b = 1/9 over 4h
    assert lele == fractions({-2: "-1/36", -1: "-7/9", 1: "7/9", 2: "1/36"})
    assert compact.LELE6.low[0].right == fractions({0: "-17/6", 1: "3/2", 2: "3/2", 3: "-1/6"})
    assert compact.PADE4.interior.right == fractions({-1: "-3/4", 1: "3/4"})
    second = compact.SECOND6.interior.right  # a = 12/11 over h^2, b = 3/11 over 4h^2
    assert second == fractions({-2: "3/44", -1: "12/11", 0: "-51/22", 1: "12/11", 2: "3/44"})
    assert compact.SECOND6.low[0].right == fractions({0: 13, 1: -27, 2: 15, 3: -1})
    # Gaitonde and Visbal's a_n, halved where they stand for two points
    alpha = Fraction(2, 5)
    eighth = compact.filters(8, alpha).interior.right
    assert eighth[0] == (93 + 70 * alpha) / 128 and eighth[1] == (7 + 18 * alpha) / 32
    assert eighth[2] == (-7 + 14 * alpha) / 64 and eighth[3] == Fraction(1, 32) - alpha / 16
    assert eighth[4] == Fraction(-1, 256) + alpha / 128


def test_orders_by_taylor():
    assert compact.orders(compact.LELE6) == {"interior": 6, "low 0": 4, "low 1": 4, "high 0": 4, "high 1": 4}
    assert compact.orders(compact.SECOND6) == {"interior": 6, "low 0": 3, "low 1": 4, "high 0": 3, "high 1": 4}
    assert [compact.order(s) for s in FIRST] == [4, 6, 5, 5]
    assert compact.error_constants(compact.LELE6)["interior"] == Fraction(4, 5040) / Fraction(5, 3)  # Lele: 4/7!
    for order in (2, 4, 6, 8, 10):
        found = compact.orders(compact.filters(order, "0.4"))
        assert found.pop("low 0") == found.pop("high 0") == compact.EXACT
        closures = {f"{side} {i}": 2 * i for i in range(1, order // 2) for side in ("low", "high")}
        assert found == {"interior": order, **closures}


def test_the_dissipative_scheme_needs_the_corrected_constants():
    """With d = 4 and e = 1, as the scan of the slides reads, it is not even consistent."""
    shift, row = Fraction(-1, 4), compact.DENG5_PLUS.interior
    change = {-2: 8, -1: 32, 0: -80, 1: 32, 2: 8}  # 9 (d, e) in place of (d, e): eight times the delta terms more
    wrong = {j: row.right[j] + shift * Fraction(factor, 9) * (Fraction(1, 2) if abs(j) == 2 else 1)
             for j, factor in change.items()}  # fmt: skip
    scanned = compact.Row.of(row.left, wrong)
    with pytest.raises(SchemeError, match="not consistent: row interior"):
        compact.Scheme("scanned", 1, scanned)
    assert compact.order(compact.deng5(0)) == 6 and compact.deng5(0).interior == compact.LELE6.interior


def test_modified_wavenumbers():
    theta = np.linspace(0.0, np.pi, 201)
    lele = compact.modified_wavenumber(compact.LELE6, theta)
    exact = (14 / 9 * np.sin(theta) + np.sin(2 * theta) / 18) / (1 + 2 / 3 * np.cos(theta))
    assert np.abs(lele - exact).max() < 1e-14
    assert abs(np.abs(lele).max() - 1.98944) < 1e-4
    plus, minus = (compact.modified_wavenumber(s, theta) for s in (compact.DENG5_PLUS, compact.DENG5_MINUS))
    assert (plus.imag < 1e-15).all() and plus.imag[-1] < -1.3 and np.abs(plus - minus.conj()).max() < 1e-14
    small = np.array([0.1, 0.2])
    gap = np.log2(np.abs(compact.modified_wavenumber(compact.SECOND6, small) - small**2))
    assert abs(gap[1] - gap[0] - 8) < 0.1  # (k h)^2 to the sixth order
    passed = compact.modified_wavenumber(compact.filters(6, "0.3"), theta)
    formula = 1 - 0.4 * np.sin(theta / 2) ** 6 / (1 + 0.6 * np.cos(theta))
    assert np.abs(passed - formula).max() < 1e-14 and abs(passed[-1]) < 1e-15 and (np.diff(passed) <= 1e-15).all()


@pytest.mark.parametrize(("scheme", "delta"), [(compact.DENG5_PLUS, 1), (compact.DENG5_MINUS, -1), (compact.LELE6, 0)])
def test_closed_lines_do_not_blow_up(scheme, delta):
    """Eigenvalues of the closed line with the values of both ends kept: none grows, upwind ones are damped."""
    left, right = compact.matrices(scheme, 60, periodic=False)
    slope = -(delta or 1) * np.linalg.solve(left, right)[1:-1, 1:-1]
    growth = np.linalg.eigvals(slope).real.max()
    assert growth < (-0.1 if delta else 1e-12)


def test_bad_schemes_are_refused_in_one_line():
    central = compact.PADE4.interior
    cases = {
        "is not consistent: row interior": {"interior": compact.Row.of({0: 1}, {-1: -1, 1: 1})},
        "is not dominant": {"interior": compact.Row.fitted({-1: "1/2", 0: 1, 1: "1/2"}, (-1, 0, 1), 1)},
        "must be tridiagonal": {"interior": compact.Row.fitted({-2: "1/9", 0: 1, 2: "1/9"}, (-1, 0, 1), 1)},
        "looks beyond the end": {"interior": central, "low": (central,)},
        "cannot be solved safely": {"interior": central, "low": (compact.Row.fitted({0: 1, 1: 4}, (0, 1, 2), 1),)},
        "has 1 low rows": {"interior": compact.LELE6.interior, "low": compact.PADE4.low},
        "has degree 3": {"interior": central, "degree": 3},
    }
    for message, given in cases.items():
        with pytest.raises(SchemeError, match=message) as caught:
            compact.Scheme(**{"name": "bad", "degree": 1, **given})
        assert str(caught.value).startswith("scheme bad ") and "\n" not in str(caught.value)
    with pytest.raises(SchemeError, match="must lie between"):
        compact.filters(6, 0.5)
    with pytest.raises(SchemeError, match="known are 2, 4"):
        compact.filters(3, 0.1)


@pytest.mark.parametrize("degree", [1, 2])
def test_a_fitted_row_agrees_with_as_many_terms_as_it_has_points(degree):
    for width in range(degree + 1, 8):
        for start in (-width + 1, -1, 0):
            row = compact.Row.fitted({-1: "1/7", 0: 1, 1: "2/9"}, range(start, start + width), degree)
            assert row_order(row.left, row.right, degree) >= width - degree
