"""Tridiagonal systems along the lines of a grid, factored: what line loops read of them, and the arithmetic in NumPy.

A = (1 + lower S-/d) d (1 + upper S+/d) with shifts S, where the pivots d differ from point to point. Forwards h =
(f - lower h(before))/d, backwards x = h - upper/d x(behind): a point needs nothing but its own coefficients. A periodic
line has such factors, too, that go around: its pivots come back to the same number after one turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meshloom.errors import MeshError
from meshloom.kernel.sameness import Distinct
from meshloom.linalg.operator import MOST_GROWTH
from meshloom.mesh.core import Field, Global
from meshloom.mesh.grid import Grid

COEFFICIENTS = ("inverse", "lower", "upper")
LEAST_LEFT = 1e-12  # of what goes round a periodic line, to be divided by: less is rounding


@dataclass(frozen=True, eq=False)
class FactorsAlong:
    """What the code of a line loop needs of factors besides their fields, which it does not hold: see ``SystemsAlong``.
    ``tables``: coefficients (n,) that all lines have, by name."""

    periodic: bool
    varying: tuple[str, ...]
    tables: Mapping[str, np.ndarray]

    def table(self, name: str) -> np.ndarray:
        return self.tables[name]

    def solved(self, right: np.ndarray, given: Mapping[str, np.ndarray]) -> np.ndarray:
        """x for right-hand sides (n, lines), by ``varying`` coefficients (n, lines), in double."""
        inverse, lower, upper = (
            np.asarray(given[name] if name in given else self.table(name)[:, None], np.float64) for name in COEFFICIENTS
        )
        h = swept(inverse * right, -inverse * lower, self.periodic)
        return swept(h[::-1], (-inverse * upper)[::-1], self.periodic)[::-1]


@dataclass(frozen=True, eq=False)
class LineFactors(Distinct):
    """``inverse``: one over the pivots. ``lower`` and ``upper``: entries next to the diagonal, fields of the grid, or
    arrays (n,) where all lines have the same."""

    name: str
    grid: Grid
    axis: int
    periodic: bool
    inverse: Field
    lower: Field | np.ndarray
    upper: Field | np.ndarray

    @cached_property
    def along(self) -> FactorsAlong:
        """The same without its fields."""
        given = {name: getattr(self, name) for name in COEFFICIENTS}
        tables = {name: one for name, one in given.items() if isinstance(one, np.ndarray)}
        return FactorsAlong(self.periodic, tuple(name for name in given if name not in tables), tables)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The coefficients that vary."""
        return tuple(getattr(self, name) for name in self.along.varying)

    def check_lines(self, who: str, grid: Grid, axis: int, targets: Sequence[Field | Global]) -> None:
        """MeshError unless these are its lines, and nothing is written that it needs."""
        if grid is not self.grid or axis != self.axis:
            here, there = (f"axis {a} of {g.name}" for g, a in ((grid, axis), (self.grid, self.axis)))
            raise MeshError(f"{who}: the systems are along {there}, not {here}")
        for one in targets:
            if one in self.fields:
                raise MeshError(f"{who}: {one.name} is a coefficient of its systems, so it cannot be written")


def swept(own: np.ndarray, factors: np.ndarray, periodic: bool) -> np.ndarray:
    """y_i = own_i + factors_i y_{i-1}, for arrays (n, lines)."""
    now = np.zeros_like(own[0])
    if periodic:
        for f, one in zip(factors, own, strict=True):
            now = one + f * now
        now = now / (1.0 - np.prod(factors, axis=0))
    found = np.empty_like(own)
    for i, (f, one) in enumerate(zip(factors, own, strict=True)):
        now = found[i] = one + f * now
    return found


