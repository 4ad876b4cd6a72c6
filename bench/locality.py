"""The locality paper's five loops at its sizes: every strategy x layout x ordering x block, next to its P100 and V100.

    python -m bench.locality --device cuda [--loops airfoil lulesh ...] [--seconds N] [--resume] [--json FILE]

Every loop runs on the data that its case (``bench.locality_loops``) has after some steps. Each variant is compared
with NumPy on a small mesh of the same case, and at full size with the first deterministic variant of the same device,
before it is timed. Whole applications: time per step, share of what the compulsory bytes of the loops need at copy
speed, and the same on all cores of the machine.

Rows are printed as they come, and the file is written again after every group of them. ``--resume`` goes on with what
a file lacks; ``--counters`` asks Nsight Compute about the best variants for the columns that only hardware knows
(transactions, stalls, achieved occupancy). An application that fails costs one line.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import meshloom as ml
from bench import counters
from bench.airfoil import measure
from bench.exclusive import alone
from bench.frozen import BoundKernel, Frozen, Outcome, deterministic_outcome, reference_outcome
from bench.locality_loops import CONTESTS, PAPERS, STREAM, Contest
from bench.measure import surroundings
from bench.race import BLOCKS, LAYOUTS, Stopped, block_of, check_time, line_of, stopping_cleanly
from bench.race_loop import Choices, Cuda, Device, block_colors, measured, wish_entries
from bench.record import Record
from meshloom.case import PRECISIONS, Case
from meshloom.errors import MeshloomError

#: As it comes, ours, the paper's GPS, and two partitions: by coordinates, and of the graph where that is installed. The
#: latter cuts up faces by the cells they join, also for loops over cells that meet at nodes; cells and nodes follow.
ORDERS = ("given", "hilbert", "gps", "rcb", "kaminpar")
TOLERANCE = {"float64": 1e-9, "float32": 1e-3}  # sums of what nearly cancels, as a share of the largest
PRECISION_NAMES = tuple(map(str, PRECISIONS.values()))
COUNTED_ORDERS = ("given", "hilbert")
CHECKED_BLOCK = 64  # on the small mesh, where it makes several blocks
APPLICATION_STEPS = {"cuda": 20}  # in each of three batches; 3 elsewhere


class Cpu(Device):
    """All cores of this machine, timed by the clock."""

    backend = "cpu"

    def seconds(self, run: Any) -> float:
        run()
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        return float(np.median(times))

    def copy_bandwidth(self) -> float:
        from meshloom.native.runtime import copy_bandwidth

        return copy_bandwidth()


class Locality:
    """One run: its result as it grows, and the file that holds it."""

    def __init__(self, record: Record, device: Device, until: float):
        self.result, self.record, self.device, self.until = record.result, record, device, until

    def run(self, names: list[str], orders: list[str], choices: Choices, applications: bool) -> None:
        """All contests until the time is up; what is there is always on the disk."""
        try:
            for k, name in enumerate(names):
                now = time.monotonic()
                share = now + (self.until - now) / (len(names) - k)
                self._contest_within(share, name, orders, choices, applications)
        except KeyboardInterrupt as stopped:
            self.result["stopped"] = str(stopped) or "by Ctrl-C"
            print(f"stopped: {self.result['stopped']}", flush=True)
        finally:
            self.save()

    def _contest_within(self, share: float, name: str, orders: list[str], choices: Choices, applications: bool) -> None:
        """One contest and its fair share of the time that is left, so that the last ones get some, too."""
        end_of_all, self.until = self.until, share
        try:
            self._contest(name, orders, choices, applications)
        except Stopped as stopped:
            if time.monotonic() > end_of_all or "SIGTERM" in str(stopped):
                raise
            self.result["loops"][name]["stopped"] = "its share of --seconds was up"
            print(f"{name}: {self.result['loops'][name]['stopped']}", flush=True)
        finally:
            self.until = end_of_all

    def _contest(self, name: str, orders: list[str], choices: Choices, applications: bool) -> None:
        contest, entry = CONTESTS[name], self._entry(name)
        left = [o for o in orders if not entry["orders"].get(o, {}).get("complete")]
        application = applications and contest.case not in self.result["applications"]
        if not left and not application:
            return
        check_time(self.until)
        print(f"\n{name}: {contest.paper.loop} of {contest.case}; {contest.differs}", flush=True)
        ml.use(self.device.backend)
        try:
            if left and "check" not in entry:
                entry["check"] = small_check(contest, choices)
                print(check_line(entry["check"]), flush=True)
            begin = time.perf_counter()
            case = contest.make(self.result["size"])
            case.program.run(1)  # which compiles
            with alone():
                case.program.run(contest.steps - 1)
            print(f"{name}: set up and {contest.steps} steps in {time.perf_counter() - begin:.1f} s", flush=True)
            frozen = Frozen(contest.loop(case), case.mesh)  # copies: the application goes on from here
            if application:
                self._application(contest, case)
            if left:
                self._race(name, frozen, case, left, choices)
        except Exception as problem:  # one application that fails must not end the others
            entry["failed"] = one_line(problem)
            print(f"{name}: failed: {entry['failed']}", flush=True)
        finally:
            self.device.clear()
            self.save()

    def _entry(self, name: str) -> dict[str, Any]:
        contest = CONTESTS[name]
        new = {"loop": contest.paper.loop, "differs": contest.differs, "paper": asdict(contest.paper), "orders": {},
               "variants": []}  # fmt: skip
        entry: dict[str, Any] = self.result["loops"].setdefault(name, new)
        entry.pop("failed", None)
        return entry

    def _race(self, name: str, frozen: Frozen, case: Case, orders: list[str], choices: Choices) -> None:
        entry, precision = self.result["loops"][name], precision_of(case)
        ready = frozen.on(case.mesh.arranged("given"), precision, "aos")
        strategy, expected = deterministic_outcome(ready)
        loop = ready.loop()
        entry["mesh"] = {"contest": name, "size": self.result["size"], "elements": frozen.elements,
                         "cells": case.mesh.cells.size, "nodes": case.mesh.nodes.size, "precision": precision,
                         "useful_bytes": loop.counts.bytes.compulsory, "flops": loop.counts.flops,
                         "compared_with": strategy}  # fmt: skip
        print(f"{name}: {frozen.elements:,} elements, {precision}, {loop.counts.bytes.compulsory / 1e6:.1f} MB useful,"
              f" {loop.counts.flops} flops per element; compared with {strategy}", flush=True)  # fmt: skip
        del ready, loop
        for order in orders:
            check_time(self.until)
            self._order(entry, frozen, case.mesh, order, choices, expected)

    def _order(self, entry: dict[str, Any], frozen: Frozen, mesh: ml.Mesh, order: str, choices: Choices,
               expected: Outcome) -> None:  # fmt: skip
        entry["variants"] = [r for r in entry["variants"] if r["order"] != order]  # what is half done is done again
        begin = time.perf_counter()
        try:
            arranged = mesh.arranged(order)
        except MeshloomError as refusal:  # a graph partitioner that is not installed
            entry["orders"][order] = {"declined": str(refusal), "complete": True}
            print(f"{order}: declined: {refusal}", flush=True)
            return
        seconds, copy = time.perf_counter() - begin, self.device.copy_bandwidth()
        self.device.clear()
        precision = entry["mesh"]["precision"]
        colors = colors_of_blocks(frozen.on(arranged, precision, "aos").loop(), choices.blocks)
        about = {"seconds": seconds, "copy_GBps": copy / 1e9, "blocks": colors, "complete": False}
        entry["orders"][order] = about
        print(f"{order}: ordered in {seconds:.2f} s, copy {copy / 1e9:.0f} GB/s", flush=True)
        for layout in choices.layouts:
            ready = frozen.on(arranged, precision, layout)
            for row in variants(ready, expected, choices, self.device, copy, precision):
                row = {"order": order, "precision": precision, "layout": layout} | row
                entry["variants"].append(row | colors.get(str(block_of(row)), {}))
                print(line_of(entry["variants"][-1]), flush=True)
                check_time(self.until)
            self.save()
            del ready
            self.device.clear()
        about["complete"] = True
        self.save()

    def _application(self, contest: Contest, case: Case) -> None:
        """Time per step loop by loop and, on a GPU, fused; then on the cores."""
        check_time(self.until)
        copy = self.device.copy_bandwidth()
        steps = APPLICATION_STEPS.get(self.device.backend, 3)
        gpu = self.device.backend not in ("cpu", "numpy")
        rows = [application_row(case, steps, fuse, copy) for fuse in ((False, True) if gpu else (False,))]
        found: dict[str, Any] = {"copy_GBps": copy / 1e9, "device": rows}
        self.result["applications"][contest.case] = found
        if gpu:
            ml.use("cpu")
            cpu = contest.make(self.result["size"])
            cpu.program.run(contest.steps)
            found["cpu"] = application_row(cpu, 3, False, Cpu().copy_bandwidth())
            found["cpu_by_device"] = found["cpu"]["ms"] / min(r["ms"] for r in rows)
            ml.use(self.device.backend)
        for line in application_lines(contest.case, found):
            print(line, flush=True)

    def save(self) -> None:
        self.record.save()


# --- parts ----------------------------------------------------------------------------------------------------------


def variants(ready: BoundKernel, expected: Outcome, choices: Choices, device: Device, copy: float,
             precision: str) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Every schedule of a loop that is ready, checked, then timed."""
    error = ready.checker(expected)
    for wish in choices.wishes():
        try:
            found = measured(ready.loop(wish), error, TOLERANCE[precision], device, copy)
        except Exception as problem:  # such as a kernel that the device cannot launch: the others go on
            found = {"declined": f"failed: {one_line(problem)}"}
        yield wish_entries(wish) | found


