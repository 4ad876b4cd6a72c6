"""Lines cut into segments: tables of the factors, products over segments, and how many carries count.

A carry that enters a segment leaves it multiplied by the product of the segment's factors. Far carries shrink below
rounding, so a segment needs those of a few neighbours only. A segment that is not full, at the end of a line whose
length is no multiple of anything, has rows that let everything pass (periodic) or stop it (closed), so that generated
code need not know.
"""

from __future__ import annotations

import numpy as np

from meshloom.records import dataclass
from meshloom.schedule.lines.along import OperatorAlong
from meshloom.schedule.lines.tables import negligible

FAR = 1 << 30  # beyond every line


@dataclass(frozen=True)
class Cut:
    """A line of ``length`` points in segments of ``points``. A block takes ``window`` of them: the whole line, or a
    part with ``overlap`` segments at either side that its neighbours take, too."""

    length: int
    points: int
    window: int
    overlap: int = 0

    @property
    def segments(self) -> int:
        return -(-self.length // self.points)

    @property
    def core(self) -> int:
        """Segments of a window that are its own."""
        return self.window - 2 * self.overlap

    @property
    def chunks(self) -> int:
        """Windows of a line."""
        return -(-self.segments // self.core)


@dataclass(frozen=True)
class SegmentTables:
    """Of one operator: factors of all rows, from ``overlap`` segments before the first point on, products over
    segments, what a turn around the line adds, and the rows [``first``, ``last``) with constant factors."""

    lower: np.ndarray
    inverse: np.ndarray
    upper: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    first: int
    last: int


def tables(operator: OperatorAlong, cut: Cut, dtype: np.dtype) -> SegmentTables:
    """The tables of an operator for lines cut this way."""
    matrix, m = operator.matrix, cut.points
    before = cut.overlap * m
    total = (cut.chunks * cut.core + 2 * cut.overlap) * m
    if matrix.periodic and cut.overlap:  # a window goes round the end as if there were none
        factors = np.tile(np.array(matrix.constants), (total, 1))
        first, last = -FAR, FAR
    else:
        beyond = (-1.0, 0.0, -1.0) if matrix.periodic else (0.0, 0.0, 0.0)
        factors = np.tile(np.array(beyond), (total, 1))
        factors[before : before + cut.length] = matrix.factors(cut.length)
        first, last = _steady(operator, cut, dtype)
    return _segment_tables(operator, cut, factors, dtype, first, last)


def _segment_tables(
    operator: OperatorAlong, cut: Cut, factors: np.ndarray, dtype: np.dtype, first: int, last: int
) -> SegmentTables:
    (lower, inverse, upper), m = factors.T, cut.points
    return SegmentTables(
        lower.astype(dtype), (inverse * operator.scale).astype(dtype), upper.astype(dtype),
        np.prod(-lower.reshape(-1, m), axis=1), np.prod(-upper.reshape(-1, m), axis=1), first, last,
    )  # fmt: skip


def _steady(operator: OperatorAlong, cut: Cut, dtype: np.dtype) -> tuple[int, int]:
    """The rows whose factors and right-hand sides are those far from the ends, to rounding."""
    n, stencil, constants = cut.length, operator.stencil, np.array(operator.matrix.constants)
    off = np.abs(operator.matrix.factors(n) - constants) > 4.0 * np.finfo(dtype).eps * np.abs(constants)
    other = off.any(axis=1)
    other[: len(stencil.low)] = True
    other[n - len(stencil.high) :] = True
    where = np.flatnonzero(other)
    low, high = where[where < n // 2], where[where >= n // 2]
    full = n if n % cut.points else FAR
    return int(low.max()) + 1 if len(low) else -FAR, int(high.min()) if len(high) else full


def carries_needed(found: SegmentTables, cut: Cut, dtype: np.dtype) -> int:
    """The least number of neighbours whose carries count; all of them where the matrix decays slowly."""
    window = slice(cut.overlap, cut.overlap + cut.segments)
    least = negligible(dtype)
    needed = 1
    for products in (found.forward[window], found.backward[window]):
        size, reached, count = np.abs(products), np.abs(products), 1
        while reached.max() > least and count < cut.segments:
            reached = reached * np.roll(size, count)
            count += 1
        needed = max(needed, count)
    return needed


def further_turns(found: SegmentTables, cut: Cut, carries: int) -> tuple[float, float]:
    """What carries from all segments of a periodic line are multiplied by, so that further turns are in them."""
    if carries < cut.segments or cut.overlap:
        return 1.0, 1.0
    return 1.0 / (1.0 - float(np.prod(found.forward))), 1.0 / (1.0 - float(np.prod(found.backward)))


# ----- two levels: parts of a line by themselves, joined by their ends ----------------------------------------------
def separate_tables(operator: OperatorAlong, cut: Cut, dtype: np.dtype) -> SegmentTables:
    """Tables of the parts as if each were a line of its own; none of their rows is taken for constant."""
    factors = np.zeros((cut.chunks * cut.window * cut.points, 3))
    factors[: cut.length] = operator.matrix.separate_factors(cut.length, cut.window * cut.points)
    return _segment_tables(operator, cut, factors, dtype, FAR, -FAR)


def joints(operator: OperatorAlong, cut: Cut, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """(2c, 2c): from the ends of c parts solved by themselves to what they really are; (2c,): what the entries next to
    a part's first and last rows are, over the scale that its ends carry."""
    size = cut.window * cut.points
    parts = operator.matrix.parts(cut.length, size)
    couplings = np.array([entry for part in parts for entry in (part[0, 0], part[-1, 2])])
    return operator.matrix.joints(cut.length, size).astype(dtype), (couplings / operator.scale).astype(dtype)
