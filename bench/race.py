"""The race: every strategy x layout x block size x precision x ordering on the airfoil residual loop, with peers.

    python -m bench.race --device cuda [--orders given hilbert ...] [--json FILE] [--seconds N] [--resume] [--counters]

All variants are checked against the NumPy reference before they are timed. Times are medians of several groups of
launches between two events; shares are of the copy bandwidth measured in the same run. Useful bytes are the compulsory
ones of the loop, each datum once, increments read and written.

Rows are printed as they come, and the file is written again after every group of them: a run that is stopped keeps what
it has. ``--resume`` goes on with the orders that a file lacks; ``--counters`` asks Nsight Compute about the best
variants afterwards (``bench.counters``).
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import meshloom as ml
from bench import counters
from bench.measure import surroundings
from bench.race_loop import Choices, Cuda, Data, Device, block_colors, variants
from bench.race_peers import peers
from bench.record import Record
from meshloom.errors import MeshloomError

ORDERS = ("given", "hilbert", "random", "rcm", "gps", "rcb", "greedy", "color", "kaminpar")  # with peers first
PEER_ORDERS = ("given", "hilbert")
PRECISIONS = ("float64", "float32")
LAYOUTS = ("aos", "soa", "aosoa8")
BLOCKS = (64, 128, 256, 512)


class Stopped(KeyboardInterrupt):
    """The time is up, or somebody asked to stop; nobody may take it for a failure of a peer."""


def check_time(until: float) -> None:
    """Stopped where it is later than that, by ``time.monotonic``."""
    if time.monotonic() > until:
        raise Stopped("the time given by --seconds is up")


class Race:
    """One run: its result as it grows, and the file that holds it."""

    def __init__(self, record: Record, device: Device, until: float):
        self.result, self.record, self.device, self.until = record.result, record, device, until

    def run(self, base: ml.Mesh, orders: list[str], choices: Choices) -> None:
        """All orders that are not there yet, until the time is up; what is there is always on the disk."""
        try:
            for order in orders:
                if not self.result["orders"].get(order, {}).get("complete"):
                    self._order(base, order, choices)
        except KeyboardInterrupt as stopped:
            self.result["stopped"] = str(stopped) or "by Ctrl-C"
            print(f"stopped: {self.result['stopped']}", flush=True)
        finally:
            self.save()

    def _order(self, base: ml.Mesh, order: str, choices: Choices) -> None:
        for part in ("variants", "peers"):  # what an earlier run left half done is measured again, as a whole
            self.result[part] = [r for r in self.result[part] if r["order"] != order]
        check_time(self.until)
        begin = time.perf_counter()
        try:
            mesh = base if order == "given" else base.reordered(order)
        except MeshloomError as refusal:  # a graph partitioner that is not installed
            self.result["orders"][order] = {"declined": str(refusal), "complete": True}
            print(f"{order}: declined: {refusal}", flush=True)
            return
        seconds = time.perf_counter() - begin
        copy = self.device.copy_bandwidth()
        self.device.clear()
        colors = block_colors([mesh.face_cells], choices.blocks)
        about = {"seconds": seconds, "copy_GBps": copy / 1e9, "blocks": colors, "complete": False}
        self.result["orders"][order] = about
        print(f"{order}: ordered in {seconds:.2f} s, copy {copy / 1e9:.0f} GB/s", flush=True)
        data = Data(mesh)
        data.expect()
        if self.device.has_peers and order in PEER_ORDERS:
            self._peers(order, data, copy)
        for group in choices.groups():
            for row in variants(order, data, group, choices, self.device, copy):
                self.result["variants"].append(row | colors.get(str(block_of(row)), {}))
                print(line_of(self.result["variants"][-1]), flush=True)
                check_time(self.until)
            self.save()
            self.device.clear()
        about["complete"] = True
        self.save()

    def _peers(self, order: str, data: Data, copy: float) -> None:
        for row in peers(data, self.device, copy, data.useful_bytes()):
            self.result["peers"].append(row | {"order": order})
            print(peer_line(self.result["peers"][-1]), flush=True)
            check_time(self.until)
        self.save()

    def save(self) -> None:
        self.record.save()


def block_of(row: dict[str, Any]) -> int | None:
    """The block size in force: the automatic schedule names its own."""
    words = [w for w in row.get("schedule", "").split() if w.startswith("block=")]
    return int(words[0].removeprefix("block=")) if words else row["block"]


def line_of(row: dict[str, Any]) -> str:
    """A variant in one line."""
    head = f"{row['order']:<8} {row['precision']:<7} {row['layout']:<6} {row.get('schedule', row['strategy']):<34}"
    if "ms" not in row:
        why = f"declined: {row['declined']}" if "declined" in row else f"WRONG by {row['wrong']:.1e}"
        return f"{head} block={row['block']} {why}"
    registers = max(((v or 0) for v in row["registers"].values()), default=0)
    occupancy = "   -" if row["occupancy"] is None else f"{row['occupancy']:.2f}"
    return (
        f"{head} {row['ms']:8.4f} ms {row['useful_GBps']:6.0f} GB/s {row['share_of_copy']:.2f} of copy  occupancy"
        f" {occupancy} registers {registers:3d} shared {row['shared_bytes']:6d} reuse {row['reuse']:.2f}"
        f" colors {row.get('block_colors', 0)}/{row.get('thread_colors', 0)} lines {row['lines_per_block']:.0f}"
    )


def peer_line(row: dict[str, Any]) -> str:
    """A peer in one line."""
    head = f"{row['order']:<8} float64 peer   {row['peer']:<34}"
    if "ms" not in row:
        return f"{head} {'missing' if 'missing' in row else 'failed'}: {row.get('missing', row.get('failed'))}"
    return f"{head} {row['ms']:8.4f} ms {row['useful_GBps']:6.0f} GB/s {row['share_of_copy']:.2f} of copy"


def show(result: dict[str, Any], console: Console) -> None:
    """The best block size of every strategy and layout, and the peers."""
    for precision in PRECISIONS:
        for order in dict.fromkeys(r["order"] for r in result["variants"]):
            rows = [r for r in result["variants"] if r["order"] == order and r["precision"] == precision]
            table = Table("strategy", "layout", "block", "ms", "of copy", "occupancy", "registers",
                          title=f"{order}, {precision}")  # fmt: skip
            for r in sorted(counters.best_rows(rows), key=lambda r: r["ms"]):
                registers = max((v or 0) for v in r["registers"].values())
                occupancy = "-" if r["occupancy"] is None else f"{r['occupancy']:.2f}"
                name = f"auto: {r['schedule']}" if r["strategy"] == "auto" else r["strategy"]
                name += "" if r["variant"] == "plain" else f", {r['variant']}"
                table.add_row(name, r["layout"], str(r["block"] or ""), f"{r['ms']:.4f}", f"{r['share_of_copy']:.2f}",
                              occupancy, str(registers))  # fmt: skip
            if table.row_count:
                console.print(table)
    table = Table("peer (double)", "order", "ms", "of copy", title="peers")
    for r in result["peers"]:
        table.add_row(r["peer"], r["order"], f"{r['ms']:.4f}" if "ms" in r else "-", f"{r.get('share_of_copy', 0):.2f}")
    if table.row_count:
        console.print(table)


def begun(options: argparse.Namespace, base: ml.Mesh, backend: str) -> Record:
    """A new result, or with ``--resume`` the one in the file."""
    mesh = {"i": options.i, "j": options.j, "cells": base.cells.size, "edges": base.faces.size}
    if options.resume and options.json and options.json.is_file():
        record, file = Record.resumed(options.json), options.json
        found = record.result
        if found["mesh"] != mesh:
            raise MeshloomError(f"{file}: holds a race on {found['mesh']['cells']:,} cells, not on this mesh")
        found.pop("stopped", None)
        found["resumed"] = [*found.get("resumed", []), surroundings()["date"]]
        return record
    about = {"benchmark": "race", "loop": "res_calc", "mesh": mesh}
    new = surroundings() | about | {"orders": {}, "variants": [], "peers": []}
    return Record(new, options.json, backend)


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """SIGTERM, which a time limit sends, ends the run as Ctrl-C does."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped("by SIGTERM")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.race", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--i", type=int, default=800)
    parser.add_argument("--j", type=int, default=1200)
    parser.add_argument("--orders", nargs="+", default=list(ORDERS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS))
    parser.add_argument("--blocks", nargs="+", type=int, default=list(BLOCKS))
    parser.add_argument("--strategies", nargs="+", default=["auto", *ml.strategies()])
    parser.add_argument("--registers", nargs="+", type=int, default=[0], help="register caps to try; 0 for none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, with what is there")
    parser.add_argument("--resume", action="store_true", help="keep the finished orders of the file, do the others")
    parser.add_argument("--counters", action="store_true", help="then ask Nsight Compute about the best variants")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    until = time.monotonic()
    options = parse(arguments)
    until += options.seconds
    device = device or Cuda()
    if reason := ml.backends()[device.backend]:
        print(f"bench.race needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    choices = Choices(*(tuple(v) for v in (options.precisions, options.layouts, options.strategies, options.blocks,
                                           options.registers)))  # fmt: skip
    base = ml.generate.naca0012(options.i, options.j)
    try:
        race = Race(begun(options, base, device.backend), device,
                    until - counters.reserve(options.seconds, options.counters))  # fmt: skip
    except MeshloomError as error:
        print(f"bench.race: {error}", file=sys.stderr)
        return 2
    with stopping_cleanly():
        race.run(base, options.orders, choices)
    show(race.result, Console(width=110))
    print(f"written to {race.record.file}")
    wrong = [r for r in race.result["variants"] if "wrong" in r]
    if wrong:
        print(f"{len(wrong)} variants gave a wrong result", file=sys.stderr)
    if options.counters:
        left = until - time.monotonic()
        limit = [] if left == float("inf") else ["--seconds", str(max(left, 0.0))]
        return max(counters.main([str(race.record.file), *limit]), bool(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
