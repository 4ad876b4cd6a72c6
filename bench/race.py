"""The race: every strategy x layout x block size x precision x ordering on the airfoil residual loop, beside its peers.

    python -m bench.race --device cuda [--i 800 --j 1200] [--orders given hilbert ...] [--json FILE]

All variants are checked against the NumPy reference before they are timed. Times are medians of several groups of
launches between two events; shares are of the copy bandwidth measured in the same run. Useful bytes are the compulsory
ones of the loop, each datum once, increments read and written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import meshloom as ml
from bench.measure import surroundings
from bench.peers.gpu_arrays import PEERS
from meshloom.errors import MeshloomError
from meshloom.native.algorithms import incidence
from meshloom.schedule.explain import colors_of

ORDERS = ("given", "random", "hilbert", "rcm", "gps", "rcb", "greedy", "kaminpar")
LAYOUTS = ("aos", "soa")
BLOCKS = (64, 128, 256, 512)
GROUPS, LAUNCHES = 7, 10
RESULTS = Path(__file__).parent / "results"


@ml.kernel
def res_calc(x: ml.Read, q: ml.Read, adt: ml.Read, res: ml.Inc):
    """Central flux with scalar dissipation, the airfoil's residual loop."""
    dx, dy = x[0] - x[1]

    def flux(q: Any) -> Any:
        p = 0.4 * (q[3] - 0.5 * (q[1] ** 2 + q[2] ** 2) / q[0])
        volume = (q[1] * dy - q[2] * dx) / q[0]
        return np.stack([volume * q[0], volume * q[1] + p * dy, volume * q[2] - p * dx, volume * (q[3] + p)])

    f = 0.5 * (flux(q[0]) + flux(q[1])) + 0.025 * (adt[0] + adt[1]) * (q[0] - q[1])
    res[0] += f
    res[1] -= f


class Data:
    """Random values on a mesh, the same for every variant, and the increments that must come out."""

    def __init__(self, mesh: ml.Mesh):
        rng = np.random.default_rng(1)
        n = mesh.cells.size
        self.mesh, self.x = mesh, mesh.coordinates.numpy()
        self.q, self.adt = 1.0 + rng.random((n, 4)), rng.random(n)
        ml.use("numpy")
        arguments = self.fields(np.float64, "aos")
        res_calc(mesh.faces, *arguments)
        self.expected = self.res.numpy()

    def fields(self, dtype: type, layout: str) -> tuple[ml.Arg, ...]:
        """Arguments of the loop in a precision and layout; ``res`` is zero."""
        mesh = self.mesh
        x = mesh.nodes.field("x", 2, dtype=dtype, data=self.x, layout=layout)
        q = mesh.cells.field("q", 4, dtype=dtype, data=self.q, layout=layout)
        adt = mesh.cells.field("adt", dtype=dtype, data=self.adt)
        self.res = mesh.cells.field("res", 4, dtype=dtype, layout=layout)
        cells = mesh.face_cells
        return x[mesh.face_nodes], q[cells], adt[cells], self.res[cells]

    def error(self, found: np.ndarray) -> float:
        """Largest difference, as a share of the largest value."""
        return float(np.abs(found - self.expected).max() / np.abs(self.expected).max())