def small_check(contest: Contest, choices: Choices) -> dict[str, Any]:
    """Every strategy and layout on a small mesh of the case, in double, against the NumPy reference."""
    case = contest.make("small")
    case.program.run(3)
    frozen = Frozen(contest.loop(case), case.mesh)
    expected, arranged = reference_outcome(frozen, case.mesh), case.mesh.arranged("hilbert")
    few = Choices(("float64",), choices.layouts, choices.strategies, (CHECKED_BLOCK,), (0,))
    errors: dict[str, float] = {}
    failed: dict[str, str] = {}
    for layout in few.layouts:
        ready = frozen.on(arranged, "float64", layout)
        error = ready.checker(expected)
        for wish in few.wishes():
            name = f"{wish.strategy} {wish.variant} {layout}"
            try:
                if ready.loop(wish).applies:
                    ready.outcome(wish)
                    errors[name] = error()
            except Exception as problem:
                failed[name] = one_line(problem)
    wrong = sorted(name for name, found in errors.items() if not found <= TOLERANCE["float64"])
    return {"elements": frozen.elements, "variants": len(errors), "largest": max(errors.values(), default=np.nan),
            "wrong": wrong, "failed": failed}  # fmt: skip


def check_line(check: dict[str, Any]) -> str:
    text = f"{check['variants']} variants against NumPy on {check['elements']} elements: largest error"
    lists = [f"; {word}: {', '.join(check[key])}" for key, word in (("wrong", "WRONG"), ("failed", "failed"))
             if check[key]]  # fmt: skip
    return f"{text} {check['largest']:.1e}{''.join(lists)}"


