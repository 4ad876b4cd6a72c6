"""A compact scheme as data: one equation per point, with rational coefficients.

The equation (a row) of point i ties the wanted values g (a derivative, or a filtered function) of neighbours to
the given values f, in units of the spacing h and the derivative's degree p (0 for a filter):

    sum_j left[j] g_{i+j}  =  h^-p  sum_j right[j] f_{i+j}

Interior points share one row; the first and last points of a closed line have rows of their own, the closures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from meshloom.compact.taylor import row_order, taylor_weights
from meshloom.errors import SchemeError

Stencil = Mapping[int, Fraction]
_LEAST_PIVOT = 0.05  # elimination loses a digit or so at most where every pivot is larger
_TEST_LINE = 40  # interior points of the line whose elimination is tried: more change nothing


def stencil(coefficients: Mapping[int, Any]) -> Stencil:
    """Offsets and exact coefficients; zeros are left out. Strings such as "14/9" and whole numbers are exact."""
    exact = {int(offset): Fraction(value) for offset, value in sorted(coefficients.items())}
    return MappingProxyType({offset: value for offset, value in exact.items() if value})


@dataclass(frozen=True)
class Row:
    """One equation of a scheme."""

    left: Stencil
    right: Stencil

    @classmethod
    def of(cls, left: Mapping[int, Any], right: Mapping[int, Any]) -> Row:
        return cls(stencil(left), stencil(right))

    @classmethod
    def fitted(cls, left: Mapping[int, Any], offsets: Sequence[int], degree: int) -> Row:
        """The row with this left side whose right side on ``offsets`` is as accurate as Taylor's series allows."""
        exact = stencil(left)
        return cls(exact, stencil(taylor_weights(exact, offsets, degree)))

    def mirrored(self, degree: int) -> Row:
        """The same equation read from the other end of the line: odd derivatives change their sign."""
        sign = -1 if degree % 2 else 1
        left = {-offset: value for offset, value in self.left.items()}
        return Row.of(left, {-offset: sign * value for offset, value in self.right.items()})

    @property
    def reach(self) -> tuple[int, int]:
        """The lowest and the highest offset of the right side."""
        return min(self.right), max(self.right)

    def text(self, degree: int) -> str:
        """``1/3 g[-1] + g[0] + 1/3 g[1] = ...``."""
        power = {0: "", 1: " / h"}.get(degree, f" / h^{degree}")
        right = _sum_text(self.right, "f")
        return f"{_sum_text(self.left, 'g')} = {f'({right}){power}' if power else right}"


@dataclass(frozen=True, eq=False)
class Scheme:
    """A compact scheme: what one line of a field is turned into.

    ``degree`` is 1 or 2 for a derivative and 0 for a filter; ``low`` are the rows of the first points of a closed
    line, ``high`` those of the last points, outermost first: the mirror image unless given. It is checked when made.
    """

    name: str
    degree: int
    interior: Row
    low: tuple[Row, ...] = ()
    high: tuple[Row, ...] | None = None

    def __post_init__(self) -> None:
        if self.high is None:
            object.__setattr__(self, "high", tuple(row.mirrored(self.degree) for row in self.low))
        _check(self)

    @property
    def high_rows(self) -> tuple[Row, ...]:
        assert self.high is not None  # set when made
        return self.high

    @property
    def least_points(self) -> int:
        """A line must have so many points: the stencils of the closures fit, and there is an interior."""
        reach = [row.reach[1] + i + 1 for i, row in enumerate(self.low)]
        reach += [i + 1 - row.reach[0] for i, row in enumerate(self.high_rows)]
        low, high = self.interior.reach
        return max([high - low + 1, len(self.low) + len(self.high_rows) + 1, *reach])

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every row with its place: ``interior``, ``low 0``, ``low 1``, ..., ``high 0``, ..."""
        yield "interior", self.interior
        yield from ((f"low {i}", row) for i, row in enumerate(self.low))
        yield from ((f"high {i}", row) for i, row in enumerate(self.high_rows))

    def __repr__(self) -> str:
        return f"Scheme({self.name})"


# --- checks -----------------------------------------------------------------------------------------------


def _check(scheme: Scheme) -> None:
    """SchemeError, in one line, where a scheme cannot be right."""
    if scheme.degree not in (0, 1, 2):
        raise _wrong(scheme, f"has degree {scheme.degree}; known are 0 (a filter), 1 and 2 (derivatives)")
    for place, row in scheme.rows():
        _check_row(scheme, place, row)
    _check_closures(scheme)
    off_diagonal = sum(abs(value) for offset, value in scheme.interior.left.items() if offset)
    if off_diagonal >= abs(scheme.interior.left[0]):
        raise _wrong(
            scheme,
            f"is not dominant: next to {scheme.interior.left[0]} on the diagonal stand {off_diagonal} in all;"
            " the diagonal must be larger",
        )
    smallest = min(map(abs, _pivots(scheme)))
    if smallest < _LEAST_PIVOT:
        raise _wrong(
            scheme,
            f"cannot be solved safely: eliminating from its closures leaves {smallest:.2g} on the diagonal,"
            f" at least {_LEAST_PIVOT} is needed",
        )


def _check_row(scheme: Scheme, place: str, row: Row) -> None:
    if not row.left.get(0) or not set(row.left) <= {-1, 0, 1}:
        found = ", ".join(map(str, row.left))
        raise _wrong(scheme, f"has offsets {found} on the left of row {place}; it must be tridiagonal, with a diagonal")
    if row_order(row.left, row.right, scheme.degree) < 1:
        exact_for = ("a constant", "a straight line", "a parabola")[scheme.degree]
        raise _wrong(scheme, f"is not consistent: row {place}, {row.text(scheme.degree)}, is wrong for {exact_for}")


def _check_closures(scheme: Scheme) -> None:
    """Rows of the ends may not look beyond the line, and there must be one for every point whose neighbours miss."""
    low, high = scheme.interior.reach
    for side, rows, needed, sign in (("low", scheme.low, -low, 1), ("high", scheme.high_rows, high, -1)):
        if rows and len(rows) < needed:
            raise _wrong(scheme, f"has {len(rows)} {side} rows; its interior row reaches {needed} points that way")
        for i, row in enumerate(rows):
            if min(sign * offset for offset in (*row.left, *row.right)) < -i:
                raise _wrong(scheme, f"looks beyond the end of the line in row {side} {i}")


def _pivots(scheme: Scheme) -> list[float]:
    """What elimination leaves on the diagonal of a closed line (of an endless one without closures)."""
    rows = [*scheme.low, *[scheme.interior] * _TEST_LINE, *reversed(scheme.high_rows)]
    found: list[float] = []
    for i, row in enumerate(rows):
        carried = float(row.left.get(-1, 0)) * float(rows[i - 1].left.get(1, 0)) / found[-1] if i else 0.0
        found.append(float(row.left[0]) - carried or 1e-300)
    return found


def _wrong(scheme: Scheme, what: str) -> SchemeError:
    return SchemeError(f"scheme {scheme.name} {what}")


def _sum_text(coefficients: Stencil, name: str) -> str:
    """``f[1] - 2 f[0] + 1/3 f[-1]``, lowest offset first."""
    text = ""
    for offset, value in coefficients.items():
        sign = ("- " if value < 0 else "+ ") if text else ("-" if value < 0 else "")
        size = "" if abs(value) == 1 else f"{abs(value)} "
        text += f"{' ' if text else ''}{sign}{size}{name}[{offset}]"
    return text
