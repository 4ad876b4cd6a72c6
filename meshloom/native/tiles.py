"""Plan arrays of the block strategies, in compiled code (``tiles.cpp``)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from meshloom.native.compiler import load


@dataclass(frozen=True)
class Tiles:
    """``offsets`` (tiles+1,) int64 into ``elements``; ``local``: local element*arity + slot for each incidence."""

    offsets: np.ndarray
    elements: np.ndarray
    local: np.ndarray


@cache
def _library() -> ctypes.CDLL:
    return load(Path(__file__).with_name("tiles.cpp").read_text(), "tiles")


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def tiles(offsets: np.ndarray, entries: np.ndarray, arity: int, elements: int, block: int) -> Tiles:
    """Overlapped tiles of ``block`` targets each, from the incidence (offsets, entries) of a map."""
    targets = len(offsets) - 1
    count = -(-targets // block)
    stamp, number = np.full(elements, -1, np.int64), np.empty(elements, entries.dtype)
    tile_offsets, local = np.zeros(count + 1, np.int64), np.empty_like(entries)
    tile_elements = np.empty(len(entries), entries.dtype)
    function = getattr(_library(), f"ml_tiles_{entries.itemsize * 8}")
    function.restype = ctypes.c_int64
    used = function(
        _pointer(offsets),
        _pointer(entries),
        ctypes.c_int64(targets),
        ctypes.c_int64(arity),
        ctypes.c_int64(block),
        _pointer(stamp),
        _pointer(number),
        _pointer(tile_offsets),
        _pointer(tile_elements),
        _pointer(local),
    )
    return Tiles(tile_offsets, tile_elements[:used].copy(), local)


def shared_targets(block_offsets: np.ndarray, visit: np.ndarray, indices: np.ndarray, targets: int) -> np.ndarray:
    """(targets,) uint8: 1 where elements of two or more blocks lead to the target."""
    shared, block_of = np.zeros(targets, np.uint8), np.full(targets, -1, np.int64)
    order, rows = np.ascontiguousarray(visit, np.int64), np.ascontiguousarray(indices)
    function = getattr(_library(), f"ml_shared_{rows.itemsize * 8}")
    function.restype = None
    function(
        _pointer(block_offsets),
        ctypes.c_int64(len(block_offsets) - 1),
        _pointer(order),
        _pointer(rows),
        ctypes.c_int64(rows.shape[1]),
        _pointer(block_of),
        _pointer(shared),
    )
    return shared
