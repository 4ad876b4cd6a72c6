"""Compact first derivatives along the axes of a grid, for fluxes and for slopes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import meshloom as ml
from meshloom import compact

Coefficients = Mapping[int, Fraction]  # by offset
Row = tuple[Coefficients, Coefficients]  # left and right side


def derivative(grid: ml.Grid, axis: int, scheme: compact.Scheme = compact.LELE6) -> ml.linalg.LineOperator:
    """d/dx along an axis, at every point."""
    return compact.operator(scheme, grid, axis)


def inner_derivative(grid: ml.Grid, axis: int, scheme: compact.Scheme = compact.LELE6) -> ml.linalg.LineOperator:
    """The same derivative at every point but the ends of a closed axis, where it is zero.

    What a boundary condition says there can then be added by itself. The first row ties the derivative at the end to
    the next one; eliminating it from the second row changes no other value.
    """
    if grid.periodic[axis]:
        return derivative(grid, axis, scheme)
    low = _left_to_others([(row.left, row.right) for row in scheme.low])
    high = _left_to_others([(_mirrored(row.left), _mirrored(row.right)) for row in scheme.high_rows])
    high = [(_mirrored(left), _mirrored(right)) for left, right in high]
    matrix = ml.linalg.Tridiagonal(
        *_diagonals(scheme.interior.left),
        low=tuple(_diagonals(left) for left, _ in low),
        high=tuple(_diagonals(left) for left, _ in high),
    )
    stencil = ml.linalg.LineStencil(
        _floats(scheme.interior.right),
        low=tuple(_floats(right) for _, right in low),
        high=tuple(_floats(right) for _, right in high),
    )
    return ml.linalg.LineOperator(matrix, stencil, scale=1.0 / grid.spacing[axis])


def _left_to_others(rows: list[Row]) -> list[Row]:
    """End rows, outermost first, reading inwards: the first gives zero, the second no longer asks for it."""
    (end_left, end_right), (left, right), *others = rows
    factor = left.get(-1, Fraction(0)) / end_left[0]
    new_left, new_right = dict(left), dict(right)
    for row, end in ((new_left, end_left), (new_right, end_right)):
        for offset, value in end.items():  # the end's offset 0 is the second row's -1
            row[offset - 1] = row.get(offset - 1, Fraction(0)) - factor * value
    new_left.pop(-1, None)
    scale = new_left[0]
    second = ({o: v / scale for o, v in new_left.items()}, {o: v / scale for o, v in new_right.items() if v})
    return [({0: Fraction(1)}, {0: Fraction(0)}), second, *others]


def _mirrored(coefficients: Coefficients) -> Coefficients:
    return {-offset: value for offset, value in coefficients.items()}


def _diagonals(left: Coefficients) -> tuple[float, float, float]:
    below, diagonal, above = (float(left.get(offset, 0)) for offset in (-1, 0, 1))
    return below, diagonal, above


def _floats(right: Coefficients) -> dict[int, float]:
    return {offset: float(value) for offset, value in right.items()}