def colors_of_blocks(loop: ml.Loop, blocks: Iterable[int | None]) -> dict[str, dict[str, int]]:
    """Colors of blocks of elements that write to the same targets, and of elements in a block."""
    return block_colors([loop.maps[k] for k in loop.spec.racy_maps], blocks)


def application_row(case: Case, steps: int, fuse: bool, copy: float) -> dict[str, Any]:
    row = measure(case, steps, fuse=fuse)
    row["share_of_limit"] = row["compulsory_bytes"] / copy / (row["ms"] / 1e3)
    if row["fused_bytes"]:
        row["share_of_fused_limit"] = row["fused_bytes"] / copy / (row["ms"] / 1e3)
    return row


def application_lines(name: str, found: dict[str, Any]) -> Iterator[str]:
    for row in (*found["device"], *([found["cpu"]] if "cpu" in found else ())):
        how = "fused" if row["fused"] else "loop by loop"
        cores = f", {row['threads']} threads" if row["backend"] == "cpu" else ""
        yield (f"{name} on {row['backend']}{cores}, {row['precision']}, {how}: {row['ms']:.3f} ms per step,"
               f" {row['share_of_limit']:.2f} of the compulsory bytes at copy speed")  # fmt: skip
    if "cpu_by_device" in found:
        yield f"{name}: the cores take {found['cpu_by_device']:.1f} times as long"


