"""The fuzzer for as long as you like: python -m tests.fuzz.run --minutes 60 --backends numpy cpu emulated --jobs 2

Random kernels on random meshes, every back end against ``kernel.python``. It stops at the first difference, prints the
smallest program that shows it, and leaves a summary as JSON.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.measure import surroundings
from bench.record import Record


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=10**12, help="stop after so many, if time is not up before")
    parser.add_argument("--seed", type=int, default=0, help="the first case; process k of K takes every K-th")
    parser.add_argument("--backends", nargs="+", default=["numpy", "cpu", "emulated"],
                        help="back ends by name; emulated_hip is HIP's text")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--known", nargs="*", default=None, help="leave these parts out, instead of the usual ones")
    parser.add_argument("--few", action="store_true", help="one way for each case and back end, for more cases")
    parser.add_argument("--go-on", action="store_true", help="print differences and go on, instead of stopping")
    parser.add_argument("--json", type=Path, help="the summary; otherwise a new file in bench/results")
    return parser.parse_args(arguments)


def work(number: int, options: dict[str, Any], answers: Any) -> None:
    """One process: cases until time is up, each answered by its tally or its difference."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ["MESHLOOM_CACHE"] = folder  # thousands of libraries that nobody needs again
        from tests.backend import on_hip  # noqa: F401 registers the back end emulated_hip
        from tests.fuzz.check import KNOWN, Found, check

        known = KNOWN if options["known"] is None else frozenset(options["known"])
        end, seed, parent = time.monotonic() + options["seconds"], options["seed"] + number, os.getppid()
        while time.monotonic() < end and seed < options["seed"] + options["cases"] and os.getppid() == parent:
            try:
                tally = check(seed, options["backends"], known=known, few=options["few"])
                answers.put((seed, vars(tally), ""))
            except Found as found:
                answers.put((seed, None, str(found)))
            seed += options["jobs"]
            if seed % (25 * options["jobs"]) < options["jobs"]:
                _clear(Path(folder))
        answers.put((None, None, ""))


def _clear(folder: Path) -> None:
    """Libraries of cases that are done."""
    for path in folder.rglob("fuzzed-*"):
        path.unlink(missing_ok=True)
    for path in folder.rglob("emulated_fuzzed-*"):
        path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    options = {"seconds": 60 * chosen.minutes, "seed": chosen.seed, "cases": chosen.cases, "jobs": chosen.jobs,
               "backends": chosen.backends, "known": chosen.known, "few": chosen.few}  # fmt: skip
    context = get_context("spawn")
    answers = context.Queue()
    workers = [context.Process(target=work, args=(k, options, answers)) for k in range(chosen.jobs)]
    for one in workers:
        one.start()
    summary = {**surroundings(), "benchmark": "fuzz",
               "backends": chosen.backends, "seed": chosen.seed, "minutes": chosen.minutes, "cases": 0, "judged": 0,
               "skipped": 0, "exact": 0, "used": {}, "differences": []}  # fmt: skip
    begin = shown = time.monotonic()
    running = chosen.jobs
    while running:
        try:
            seed, tally, text = answers.get(timeout=10.0)
        except queue.Empty:
            if not any(one.is_alive() for one in workers):
                break
            continue
        if seed is None:
            running -= 1
        elif text:
            summary["differences"].append({"seed": seed, "text": text})
            print(text, flush=True)
            if not chosen.go_on:
                break
        else:
            _count(summary, tally)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(_line(summary, shown - begin), flush=True)
    for one in workers:
        if not running:
            one.join()
        one.terminate()
    summary["seconds"] = time.monotonic() - begin
    print(Record(summary, chosen.json, "cuda" if "cuda" in chosen.backends else "cpu").save())
    print(_line(summary, summary["seconds"]))
    return 1 if summary["differences"] else 0


def _count(summary: dict[str, Any], tally: dict[str, Any]) -> None:
    summary["cases"] += 1
    for name in ("judged", "skipped", "exact"):
        summary[name] += tally[name]
    for name, count in tally["used"].items():
        summary["used"][name] = summary["used"].get(name, 0) + count


def _line(summary: dict[str, Any], seconds: float) -> str:
    return (
        f"{seconds:.0f} s: {summary['cases']} cases, {summary['judged']:,} results compared, {summary['exact']:,} of"
        f" them to the last bit, {summary['skipped']:,} without a bound, {len(summary['differences'])} differences"
    )


if __name__ == "__main__":
    sys.exit(main())
