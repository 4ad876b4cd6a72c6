"""Results of ``bench.vortex`` and ``bench.flow_truth`` on paper: ``python -m bench.flow_report FILE... [--docs]``.

With ``--docs`` the tables go into docs/cases_flow.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.flow_truth import REFLECTED_GOAL
from bench.record import load
from bench.report import Goal
from bench.vortex import goals

DOCS = Path(__file__).parents[1] / "docs" / "cases_flow.md"
SECTION = re.compile(r"(?<=<!-- flow -->\n).*?(?=<!-- /flow -->)", re.DOTALL)
_PARTS = ("right_hand_side", "boundaries", "update", "monitors")  # of a step


def markdown(files: Sequence[Path]) -> str:
    """The section of docs/cases_flow.md from result files of both benchmarks."""
    return "\n".join(line for file in files for line in (*_one(load(file), file.name), ""))


def _one(result: dict[str, Any], name: str) -> list[str]:
    machine = result["machine"]
    devices = {result["device"]} if "device" in result else {run["device"] for run in result["runs"]}
    where = f"{machine['gpu']} and {machine['processor']}" if "cuda" in devices else machine["processor"]
    head = f"From `bench/results/{name}`: {where}, {machine['cores']} cores, double."
    return [head, "", *(_measured(result) if result["benchmark"] == "vortex" else _compared(result))]


# --- bench.vortex -----------------------------------------------------------------------------------------


def _measured(result: dict[str, Any]) -> list[str]:
    lines = _goal_table(goals(result["runs"][0])) if result["runs"][0]["device"] == "cuda" else []
    columns = ("case", "on", "ms per step", *(part.replace("_", " ") for part in _PARTS),
               "share of compulsory bytes (other passes)", "ns per cell, equation and rate", "launches")  # fmt: skip
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for run in result["runs"]:
        for case in ("vortex_outflow", "taylor_green"):
            lines += [_row(case, run["device"], row) for row in run.get(case, [])]
    if ratio := result.get("cpu_over_gpu"):
        lines += ["", f"The CPU takes {ratio:.3g} times as long per step of the vortex as the GPU."]
    return lines


def _row(case: str, device: str, row: dict[str, Any]) -> str:
    size = " x ".join(map(str, row["points"]))
    pieces = [f"{row['ms_in_a_step'][part]:.3g}" if part in row["ms_in_a_step"] else "-" for part in _PARTS]
    other = row["share_of_the_other_passes"]
    share = f"{row['share_of_compulsory_bytes']:.2f} {row['passes']}" + (f" ({other:.2f})" if other else "")
    cells = [f"`{case}` {size}", device, f"{row['ms_per_step']:.3g}", *pieces, share,
             f"{row['ns_per_cell_equation_right_hand_side']:.3g}", str(row["launches_per_step"])]  # fmt: skip
    return f"| {' | '.join(cells)} |"


# --- bench.flow_truth -------------------------------------------------------------------------------------


def _compared(result: dict[str, Any]) -> list[str]:
    vortex = result["vortex_outflow"]
    size = f"{vortex['points']} x {vortex['points']}"
    text = f"vorticity that comes back, {size} points against twice the domain, share of the vortex"
    lines = _goal_table([Goal(text, vortex["worst_difference"], "at most", REFLECTED_GOAL)])
    columns = ("Taylor-Green", "steps", "peak of 2 mu enstrophy, at", "off the published energy, until t = 4 / 10",
               "enstrophy, until t = 4 / 10", "-dE/dt, until t = 4 / 10", "-dE/dt against 2 mu enstrophy")  # fmt: skip
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for one in result["taylor_green"]:
        peak, off, first = one["peak"], one["off_by"], one["off_by_until_4"]
        gaps = [f"{first[name]:.1e} / {off[name]:.1e}" for name in ("kinetic_energy", "enstrophy", "dissipation")]
        cells = [f"{one['points']}^3", str(one["steps"]), f"{peak['2_mu_enstrophy']:.5f}, {peak['time']:.2f}", *gaps,
                 f"{one['balance']:.1e}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _goal_table(found: Sequence[Goal]) -> list[str]:
    rows = [f"| {g.text} | {g.aim()} | {g.figure()} | {'met' if g.met else '**missed**'} |" for g in found]
    return ["| goal | aim | measured | |", "|---|---|---|---|", *rows, ""]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.flow_report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="result files of bench.vortex and bench.flow_truth")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/cases_flow.md")
    options = parser.parse_args(arguments)
    text = markdown(options.files)
    if not options.docs:
        print(text)
        return
    page = DOCS.read_text(encoding="utf-8")
    DOCS.write_text(SECTION.sub(lambda _: f"{text}\n", page), encoding="utf-8")


if __name__ == "__main__":
    main()