def precision_of(case: Case) -> str:
    return str(PRECISIONS[case.config.run.precision])


def one_line(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:300]


# --- what is shown --------------------------------------------------------------------------------------------------


def best_of_strategies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest variant of each strategy over layouts, orders and blocks, fastest first."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "ms" in row:
            best[row["strategy"]] = min(best.get(row["strategy"], row), row, key=lambda r: r["ms"])
    return sorted(best.values(), key=lambda r: r["ms"])


def verdict(name: str, entry: dict[str, Any]) -> str:
    """Our best share next to the paper's and the goal."""
    paper, best = CONTESTS[name].paper, best_of_strategies(entry["variants"])
    theirs = f"paper, best share of stream: {paper.best()}" + (f" ({paper.notes})" if paper.notes else "")
    if not best:
        return f"{name}: nothing measured{': ' + entry['failed'] if 'failed' in entry else ''}; {theirs}"
    share = best[0]["share_of_copy"]
    met = "met" if share >= paper.goal else "missed"
    goal = f"goal {paper.goal:.2f} {met}" if name in PAPERS else f"no goal of its own (paper's loop: {paper.goal:.2f})"
    return f"{name}: {share:.2f} of copy, {goal}; {theirs}"


def show(result: dict[str, Any], console: Console) -> None:
    """A table for each loop, and what the paper has; then the applications."""
    if result["size"] != "paper":
        print(f"size {result['size']}: it runs, and measures nothing")
    for name, entry in result["loops"].items():
        table = Table("strategy", "layout", "order", "block", "ms", "GB/s", "of copy", "occupancy", "reuse", "colors",
                      title=f"{name}: {entry['loop']}; {entry['differs']}")  # fmt: skip
        for r in best_of_strategies(entry["variants"]):
            strategy = f"auto: {r['schedule']}" if r["strategy"] == "auto" else r["strategy"]
            strategy += "" if r["variant"] == "plain" else f", {r['variant']}"
            table.add_row(strategy, r["layout"], r["order"], str(block_of(r) or ""), f"{r['ms']:.4f}",
                          f"{r['useful_GBps']:.0f}", f"{r['share_of_copy']:.2f}",
                          "-" if r["occupancy"] is None else f"{r['occupancy']:.2f}", f"{r['reuse']:.2f}",
                          f"{r.get('block_colors', 0)}/{r.get('thread_colors', 0)}")  # fmt: skip
        for how, ms in CONTESTS[name].paper.ms.items():
            table.add_row(f"[dim]paper, P100: {how}[/dim]", "", "", "", f"[dim]{ms:.2f}[/dim]", "", "", "", "", "")
        console.print(table)
        print(verdict(name, entry))
    for name, found in result["applications"].items():
        print("\n".join(application_lines(name, found)))


