"""Graph partitions into blocks of hard sizes, by KaMinPar or METIS (both optional).

A run of an order is a block, so every block but one must be exactly full. Partitioners balance only nearly; what
they put too much into one block is moved to where there is room.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from meshloom.errors import ScheduleError, install
from meshloom.order.graph import Graph, inverse

# ParHIP's binary format: bits of the version word; without them ids and weights are 64-bit and weights present.
_NO_EDGE_WEIGHTS, _NO_VERTEX_WEIGHTS = 1, 2

# In thousandths. Held to 1, METIS makes blocks 5 % worse than with 10, whose surplus is a quarter percent to move.
_METIS_IMBALANCE = 10

_NAMES = ("rcb", "hilbert", "kaminpar", "metis")  # of what cuts cells over ranks
_PACKAGES = {"kaminpar": ("kaminpar", "partition"), "metis": ("pymetis", "metis")}  # module, and extra that has it


def block_sizes(n: int, block: int) -> np.ndarray:
    """Sizes (k,) of the blocks of n things: all ``block`` but the last, which takes the rest."""
    k = -(-n // block)
    sizes = np.full(k, block, np.int64)
    if k:
        sizes[-1] = n - (k - 1) * block
    return sizes


def kaminpar_labels(graph: Graph, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Block of each vertex (n,) by KaMinPar; the blocks have these sizes (k,)."""
    if _trivial(graph, sizes):
        return np.repeat(np.arange(len(sizes)), sizes)
    kaminpar = _import("kaminpar")
    with tempfile.TemporaryDirectory(prefix="meshloom-graph-") as folder:
        file = Path(folder, "graph.parhip")
        write_parhip(file, graph)
        loaded = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.PARHIP)
    kaminpar.reseed(seed)
    solver = kaminpar.KaMinPar(1, kaminpar.fast_context())  # one thread: the same partition every time
    labels = solver.compute_partition(loaded, max_block_weights=sizes.tolist())
    return exact(np.asarray(labels, np.int64), sizes)


def metis_labels(graph: Graph, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Block of each vertex (n,) by METIS k-way; the blocks have these sizes (k,)."""
    if _trivial(graph, sizes):
        return np.repeat(np.arange(len(sizes)), sizes)
    pymetis = _import("metis")
    if hasattr(pymetis, "CSRAdjacency"):
        adjacency = {"adjacency": pymetis.CSRAdjacency(adj_starts=graph.offsets, adjacent=graph.neighbors)}
    else:
        adjacency = {"xadj": graph.offsets, "adjncy": graph.neighbors}
    _, labels = pymetis.part_graph(
        len(sizes),
        **adjacency,
        eweights=graph.weights,
        tpwgts=(sizes / graph.n).tolist(),
        recursive=False,
        options=pymetis.Options(ufactor=_METIS_IMBALANCE, seed=seed),
    )
    return exact(np.asarray(labels, np.int64), sizes)


def exact(labels: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Labels (n,) with exactly ``sizes[b]`` vertices in block b: the surplus of full blocks fills the others.

    The last vertices of a block that is too full move to blocks with room, in ascending order of both; blocks that
    keep what they have are not touched.
    """
    by_label = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=len(sizes))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    surplus = by_label[rank >= sizes[labels[by_label]]]
    room = np.maximum(sizes - counts, 0)
    fixed = labels.copy()
    fixed[surplus] = np.repeat(np.arange(len(sizes)), room)
    return fixed


def order_by_labels(labels: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Permutation (n,) with the members of a block side by side; blocks, and members, in the order of ``along``.

    Blocks are as long as they are; the smallest one comes last, so that runs of the block size are blocks.
    """
    if not len(labels):
        return np.empty(0, np.int64)
    place = inverse(along)
    k = int(labels.max()) + 1
    first = np.full(k, len(labels))
    np.minimum.at(first, labels, place)
    counts = np.bincount(labels, minlength=k)
    rank = inverse(np.lexsort((first, counts < counts.max())))
    return np.lexsort((place, rank[labels])).astype(np.int64, copy=False)


def write_parhip(file: Path, graph: Graph) -> None:
    """The graph as a ParHIP binary file, which is the only way into KaMinPar's Python interface."""
    version = _NO_VERTEX_WEIGHTS | (_NO_EDGE_WEIGHTS if graph.weights is None else 0)
    header = np.array([version, graph.n, len(graph.neighbors)], np.uint64)
    start = header.nbytes + 8 * len(graph.offsets)  # offsets count bytes from the start of the file
    with open(file, "wb") as stream:
        header.tofile(stream)
        (graph.offsets * 8 + start).astype(np.uint64).tofile(stream)
        graph.neighbors.astype(np.uint64).tofile(stream)
        if graph.weights is not None:
            graph.weights.astype(np.int64).tofile(stream)


def partitioners() -> tuple[str, ...]:
    """The names of what cuts the cells of a mesh over ranks, for ``ml.use(..., partition=...)``; the first is usual."""
    return _NAMES


def missing(partitioner: str) -> str:
    """The package that a partitioner lacks here, and how to get it; '' where it is installed, or needs none."""
    if partitioner not in _PACKAGES:
        return ""
    module, extra = _PACKAGES[partitioner]
    try:
        importlib.import_module(module)
    except ImportError:
        return f"the package {module}: {install(extra)}"
    return ""


def _trivial(graph: Graph, sizes: np.ndarray) -> bool:
    """Whether any partition is as good as any other: one block, blocks of one, or nothing joined."""
    return len(sizes) < 2 or sizes.max() <= 1 or not len(graph.neighbors)


def _import(ordering: str) -> ModuleType:
    if lacks := missing(ordering):
        raise ScheduleError(f"ordering '{ordering}' needs {lacks}; without it, greedy and rcb partition, too")
    return importlib.import_module(_PACKAGES[ordering][0])
