"""Compact first derivatives along the axes of a grid, for fluxes and for slopes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import meshloom as ml
from meshloom import compact
from meshloom.compact.operators import operator_of_rows


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
    low = _left_to_others(scheme.low)
    first, *high = _left_to_others([row.mirrored(degree=0) for row in scheme.high_rows])
    high = [first, *(row.mirrored(degree=0) for row in high)]
    return operator_of_rows(scheme.interior, low, high, scale=1.0 / grid.spacing[axis])


def _left_to_others(rows: Sequence[compact.Row]) -> list[compact.Row]:
    """End rows, outermost first, reading inwards: the first gives zero, the second no longer asks for it."""
    end, second, *others = rows
    factor = second.left.get(-1, Fraction(0)) / end.left[0]
    left, right = dict(second.left), dict(second.right)
    for row, of_end in ((left, end.left), (right, end.right)):
        for offset, value in of_end.items():  # the end's offset 0 is the second row's -1
            row[offset - 1] = row.get(offset - 1, Fraction(0)) - factor * value
    left.pop(-1, None)
    scale = left[0]
    without = compact.Row.of({o: v / scale for o, v in left.items()}, {o: v / scale for o, v in right.items()})
    return [compact.Row({0: Fraction(1)}, {0: Fraction(0)}), without, *others]