def count(run: Locality, until: float) -> None:
    """Counters for the best variants of every loop, where Nsight Compute is to be had."""
    ncu = counters.find_ncu()
    if ncu is None:
        print("no counters: Nsight Compute (ncu) was not found", file=sys.stderr)
        return
    for name, entry in run.result["loops"].items():
        try:
            with alone():  # what the memory moves is counted for the whole GPU
                for row in counters.add_counters(entry, ncu, COUNTED_ORDERS, PRECISION_NAMES, until):
                    print(f"{name}: {counters.line_of(row)}", flush=True)
                    run.save()
        except counters.CountersError as error:
            entry["uncounted"] = str(error)
            print(f"{name}: no counters: {error}", file=sys.stderr)
    run.save()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.locality", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("paper", "small"), default="paper", help="small: to try it, not to measure")
    parser.add_argument("--loops", nargs="+", choices=tuple(CONTESTS), default=list(PAPERS), metavar="LOOP",
                        help=f"default: {' '.join(PAPERS)}; also {' '.join(n for n in CONTESTS if n not in PAPERS)}")
    parser.add_argument("--orders", nargs="*", default=list(ORDERS),
                        help="also rcm, greedy, metis, ...; none: the applications alone")
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS))
    parser.add_argument("--blocks", nargs="+", type=int, default=list(BLOCKS))
    parser.add_argument("--strategies", nargs="+", default=["auto", *ml.strategies()])
    parser.add_argument("--no-applications", action="store_true", help="the loops alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, with what is there")
    parser.add_argument("--resume", action="store_true", help="keep what the file has, do what it lacks")
    parser.add_argument("--counters", action="store_true", help="then ask Nsight Compute about the best variants")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    return parser.parse_args(arguments)  # fmt: skip


def begun(options: argparse.Namespace, device: Device) -> Record:
    """A new result, or with ``--resume`` the one in the file."""
    head = {"benchmark": "locality", "device": device.backend, "size": options.size}
    if options.resume and options.json and options.json.is_file():
        record, file = Record.resumed(options.json), options.json
        found = record.result
        for key, value in head.items():
            if found.get(key) != value:
                raise MeshloomError(f"{file}: holds {key} {found.get(key)}, not {value}; name another file by --json")
        found.pop("stopped", None)
        found["resumed"] = [*found.get("resumed", []), surroundings()["date"]]
        return record
    new = surroundings() | head | {"paper_stream_GBps": STREAM, "loops": {}, "applications": {}}
    return Record(new, options.json, device.backend)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    until = time.monotonic()
    options = parse(arguments)
    until += options.seconds
    device = device or {"cuda": Cuda, "cpu": Cpu}[options.device]()
    if reason := ml.backends()[device.backend]:
        print(f"bench.locality: back end {device.backend} cannot be used: {reason}", file=sys.stderr)
        return 2
    choices = Choices(PRECISION_NAMES, tuple(options.layouts), tuple(options.strategies), tuple(options.blocks), (0,))
    try:
        run = Locality(begun(options, device), device, until - counters.reserve(options.seconds, options.counters))
    except MeshloomError as error:
        print(f"bench.locality: {error}", file=sys.stderr)
        return 2
    with stopping_cleanly():
        run.run(options.loops, options.orders, choices, not options.no_applications)
    if options.counters:
        count(run, until)
    show(run.result, Console(width=130))
    print(f"written to {run.record.file}")
    entries = run.result["loops"].values()
    wrong = [r for e in entries for r in (*e["variants"], *({"wrong": w} for w in e.get("check", {}).get("wrong", ())))
             if "wrong" in r]  # fmt: skip
    if wrong:
        print(f"{len(wrong)} variants gave a wrong result", file=sys.stderr)
    return int(bool(wrong) or any("failed" in e for e in entries))


if __name__ == "__main__":
    sys.exit(main())
