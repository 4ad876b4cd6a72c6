"""The hand-written C++ peers: ``airfoil.cpp`` compiled by the compiler and with the flags Meshloom uses itself."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from bench.peers.case import Airfoil, State, free_stream
from meshloom.backend.cpu import LOOP_FLAGS
from meshloom.native import compiler

SOURCE = Path(__file__).with_name("airfoil.cpp")
BLOCK_SIZES = (512, 2048, 8192, 32768)
BOUNDARY_BLOCK = 256
CHUNKS = (8192, 16384, 32768)


class _Mesh(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("cells", "edges", "bedges")] + [
        (name, ctypes.c_void_p)
        for name in ("x", "cell_nodes", "edge_nodes", "edge_cells", "bedge_nodes", "bedge_cells", "bound", "qinf")
    ]


class _State(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("q", "qold", "adt", "res")]


class _Blocks(ctypes.Structure):
    _fields_ = [("block", ctypes.c_int64), ("colors", ctypes.c_int64)] + [
        (name, ctypes.c_void_p) for name in ("offsets", "order")
    ]


class _Incidence(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("offsets", "entries", "flux")]


class _Chunks(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("chunk", "chunks")] + [
        (name, ctypes.c_void_p) for name in ("starts", "nodes", "cells", "bstarts", "bedges", "q_next", "adt_next")
    ]


def _library() -> ctypes.CDLL:
    return compiler.load(SOURCE.read_text(), "peer_airfoil", extra_flags=LOOP_FLAGS)


def block_colors(targets: np.ndarray, n_targets: int, block: int) -> np.ndarray:
    """Colors of the blocks of ``block`` consecutive rows of ``targets`` (n, arity) int32; blocks that meet differ."""
    size, arity = targets.shape
    color = np.zeros(-(-size // block), np.int64)
    _library().color_blocks(
        ctypes.c_int64(size),
        ctypes.c_int64(arity),
        targets.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(n_targets),
        ctypes.c_int64(block),
        color.ctypes.data_as(ctypes.c_void_p),
    )
    return color


class _Cpp(ABC):
    """What all C++ peers share: the library, the structures and the arrays they point to."""

    name = "C++"
    _entry: str

    def __init__(self, case: Airfoil, threads: int):
        self._library, self._threads = _library(), threads
        self._keep: list[np.ndarray] = []  # structures hold bare addresses
        self.state = State.initial(case.cells)
        self._mesh = self._structure(_Mesh, case.cells, case.edges, len(case.bound), case.x, case.cell_nodes,
                                     case.edge_nodes, case.edge_cells, case.bedge_nodes, case.bedge_cells,
                                     case.bound, free_stream())  # fmt: skip
        self._state = self._structure(_State, self.state.q, self.state.qold, self.state.adt, self.state.res)
        self._boundary = self._blocks(case.bedge_cells.reshape(-1, 1), case.cells, BOUNDARY_BLOCK)
        self._plan = self._make_plan(case)

    @abstractmethod
    def _make_plan(self, case: Airfoil) -> ctypes.Structure:
        """What the variant needs besides mesh and state."""

    def reset(self) -> None:
        self.state.reset()

    def advance(self, iterations: int) -> np.ndarray:
        rms = np.zeros(iterations)
        self._library.set_threads(self._threads)
        structures = (self._mesh, self._state, self._boundary, self._plan)
        getattr(self._library, self._entry)(
            *map(ctypes.byref, structures), ctypes.c_int64(iterations), rms.ctypes.data_as(ctypes.c_void_p)
        )
        return rms

    def _structure(self, kind: type[ctypes.Structure], *values: int | np.ndarray) -> ctypes.Structure:
        self._keep += [v for v in values if isinstance(v, np.ndarray)]
        return kind(*(v.ctypes.data if isinstance(v, np.ndarray) else v for v in values))

    def _blocks(self, targets: np.ndarray, n_targets: int, block: int) -> ctypes.Structure:
        """Colored blocks of ``block`` consecutive rows of ``targets`` (n, arity)."""
        color = block_colors(targets, n_targets, block)
        counts = np.bincount(color)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return self._structure(_Blocks, block, len(counts), offsets, np.argsort(color, kind="stable").astype(np.int64))


class CppBlockColor(_Cpp):
    """Blocks of contiguous edges, colored."""

    _entry = "run_block_color"

    def __init__(self, case: Airfoil, threads: int, block: int = 8192):
        self.block, self.name = block, f"C++ block coloring, {block}"
        super().__init__(case, threads)

    def _make_plan(self, case: Airfoil) -> ctypes.Structure:
        return self._blocks(case.edge_cells, case.cells, self.block)


class CppGather(_Cpp):
    """Fluxes to an array, then a sum over the edges of every cell."""

    name, _entry = "C++ gather", "run_gather"

    def _make_plan(self, case: Airfoil) -> ctypes.Structure:
        ends = case.edge_cells.reshape(-1)
        offsets = np.zeros(case.cells + 1, np.int64)
        np.cumsum(np.bincount(ends, minlength=case.cells), out=offsets[1:])
        entries = np.argsort(ends, kind="stable").astype(np.int32)  # 2*edge + slot, ascending in each cell
        return self._structure(_Incidence, offsets, entries, np.zeros((case.edges, 4)))


class CppFused(_Cpp):
    """A stage as one pass over chunks of cells; edges that leave a chunk are evaluated by both."""

    _entry = "run_fused"

    def __init__(self, case: Airfoil, threads: int, chunk: int = 16384):
        self.chunk, self.name = chunk, f"C++ fused, {chunk}"
        super().__init__(case, threads)

    def _make_plan(self, case: Airfoil) -> ctypes.Structure:
        chunks = -(-case.cells // self.chunk)
        chunk_of = case.edge_cells // self.chunk
        leaves = np.flatnonzero(chunk_of[:, 0] != chunk_of[:, 1])
        inside = np.flatnonzero(chunk_of[:, 0] == chunk_of[:, 1])
        edge = np.concatenate([inside, leaves, leaves])
        turned = np.repeat([False, False, True], [len(inside), len(leaves), len(leaves)])
        part = 2 * chunk_of[edge, turned.astype(int)].astype(np.int64) + np.isin(edge, leaves)
        order = np.lexsort((edge, part))
        edge, turned, part = edge[order], turned[order], part[order]
        nodes, cells = (_turned(rows[edge], turned) for rows in (case.edge_nodes, case.edge_cells))
        boundary = np.argsort(case.bedge_cells, kind="stable").astype(np.int32)
        ends = np.searchsorted(case.bedge_cells[boundary], self.chunk * np.arange(chunks + 1)).astype(np.int64)
        starts = np.searchsorted(part, np.arange(2 * chunks + 1)).astype(np.int64)
        second = np.zeros((case.cells, 4)), np.zeros(case.cells)
        return self._structure(_Chunks, self.chunk, chunks, starts, nodes, cells, ends, boundary, *second)


def _turned(rows: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """Rows (n, 2), the other way around where ``turned`` (n,) says so."""
    return np.ascontiguousarray(np.where(turned[:, None], rows[:, ::-1], rows))
