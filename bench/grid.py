"""Stencils on grids: how near a loop comes to a copy of the same bytes.

    python -m bench.grid --device cuda|cpu [--quick | --all] [--json FILE]

The second differences of second and fourth order along all axes (7 and 13 points in space, 5 and 9 in the plane), on
closed and periodic grids, in double and single precision. On a GPU variants of the strategy and block sizes, too. Each
row: milliseconds, points per second, and its compulsory bytes (each value read once and written once) per
second as a share of what a copy moves in the same run; once of a large copy, once of one as large as the loop's data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import meshloom as ml
from bench.measure import fastest
from bench.race_loop import TOLERANCE, Device
from bench.started import options_of, started
from meshloom.mesh.core import on_host
from meshloom.native.runtime import copy_bandwidth
from meshloom.schedule.strategies.common.points import tile_of

PRECISIONS = ("float64", "float32")
SHAPES = ((512, 512, 512), (2048, 2048))
SMALL_SHAPES = ((128, 128, 128), (512, 512))
STENCILS = ((1, False), (1, True), (2, False), (2, True))  # radius, periodic
BLOCKS, USUAL_BLOCK = (128, 256, 512), 256
WEIGHTS = {1: (-2.0, 1.0), 2: (-5 / 2, 4 / 3, -1 / 12)}  # of the point and of the pairs at distance 1, 2
SAMPLES = 20_000  # points at which results are checked


class Cpu(Device):
    """The cores of this machine, timed by the clock."""

    backend = "cpu"

    def seconds(self, run: Callable[[], Any]) -> float:
        def repeat(times: int) -> None:
            for _ in range(times):
                run()

        return fastest({"loop": repeat}, rounds=5, target=0.2)["loop"]

    def copy_bandwidth(self) -> float:
        return copy_bandwidth()


def second_difference(rank: int, radius: int) -> ml.Kernel:
    """The kernel that adds up second differences along all axes; spacing 1."""

    def at(axis: int, step: int) -> tuple[int, ...]:
        return tuple(step if a == axis else 0 for a in range(rank))

    def stencil(u: ml.Read, out: ml.Write) -> None:
        values: Any = u
        total = rank * WEIGHTS[radius][0] * values[at(0, 0)]
        for axis in range(rank):
            for step in range(1, radius + 1):
                total = total + WEIGHTS[radius][step] * (values[at(axis, step)] + values[at(axis, -step)])
        out[...] = total

    stencil.__name__ = f"stencil{2 * rank * radius + 1}"
    return ml.kernel(stencil)


class Stencil:
    """One stencil on one grid: its fields, its loop, its check."""

    def __init__(self, shape: tuple[int, ...], radius: int, periodic: bool, precision: str):
        self.grid, self.radius = ml.Grid(shape, periodic=periodic), radius
        values = np.random.default_rng(1).random(shape, dtype=np.dtype(precision))
        self.values = values
        self.u, self.out = self.grid.field("u", data=values), self.grid.field("out", dtype=precision)
        self.kernel = second_difference(len(shape), radius)
        self.box = self.grid.interior(radius)

    def loop(self, wish: ml.Schedule) -> ml.Loop:
        return self.kernel.loop(self.box, self.u[self.grid.star(self.radius)], self.out, schedule=wish)

    def error(self) -> float:
        """The largest relative error at some points of the box, corners among them."""
        rng, box = np.random.default_rng(2), self.box
        index = [rng.integers(low, high, SAMPLES) for low, high in zip(box.low, box.high, strict=True)]
        for axis, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
            index[axis][: 2**axis] = low
            index[axis][2**axis : 2 ** (axis + 1)] = high - 1
        expected = self.grid.rank * WEIGHTS[self.radius][0] * self.values[tuple(index)].astype(np.float64)
        for axis in range(self.grid.rank):
            for step in (s for d in range(1, self.radius + 1) for s in (d, -d)):
                moved = list(index)
                moved[axis] = (index[axis] + step) % self.grid.shape[axis]
                expected += WEIGHTS[self.radius][abs(step)] * self.values[tuple(moved)]
        rows = np.ravel_multi_index(index, self.grid.shape)
        found = on_host(self.out.storage.take(rows))  # some points only: the whole field is large
        return float(np.abs(found - expected).max() / np.abs(expected).max())


def wishes(device: Device, effort: str) -> Iterator[ml.Schedule]:
    """What to time: the automatic choice, and on a GPU other variants and block sizes, or all of both."""
    yield ml.Schedule("box")
    if device.backend == "cpu" or effort == "quick":
        return
    for block in BLOCKS:
        for variant in ml.variants("box"):
            if effort == "all" or (variant == "plain") != (block == USUAL_BLOCK):
                yield ml.Schedule("box", block=block, variant=variant)


def rows_of(stencil: Stencil, device: Device, copy: float, effort: str) -> Iterator[dict[str, Any]]:
    """Every schedule, checked, then timed."""
    for wish in wishes(device, effort):
        loop = stencil.loop(wish)
        executable: Any = loop.prepare()
        stencil.out.fill(0.0)
        executable()
        row: dict[str, Any] = {"stencil": loop.name, "shape": list(stencil.grid.shape),
                               "periodic": stencil.grid.periodic[0], "precision": str(stencil.u.dtype),
                               "schedule": str(loop.schedule), "automatic": wish == ml.Schedule("box")}  # fmt: skip
        error = stencil.error()
        if not error <= TOLERANCE[str(stencil.u.dtype)]:
            yield row | {"wrong": error}
            continue
        seconds = device.replayed(getattr(executable, "launch", executable))
        moved = loop.counts.bytes.compulsory
        row |= {"ms": seconds * 1e3, "Gpoints_per_s": stencil.box.size / seconds / 1e9, "bytes": moved,
                "bytes_per_point": moved / stencil.box.size, "share_of_copy": moved / seconds / copy}  # fmt: skip
        if loop.backend.target.is_simt:
            row |= {"tile": list(tile_of(loop.spec)), "resources": executable.resources.get("pass0", {})}
        yield row


def same_size_copy(stencil: Stencil, device: Device) -> float:
    """Bytes per second of copying one field of the stencil to the other."""
    source, target = stencil.u.storage, stencil.out.storage

    def copy() -> None:
        target[:] = source

    return 2 * source.nbytes / device.replayed(copy)


def best_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest schedule of each stencil, shape, kind of ends and precision."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (r for r in rows if "ms" in r):
        key = row["stencil"], tuple(row["shape"]), row["periodic"], row["precision"]
        best[key] = min(best.get(key, row), row, key=lambda r: r["ms"])
    return list(best.values())


def show(row: dict[str, Any]) -> None:
    shape, ends = " x ".join(map(str, row["shape"])), "round" if row["periodic"] else "closed"
    what = f"{row['stencil']:<10} {shape:<16} {ends:<6}"
    figures = f"{row['ms']:9.4f} ms {row['Gpoints_per_s']:7.2f} Gpoint/s {row['share_of_copy']:5.2f} of copy" \
        if "ms" in row else f"WRONG by {row['wrong']:.1e}"  # fmt: skip
    print(f"{what} {row['precision']:<8} {figures}  {row['schedule']}", flush=True)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = options_of("grid", __doc__)
    effort = parser.add_mutually_exclusive_group()
    for name, text in (("quick", "the automatic choice alone"), ("all", "every variant in blocks of every size")):
        effort.add_argument(f"--{name}", dest="effort", action="store_const", const=name, help=text)
    parser.add_argument("--small", action="store_true", help="small grids")
    options = parser.parse_args(arguments)
    run = started("grid", options, device, Cpu)
    if run is None:
        return 2
    run.result["quick"] = options.small
    rows = run.result["rows"]
    for shape in SMALL_SHAPES if options.small else SHAPES:
        for precision in PRECISIONS:
            for radius, periodic in STENCILS:
                stencil = Stencil(shape, radius, periodic, precision)
                for row in rows_of(stencil, run.device, run.copy, options.effort or "usual"):
                    same = same_size_copy(stencil, run.device) if row["automatic"] else None
                    rows.append(row | ({"same_size_copy_GBps": same / 1e9} if same else {}))
                    show(row)
                del stencil
                run.device.clear()
                run.save()  # what there is, should it be stopped
    print("\nbest of each:")
    for row in best_rows(rows):
        show(row)
    print(f"written to {run.record.file}")
    return int(any("wrong" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
