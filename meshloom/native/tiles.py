"""Plan arrays of the block strategies, in compiled code (``tiles.cpp``, ``block_targets.cpp``)."""

from __future__ import annotations

import numpy as np

from meshloom.errors import MeshError
from meshloom.native.ffi import as_indices, as_offsets, as_order, call, suffix
from meshloom.records import dataclass


@dataclass(frozen=True)
class TileLists:
    """``offsets`` (tiles+1,) int64 into ``elements``; ``local``: local element*arity + slot for each incidence."""

    offsets: np.ndarray
    elements: np.ndarray
    local: np.ndarray


@dataclass(frozen=True)
class BlockTargets:
    """``offsets`` (blocks+1,) int64 into ``targets``; ``local`` (n, arity): the place of each slot's target there."""

    offsets: np.ndarray
    targets: np.ndarray
    local: np.ndarray


@dataclass(frozen=True)
class BlockSums:
    """What blocks of positions add up. ``offsets`` (blocks+1,) int64 into ``place``: the targets of each, ascending,
    as themselves or, where they are shared, as -1 - row of their partial sums. ``starts`` (places+blocks,): where the
    entries of each begin in those of its block, and their end; ``local``: place of the element in the block * arity +
    slot, block by block. ``row_ends`` (targets,) int64: where the rows of each target end."""

    offsets: np.ndarray
    place: np.ndarray
    starts: np.ndarray
    local: np.ndarray
    row_ends: np.ndarray


def tiles(offsets: np.ndarray, entries: np.ndarray, arity: int, elements: int, block: int) -> TileLists:
    """Overlapped tiles of ``block`` targets each, from the incidence (offsets, entries) of a map."""
    if block < 1 or arity < 1 or entries.dtype not in (np.int32, np.int64):
        raise MeshError(f"tiles: block {block} and arity {arity} must be at least 1, entries int32 or int64")
    offsets = as_offsets(offsets, len(entries))
    if entries.size and not 0 <= entries.min() <= entries.max() < elements * arity:
        raise MeshError(f"tiles: entries must lie between 0 and {elements * arity - 1}")
    targets = len(offsets) - 1
    stamp, number = np.full(elements, -1, np.int64), np.empty(elements, entries.dtype)
    tile_offsets, local = np.zeros(-(-targets // block) + 1, np.int64), np.empty_like(entries)
    listed = np.empty(len(entries), entries.dtype)
    function = f"tiles_{suffix(entries)}"
    call("tiles", function, offsets, entries, targets, arity, block, stamp, number, tile_offsets, listed, local)
    return TileLists(tile_offsets, listed[: tile_offsets[-1]].copy(), local)


def shared_targets(block_offsets: np.ndarray, visit: np.ndarray, indices: np.ndarray, targets: int) -> np.ndarray:
    """(targets,) uint8: 1 where elements of two or more blocks lead to the target."""
    rows, order = as_indices(indices, targets), as_order(visit, len(indices))
    block_offsets = as_offsets(block_offsets, len(order))
    shared, block_of = np.zeros(targets, np.uint8), np.full(targets, -1, np.int64)
    blocks = len(block_offsets) - 1
    call("block_targets", f"shared_{suffix(rows)}", block_offsets, blocks, order, rows, rows.shape[1], block_of, shared)
    return shared


def block_targets(block_offsets: np.ndarray, visit: np.ndarray, indices: np.ndarray, targets: int) -> BlockTargets:
    """The distinct targets of each block; position k of the visit has its slots' places in ``local[k]``."""
    rows, order = as_indices(indices, targets), as_order(visit, len(indices))
    block_offsets = as_offsets(block_offsets, len(order))
    stamp, number = np.full(targets, -1, np.int64), np.empty(targets, rows.dtype)
    offsets, listed = np.zeros(len(block_offsets), np.int64), np.empty(rows.size, rows.dtype)
    local = np.empty_like(rows)
    call("block_targets", f"numbers_{suffix(rows)}", block_offsets, len(block_offsets) - 1, order, rows, rows.shape[1],
         stamp, number, offsets, listed, local)  # fmt: skip
    return BlockTargets(offsets, listed[: offsets[-1]].copy(), local)


def block_sums(visit: np.ndarray, indices: np.ndarray, targets: int, block: int, shared: np.ndarray) -> BlockSums:
    """What blocks of ``block`` positions of the visit add up; ``shared`` (targets,) uint8: where several blocks do."""
    rows, order = as_indices(indices, targets), as_order(visit, len(indices))
    if block < 1 or shared.shape != (targets,) or shared.dtype != np.uint8:
        raise MeshError(f"block_sums: block {block} must be at least 1, shared uint8, one for each target")
    blocks = -(-len(rows) // block)
    stamp = np.full(targets, -1, np.int64)
    following, row_ends = (np.zeros(targets, np.int64) for _ in range(2))
    offsets, place = np.zeros(blocks + 1, np.int64), np.empty(rows.size, rows.dtype)
    starts, local = np.zeros(rows.size + blocks, rows.dtype), np.empty(rows.size, rows.dtype)
    call("block_targets", f"sums_{suffix(rows)}", len(rows), block, order, rows, rows.shape[1], targets, shared, stamp,
         following, offsets, place, starts, local, row_ends)  # fmt: skip
    listed = int(offsets[-1])
    return BlockSums(offsets, place[:listed].copy(), starts[: listed + blocks].copy(), local, row_ends)