def seconds_of(run: Callable[[], Any]) -> float:
    """Median over groups of launches that follow each other without a gap."""
    import cupy

    run()
    times = []
    for _ in range(GROUPS):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(LAUNCHES):
            run()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / LAUNCHES)
    return float(np.median(times))


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a device-to-device copy of 2 GiB."""
    import cupy

    source = cupy.ones(1 << 28)
    target = cupy.zeros_like(source)
    return 2 * source.nbytes / seconds_of(lambda: cupy.copyto(target, source))


def variants(order: str, data: Data, options: argparse.Namespace, copy: float) -> Iterator[dict[str, Any]]:
    """Every variant of Meshloom on one mesh, checked, then timed."""
    ml.use("cuda")
    for dtype in (np.float64, np.float32):
        for layout in LAYOUTS:
            arguments = data.fields(dtype, layout)
            for strategy in options.strategies:
                for block, cap in product(options.blocks, options.registers) if strategy != "auto" else ((None, 0),):
                    wish = ml.Schedule(strategy, block=block, registers=cap or None)
                    yield _variant(order, data, arguments, dtype, layout, wish, copy)


def _variant(order: str, data: Data, arguments: tuple[ml.Arg, ...], dtype: type, layout: str, wish: ml.Schedule,
             copy: float) -> dict[str, Any]:  # fmt: skip
    row: dict[str, Any] = {"order": order, "precision": np.dtype(dtype).name, "layout": layout,
                           "strategy": wish.strategy, "block": wish.block, "cap": wish.registers}  # fmt: skip
    loop = res_calc.loop(data.mesh.faces, *arguments, schedule=wish)
    try:
        executable: Any = loop.prepare()
    except MeshloomError as refusal:
        return row | {"declined": str(refusal)}
    data.res.fill(0.0)
    executable()
    error = data.error(data.res.numpy())
    if error > (1e-12 if dtype is np.float64 else 1e-4):
        return row | {"wrong": error}
    seconds = seconds_of(executable.launch)
    useful = loop.counts.bytes.compulsory
    return row | {
        "schedule": str(loop.schedule),
        "ms": seconds * 1e3,
        "useful_GBps": useful / seconds / 1e9,
        "share_of_copy": useful / seconds / copy,
        "error": error,
        "launches": len(executable.steps),
        "reuse": loop.counts.reuse,
        "lines_per_block": loop.counts.bytes.lines / 64 / (loop.set.size / loop.counts.block),
        **kernel_figures(executable.resources),
    }


def kernel_figures(used: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Registers, spills, shared memory and occupancy (theoretical, the least) of a loop's kernels."""
    return {
        "registers": {k: v.get("registers") for k, v in used.items()},
        "spills": sum(v.get("spills", 0) for v in used.values()),
        "shared_bytes": max(v.get("dynamic_shared", 0) + v.get("shared", 0) for v in used.values()),
        "occupancy": min((v["occupancy"] for v in used.values() if "occupancy" in v), default=float("nan")),
    }


def mesh_figures(mesh: ml.Mesh, blocks: tuple[int, ...]) -> dict[str, Any]:
    """Block and thread colors of an ordering, by block size."""
    indices, cells = mesh.face_cells.indices, mesh.cells.size
    figures = {}
    for block in blocks:
        block_colors, thread_colors = colors_of([indices], [cells], len(indices), block)
        figures[str(block)] = {"block_colors": block_colors, "thread_colors": thread_colors}
    return figures


