"""The four applications compared with the outputs of their original programs, in one run on one back end.

    python -m bench.truth [--backend cpu|cuda|emulated|numpy] [--truth DIR] [--quick] [--jobs N] [--json FILE]
    python -m bench.truth --markdown FILE [FILE ...]

A row per comparison: what came out, what the original gave, how far off, the bound, met or missed. A run that fails
does not stop the others. Without ``--truth``, a folder with the originals' outputs, the comparisons that need files too
big for ``tests/data`` say "not here". Ends with 1 when a comparison is missed.

The runs are divided into units that share kernels; ``--jobs`` of them run at a time, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import meshloom as ml
from bench import record
from bench.measure import surroundings
from bench.truth_cases import NOT_HERE, Check, Row, checks

COLUMNS = ("application", "case", "what", "found", "original", "error", "bound", "")


def units() -> list[str]:
    return list(dict.fromkeys(check.unit for check in checks()))


def rows_of(check: Check, truth: Path | None) -> Iterator[Row]:
    """The rows of a run; where it fails, a last row says how."""
    try:
        yield from check.rows(truth)
    except Exception as problem:  # whatever it is, the other runs are worth having
        what = (str(problem).splitlines() or [""])[0]
        yield Row(check.application, check.case, "run", note=f"{type(problem).__name__}: {what}")


def run_unit(unit: str, truth: Path | None, quick: bool) -> dict[str, Any]:
    """All rows of a unit, in this process."""
    begin, rows = time.perf_counter(), list[Row]()
    for check in checks():
        if check.unit == unit and (check.quick or not quick):
            rows += rows_of(check, truth)
    return {"unit": unit, "seconds": time.perf_counter() - begin, "rows": [asdict(row) for row in rows]}


def run_in_a_process(unit: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, so that a crash costs this unit alone."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "bench.truth", "--backend", options.backend, "--unit", unit, "--json", file]
        command += ["--truth", options.truth] if options.truth else []
        command += ["--quick"] if options.quick else []
        if options.threads:
            command += ["--threads", str(options.threads)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if file.is_file():
            found: dict[str, Any] = json.loads(file.read_text())
            return found
    last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    lost = Row(unit.split("_")[0], unit, "all of it", note=last)
    return {"unit": unit, "seconds": 0.0, "rows": [asdict(lost)]}


def run_all(options: argparse.Namespace) -> dict[str, Any]:
    """Every unit; which rows are met, and how long it took."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = list(pool.map(lambda unit: run_in_a_process(unit, options), units()))
    rows = [Row(**row) for part in parts for row in part["rows"]]
    return {
        "benchmark": "truth",
        "backend": options.backend,
        "quick": options.quick,
        "jobs": options.jobs,
        "seconds": time.perf_counter() - begin,
        "seconds_by_unit": {part["unit"]: part["seconds"] for part in parts},
        "verdicts": dict(Counter(row.verdict for row in rows)),
        "rows": [asdict(row) | {"verdict": row.verdict} for row in rows],
    }


def load_rows(result: dict[str, Any]) -> list[Row]:
    return [Row(**{key: value for key, value in row.items() if key != "verdict"}) for row in result["rows"]]


def nearest_to_its_bound(rows: Iterable[Row]) -> Row:
    """The row that uses most of what its bound allows; one that was not made only where none was."""

    def share(row: Row) -> float:
        if not row.error:
            return 0.0 if row.verdict == "met" else math.inf
        return row.error / row.bound if row.bound else math.inf

    return max(rows, key=lambda row: (row.verdict != NOT_HERE, share(row)))


def markdown(results: Sequence[dict[str, Any]]) -> list[str]:
    """A table with one line for each case: how many comparisons, and for every result the one nearest to its bound."""
    by_case = [{case: list(rows) for case, rows in groupby(load_rows(result), lambda r: (r.application, r.case))}
               for result in results]  # fmt: skip
    backends = " | ".join(f"nearest to its bound, {result['backend']}" for result in results)
    text_lines = [f"| application | case | comparisons | {backends} |", "|---|---|---|" + "---|" * len(results)]
    for case, rows in by_case[0].items():
        told = [told_case(of[case]) for of in by_case if case in of]
        text_lines.append(f"| {case[0]} | {case[1]} | {len(rows)} | {' | '.join(told)} |")
    return text_lines


