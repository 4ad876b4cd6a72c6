"""Loops of the zoo by hand: ``zoo.cpp``, compiled by the compiler and with the flags Meshloom uses itself, and what
peers of a loop share: its arrays, what must come out, and the plans of their forms."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

import meshloom as ml
from bench.peers.cpp import block_colors
from meshloom.backend.cpu import LOOP_FLAGS
from meshloom.native import compiler

SOURCE = Path(__file__).with_name("zoo.cpp")
BLOCK_SIZES = (512, 4096, 32768)
#: Numbers that an element stores for its targets to gather. Loops that copy values store none.
STORED = {"p1_tetrahedron": 4, "elastic_hexahedron": 24, "edge_flux": 5, "green_gauss": 3}
#: Loops between two ends, cheap enough to compute twice.
OWNED = ("green_gauss", "limiter_bounds", "exchanged_over_links")
LOOPS = (*STORED, *OWNED[1:])


@dataclass(frozen=True)
class Case:
    """A loop on one mesh as plain arrays. ``geometry`` is of nodes or elements, and empty where a loop has none."""

    loop: str
    geometry: np.ndarray
    state: np.ndarray  # (targets, ...)
    map: np.ndarray  # (elements, slots) int32
    expected: tuple[np.ndarray, ...]  # of one loop over zeros, by NumPy
    outputs: tuple[np.ndarray, ...]  # what all peers write, one after the other

    @classmethod
    def of(cls, loop: str, operation: ml.Operation, map_: ml.Map) -> Case:
        """Of an operation of the zoo that NumPy has run once."""
        written = tuple(one.numpy() for one in operation.writes)
        read = [one.numpy() for one in operation.storages if one not in operation.writes]
        rows = np.ascontiguousarray(map_.indices, np.int32)
        return cls(loop, read[0] if len(read) > 1 else np.zeros(0), read[-1], rows, written,
                   tuple(map(np.zeros_like, written)))  # fmt: skip

    @property
    def targets(self) -> int:
        return len(self.state)

    def reset(self) -> None:
        for one in self.outputs:
            one[:] = 0.0

    def error(self) -> float:
        """Largest difference from what must come out, as a share of the largest value."""
        return error(self.outputs, self.expected)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where the entries of each target begin."""
        counts = np.bincount(self.map.reshape(-1), minlength=self.targets)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def entries(self) -> np.ndarray:
        """Of each target, in order of elements: slots * element + slot."""
        return np.argsort(self.map.reshape(-1), kind="stable").astype(np.int32)

    @cached_property
    def others(self) -> np.ndarray:
        """The other end of each entry, where elements have two."""
        return np.ascontiguousarray(self.map[:, ::-1]).reshape(-1)[self.entries]

    def colors(self, block: int) -> list[np.ndarray]:
        """The numbers of the blocks of each color."""
        color = block_colors(self.map, self.targets, block)
        return [np.flatnonzero(color == one) for one in range(color.max() + 1)]


def error(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> float:
    """The largest difference, as a share of the largest value of each array."""
    return max(float(np.abs(f - e).max() / np.abs(e).max()) for f, e in zip(found, expected, strict=True))


class Peer(Protocol):
    """One way to run a loop, over and over."""

    name: str

    def run(self, times: int) -> None:
        """Add to the outputs of its case what so many loops add."""


def blocks_tried(case: Case, threads: int) -> list[int]:
    """Sizes of blocks: one of all elements is the serial loop; else the fewest blocks are those that threads need."""
    elements = len(case.map)
    return [elements] if threads == 1 else sorted({min(one, -(-elements // threads)) for one in BLOCK_SIZES})


class _Fields(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("elements", "targets")] + [
        (name, ctypes.c_void_p) for name in ("geometry", "state", "map", "first", "second")
    ]


class _Blocks(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("block", "colors")] + [
        (name, ctypes.c_void_p) for name in ("offsets", "order")
    ]


class _Incidence(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("offsets", "entries", "others", "values")]


class Cpp:
    """A form of a loop in C++, with its plan."""

    def __init__(self, case: Case, form: str, threads: int, block: int | None = None):
        self.name = f"C++ {form}" + (f", {block}" if block and threads > 1 else "")
        self._library, self._threads = compiler.load(SOURCE.read_text(), "peer_zoo", extra_flags=LOOP_FLAGS), threads
        self._run = getattr(self._library, f"{case.loop}_{form}")
        self._pinned: list[np.ndarray] = []  # structures hold bare addresses
        self._fields = self._structure(_Fields, len(case.map), case.targets, case.geometry, case.state, case.map,
                                       case.outputs[0], case.outputs[-1])  # fmt: skip
        if block is None:
            values = np.zeros((len(case.map), STORED[case.loop] if form == "gather" else 0))
            others = case.others if form == "owner" else np.zeros(0, np.int32)
            self._plan = self._structure(_Incidence, case.offsets, case.entries, others, values)
        else:
            colors = case.colors(block)
            offsets = np.cumsum([0, *map(len, colors)], dtype=np.int64)
            order = np.concatenate(colors).astype(np.int64)
            self._plan = self._structure(_Blocks, block, len(colors), offsets, order)

    def run(self, times: int) -> None:
        self._library.set_threads(self._threads)
        for _ in range(times):
            self._run(ctypes.byref(self._fields), ctypes.byref(self._plan))

    def _structure(self, kind: type[ctypes.Structure], *values: int | np.ndarray) -> ctypes.Structure:
        self._pinned += [v for v in values if isinstance(v, np.ndarray)]
        return kind(*(v.ctypes.data if isinstance(v, np.ndarray) else v for v in values))


def cpp_peers(case: Case, threads: int) -> list[Peer]:
    """Every form of a loop in C++."""
    found: list[Peer] = [Cpp(case, form, threads, block) for form in ("blocks", "vectors")
                         for block in blocks_tried(case, threads)]  # fmt: skip
    if case.loop in STORED:
        found.append(Cpp(case, "gather", threads))
    if case.loop in OWNED:
        found.append(Cpp(case, "owner", threads))
    return found


def numba_peers(case: Case, threads: int) -> list[Peer]:
    """Every form of a loop with numba; none where it is not installed."""
    try:
        from bench.peers import numba_zoo
    except ImportError:
        return []
    return numba_zoo.peers(case, threads)
