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


#: By the verdict of the native code: what may be wrong with tiles.
WRONG_TILES = ("", "a tile holds an element out of bounds", "a tile does not list its elements once, ascending",
               "a local number is out of bounds")  # fmt: skip


def read_tiles(
    found: TileLists, offsets: np.ndarray, targets: int, elements: int, arity: int, block: int
) -> tuple[str, np.ndarray]:
    """What is wrong with tiles of ``block`` targets each, in a few words, "" if nothing is; and the entries that they
    stand for, element * arity + slot, whose ``offsets`` (targets+1,) are the incidence's."""
    kind = np.result_type(found.elements, found.local, np.min_scalar_type(-max(elements * arity, 2**31 - 1)))
    listed, local = (np.ascontiguousarray(one, kind) for one in (found.elements, found.local))
    starts, tile_starts = as_offsets(offsets, len(local)), as_offsets(found.offsets, len(listed))
    if len(starts) != targets + 1 or len(tile_starts) != -(-targets // block) + 1:
        raise MeshError(f"read_tiles: {targets} targets in tiles of {block} have as many offsets and one more")
    entries, verdict = np.empty(len(local), kind), np.zeros(1, np.int64)
    call("tiles", f"read_tiles_{suffix(entries)}", starts, tile_starts, listed, local, targets, elements, arity, block,
         entries, verdict)  # fmt: skip
    return WRONG_TILES[int(verdict[0])], entries


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


#: By the verdict of the native code: what may be wrong with partial sums.
WRONG_SUMS = ("", "a local number is out of bounds", "an entry of a block is missing or doubled",
              "entries of a target are not ascending", "an entry stands at the wrong target")  # fmt: skip


def wrong_sums(
    visit: np.ndarray, indices: np.ndarray, block: int, offsets: np.ndarray, listed: np.ndarray, counts: np.ndarray,
    local: np.ndarray, packed: np.ndarray,
) -> str:  # fmt: skip
    """What is wrong with the entries of what blocks of ``block`` positions add up, in a few words, "" if nothing is.

    ``offsets`` (blocks+1,) int64: the places of each block, each with its target in ``listed`` and so many entries of
    ``local``, ``counts``; in each block as many as its elements have slots through which something is given.
    ``packed`` (arity,): which of these a slot is, from 0, -1 for others.
    """
    rows, order = np.ascontiguousarray(indices), as_order(visit, len(indices))
    slots, blocks = int(np.count_nonzero(packed >= 0)), -(-len(rows) // block)
    starts = as_offsets(offsets, len(listed))
    in_blocks = np.diff(np.append(0, np.cumsum(counts))[starts])
    lengths = np.minimum(block, len(rows) - block * np.arange(blocks))
    if not (len(counts) == len(listed) and len(local) == counts.sum() and np.array_equal(in_blocks, slots * lengths)):
        raise MeshError(f"wrong_sums: {len(rows)} elements in blocks of {block} have {slots} entries each")
    stamp, verdict = np.full(block * slots, -1, np.int64), np.zeros(1, np.int64)
    call("block_targets", f"wrong_sums_{suffix(rows)}", len(rows), block, order, rows, rows.shape[1],
         packed.astype(np.int64), slots, starts, np.ascontiguousarray(listed, np.int64),
         np.ascontiguousarray(counts, np.int64), np.ascontiguousarray(local, rows.dtype), stamp, verdict)  # fmt: skip
    return WRONG_SUMS[int(verdict[0])]