def inverse_pivots(who: str, lower: np.ndarray, diag: np.ndarray, upper: np.ndarray, *, periodic: bool) -> np.ndarray:
    """1/d (n, *lines) of systems with diagonals (n, *lines); ``lower`` and ``upper`` (n, 1, ...) or (n, *lines).
    MeshError where one is singular, or has no factors. No two coefficients are multiplied, so their size is free."""
    with np.errstate(all="ignore"):
        share = _share_round(who, lower, diag, upper) if periodic else np.zeros_like(diag[0])
        found = np.empty_like(diag)
        for i in range(len(diag)):
            pivot = diag[i] - lower[i] * share
            found[i] = 1.0 / pivot
            largest = np.maximum(np.maximum(np.abs(lower[i]), np.abs(upper[i])), np.abs(diag[i]))
            wrong = ~(np.abs(pivot) * MOST_GROWTH > largest) | ~np.isfinite(found[i])
            _refuse_where(who, wrong, f"row {i} of {len(diag)} makes it singular")
            share = upper[i] * found[i]
        for one in (lower, upper) if periodic else ():
            turn = np.prod(-one * found, axis=0)
            _refuse_where(who, ~(np.abs(1.0 - turn) > LEAST_LEFT), "what goes around it makes it singular")
            _refuse_where(who, ~(np.abs(turn) < MOST_GROWTH), "what goes around it grows too much to be solved for")
    return found


def link_factors(
    name: str, grid: Grid, axis: int, links: np.ndarray, excess: Callable[[int], np.ndarray], *, periodic: bool,
    dtype: np.dtype,
) -> LineFactors:  # fmt: skip
    """Factors of lines of cells that are linked with their neighbours: ``links`` (n,) to the cell before, and what the
    diagonal has above the links of a cell: ``excess(i)``, not negative, for row i of all lines.

    Nothing is subtracted: a pivot is the link behind, and the excess that is left when all before is known. So nothing
    is lost where the excess is small.
    """
    left = _excess_round(links, excess) if periodic else 0.0
    found = np.empty((len(links), *(n for a, n in enumerate(grid.shape) if a != axis)), dtype)
    behind = np.roll(links, -1)
    for i, link in enumerate(links):
        left = excess(i) + (link * (left / (left + link)) if link and (i or periodic) else 0.0)
        found[i] = 1.0 / (left + (behind[i] if periodic or i < len(links) - 1 else 0.0))
    inverse = grid.field("inverse", dtype=dtype, data=np.moveaxis(found, 0, axis))
    return LineFactors(name, grid, axis, periodic, inverse, -links, -behind)


def _excess_round(links: np.ndarray, excess: Callable[[int], np.ndarray]) -> np.ndarray:
    """What is left of the excess behind the last cell of periodic lines, so that it is the same after one turn: see
    ``_share_round``; nothing here is negative."""
    p, q, r, s = (np.full(np.shape(excess(0)), one) for one in (1.0, 0.0, 0.0, 1.0))
    for i, link in enumerate(links):
        own = excess(i)
        p, q, r, s = (own + link) * p + own * link * r, (own + link) * q + own * link * s, p + link * r, q + link * s
        size = np.maximum(np.maximum(p, q), np.maximum(r, s))
        p, q, r, s = p / size, q / size, r / size, s / size
    root = np.sqrt((p - s) ** 2 + 4.0 * q * r)
    return np.where(p > s, (p - s + root) / (2.0 * r), 2.0 * q / (np.abs(s - p) + root))


def _share_round(who: str, lower: np.ndarray, diag: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """upper/d of the last point of periodic lines: share_i = upper_i/(diag_i - lower_i share_{i-1}) takes it to itself
    in one turn.

    A step is a matrix of two rows, and so is the turn; the share belongs to the larger of its eigenvalues, which the
    steps themselves would lead to, turn after turn.
    """
    p, q, r, s = (np.full(diag.shape[1:], one) for one in (1.0, 0.0, 0.0, 1.0))
    for a, b, c in zip(lower, diag, upper, strict=True):
        p, q, r, s = c * r, c * s, b * r - a * p, b * s - a * q
        size = np.maximum.reduce([np.abs(one) for one in (p, q, r, s)])
        p, q, r, s = p / size, q / size, r / size, s / size
    root = np.sqrt((p - s) ** 2 + 4.0 * q * r)
    _refuse_where(who, ~np.isfinite(root), "the diagonal, too small for what stands next to it, makes it singular")
    largest = 0.5 * (p + s + np.copysign(root, p + s))
    return np.where(np.abs(largest - s) > np.abs(largest - p), (largest - s) / r, q / (largest - p))


def _refuse_where(who: str, wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        count = f" in {wrong.sum():,} of {wrong.size:,} lines" if wrong.size > 1 else ""
        raise MeshError(f"{who}: {what}{count}")
