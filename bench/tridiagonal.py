"""Solves along lines of grids: every method, axis, size and precision, against copying the same bytes in the same run.

A plain derivative reads every value once and writes one: 16 bytes per point in double is the least that any code can
move. The share says how near a method comes to moving just that at the speed of a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

import meshloom as ml
from bench.compact_rows import accumulate, flow_flux
from bench.locality import Cpu
from bench.race_loop import Device, kernel_figures
from bench.started import options_of, started
from meshloom import compact
from meshloom.errors import MeshloomError

TOLERANCE = {"float64": 1e-14, "float32": 1e-5}  # largest difference from the LU reference, as a share of the largest
CHECKED_LINES = 40
#: Forms tried where the best one is looked for: points of a thread, tile, registers.
STRIDED = ((16, 16, 64), (16, 32, 64), (32, 32, 128))
CONTIGUOUS = ((16, 4, 80), (16, 4, 96), (16, 2, 80))
AHEAD = ((32, 33), (32, 66))  # tile, blocks
FLUX: tuple[dict[str, int], ...] = (
    {}, {"tile": 32, "points": 32, "registers": 64}, {"tile": 32, "ahead": 66}, {"group": 2, "points": 8},
    {"group": 3, "points": 8, "registers": 80}, {"group": 3, "points": 8, "registers": 128},
    {"group": 2, "points": 16, "registers": 128},
)  # fmt: skip


class Fields:
    """Random operands on a grid and room for results, the same for every variant."""

    def __init__(self, shape: tuple[int, ...], periodic: bool, precision: str, values: int = 1):
        self.grid = ml.Grid(shape, periodic=periodic)
        data = np.random.default_rng(1).random((self.grid.total, values), np.float32).astype(precision)
        self.data = (1.0 + data).astype(precision, copy=False)
        self.f = self.grid.field("f", values, dtype=precision, data=self.data)
        self.out = self.grid.field("out", values, dtype=precision)

    def operator(self, axis: int) -> ml.linalg.LineOperator:
        return compact.operator(compact.LELE6, self.grid, axis)

    def error(self, axis: int, operator: ml.linalg.LineOperator) -> float:
        """Of some lines of the first and last component, against the LU factors in double."""
        shape, dim = self.grid.shape, self.f.dim
        lines = np.random.default_rng(2).integers(0, self.grid.total // shape[axis], CHECKED_LINES)
        others = [n for a, n in enumerate(shape) if a != axis]
        where = list(np.unravel_index(lines, others)) if others else []
        place: Any = (*where[:axis], slice(None), *where[axis:])
        worst = 0.0
        for component in {0, dim - 1}:
            found = self.out.storage.reshape(dim, -1)[component, : self.grid.total].reshape(shape)
            taken = found[place] if others else found[None]
            taken = np.asarray(taken.get() if hasattr(taken, "get") else taken, np.float64)
            given = self.data[:, component].reshape(shape)
            source = np.asarray(given[place] if others else given[None], np.float64)
            if taken.shape[0] == shape[axis] and axis == 0 and others:  # a slice before the lists stays in front
                taken, source = taken.T, source.T
            expected = operator.applied(source.T).T
            worst = max(worst, float(np.abs(taken - expected).max() / np.abs(expected).max()))
        return worst


def row_of(loop: ml.linalg.LineLoop, fields: Fields, axis: int, precision: str, device: Device, copy: float,
           checked: bool = True) -> dict[str, Any]:  # fmt: skip
    """One loop checked and timed."""
    try:
        executable: Any = loop.prepare()
    except MeshloomError as refusal:
        return {"declined": str(refusal)}
    fields.out.assign(0.0)
    executable()
    error = fields.error(axis, loop.operators[0]) if checked else 0.0
    if not error <= TOLERANCE[precision]:
        return {"wrong": error}
    seconds = device.replayed(getattr(executable, "launch", executable))
    points = loop.lines.length * loop.lines.lines * loop.values
    return {
        "ms": seconds * 1e3, "Gpoints_per_s": points / seconds / 1e9, "share_of_copy": loop.compulsory / seconds / copy,
        "error": error, "form": str(loop.spec.form), **kernel_figures(getattr(executable, "resources", {})),
    }  # fmt: skip


def tunings(contiguous: bool) -> Iterator[dict[str, int]]:
    yield {}
    for points, tile, registers in CONTIGUOUS if contiguous else STRIDED:
        yield {"points": points, "tile": tile, "registers": registers}
    for tile, ahead in () if contiguous else AHEAD:
        yield {"tile": tile, "ahead": ahead}


def quick_rows(sizes: list[tuple[int, ...]], device: Device, copy: float) -> Iterator[dict[str, Any]]:
    """Fused right-hand sides, closed lines, odd lengths and single precision, then forms of ``segmented``."""
    yield from flux_rows(sizes[-1], device, copy)
    for shape in sizes:
        odd = tuple(n - 3 for n in shape)
        for given, periodic, precision in ((odd, False, "float64"), (shape, False, "float64"), (odd, True, "float64"),
                                           (shape, True, "float32"), (shape, False, "float32")):  # fmt: skip
            device.clear()
            fields = Fields(given, periodic, precision)
            for axis in range(len(shape)):
                yield from one(fields, axis, precision, device, copy, {})
            del fields
    for shape in sizes:
        device.clear()
        fields = Fields(shape, True, "float64")
        for axis in range(len(shape)):
            for wish in tunings(axis == len(shape) - 1):
                yield from one(fields, axis, "float64", device, copy, wish)
        del fields


def method_rows(sizes: list[tuple[int, ...]], device: Device, copy: float) -> Iterator[dict[str, Any]]:
    """Every method on A x = f, without a stencil."""
    for shape in sizes:
        for precision in ("float64", "float32"):
            device.clear()
            fields = Fields(shape, True, precision)
            for axis in range(len(shape)):
                operator = ml.linalg.LineOperator(fields.operator(axis).matrix)
                for method in ml.linalg.tridiagonal.methods():
                    loop = ml.linalg.LineLoop(fields.grid, axis, operator, fields.f, fields.out, method=method)
                    row = row_of(loop, fields, axis, precision, device, copy)
                    yield {"case": method, "shape": shape, "axis": axis, "periodic": True, "values": 1,
                           "precision": precision, "wish": {}, "method": method} | row  # fmt: skip
            del fields


def best(rows: list[dict[str, Any]]) -> Iterator[str]:
    """For each case the usual form and the best one that was tried, briefly."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if "ms" in row:
            key = (row["case"], row["shape"], row["values"], row["precision"], row["periodic"], row["axis"])
            groups.setdefault(key, []).append(row)
    for (case, shape, values, precision, periodic, axis), members in groups.items():
        top = max(members, key=lambda r: r["share_of_copy"])
        usual = next((f"{r['share_of_copy']:.3f}" for r in members if not r["wish"]), "-")
        ends = "periodic" if periodic else "closed"
        what = f"{case} {shape[0]}^{len(shape)} x{values} {precision} {ends} axis {axis}"
        yield f"{what}: usual {usual}, best {top['share_of_copy']:.3f} {top['wish']}"


