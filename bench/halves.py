"""Meshes in two halves: is the automatic choice near the best where only a part of a mesh lies in a good order?

    python -m bench.halves --device cuda|cpu [--quick] [--orders ...] [--json FILE]

The airfoil's mesh with 2.9 million cells in Hilbert order, then spoilt: half of its cells, or faces, numbered at random
("cells", "faces"), its two halves shuffled together like cards ("cards"), or its faces dealt out to four hands
("hands"): each cell meets four far parts of the loop, though no cache line is wasted. Two loops, the residual of the
airfoil and a flux of second order that reads three times as much. Every strategy is checked against NumPy and timed;
the table has each one's time as a multiple of the best, and for ``auto`` of the best deterministic one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import meshloom as ml
from bench.locality import Cpu
from bench.race_loop import TOLERANCE, Device, measured, res_calc
from bench.started import options_of, started
from meshloom.order import BAD_EXCESS, excess
from meshloom.schedule.strategies import strategy

SIZE, QUICK = (800, 1200), (24, 30)  # of the airfoil's mesh
USUAL = ("cells", "hands")


@ml.kernel
def second_order(x: ml.Read, centre: ml.Read, q: ml.Read, slope: ml.Read, res: ml.Inc):
    """A flux between values that are carried from both centres to the middle of the face, with its dissipation."""
    normal = np.stack([x[0, 1] - x[1, 1], x[1, 0] - x[0, 0]])
    middle = 0.5 * (x[0] + x[1])

    def carried(side: int) -> Any:
        along, across = middle - centre[side]
        return np.stack([q[side, c] + slope[side, 2 * c] * along + slope[side, 2 * c + 1] * across for c in range(4)])

    def flux(w: Any) -> tuple[Any, Any]:
        p = 0.4 * (w[3] - 0.5 * (w[1] ** 2 + w[2] ** 2) / w[0])
        through = (w[1] * normal[0] + w[2] * normal[1]) / w[0]
        speed = np.abs(through) + np.sqrt(1.4 * np.abs(p) / w[0] * (normal @ normal))
        pushed = np.stack([w[1] * through + p * normal[0], w[2] * through + p * normal[1]])
        return np.stack([w[0] * through, pushed[0], pushed[1], (w[3] + p) * through]), speed

    left, right = carried(0), carried(1)
    (f, a), (g, b) = flux(left), flux(right)
    total = 0.5 * (f + g) + 0.5 * np.maximum(a, b) * (left - right)
    res[0] += total
    res[1] -= total


class Values:
    """Random values by cell of the mesh that is spoilt, and what the two loops make of them."""

    def __init__(self, mesh: ml.Mesh):
        rng, n = np.random.default_rng(1), mesh.cells.size
        self.mesh, self.x, self.centre = mesh, mesh.coordinates.numpy(), mesh.cell_centroids
        self.q, self.adt, self.slope = 1.0 + rng.random((n, 4)), rng.random(n), 0.1 * rng.random((n, 8))
        before = ml.backend()
        ml.use("numpy")
        self.expected = {}
        for name in LOOPS:
            on_mesh = Arguments(self, mesh, np.arange(n))
            LOOPS[name][0](mesh.faces, *on_mesh.of(name))
            self.expected[name] = on_mesh.res.numpy()
        ml.use(before)


class Arguments:
    """The arguments of the loops on a mesh whose cell number k was number ``old[k]`` of the mesh of the values."""

    def __init__(self, values: Values, mesh: ml.Mesh, old: np.ndarray):
        self.mesh, cells = mesh, mesh.cells
        self.fields = {
            "centre": cells.field("centre", 2, data=values.centre[old]),
            "q": cells.field("q", 4, data=values.q[old]),
            "adt": cells.field("adt", data=values.adt[old]),
            "slope": cells.field("slope", 8, data=values.slope[old]),
        }
        self.res = cells.field("res", 4)

    def of(self, loop: str) -> tuple[ml.Arg, ...]:
        sides = self.mesh.face_cells
        read = [self.fields[name][sides] for name in LOOPS[loop][1]]
        return self.mesh.coordinates[self.mesh.face_nodes], *read, self.res[sides]


LOOPS = {"res_calc": (res_calc, ("q", "adt")), "second_order": (second_order, ("centre", "q", "slope"))}


# --- spoiling an order --------------------------------------------------------------------------------------------


def renumbered(mesh: ml.Mesh, *, cells: np.ndarray | None = None, faces: np.ndarray | None = None) -> ml.Mesh:
    """The mesh with cells, or faces, in another order: position k of an array holds the old number."""
    old_cell = np.arange(mesh.cells.total) if cells is None else cells
    old_face = np.arange(mesh.faces.total) if faces is None else faces
    new_cell = np.argsort(old_cell)
    return ml.Mesh.from_parts(
        mesh.coordinates.numpy(),
        mesh.cell_nodes.indices[old_cell],
        mesh.face_nodes.indices[old_face],
        new_cell[mesh.face_cells.indices[old_face]],
        mesh.boundary_nodes.indices,
        new_cell[mesh.boundary_cells.indices],
        mesh.boundary_group.numpy(),
        kind=mesh.kind,
        groups=mesh.groups,
    )


def partly_random(n: int, part: float, seed: int = 0) -> np.ndarray:
    """An order of n whose last ``part`` is random."""
    fixed = n - round(part * n)
    return np.concatenate([np.arange(fixed), fixed + np.random.default_rng(seed).permutation(n - fixed)])


def cards(n: int) -> np.ndarray:
    """Two halves shuffled together: 0, n/2, 1, n/2 + 1, ..."""
    return np.argsort(np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)]), kind="stable")


def hands(n: int, count: int = 4) -> np.ndarray:
    """Dealt out: 0, 4, 8, ..., 1, 5, 9, ..."""
    return np.argsort(np.arange(n) % count, kind="stable")


ORDERS: dict[str, Callable[[int, int], dict[str, np.ndarray]]] = {
    "good": lambda cells, faces: {},
    "cells": lambda cells, faces: {"cells": partly_random(cells, 0.5)},
    "faces": lambda cells, faces: {"faces": partly_random(faces, 0.5)},
    "cards": lambda cells, faces: {"cells": cards(cells), "faces": cards(faces)},
    "hands": lambda cells, faces: {"faces": hands(faces)},
}


# --- the run ------------------------------------------------------------------------------------------------------


def wishes() -> tuple[str, ...]:
    """What is asked for, loop by loop."""
    return ("auto", "fastest", *ml.strategies())


def rows_of(order: str, values: Values, device: Device, copy: float) -> Iterator[dict[str, Any]]:
    """Every loop and schedule on one spoilt mesh, checked, then timed."""
    changed = ORDERS[order](values.mesh.cells.total, values.mesh.faces.total)
    mesh = renumbered(values.mesh, **changed)
    old = changed.get("cells", np.arange(mesh.cells.total))
    found = max(excess(m.indices, m.target.total) for m in (mesh.face_cells, mesh.cell_nodes))
    arguments = Arguments(values, mesh, old)
    for name, (kernel, _) in LOOPS.items():
        expected = values.expected[name][old]

        def error(expected: np.ndarray = expected) -> float:
            return float(np.abs(arguments.res.numpy() - expected).max() / np.abs(expected).max())

        for wish in wishes():
            loop = kernel.loop(mesh.faces, *arguments.of(name), schedule=wish)
            about = {"order": order, "loop": name, "strategy": wish, "excess": found, "good": found <= BAD_EXCESS}
            yield about | measured(loop, error, TOLERANCE["float64"], device, copy)


def with_ratios(rows: list[dict[str, Any]]) -> None:
    """Adds each time as a multiple of the best of its loop and order; ``auto``'s of the best deterministic one."""
    for order, name in dict.fromkeys((r["order"], r["loop"]) for r in rows):
        mine = [r for r in rows if (r["order"], r["loop"]) == (order, name) and "ms" in r]
        named = [r for r in mine if r["strategy"] not in ("auto", "fastest")]
        for r in mine:
            rivals = [n["ms"] for n in named if r["strategy"] != "auto" or strategy(n["strategy"]).deterministic]
            r["ratio"] = r["ms"] / min(rivals, default=r["ms"])


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """A table for each order and loop, the fastest first."""
    for order, name in dict.fromkeys((r["order"], r["loop"]) for r in rows):
        mine = [r for r in rows if (r["order"], r["loop"]) == (order, name)]
        verdict = "good enough" if mine[0]["good"] else "to be arranged"
        table = Table("wish", "schedule", "ms", "times the best", "same bits",
                      title=f"{name}, {order}: excess {mine[0]['excess']:.1f}, {verdict}")  # fmt: skip
        for r in sorted(mine, key=lambda r: r.get("ms", np.inf)):
            if "ms" in r:
                same = "yes" if r["deterministic"] else "no"
                table.add_row(r["strategy"], r["schedule"], f"{r['ms']:.4f}", f"{r['ratio']:.2f}", same)
            else:
                table.add_row(r["strategy"], r.get("declined", f"WRONG by {r.get('wrong', np.nan):.1e}"), "-", "-", "-")
        console.print(table)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    begin = time.perf_counter()
    parser = options_of("halves", __doc__)
    parser.add_argument("--quick", action="store_true", help="a small mesh")
    parser.add_argument("--orders", nargs="+", choices=list(ORDERS), default=list(USUAL))
    options = parser.parse_args(arguments)
    run = started("halves", options, device, Cpu)
    if run is None:
        return 2
    mesh = ml.generate.naca0012(*(QUICK if options.quick else SIZE)).reordered("hilbert")
    values, rows = Values(mesh), run.result["rows"]
    run.result["mesh"] = {"cells": mesh.cells.total, "faces": mesh.faces.total}
    for order in options.orders:
        for row in rows_of(order, values, run.device, run.copy):
            rows.append(row)
            print(f"{order:<6} {row['loop']:<13} {row['strategy']:<13} {row.get('schedule', ''):<28}"
                  f" {row.get('ms', float('nan')):9.4f} ms", flush=True)  # fmt: skip
        with_ratios(rows)
        run.save()
        run.device.clear()
    show(rows, Console(width=100))
    print(f"written to {run.record.file}, {time.perf_counter() - begin:.0f} s")
    return int(any("wrong" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
