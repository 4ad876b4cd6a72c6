"""Hardware counters of the race's best variants, by Nsight Compute, added to the rows of a result file.

    python -m bench.counters FILE [--orders given hilbert] [--precisions float64] [--seconds 300]

For every order one process (``bench.counted``) launches the best variant of each strategy and layout once under
``ncu``, which replays each kernel as often as its counters need, with caches cleared before. What is read: sectors from
and to DRAM, achieved occupancy, hit rates of L1 and L2, and why warps waited. Several launches of a variant are added
up; shares are weighted by the launches' times.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from bench.record import Record, RecordError
from meshloom.schedule.strategies import AUTOMATIC

COUNTING = 0.2  # of the time of a run that is to be counted, too
ROOT = Path(__file__).parents[1]
SECTOR = 32  # bytes
PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
KEY = ("order", "precision", "layout", "strategy", "variant")  # what a best variant is the best of
ENTRIES = (*KEY[1:], "block", "cap")  # what the counted process needs to know of a row

TIME = "gpu__time_duration.sum"
SECTORS = {"dram_read_sectors": "dram__sectors_read.sum", "dram_write_sectors": "dram__sectors_write.sum"}
PERCENTAGES = {
    "achieved_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "l2_hit": "lts__t_sector_hit_rate.pct",
}
THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"  # of a warp's 32, those that take part
#: Cycles that a warp spends in a state for each instruction issued: the reasons, and ``selected``, which is no stall.
REASONS = ("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
           "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
           "short_scoreboard", "sleeping", "tex_throttle", "wait")  # fmt: skip
STALLS = {reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in REASONS}
METRICS = (TIME, THREADS, *SECTORS.values(), *PERCENTAGES.values(), *STALLS.values())
_SCALES = {"second": 1.0, "s": 1.0, "msecond": 1e-3, "ms": 1e-3, "usecond": 1e-6, "us": 1e-6, "nsecond": 1e-9,
           "ns": 1e-9, "Ksector": 1e3, "Msector": 1e6, "Gsector": 1e9}  # fmt: skip


class CountersError(Exception):
    """No counters, and why, in one line."""


# --- what Nsight Compute says -------------------------------------------------------------------------------------


def parse_csv(text: str) -> list[dict[str, float]]:
    """One dictionary of metrics for each profiled launch, in the order of the launches, from ``ncu --csv``.

    Lines before the heading (the program's own and ``==PROF==``) are skipped, and so are metrics without a value.
    Times are in seconds and sectors single, whatever units the report uses.
    """
    text_lines = text.splitlines()
    start = next((k for k, line in enumerate(text_lines) if line.startswith('"ID"') and '"Metric Name"' in line), None)
    if start is None:
        return []
    launches: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(line for line in text_lines[start:] if line.startswith('"')):
        if not (row["ID"] or "").isdigit():
            continue
        found = launches.setdefault(int(row["ID"]), {})
        value = _number(row.get("Metric Value"))
        if value is not None and row.get("Metric Name"):
            found[row["Metric Name"]] = value * _SCALES.get(row.get("Metric Unit") or "", 1.0)
    return [launches[number] for number in sorted(launches)]


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:  # "n/a": this device does not count it
        return None


def summarise(launches: Sequence[dict[str, float]], useful: float | None = None) -> dict[str, Any]:
    """The counters of a variant from those of its launches; what was not counted is left out.

    ``useful``: compulsory bytes, for the ratio of what moved to what had to.
    """
    if not launches:
        return {}
    weights = [one.get(TIME, 1.0) for one in launches]
    result: dict[str, Any] = {"launches": len(launches)}
    if all(TIME in one for one in launches):
        result["kernel_ms"] = sum(weights) * 1e3
    for name, metric in SECTORS.items():
        if all(metric in one for one in launches):
            result[name] = round(sum(one[metric] for one in launches))
            result[name.replace("sectors", "bytes")] = SECTOR * result[name]
    for name, metric in PERCENTAGES.items():
        if all(metric in one for one in launches):
            result[name] = _average([one[metric] / 100.0 for one in launches], weights)
    if all(THREADS in one for one in launches):
        result["warp_efficiency"] = _average([one[THREADS] / 32.0 for one in launches], weights)
    if useful and {"dram_read_bytes", "dram_write_bytes"} <= result.keys():
        result["dram_over_useful"] = (result["dram_read_bytes"] + result["dram_write_bytes"]) / useful
    return result | {"stalls": top_stalls(launches, weights)}


def top_stalls(launches: Sequence[dict[str, float]], weights: Sequence[float], most: int = 3) -> dict[str, float]:
    """The reasons for which warps waited longest, with their shares of all cycles between two instructions."""
    shares = dict.fromkeys(REASONS, 0.0)
    for one, weight in zip(launches, weights, strict=True):
        cycles = {reason: one.get(metric, 0.0) for reason, metric in STALLS.items()}
        total = sum(cycles.values())
        for reason, spent in cycles.items():
            shares[reason] += weight / sum(weights) * (spent / total if total else 0.0)
    waited = [(share, reason) for reason, share in shares.items() if reason != "selected" and share > 0]
    return {reason: share for share, reason in sorted(waited, reverse=True)[:most]}


def _average(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def complaint(text: str) -> str | None:
    """What Nsight Compute could not do, in one line; None when it does not complain."""
    text_lines = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    return " ".join(" ".join(text_lines).split())[:300] if text_lines else None


def unknown_metrics(text: str) -> set[str]:
    """Metrics that this version or device does not have, named in an error."""
    named = re.findall(r"[Ff]ailed to find metric\W+([\w.]+)", text)
    return {name for name in named if name in METRICS}


# --- asking it ----------------------------------------------------------------------------------------------------


def find_ncu() -> str | None:
    """The program, on the path or where CUDA puts it."""
    found = shutil.which("ncu")
    return found or next((path for place in PLACES for path in sorted(glob(place), reverse=True)), None)


def required_ncu() -> str:
    """The same; CountersError where it is not installed."""
    found = find_ncu()
    if found is None:
        raise CountersError(f"Nsight Compute was not found (ncu on the path, {', '.join(PLACES)})")
    return found


def command(ncu: str, job: Path, done: Path, metrics: Iterable[str] = METRICS) -> list[str]:
    """The command line: counters of every launch of a generated kernel, as CSV in plain units."""
    return [ncu, "--csv", "--print-units", "base", "--clock-control", "none", "--target-processes",
            "application-only", "--kernel-name", "regex:^pass", "--metrics", ",".join(metrics), sys.executable, "-m",
            "bench.counted", str(job), str(done)]  # fmt: skip


def count(ncu: str, job: dict[str, Any], seconds: float,
          raw: Path | None = None) -> Iterator[tuple[int, list[dict[str, float]]]]:  # fmt: skip
    """(number of a row of the job, counters of its launches) for every row that was counted.

    ``raw``: a file for everything that the program said.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, done = Path(folder, "job.json"), Path(folder, "done.json")
        asked.write_text(json.dumps(job))
        metrics = list(METRICS)
        for _ in range(2):  # a metric that does not exist stops everything: a second try goes without it
            text = _run(command(ncu, asked, done, metrics), seconds)
            missing = unknown_metrics(text)
            if not missing:
                break
            metrics = [m for m in metrics if m not in missing]
        if raw:
            raw.write_text(text)
        launches = parse_csv(text)
        if not launches:
            raise CountersError(complaint(text) or f"ncu gave no counters: {' '.join(text.split())[-300:]}")
        steps = json.loads(done.read_text()) if done.is_file() else []
    position = 0
    for number, launched in enumerate(steps):
        if launched and position + launched <= len(launches):
            yield number, launches[position : position + launched]
        position += launched


def _run(arguments: list[str], seconds: float) -> str:
    """Everything that a program says until it ends or the time is up; then it and what it started are ended."""
    program = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                               errors="replace", start_new_session=True)  # fmt: skip
    try:
        return program.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        return program.communicate()[0]


