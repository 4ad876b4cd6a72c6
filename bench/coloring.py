"""The graph-coloring paper's two loops on the faces of a box of hexahedra, in the paper's forms and in ours.

    python -m bench.coloring --device cuda [--n 128] [--json FILE]

Flux summation adds a vector that every face has to its two cells; the local maximum offers the pressure of each cell to
the cell across the face. The forms of ``color``: plain (algorithms 5 and 6 of the paper), maps in the order of colors,
faces numbered by color so that their data lie in that order (11), and besides the cells numbered after the largest
color (9 and 10). Beside them, the strategies that need no colors. Times are compared with the plain form.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import surroundings
from bench.race_loop import TOLERANCE, Cuda, Device
from bench.record import Record
from meshloom.errors import MeshloomError
from meshloom.order import follow, order_elements

COMPONENTS = 5  # density, momentum, energy
PRECISIONS = ("float64", "float32")
PLAIN = ml.Schedule("color")


@ml.kernel
def flux_sum(flux: ml.Read, res: ml.Inc):
    res[0] += flux
    res[1] -= flux


@ml.kernel
def local_maximum(ps: ml.Read, plmax: ml.Max):
    plmax[0] = ps[1]
    plmax[1] = ps[0]


@dataclass(frozen=True)
class Numbering:
    """Cells of each face (faces, 2), and the old number of each face and cell."""

    name: str
    pairs: np.ndarray
    faces: np.ndarray
    cells: np.ndarray


def box_faces(n: int) -> np.ndarray:
    """The two cells of every interior face of n x n x n hexahedra, in the order of the first cell, (faces, 2)."""
    cell = np.arange(n**3, dtype=np.int32).reshape(n, n, n)
    low, high = (cell[:-1], cell[:, :-1], cell[:, :, :-1]), (cell[1:], cell[:, 1:], cell[:, :, 1:])
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in zip(low, high, strict=True)])
    return np.ascontiguousarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def numberings(pairs: np.ndarray, cells: int) -> Iterator[Numbering]:
    """As given; faces by color; and besides cells in the order in which the first color, the largest, meets them."""
    faces, as_given = np.arange(len(pairs)), np.arange(cells)
    yield Numbering("given", pairs, faces, as_given)
    by_color = order_elements("color", pairs, cells)
    yield Numbering("faces by color", np.ascontiguousarray(pairs[by_color]), by_color, as_given)
    touched = follow(by_color, pairs, cells)
    new = np.empty_like(touched)
    new[touched] = as_given
    renumbered = np.ascontiguousarray(new[pairs[by_color]].astype(pairs.dtype))
    yield Numbering("faces by color, cells following", renumbered, by_color, touched)


class Loops:
    """Both loops on one numbering of the box, in one precision; data are SoA, as in the paper."""

    def __init__(self, numbering: Numbering, precision: str):
        rng = np.random.default_rng(1)
        n_faces, n_cells = len(numbering.faces), len(numbering.cells)
        self.faces, on_cells = ml.Set(n_faces, "faces"), ml.Set(n_cells, "cells")
        sides = ml.Map(self.faces, on_cells, numbering.pairs, "sides")
        options: dict[str, Any] = {"dtype": np.dtype(precision), "layout": "soa"}
        values = rng.random((n_faces, COMPONENTS))[numbering.faces]
        flux = self.faces.field("flux", COMPONENTS, data=values, **options)
        ps = on_cells.field("ps", data=rng.random(n_cells)[numbering.cells], **options)
        res, plmax = on_cells.field("res", COMPONENTS, **options), on_cells.field("plmax", **options)
        self.outputs = {"flux_sum": res, "local_maximum": plmax}
        self.kernels: dict[str, tuple[ml.Kernel, tuple[Any, ...]]] = {
            "flux_sum": (flux_sum, (flux, res[sides])),
            "local_maximum": (local_maximum, (ps[sides], plmax[sides])),
        }

    def loop(self, name: str, wish: ml.Schedule | None) -> ml.Loop:
        kernel, arguments = self.kernels[name]
        return kernel.loop(self.faces, *arguments, schedule=wish)

    def once(self, name: str, run: Callable[[], Any]) -> np.ndarray:
        """What one run leaves, from zero."""
        self.outputs[name].fill(0.0)
        run()
        return self.outputs[name].numpy()


def wishes(numbering: Numbering, block: int) -> list[ml.Schedule]:
    """On other numberings than the given one, plain coloring alone: they are made for it."""
    if numbering.name != "given":
        return [PLAIN.having(block=block)]
    return [ml.Schedule(name, block=block, variant=v) for name in ml.strategies() for v in ml.variants(name)]


def rows_of(numbering: Numbering, precision: str, blocks: list[int], device: Device) -> Iterator[dict[str, Any]]:
    """Every schedule of both loops, checked against NumPy, then timed."""
    loops = Loops(numbering, precision)
    for name in loops.kernels:
        ml.use("numpy")
        expected = loops.once(name, loops.loop(name, None))
        ml.use(device.backend)
        for wish in (w for block in blocks for w in wishes(numbering, block)):
            row = {"loop": name, "precision": precision, "numbering": numbering.name, "schedule": str(wish)}
            loop = loops.loop(name, wish)
            try:
                executable: Any = loop.prepare()
            except MeshloomError as refusal:
                yield row | {"declined": str(refusal)}
                continue
            found = loops.once(name, executable)
            error = float(np.abs(found - expected).max() / np.abs(expected).max())
            if not error <= TOLERANCE[precision]:
                yield row | {"wrong": error}
                continue
            seconds = device.seconds(executable.launch)
            rate = loop.counts.bytes.compulsory / seconds
            yield row | {"ms": seconds * 1e3, "useful_GBps": rate / 1e9, "launches": len(executable.steps)}
            device.clear()


def form_of(row: dict[str, Any]) -> str:
    """The schedule without its block, and the numbering."""
    words = " ".join(w for w in row["schedule"].split() if not w.startswith("block="))
    return words if row["numbering"] == "given" else f"{words}, {row['numbering']}"


def best_forms(rows: list[dict[str, Any]], loop: str, precision: str) -> dict[str, float]:
    """Milliseconds of the best block of every form."""
    best: dict[str, float] = {}
    for row in rows:
        if (row["loop"], row["precision"]) == (loop, precision) and "ms" in row:
            best[form_of(row)] = min(row["ms"], best.get(form_of(row), row["ms"]))
    return best


def line_of(row: dict[str, Any]) -> str:
    """A row in one line."""
    why = f"declined: {row['declined']}" if "declined" in row else f"WRONG by {row.get('wrong', 0.0):.1e}"
    figure = f"{row['ms']:8.4f} ms {row['useful_GBps']:6.0f} GB/s" if "ms" in row else why
    return f"{row['loop']:<14} {row['precision']:<8} {row['numbering']:<32} {row['schedule']:<40} {figure}"


def show(rows: list[dict[str, Any]]) -> None:
    """The best block of every form, and its time over that of plain coloring."""
    for precision in PRECISIONS:
        for loop in ("flux_sum", "local_maximum"):
            best = best_forms(rows, loop, precision)
            for form, ms in sorted(best.items(), key=lambda item: item[1]):
                print(f"{loop:<14} {precision:<8} {form:<48} {ms:8.4f} ms {ms / best['color']:6.2f} of plain color")


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coloring", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--n", type=int, default=128, help="hexahedra along each side (default %(default)s)")
    parser.add_argument("--blocks", nargs="+", type=int, default=[128, 256])
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    device = device or Cuda()
    if reason := ml.backends()[device.backend]:
        print(f"bench.coloring needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    pairs = box_faces(options.n)
    result: dict[str, Any] = surroundings() | {
        "benchmark": "coloring", "mesh": {"n": options.n, "cells": options.n**3, "faces": len(pairs)},
        "copy_GBps": device.copy_bandwidth() / 1e9, "rows": []}  # fmt: skip
    record = Record(result, options.json, device.backend)
    for numbering in numberings(pairs, options.n**3):
        for precision in PRECISIONS:
            for row in rows_of(numbering, precision, options.blocks, device):
                result["rows"].append(row)
                print(line_of(row), flush=True)
            record.save()  # what there is, should it be stopped
    show(result["rows"])
    print(f"written to {record.file}")
    return int(any("wrong" in row for row in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