def hand_written(data: Data, copy: float, useful: float) -> Iterator[dict[str, Any]]:
    """The kernels of peers/race.cu on the same mesh."""
    import cupy

    source = (Path(__file__).parent / "peers" / "race.cu").read_text()
    module = cupy.RawModule(code=source, options=("--std=c++17",))
    mesh, n_cells, n_edges = data.mesh, data.mesh.cells.size, data.mesh.faces.size
    offsets, entries = (cupy.asarray(a.astype(np.int32)) for a in incidence(mesh.face_cells.indices, n_cells))
    nodes, cells = cupy.asarray(mesh.face_nodes.indices), cupy.asarray(mesh.face_cells.indices)
    x, q, adt = cupy.asarray(data.x), cupy.asarray(data.q), cupy.asarray(data.adt)
    xt, qt = cupy.ascontiguousarray(x.T), cupy.ascontiguousarray(q.T)
    res, rest, stage = cupy.zeros_like(q), cupy.zeros_like(qt), cupy.empty((n_edges, 4))
    over_cells, over_edges, threads = (-(-n_cells // 128),), (-(-n_edges // 128),), (128,)
    nc, ne = np.int32(n_cells), np.int32(n_edges)
    kernel = {k: module.get_function(k) for k in ("owner", "atomic", "fluxes", "gather")}

    def two_step() -> None:
        kernel["fluxes"](over_edges, threads, (x, q, adt, stage, nodes, cells, ne))
        kernel["gather"](over_cells, threads, (stage, res, offsets, entries, nc))

    runs: dict[str, tuple[Callable[[], Any], Any]] = {
        "hand CUDA owner, AoS": (lambda: kernel["owner"](over_cells, threads,
                                 (x, q, adt, res, nodes, cells, offsets, entries, nc)), res),
        "hand CUDA atomic, SoA": (lambda: kernel["atomic"](over_edges, threads,
                                  (xt, qt, adt, rest, nodes, cells, ne, np.int32(len(x)), nc)), rest),
        "hand CUDA two-step, AoS": (two_step, res),
    }  # fmt: skip
    for name, (run, target) in runs.items():
        target.fill(0)
        run()
        found = target.get() if target is res else target.get().T
        error = data.error(found)
        seconds = seconds_of(run)
        yield {"peer": name, "ms": seconds * 1e3, "share_of_copy": useful / seconds / copy, "error": error}


def array_frameworks(data: Data, copy: float, useful: float) -> Iterator[dict[str, Any]]:
    """CuPy, PyTorch and JAX on the same mesh, where they are installed."""
    import time

    for name, make in PEERS.items():
        try:
            run, wait = make(data.x, data.q, data.adt, data.mesh.face_nodes.indices, data.mesh.face_cells.indices)
            found = run()
        except ImportError as error:
            yield {"peer": name, "missing": str(error)}
            continue
        values = (
            found.get()
            if hasattr(found, "get")
            else found.cpu().numpy()
            if hasattr(found, "cpu")
            else np.asarray(found)
        )
        times = []
        for _ in range(GROUPS):
            wait()
            begin = time.perf_counter()
            for _ in range(LAUNCHES):
                run()
            wait()
            times.append((time.perf_counter() - begin) / LAUNCHES)
        seconds = float(np.median(times))
        yield {"peer": name, "ms": seconds * 1e3, "share_of_copy": useful / seconds / copy, "error": data.error(values)}


def show(result: dict[str, Any], console: Console) -> None:
    """The best block size of every strategy and layout, and the peers."""
    for precision in ("float64", "float32"):
        for order in dict.fromkeys(r["order"] for r in result["variants"]):
            rows = [r for r in result["variants"] if r["order"] == order and r["precision"] == precision and "ms" in r]
            table = Table(
                "strategy", "layout", "block", "ms", "of copy", "occupancy", "registers", title=f"{order}, {precision}"
            )
            best: dict[tuple[str, str], dict[str, Any]] = {}
            for r in rows:
                key = r["strategy"], r["layout"]
                best[key] = min(best.get(key, r), r, key=lambda r: r["ms"])
            for r in sorted(best.values(), key=lambda r: r["ms"]):
                registers = max((v or 0) for v in r["registers"].values())
                name = r["strategy"] if r["strategy"] != "auto" else f"auto: {r['schedule']}"
                table.add_row(name, r["layout"], str(r["block"] or ""), f"{r['ms']:.4f}", f"{r['share_of_copy']:.2f}",
                              f"{r['occupancy']:.2f}", str(registers))  # fmt: skip
            console.print(table)
    table = Table("peer (double)", "order", "ms", "of copy", title=f"copy: {result['copy_GBps']:.0f} GB/s")
    for r in result["peers"]:
        table.add_row(r["peer"], r["order"], f"{r['ms']:.4f}" if "ms" in r else "-", f"{r.get('share_of_copy', 0):.2f}")
    console.print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--i", type=int, default=800)
    parser.add_argument("--j", type=int, default=1200)
    parser.add_argument("--orders", nargs="+", default=list(ORDERS))
    parser.add_argument("--blocks", nargs="+", type=int, default=list(BLOCKS))
    parser.add_argument("--strategies", nargs="+", default=["auto", *ml.strategies()])
    parser.add_argument("--registers", nargs="+", type=int, default=[0], help="register caps to try; 0 for none")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    reason = ml.backends()["cuda"]
    if reason:
        print(f"bench.race needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    console, blocks = Console(width=110), tuple(options.blocks)
    base = ml.generate.naca0012(options.i, options.j)
    copy = copy_bandwidth()
    result: dict[str, Any] = surroundings() | {
        "benchmark": "race", "loop": "res_calc", "mesh": {"i": options.i, "j": options.j, "cells": base.cells.size,
        "edges": base.faces.size}, "copy_GBps": copy / 1e9, "variants": [], "peers": [], "orders": {},
    }  # fmt: skip
    for order in options.orders:
        try:
            mesh = base if order == "given" else base.reordered(order)
        except MeshloomError as refusal:  # a graph partitioner that is not installed
            result["orders"][order] = {"declined": str(refusal)}
            continue
        data = Data(mesh)
        result["orders"][order] = mesh_figures(data.mesh, blocks)
        result["variants"] += list(variants(order, data, options, copy))
        useful = res_calc.counts(data.mesh.faces, *data.fields(np.float64, "aos")).bytes.compulsory
        if order in ("given", "hilbert"):
            result["peers"] += [r | {"order": order} for r in hand_written(data, copy, useful)]
        if order == "hilbert":
            result["peers"] += [r | {"order": order} for r in array_frameworks(data, copy, useful)]
        console.print(f"{order}: done")
    show(result, console)
    file = options.json or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}_race_gpu.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"written to {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