def text_lines(results: Sequence[dict[str, Any]]) -> list[str]:
    """What docs/originals.md shows of runs on several back ends."""
    counts = [told_counts(result) for result in results]
    text = "each line shows, of the comparisons of one run, the one that comes nearest to its bound"
    return [f"{', '.join(counts)}; {text}:", "", *markdown(results)]


def told_counts(result: dict[str, Any]) -> str:
    """How many comparisons are met, of those that were made, and why others were not."""
    verdicts, missing = result["verdicts"], result["verdicts"].get(NOT_HERE, 0)
    found = f"{verdicts.get('met', 0)} of {len(result['rows']) - missing} comparisons are met on {result['backend']}"
    more = f" ({missing} more were not made: outputs too big for `tests/data` were not there)" if missing else ""
    return f"{found}{more}"


def told_case(rows: Sequence[Row]) -> str:
    """What came nearest to its bound among the comparisons of a case, and how many were not made."""
    row, missing = nearest_to_its_bound(rows), sum(row.verdict == NOT_HERE for row in rows)
    more = f"; {missing} not made" if 0 < missing < len(rows) else ""
    return f"{row.what}: {told_error(row)}{more}"


def told_error(row: Row) -> str:
    if row.verdict != "met":
        return f"**{row.note or row.verdict}**"
    return f"{row.error:.1e} of {row.bound:.0e}" if row.error else "the same"


def cells(row: Row) -> tuple[str, ...]:
    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return (row.application, row.case, row.what, text(row.found, ".15g"), text(row.wanted, ".15g"),
            text(row.error, ".1e"), text(row.bound, ".0e") if row.bound else ("exactly" if row.bound == 0.0 else ""),
            row.note if row.note and row.verdict == "missed" else row.verdict)  # fmt: skip


def show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*COLUMNS, title=f"The originals and back end {result['backend']}")
    for row in load_rows(result):
        table.add_row(*cells(row), style="red" if row.verdict == "missed" else None)
    Console(width=170).print(table)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(result["verdicts"].items()))
    slowest = max(result["seconds_by_unit"].items(), key=lambda item: item[1])
    print(f"{counts}; {result['seconds']:.0f} s, the longest unit {slowest[0]} {slowest[1]:.0f} s")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.truth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("cpu", "cuda", "emulated", "numpy"), default="cpu")
    parser.add_argument("--truth", type=Path, help="a folder with the outputs of the original programs")
    parser.add_argument("--quick", action="store_true", help="without the runs that take long")
    parser.add_argument("--jobs", type=int, default=min(len(units()), os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--threads", type=int, help="of each process (default: as many as leave the cores to all jobs)")
    parser.add_argument("--unit", choices=units(), help="this unit alone, in this process: its rows into the file")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, nargs="+", metavar="FILE", help="only print result files as a table")
    options = parser.parse_args(arguments)
    if options.unit and not options.json:
        parser.error("--unit needs --json FILE for its rows")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.markdown:
        print("\n".join(markdown([record.load(file) for file in options.markdown])))
        return 0
    if reason := ml.backends()[options.backend]:
        print(f"bench.truth: back end {options.backend} cannot be used: {reason}", file=sys.stderr)
        return 2
    if options.truth is not None and not options.truth.is_dir():
        print(f"bench.truth: {options.truth} is no folder; --truth names the one with the outputs", file=sys.stderr)
        return 2
    threads = options.threads or max(1, (os.cpu_count() or 1) // options.jobs)
    ml.use(options.backend, threads=threads)
    if options.unit:
        part = run_unit(options.unit, options.truth, options.quick)
        record.hand_over(part, options.json)
        return 0
    options.threads = threads
    result = surroundings() | run_all(options)
    show(result)
    if options.json:
        print(f"written to {record.Record(result, options.json, options.backend).save()}")
    return int("missed" in result["verdicts"])


if __name__ == "__main__":
    sys.exit(main())
