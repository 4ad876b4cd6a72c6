"""The peers of the race, on the same mesh and data: CUDA written by hand, and the array frameworks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.peers.gpu_arrays import PEERS
from bench.race_loop import GROUPS, LAUNCHES, Data, Device
from meshloom.native.algorithms import incidence

THREADS = 128


def peers(data: Data, device: Device, copy: float, useful: float) -> Iterator[dict[str, Any]]:
    """One row for each peer; one that is missing or fails says why. ``copy``: bytes per second."""
    for name, measure in [("hand CUDA", hand_written), *((n, _framework(n)) for n in PEERS)]:
        try:
            for row in measure(data, device):
                rate = useful / (row["ms"] / 1e3)
                yield row | {"useful_GBps": rate / 1e9, "share_of_copy": rate / copy}
        except ImportError as missing:
            yield {"peer": name, "missing": _line(missing)}
        except Exception as failure:  # a peer's own failure must not end the race
            yield {"peer": name, "failed": f"{type(failure).__name__}: {_line(failure)}"}
        device.clear()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def hand_written(data: Data, device: Device) -> Iterator[dict[str, Any]]:
    """The kernels of peers/race.cu."""
    import cupy

    source = (Path(__file__).parent / "peers" / "race.cu").read_text()
    module = cupy.RawModule(code=source, options=("--std=c++17",))
    mesh, n_cells, n_edges = data.mesh, data.mesh.cells.size, data.mesh.faces.size
    offsets, entries = (cupy.asarray(a.astype(np.int32)) for a in incidence(mesh.face_cells.indices, n_cells))
    nodes, cells = cupy.asarray(mesh.face_nodes.indices), cupy.asarray(mesh.face_cells.indices)
    x, q, adt = cupy.asarray(data.x), cupy.asarray(data.q), cupy.asarray(data.adt)
    xt, qt = cupy.ascontiguousarray(x.T), cupy.ascontiguousarray(q.T)
    res, rest, stage = cupy.zeros_like(q), cupy.zeros_like(qt), cupy.empty((n_edges, 4))
    over_cells, over_edges, threads = (-(-n_cells // THREADS),), (-(-n_edges // THREADS),), (THREADS,)
    nc, ne = np.int32(n_cells), np.int32(n_edges)
    near, ring = (cupy.asarray(a.astype(np.int32)) for a in quadrilaterals(mesh))
    over_pairs = (-(-2 * n_cells // THREADS),)
    kernel = {k: module.get_function(k) for k in ("owner", "rings", "atomic", "fluxes", "gather")}

    def two_step() -> None:
        kernel["fluxes"](over_edges, threads, (x, q, adt, stage, nodes, cells, ne))
        kernel["gather"](over_cells, threads, (stage, res, offsets, entries, nc))

    runs: dict[str, tuple[Callable[[], Any], Any]] = {
        "hand CUDA owner by rings, AoS": (lambda: kernel["rings"](over_pairs, threads,
                                          (x, q, adt, res, near, ring, nodes, cells, offsets, entries, nc)), res),
        "hand CUDA owner, AoS": (lambda: kernel["owner"](over_cells, threads,
                                 (x, q, adt, res, nodes, cells, offsets, entries, nc)), res),
        "hand CUDA atomic, SoA": (lambda: kernel["atomic"](over_edges, threads,
                                  (xt, qt, adt, rest, nodes, cells, ne, np.int32(len(x)), nc)), rest),
        "hand CUDA two-step, AoS": (two_step, res),
    }  # fmt: skip
    for name, (run, target) in runs.items():
        target.fill(0)
        run()
        error = data.error(target.get() if target is res else target.get().T)
        yield {"peer": name, "ms": device.seconds(run) * 1e3, "error": error}


def quadrilaterals(mesh: ml.Mesh) -> tuple[np.ndarray, np.ndarray]:
    """(cells, 4) each: the neighbour behind every side and the node where the side begins, going around; -1 where there
    is no neighbour, -2 for all of a cell whose sides do not close (as along a cut of the mesh)."""
    around = mesh.cell_nodes.positions
    near, found = np.full(around.shape, -1), np.zeros(len(around), int)
    for own in (0, 1):
        cell, other = mesh.face_cells.positions[:, own], mesh.face_cells.positions[:, 1 - own]
        begin, end = mesh.face_nodes.positions[:, own], mesh.face_nodes.positions[:, 1 - own]
        for side in range(4):
            here = (around[cell, (side + 1) % 4] == begin) & (around[cell, side] == end)
            near[cell[here], side] = other[here]
            found[cell[here]] += 1
    near[found < np.bincount(mesh.face_cells.positions.ravel(), minlength=len(around))] = -2
    return np.roll(near[:, ::-1], -1, axis=1), around[:, ::-1]


def _framework(name: str) -> Callable[[Data, Device], Iterator[dict[str, Any]]]:
    """CuPy, PyTorch or JAX, timed by the clock of the host: their runs are many launches."""

    def measure(data: Data, device: Device) -> Iterator[dict[str, Any]]:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave memory to the others
        maps = data.mesh.face_nodes.indices, data.mesh.face_cells.indices
        run, wait = PEERS[name](data.x, data.q, data.adt, *maps)
        error = data.error(_on_host(run()))
        times = []
        for _ in range(GROUPS):
            wait()
            begin = time.perf_counter()
            for _ in range(LAUNCHES):
                run()
            wait()
            times.append((time.perf_counter() - begin) / LAUNCHES)
        yield {"peer": name, "ms": float(np.median(times)) * 1e3, "error": error}

    return measure


def _on_host(found: Any) -> np.ndarray:
    """A device array of CuPy, PyTorch or JAX as a NumPy array."""
    if hasattr(found, "get"):
        return np.asarray(found.get())
    return np.asarray(found.cpu().numpy() if hasattr(found, "cpu") else found)
