"""Results of ``bench.locality`` on paper, for ``bench.tables``. What was not measured is left out, or a dash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.locality import ORDERS, best_of_strategies
from bench.locality_loops import CONTESTS, PAPERS
from bench.report import rows_table

AUTOMATIC = ("auto", "fastest")
ENOUGH = 8  # strategies timed, of which a best is a best
ORDER_NAMES = {"rcb": "rcb (bisection)", "kaminpar": "kaminpar (partition)", "metis": "metis (partition)"}


def raced(result: dict[str, Any]) -> list[str]:
    """The loops of the paper in which a run has timed enough ways to speak of a best: several strategies."""
    return [name for name in PAPERS if len({r["strategy"] for r in _timed(result, name)}) >= ENOUGH]


def _timed(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The variants of a loop that have a time."""
    return [r for r in result["loops"].get(name, {}).get("variants", []) if "ms" in r]


def _latest(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each loop of the paper the last of the runs that raced it, the paper's order: a row is of one run."""
    last = {name: result for result in results for name in raced(result)}
    return {name: last[name] for name in PAPERS if name in last}


def _left_out(found: Iterable[str]) -> list[str]:
    """What has no row, in words."""
    missing = [name for name in PAPERS if name not in found]
    return ["", f"Not raced yet by code with a commit: {', '.join(missing)}."] if missing else []


def _ways(rows: list[dict[str, Any]]) -> str:
    """What was run: a best is a best of these."""
    orders = ", ".join(dict.fromkeys(r["order"] for r in rows))
    layouts = ", ".join(dict.fromkeys(r["layout"] for r in rows))
    return f"{len(rows)}: {orders}; {layouts}"


def loop_rows(results: Sequence[dict[str, Any]]) -> list[str]:
    """The best variant of each of the paper's loops, the automatic ones, the paper's best shares, and the goal."""
    head = ("loop", "best of those run", "ms", "of copy", "`auto`, of copy", "`fastest`, of copy",
            "paper, P100 and V100", "goal", "", "variants run: orders; layouts")  # fmt: skip
    rows, latest = [], _latest(results)
    for name, result in latest.items():
        variants = _timed(result, name)
        named = {r["strategy"]: r for r in best_of_strategies(variants)}
        best = min((r for s, r in named.items() if s not in AUTOMATIC), key=lambda r: r["ms"], default=None)
        paper = CONTESTS[name].paper
        own = [f"`{best['strategy']}`, {best['layout']}, {best['order']}", f"{best['ms']:.3f}",
               f"{best['share_of_copy']:.2f}"] if best else ["-"] * 3  # fmt: skip
        automatic = [_automatic(named.get(way)) for way in AUTOMATIC]
        most = max(r["share_of_copy"] for r in named.values())
        theirs = f"{paper.share['P100']:.2f}, {paper.share['V100']:.2f}"
        rows.append([f"{name} `{paper.loop}`", *own, *automatic, theirs,
                     f"{paper.goal:.2f}", _verdict(most, paper.goal), _ways(variants)])  # fmt: skip
    return [*rows_table(head, rows), *_left_out(latest)]


def order_rows(results: Sequence[dict[str, Any]]) -> list[str]:
    """The fastest variant of each loop in every order; what was declined or not reached says so."""
    latest = _latest(results)
    orders = list(dict.fromkeys(o for name, result in latest.items() for o in result["loops"][name]["orders"]))
    rows = []
    for name, result in latest.items():
        variants, cells = _timed(result, name), []
        for order in orders:
            best = min((r for r in variants if r["order"] == order), key=lambda r: r["ms"], default=None)
            about = result["loops"][name]["orders"].get(order, {})
            missing = "declined" if "declined" in about else "not run"
            cells.append(f"{best['ms']:.3f} (`{best['strategy']}`, {best['layout']})" if best else missing)
        rows.append([f"{name} `{CONTESTS[name].paper.loop}`", *cells])
    absent = [ORDER_NAMES.get(order, order) for order in ORDERS if order not in orders]
    return [*rows_table(("fastest, ms", *(ORDER_NAMES.get(o, o) for o in orders)), rows),
            *(["", f"Not reached in time: {', '.join(absent)}."] if absent else [])]  # fmt: skip


def counter_rows(results: Sequence[dict[str, Any]]) -> list[str]:
    """What Nsight Compute counted for the best counted variant of each loop."""
    rows = []
    for name, result in _latest(results).items():
        best = min((r for r in _timed(result, name) if "counters" in r), key=lambda r: r["ms"], default=None)
        if best:
            counted = best["counters"]
            figures = [f"{counted[key]:.2f}" if key in counted else "-"
                       for key in ("dram_over_useful", "achieved_occupancy", "l1_hit", "l2_hit")]  # fmt: skip
            waits = ", ".join(f"{why.replace('_', ' ')} {share:.2f}" for why, share in counted["stalls"].items())
            registers = max((v or 0) for v in best["registers"].values())
            rows.append([name, f"`{best['strategy']}`, {best['layout']}", *figures, str(registers), waits])
    head = ("loop", "counted", "bytes moved / useful", "occupancy", "L1 hits", "L2 hits", "registers", "warps wait for")
    none = "Not counted: Nsight Compute was not asked, not there, or not reached in time."
    return rows_table(head, rows) if rows else [none]


def _verdict(share: float, goal: float) -> str:
    return "met" if share >= goal else "**missed**"


def _automatic(row: dict[str, Any] | None) -> str:
    return f"{row['share_of_copy']:.2f} (`{str(row['schedule']).split()[0]}`)" if row else "-"


def application_rows(result: dict[str, Any]) -> list[str]:
    """Time per step of the whole applications, loop by loop and fused, and on all cores."""
    head = ("application", "cells", "loop by loop, ms", "of its limit", "fused, ms", "of the same limit",
            "all cores, times as long as the faster", "million cells per second")  # fmt: skip
    rows = []
    for name, found in result["applications"].items():
        apart, fused = sorted(found["device"], key=lambda row: row["fused"])
        cores = f"{found['cpu_by_device']:.0f}" if "cpu_by_device" in found else "-"
        rate = apart["cells"] / min(apart["ms"], fused["ms"]) / 1e3
        rows.append([f"{name}, {apart['precision']}", f"{apart['cells']:,}", f"{apart['ms']:.3f}",
                     f"{apart['share_of_limit']:.2f}", f"{fused['ms']:.3f}", f"{fused['share_of_limit']:.2f}", cores,
                     f"{rate:.0f}"])  # fmt: skip
    return rows_table(head, rows)
