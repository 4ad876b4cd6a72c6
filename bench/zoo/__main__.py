"""The zoo: loops that no application has, on meshes of all kinds, by every schedule, each held against NumPy.

    python -m bench.zoo --device cuda|cpu [--only p1_tetrahedron ...] [--size N] [--blocks all|own|none]
                        [--processes N] [--seconds N] [--resume] [--against FILE] [--json FILE]

Every schedule, layout and block at one size in good order and double precision; of other orders, precisions and sizes a
design in which every two meet, by every strategy with its own block; then three programs, fused and loop by loop. The
file is written after each mesh, and ``--resume`` goes on with what it lacks. Printed of each loop and mesh: the best of
all, the best that gives the same bits in every run, what ``auto`` and ``fastest`` take, and the share of a copy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import meshloom as ml
from bench.grid import Cpu
from bench.measure import surroundings
from bench.race import stopping_cleanly
from bench.race_loop import Cuda, Device
from bench.record import Record
from bench.started import options_of
from bench.zoo.design import KINDS, SIZE, blocks_of
from bench.zoo.loops import LOOPS
from bench.zoo.programs import PROGRAMS
from bench.zoo.report import COLUMNS, against, show, summary
from bench.zoo.running import Row, Task, side_by_side, tasks_of
from meshloom.errors import MeshloomError


def run(record: Record, device: Device, tasks: Iterable[Task], blocks: Sequence[int | None], until: float,
        processes: int = 1) -> None:  # fmt: skip
    """What the file lacks, until the time is up; it is always complete up to the last mesh."""
    result = record.result
    result["copy_GBps"] = [*result.get("copy_GBps", []), device.copy_bandwidth() / 1e9]
    device.clear()
    copy, left = result["copy_GBps"][-1] * 1e9, [one for one in tasks if one.key not in result["done"]]
    for task, found in side_by_side(left, device, copy, blocks, until, processes):
        for row in found:
            print(line_of(row), flush=True)
        result["rows"] += found
        result["done"].append(task.key)
        record.save()


def line_of(row: Row) -> str:
    """A variant in one line."""
    where = " ".join(f"{row[name]!s:<12}" for name in COLUMNS)
    how = " ".join(str(row.get(name) or "") for name in ("layout", "strategy", "variant", "block"))
    if "fused" in row:
        how += "fused" if row["fused"] else "loop by loop"
    if "ms" not in row:
        why = f"declined: {row['declined']}" if "declined" in row else f"WRONG by {row['wrong']:.1e}"
        return f"{where} {how}: {why}"
    share = f"  {row['share_of_copy']:.2f} of copy" if "share_of_copy" in row else ""
    return f"{where} {how}: {row['ms']:.4f} ms{share}"


def begun(options: Any, backend: str) -> Record:
    """A new result, or with ``--resume`` the one in the file."""
    if options.resume and options.json and options.json.is_file():
        record = Record.resumed(options.json)
        if (size := record.result["size"]) != options.size:
            raise MeshloomError(f"{options.json}: holds loops of {size:,} cells or links; go on with --size {size}")
        if (blocks := record.result.get("blocks")) != options.blocks:
            raise MeshloomError(f"{options.json}: go on with --blocks {blocks}")
        record.result["resumed"] = [*record.result.get("resumed", []), surroundings()["date"]]
        return record
    about = {"benchmark": "zoo", "backend": backend, "size": options.size,
             "blocks": options.blocks, "processes": options.processes, "rows": [], "done": []}  # fmt: skip
    return Record(surroundings() | about, options.json, backend)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    until = time.monotonic()
    parser = options_of("zoo", __doc__)
    parser.add_argument("--only", nargs="+", choices=(*LOOPS, *PROGRAMS), default=(*LOOPS, *PROGRAMS), metavar="LOOP",
                        help=f"some of {', '.join((*LOOPS, *PROGRAMS))}")  # fmt: skip
    parser.add_argument("--size", type=int, default=SIZE, help="cells or links where every schedule is run")
    parser.add_argument("--blocks", choices=KINDS, default="all",
                        help="all, each strategy's own, or none: what is chosen alone, no other schedule")  # fmt: skip
    parser.add_argument("--against", type=Path, metavar="FILE", help="a result whose schedules it is held against")
    parser.add_argument("--processes", type=int, default=1, metavar="N",
                        help="prepare in so many processes, which measure in turn")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, with what is there")
    parser.add_argument("--resume", action="store_true", help="go on with what the file lacks")
    options = parser.parse_args(arguments)
    until += options.seconds
    device = device or (Cuda() if options.device == "cuda" else Cpu())
    if reason := ml.backends()[device.backend]:
        print(f"bench.zoo cannot use {device.backend}: {reason}", file=sys.stderr)
        return 2
    try:
        record = begun(options, device.backend)
        others = [row for _, rows in against(options.against) for row in rows] if options.against else []
    except MeshloomError as error:
        print(f"bench.zoo: {error}", file=sys.stderr)
        return 2
    ml.use(device.backend)
    tasks, blocks = tasks_of(options.only, options.size), blocks_of(device.backend, options.blocks)
    try:
        with stopping_cleanly():
            run(record, device, tasks, blocks, until, options.processes)
    except KeyboardInterrupt as stop:
        print(f"stopped: {stop}; go on with --resume --json {record.file}", file=sys.stderr)
    if options.against:
        record.result["against"] = options.against.name
    show(summary([*record.result["rows"], *others]), Console(width=220))
    print(f"written to {record.save()}")
    return int(any("wrong" in row for row in record.result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
