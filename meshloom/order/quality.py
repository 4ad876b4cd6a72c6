"""How good an order is: what blocks of consecutive elements, or targets, load, as a multiple of what they need.

There is one measure, ``Loads``, taken from both sides of a map. The arrangement of meshes asks it whether an order is
bad (``excess``), the cost model how many bytes a strategy moves; it is an average over blocks, so it grows with the
part of a mesh that lies in a bad order and never jumps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshloom.native.algorithms import distinct, lines_touched
from meshloom.records import dataclass

TYPICAL_BLOCK = 1024  # elements; what such blocks load tells about the order
SAMPLED_BLOCKS = 64
SAMPLED_TARGETS = 16  # blocks of targets: fewer, as finding their elements takes a look at all
_TARGETS_PER_LINE = 8  # one double each

#: An order whose ``excess`` is above this is bad: as if a whole line were loaded for every double. Every ordering but
#: the random one stays below on every kind of cell (the highest is reverse Cuthill-McKee on tetrahedra); that one is
#: above unless a cache holds the mesh.
BAD_EXCESS = float(_TARGETS_PER_LINE)


def sampled_blocks(elements: int, block: int, most: int = SAMPLED_BLOCKS) -> list[tuple[int, int]]:
    """Ranges of at most ``most`` evenly chosen blocks of consecutive elements."""
    blocks = -(-elements // block)
    chosen = distinct(np.linspace(0, blocks - 1, min(blocks, most)).astype(int))
    return [(b * block, min((b + 1) * block, elements)) for b in chosen.tolist()]


@dataclass(frozen=True)
class Loads:
    """What blocks load, as multiples of what they need; both are about 1 where everything lies side by side.

    ``rows``: rows loaded, each once per block. ``cache_lines``: those loaded, if a row is one double, so it is at most
    ``rows`` times the doubles of a line.
    """

    rows: float = 1.0
    cache_lines: float = 1.0


def loads_by_elements(rows: np.ndarray, n_targets: int, block: int = TYPICAL_BLOCK) -> Loads:
    """What blocks of consecutive elements load of their targets; they need their share of all targets.

    ``rows`` (n, arity) name the targets of the elements in the order of their visit. Loops that fit into a cache cannot
    come out badly. Blocks are sampled: the time does not grow with n.
    """
    chosen = sampled_blocks(len(rows), block)
    share = sum(last - first for first, last in chosen) * n_targets / max(len(rows), 1)
    if not share:
        return Loads()
    found = [distinct(rows[first:last]) for first, last in chosen]
    return Loads(sum(map(len, found)) / share, sum(map(_lines_under, found)) * _TARGETS_PER_LINE / share)


def loads_by_targets(
    rows: np.ndarray, n_targets: int, block: int = TYPICAL_BLOCK, *, through: np.ndarray | None = None
) -> tuple[Loads, Loads]:
    """What blocks of consecutive targets load when each target visits its elements: other targets, and elements.

    The targets need themselves, and each element once. One pass finds the elements of sampled blocks: ``through`` are
    the columns of ``rows`` by which these are elements of a target, all unless given.
    """
    leading = rows if through is None else through
    chosen, arity = sampled_blocks(n_targets, block, SAMPLED_TARGETS), leading.shape[1]
    numbers = np.zeros(n_targets, np.uint8)
    for k, (first, last) in enumerate(chosen, start=1):
        numbers[first:last] = k
    flat = np.ascontiguousarray(leading).reshape(-1)
    block_of = numbers[flat]
    slots = np.flatnonzero(block_of)
    block_of, own = block_of[slots], np.count_nonzero(np.bincount(flat[slots])) if len(slots) else 0
    targets, elements = _Distinct(n_targets), _Distinct(len(rows))
    for k in range(1, len(chosen) + 1):
        reached = slots[block_of == k] // arity
        targets.count(rows[reached].reshape(-1))
        elements.count(reached)
    return targets.loads(float(own)), elements.loads(len(slots) / arity)


class _Distinct:
    """Counts the different rows, and the different lines under them, of one block after the other."""

    def __init__(self, size: int):
        self.seen = np.zeros(size, bool), np.zeros(size // _TARGETS_PER_LINE + 1, bool)
        self.found = [0, 0]

    def count(self, rows: np.ndarray) -> None:
        for which, numbers in enumerate((rows, rows // _TARGETS_PER_LINE)):
            seen = self.seen[which]
            seen[numbers] = True
            self.found[which] += int(np.count_nonzero(seen))
            seen[numbers] = False

    def loads(self, needed: float) -> Loads:
        rows, cache_lines = self.found
        return Loads(rows / needed, cache_lines * _TARGETS_PER_LINE / needed) if needed else Loads()


def _lines_under(ascending: np.ndarray) -> int:
    cache_lines = ascending // _TARGETS_PER_LINE
    return int(np.count_nonzero(np.diff(cache_lines))) + 1 if len(cache_lines) else 0


def excess(rows: np.ndarray, n_targets: int) -> float:
    """How many times the memory they need do blocks load? At least about 1.

    What blocks of ``TYPICAL_BLOCK`` consecutive elements load are the cache lines under their targets, one double each;
    what blocks of targets load are those under the other targets of their elements. The worse of the two counts. Both
    weigh: lines of which little is used, and targets that several blocks load.
    """
    return max(loads_by_elements(rows, n_targets).cache_lines, loads_by_targets(rows, n_targets)[0].cache_lines)


def blocks_of(elements: int, name: str) -> str:
    """Whose loads ``excess`` counts, in words: blocks, or all elements where they are one."""
    return f"blocks of {TYPICAL_BLOCK} {name}" if elements > TYPICAL_BLOCK else f"all {elements} {name} together"


def target_reuse(rows: np.ndarray) -> float:
    """The share of the slots whose target the next element has, too, in sampled blocks: 0 in a random order."""
    found = total = 0
    for first, last in sampled_blocks(len(rows), TYPICAL_BLOCK):
        here, after = rows[first : last - 1], rows[first + 1 : last]
        found += int(np.count_nonzero((here[:, :, None] == after[:, None, :]).any(axis=2)))
        total += here.size
    return found / total if total else 0.0


def conflicting_blocks(rows: np.ndarray, n_targets: int, block: int) -> float:
    """With how many others does a block of consecutive elements share targets? The most of a few sampled blocks."""
    chosen = sampled_blocks(len(rows), block, 8)
    masks = np.zeros(n_targets, np.uint8)  # one bit for each sampled block
    for k, (first, last) in enumerate(chosen):
        masks[rows[first:last].reshape(-1)] |= np.uint8(1 << k)
    touched = masks[np.ascontiguousarray(rows).reshape(-1)]
    if not len(touched):
        return 0.0
    met = np.bitwise_or.reduceat(touched, np.arange(0, len(touched), block * rows.shape[1]))
    return float(max(int(np.count_nonzero(met & np.uint8(1 << k))) - 1 for k in range(len(chosen))))


def reuse_factor(indices: ArrayLike, element_order: ArrayLike, block_offsets: ArrayLike) -> float:
    """How often a target loaded by a block is used there: slots / distinct targets, over all blocks; at least 1.

    ``block_offsets`` (nb+1,): block b is ``element_order[block_offsets[b]:block_offsets[b+1]]``.
    """
    rows = np.asarray(indices)
    distinct = int(_cache_lines(rows, element_order, block_offsets, row=1, line=1).sum())
    slots = np.size(element_order) * (rows.shape[1] if rows.ndim == 2 else 1)
    return slots / distinct if distinct else 1.0


def lines_per_block(
    indices: ArrayLike,
    element_order: ArrayLike,
    block_offsets: ArrayLike,
    bytes_per_target: int,
    *,
    line_bytes: int = 64,
) -> float:
    """Average number of distinct cache lines under the targets of a block.

    A target's data are ``bytes_per_target`` consecutive bytes (AoS; for SoA one component's, then times their number).
    """
    counts = _cache_lines(np.asarray(indices), element_order, block_offsets, row=bytes_per_target, line=line_bytes)
    return float(counts.mean()) if counts.size else 0.0


def _cache_lines(rows: np.ndarray, order: ArrayLike, offsets: ArrayLike, *, row: int, line: int) -> np.ndarray:
    n_targets = int(rows.max()) + 1 if rows.size else 0
    return lines_touched(rows, n_targets, order, offsets, row=row, line=line)
