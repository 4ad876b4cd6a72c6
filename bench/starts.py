"""How long a person waits for the first iteration, from the command line: with an empty cache, and again.

    python -m bench.starts --device cpu|cuda [--only airfoil wing] [--cores N] [--json FILE]

airfoil: as it is; wing: the ONERA M6, 0.46 million cells, implicit. One iteration without output, in a process of its
own: Python's start, the mesh, plans, compiling and the iteration itself count. ``--cores``: how many the process may
use, where the system lets one say so, all unless said. Empty: nothing of Meshloom's or of a driver's is cached; there
is Python's bytecode, as after an installation. Again: the least of three.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.cpu_parts import command_line
from bench.measure import surroundings
from bench.record import Record
from bench.report import Goal, goal_table, rows_table

CASES: dict[str, tuple[str, ...]] = {"airfoil": ("airfoil",), "wing": ("onera_m6",)}
BARE = ("--set", "output.vtu=false", "--set", "output.plot=false", "--iterations", "1", "--quiet")
AGAIN = 3
#: Seconds, by case and device: with an empty cache, and again.
AIMS = {("airfoil", "cpu"): (4.0, 1.0), ("wing", "cuda"): (20.0, None)}


def waited(name: str, device: str, *settings: str) -> dict[str, Any]:
    """Seconds to the end of one iteration, first with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        place = {"MESHLOOM_CACHE": os.path.join(folder, "cache"), "CUDA_CACHE_PATH": os.path.join(folder, "driver")}
        words = ["run", *CASES[name], "--backend", device, *BARE, *(w for one in settings for w in ("--set", one))]
        place["PYTHONPYCACHEPREFIX"], place["PYTHONDONTWRITEBYTECODE"] = os.path.join(folder, "bytecode"), ""
        command_line("cases", **place)  # imports them all
        taken = [command_line(*words, "--out", f"{folder}/{n}", **place)["seconds"] for n in range(1 + AGAIN)]
    return {"case": name, "device": device, "empty_s": taken[0], "again_s": min(taken[1:]), "all_s": taken}


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    found = []
    for row in rows:
        empty, again = AIMS.get((row["case"], row["device"]), (None, None))
        named = f"{row['case']} on {row['device']}, first iteration"
        found += [Goal(f"{named}, empty cache", row["empty_s"], "at most", empty, " s")] if empty else []
        found += [Goal(f"{named}, again", row["again_s"], "at most", again, " s")] if again else []
    return found


def text_lines(result: dict[str, Any]) -> list[str]:
    """A table of the rows, and one of the aims."""
    head = ("case", "device", "cores", "empty cache", "again")
    rows = [(r["case"], r["device"], str(result["cores"]), f"{r['empty_s']:.1f} s", f"{r['again_s']:.1f} s")
            for r in result["rows"]]  # fmt: skip
    return [*rows_table(head, rows), "", *goal_table(goals(result["rows"]))]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--cores", type=int, help="cores that may be used (default: all)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the cases")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    if reason := ml.backends()[options.device]:
        print(f"bench.starts cannot use {options.device}: {reason}", file=sys.stderr)
        return 2
    if options.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    result = surroundings() | {"benchmark": "starts", "backend": options.device, "cores": cores, "rows": []}
    record = Record(result, options.json, options.device)
    for name in options.only:
        result["rows"].append(waited(name, options.device, *options.set))
        result["goals"] = [one.as_json() for one in goals(result["rows"])]
        record.save()
        print("{case} on {device}: {empty_s:.2f} s with an empty cache, {again_s:.2f} s again".format(
            **result["rows"][-1]), flush=True)  # fmt: skip
    print("\n".join(text_lines(result)))
    print(f"written to {record.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