# --- rows of a race -----------------------------------------------------------------------------------------------


def best_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest variant of each order, precision, layout and strategy."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if "ms" in row:
            key = tuple(row.get(name) for name in KEY)
            best[key] = min(best.get(key, row), row, key=lambda r: r["ms"])
    return list(best.values())


def add_counters(result: dict[str, Any], ncu: str, orders: Sequence[str], precisions: Sequence[str],
                 until: float, raw: str | None = None) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Count order by order; yields each row of the result that got its ``counters``."""
    for order in orders:
        named = [r for r in best_rows(result["variants"]) if r["strategy"] not in AUTOMATIC]
        rows = [r for r in named if r["order"] == order and r["precision"] in precisions]
        if not rows:
            continue
        left = until - time.monotonic()
        if left <= 0:
            raise CountersError("the time given by --seconds is up")
        entries = [{name: row.get(name) for name in ENTRIES} for row in rows]
        job = {"mesh": result["mesh"], "order": order, "rows": entries}
        kept = Path(f"{raw}_{order}.csv") if raw else None
        for number, launches in count(ncu, job, min(left, 3600.0), kept):
            row = rows[number]
            row["counters"] = summarise(launches, row["useful_GBps"] * row["ms"] * 1e6)
            yield row


def reserve(seconds: float, wanted: bool) -> float:
    """How much of a limit a run leaves for counting afterwards."""
    return COUNTING * seconds if wanted and seconds != float("inf") else 0.0


def line_of(row: dict[str, Any]) -> str:
    """A counted variant in one line."""
    c = row["counters"]
    moved = {"dram_read_bytes": "read", "dram_write_bytes": "written"}
    shares = {"dram_over_useful": "of useful", "achieved_occupancy": "occupancy", "l1_hit": "L1 hits",
              "l2_hit": "L2 hits", "warp_efficiency": "warps"}  # fmt: skip
    figures = [f"{c[name] / 1e6:.1f} MB {word}" for name, word in moved.items() if name in c]
    figures += [f"{words} {c[name]:.2f}" for name, words in shares.items() if name in c]
    waits = ", ".join(f"{reason} {share:.2f}" for reason, share in c["stalls"].items())
    return f"{row['order']:<8} {row['layout']:<6} {row['schedule']:<34} {', '.join(figures)}; waits: {waits}"


def main(arguments: list[str] | None = None) -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m bench.counters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="a result file of bench.race")
    parser.add_argument("--orders", nargs="+", default=["given", "hilbert"])
    parser.add_argument("--precisions", nargs="+", default=["float64"])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, with what is there")
    parser.add_argument("--raw", help="keep what ncu said in RAW_<order>.csv")
    options = parser.parse_args(arguments)
    if not options.file.is_file():
        print(f"bench.counters: there is no file {options.file}; python -m bench.race writes one", file=sys.stderr)
        return 2
    try:
        ncu = required_ncu()
    except CountersError as missing:
        print(f"bench.counters: {missing}", file=sys.stderr)
        return 2
    try:
        record = Record.resumed(options.file)
    except RecordError as refusal:
        print(f"bench.counters: {refusal}", file=sys.stderr)
        return 2
    result = record.result
    result["counters"] = {"program": ncu, "command": " ".join(command("ncu", Path("JOB"), Path("DONE"))[:-5])}
    try:
        until = begin + options.seconds
        for row in add_counters(result, ncu, options.orders, options.precisions, until, options.raw):
            print(line_of(row), flush=True)
            record.save()
    except CountersError as error:
        result["counters"]["incomplete"] = str(error)
        record.save()
        print(f"bench.counters: {error}", file=sys.stderr)
        return 1
    print(f"counters added to {options.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
