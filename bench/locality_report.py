"""The tables of ``bench.locality`` for the documentation.

    python -m bench.locality_report FILE           # Markdown: the five loops, then the applications
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.locality import best_of_strategies
from bench.locality_loops import CONTESTS, PAPERS
from bench.record import load


def loop_rows(result: dict[str, Any]) -> list[str]:
    """The best variant of each of the paper's loops, the automatic ones, the paper's best shares, and the goal."""
    rows = ["| loop | best | ms | of copy | `auto`, of copy | `fastest`, of copy | paper, P100 and V100 | goal | |",
            "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in PAPERS:
        variants = result["loops"][name]["variants"]
        named = {r["strategy"]: r for r in best_of_strategies(variants)}
        best = min((r for s, r in named.items() if s not in ("auto", "fastest")), key=lambda r: r["ms"])
        paper = CONTESTS[name].paper
        auto, fastest = (f"{named[s]['share_of_copy']:.2f} (`{_chosen(named[s])}`)" for s in ("auto", "fastest"))
        most = max(r["share_of_copy"] for r in named.values())
        rows.append(f"| {name} `{paper.loop}` | `{best['strategy']}`, {best['layout']}, {best['order']} |"
                    f" {best['ms']:.3f} | {best['share_of_copy']:.2f} | {auto} | {fastest} |"
                    f" {paper.share['P100']:.2f}, {paper.share['V100']:.2f} | {paper.goal:.2f} |"
                    f" {'met' if most >= paper.goal else 'missed'} |")  # fmt: skip
    return rows


def short_rows(result: dict[str, Any]) -> list[str]:
    """The best share of copy of each loop, beside the paper's."""
    rows = ["| loop | ms | share of copy | paper's best share on a V100 | goal | |", "|---|---|---|---|---|---|"]
    for name in PAPERS:
        best, paper = best_of_strategies(result["loops"][name]["variants"])[0], CONTESTS[name].paper
        rows.append(f"| {name} `{paper.loop}` | {best['ms']:.3f} | {best['share_of_copy']:.2f} |"
                    f" {paper.share['V100']:.2f} | {paper.goal:.2f} |"
                    f" {'met' if best['share_of_copy'] >= paper.goal else 'missed'} |")  # fmt: skip
    return rows


def _chosen(row: dict[str, Any]) -> str:
    return str(row["schedule"]).split()[0]


def application_rows(result: dict[str, Any]) -> list[str]:
    """Time per step of the whole applications, loop by loop and fused, and on all cores."""
    head = ("application", "cells", "loop by loop, ms", "of its limit", "fused, ms", "of the same limit",
            "all cores, times as long")  # fmt: skip
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, found in result["applications"].items():
        apart, fused = sorted(found["device"], key=lambda row: row["fused"])
        cores = f"{found['cpu_by_device']:.0f}" if "cpu_by_device" in found else "-"
        rows.append(f"| {name}, {apart['precision']} | {apart['cells']:,} | {apart['ms']:.3f} |"
                    f" {apart['share_of_limit']:.2f} | {fused['ms']:.3f} | {fused['share_of_limit']:.2f} |"
                    f" {cores} |")  # fmt: skip
    return rows


def main(arguments: list[str] | None = None) -> int:
    (file,) = arguments or sys.argv[1:]
    result = load(Path(file))
    print("\n".join([*loop_rows(result), "", *application_rows(result)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