def one(fields: Fields, axis: int, precision: str, device: Device, copy: float, wish: dict[str, int],
        method: str = "auto") -> Iterator[dict[str, Any]]:  # fmt: skip
    """The derivative along an axis in one form."""
    grid = fields.grid
    loop = ml.linalg.LineLoop(grid, axis, fields.operator(axis), fields.f, fields.out, tuning=wish, method=method)
    yield {"case": "derivative", "shape": grid.shape, "axis": axis, "periodic": grid.periodic[axis],
           "values": fields.f.dim, "precision": precision, "wish": wish, "method": method,
           } | row_of(loop, fields, axis, precision, device, copy)  # fmt: skip


def flux_rows(shape: tuple[int, ...], device: Device, copy: float) -> Iterator[dict[str, Any]]:
    """Flux, derivative and accumulation of five variables in one launch, and five plain derivatives in one."""
    fields = Fields(shape, True, "float64", 5)
    for wish in FLUX:
        for axis in range(len(shape)):
            loop = ml.linalg.LineLoop(
                fields.grid, axis, fields.operator(axis), fields.f, fields.out, before=flow_flux(0), after=accumulate,
                values=5, tuning=wish,
            )  # fmt: skip
            row = row_of(loop, fields, axis, "float64", device, copy, checked=False)
            yield {"case": "flux", "shape": shape, "axis": axis, "periodic": True, "values": 5, "precision": "float64",
                   "wish": wish, "method": "auto"} | row  # fmt: skip
        if not wish:
            for axis in range(len(shape)):
                yield from one(fields, axis, "float64", device, copy, {})


def shown(row: dict[str, Any]) -> str:
    """One line for a row."""
    what = f"{row['case']} {'x'.join(map(str, row['shape']))} axis {row['axis']} x{row['values']} {row['precision']}"
    what += f" {'periodic' if row['periodic'] else 'closed'} {row['method']} {row['wish'] or ''}"
    if "ms" not in row:
        return f"{what}: {row.get('declined') or 'WRONG by ' + str(row.get('wrong'))}"
    return (f"{what}: {row['ms']:.4f} ms, {row['Gpoints_per_s']:.1f} Gpoint/s, {row['share_of_copy']:.3f} of copy,"
            f" registers {row['registers']}, spills {row['spills']}, shared {row['shared_bytes']},"
            f" occupancy {row['occupancy']}, error {row['error']:.1e}")  # fmt: skip


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = options_of("tridiagonal", __doc__)
    parser.add_argument("--quick", action="store_true", help="forms of 'segmented' alone, without the other methods")
    parser.add_argument("--n", nargs="+", type=int, default=[256, 512], help="points along each side of a cube")
    options = parser.parse_args(arguments)
    run = started("tridiagonal", options, device, Cpu)
    if run is None:
        return 2
    print(f"copy {run.copy / 1e9:.0f} GB/s", flush=True)
    cubes: list[tuple[int, ...]] = [(n, n, n) for n in options.n]
    wanted, rows = quick_rows(cubes, run.device, run.copy), run.result["rows"]
    for row in wanted if options.quick else chain(method_rows([*cubes, (2048, 2048)], run.device, run.copy), wanted):
        print(shown(row), flush=True)
        rows.append(row)
    run.save()
    print(f"written to {run.file}", *best(rows), sep="\n")
    return int(any("wrong" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
