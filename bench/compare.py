"""Two trees of Meshloom next to each other: is anything slower than before?

    git worktree add OLD COMMIT
    python -m bench.compare --old OLD --device cuda|cpu [--only airfoil ...] [--rounds 7] [--json FILE]

Each tree has a process of its own with all cases in it (``bench.steps``), and both are asked in turn, round after
round, so that what else the machine does meets both. Ratios are those of the medians, new by old; ``spread`` is half
the distance between quartiles of a tree's rounds by their median, the larger of both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import steps
from bench.measure import surroundings
from bench.record import Record
from bench.report import Goal, rows_table
from bench.stamp import UNKNOWN, stamp

GOAL = 1.03
SHORT_MS = 0.02  # of a step of a few microseconds, which may take 1 and its spread as long
HERE = Path(__file__).resolve().parent.parent


class Tree:
    """A tree of the package, in a process that answers."""

    def __init__(self, root: Path, backend: str, cache: Path):
        environment = os.environ | {"PYTHONPATH": str(root), "MESHLOOM_CACHE": str(cache),
                                    "CUDA_CACHE_PATH": str(cache / "driver")}  # fmt: skip  # neither finds the other's
        self.process = subprocess.Popen([sys.executable, str(HERE / "bench" / "steps.py"), backend], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip

    def ask(self, name: str) -> dict[str, Any]:
        self.begin(name)
        return self.answer()

    def begin(self, name: str) -> None:
        """Ask, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("answer "):
                answer: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return answer
        return {"problem": "the process has ended"}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def spread(times: list[float]) -> float:
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / 2 / middle


def row_of(name: str, trees: dict[str, Tree], rounds: int) -> dict[str, Any]:
    """Both trees asked in turn for one thing, after both have got ready for it at the same time."""
    for tree in trees.values():
        tree.begin(name)
    ready = {which: tree.answer() for which, tree in trees.items()}
    times: dict[str, list[float]] = {which: [] for which in trees}
    for which, found in ready.items():
        if "problem" in found:
            return {"step": name, "problem": f"{which}: {found['problem']}"}
    for _ in range(rounds):
        for which, tree in trees.items():
            found = tree.ask(name)
            if "problem" in found:
                return {"step": name, "problem": f"{which}: {found['problem']}"}
            times[which].append(found["seconds"])
    medians = {which: statistics.median(found) for which, found in times.items()}
    return {"step": name, "new_by_old": medians["new"] / medians["old"], "spread": max(map(spread, times.values())),
            **{f"{which}_ms": 1e3 * found for which, found in medians.items()}}  # fmt: skip


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """One for each step that was timed."""
    return [Goal(f"{row['step']}: new by old", row["new_by_old"], "at most", allowed(row)) for row in timed(rows)]


def timed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "new_by_old" in row]


def allowed(row: dict[str, Any]) -> float:
    return max(GOAL, 1.0 + row["spread"]) if row["old_ms"] < SHORT_MS else GOAL


def text_lines(*results: dict[str, Any]) -> list[str]:
    """Every step of a run on paper: times on a GPU, ratios alone on a CPU. Of several runs each row says which."""
    several = len(results) > 1
    on_gpu = results[0]["backend"] == "cuda"
    rows = []
    for result in results:
        for row, goal in zip(timed(result["rows"]), goals(result["rows"]), strict=True):
            times = [f"{row['old_ms']:.3f}", f"{row['new_ms']:.3f}"] if on_gpu else []
            run = [f"{str(result['date'])[:19].replace('T', ' ')}"] if several else []
            rows.append([*run, row["step"], *times, f"{row['new_by_old']:.3f}", f"{row['spread']:.3f}", goal.word()])
    first = ("run, UTC", "step") if several else ("step",)
    head = (*first, *(("before, ms", "now, ms") if on_gpu else ()), "now by before", "spread", f"at most {GOAL:g}")
    before = ", ".join(dict.fromkeys(f"`{result['old_commit'][:10]}`" for result in results))
    return [f"Before: commit {before}.", "", *rows_table(head, rows)]


def is_whole(result: dict[str, Any]) -> bool:
    """Has it every step that there was?"""
    return "--only" not in result["command"].split()


def line(row: dict[str, Any]) -> str:
    if "problem" in row:
        return f"{row['step']:<24} {row['problem']}"
    return (f"{row['step']:<24}{row['old_ms']:10.4f} ms ->{row['new_ms']:10.4f} ms {row['new_by_old']:7.3f}"
            f"  (spread {row['spread']:.3f})")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--old", type=Path, required=True, help="the root of the other tree")
    parser.add_argument("--old-commit", help="what it is, for the result file (default: as git or its stamp says)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=steps.names(), help="some of the steps")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error("--rounds must be at least 2")
    old_code = stamp(options.old)
    old_commit = options.old_commit or old_code["commit"]
    if old_commit == UNKNOWN:
        parser.error(f"{options.old} does not say which commit it is: give --old-commit")
    result = surroundings() | {"benchmark": "compare", "backend": options.device, "old_commit": old_commit,
                               "old_code": old_code, "rounds": options.rounds, "rows": []}  # fmt: skip
    record = Record(result, options.json, options.device)
    roots = {"old": options.old.resolve(), "new": HERE}
    cache = Path(os.environ.get("MESHLOOM_CACHE", Path.home() / ".cache" / "meshloom"))
    trees = {which: Tree(root, options.device, cache / f"compare-{which}") for which, root in roots.items()}
    for name in options.only or steps.names():
        result["rows"].append(row_of(name, trees, options.rounds))
        print(line(result["rows"][-1]), flush=True)
        record.save()
    for tree in trees.values():
        tree.close()
    missed = [goal for goal in goals(result["rows"]) if not goal.met]
    untimed = len(result["rows"]) - len(timed(result["rows"]))
    print(f"{len(missed)} of {len(result['rows'])} slower than allowed, {untimed} not timed; written to {record.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
