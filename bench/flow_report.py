"""Results of ``bench.vortex`` and ``bench.flow_truth`` on paper, for ``bench.tables``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.flow_truth import REFLECTED_GOAL
from bench.report import Goal, goal_table
from bench.vortex import goals

_PARTS = ("right_hand_side", "boundaries", "update", "monitors")  # of a step


# --- bench.vortex -----------------------------------------------------------------------------------------


def vortex_lines(result: dict[str, Any]) -> list[str]:
    """Goals, and a line for each case and device."""
    text_lines = _goal_table(goals(result["runs"][0])) if result["runs"][0]["device"] == "cuda" else []
    columns = ("case", "on", "ms per step", *(part.replace("_", " ") for part in _PARTS),
               "share of compulsory bytes (other passes)", "ns per cell, equation and rate", "launches")  # fmt: skip
    text_lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for run in result["runs"]:
        for case in ("vortex_outflow", "taylor_green"):
            text_lines += [_row(case, run["device"], row) for row in run.get(case, [])]
    if ratio := result.get("cpu_over_gpu"):
        text_lines += ["", f"The CPU takes {ratio:.3g} times as long per step of the vortex as the GPU."]
    return text_lines


def _row(case: str, device: str, row: dict[str, Any]) -> str:
    size = " x ".join(map(str, row["points"]))
    pieces = [f"{row['ms_in_a_step'][part]:.3g}" if part in row["ms_in_a_step"] else "-" for part in _PARTS]
    other = row["share_of_the_other_passes"]
    share = f"{row['share_of_compulsory_bytes']:.2f} {row['passes']}" + (f" ({other:.2f})" if other else "")
    cells = [f"`{case}` {size}", device, f"{row['ms_per_step']:.3g}", *pieces, share,
             f"{row['ns_per_cell_equation_right_hand_side']:.3g}", str(row["launches_per_step"])]  # fmt: skip
    return f"| {' | '.join(cells)} |"


# --- bench.flow_truth -------------------------------------------------------------------------------------


def truth_lines(result: dict[str, Any]) -> list[str]:
    """The vortex against twice the domain, the boxes against the published curves."""
    vortex = result["vortex_outflow"]
    size = f"{vortex['points']} x {vortex['points']}"
    text = f"vorticity that comes back, {size} points against twice the domain, share of the vortex"
    text_lines = _goal_table([Goal(text, vortex["worst_difference"], "at most", REFLECTED_GOAL)])
    columns = ("Taylor-Green", "steps", "peak of 2 mu enstrophy, at", "off the published energy, until t = 4 / 10",
               "enstrophy, until t = 4 / 10", "-dE/dt, until t = 4 / 10", "-dE/dt against 2 mu enstrophy")  # fmt: skip
    text_lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for one in result["taylor_green"]:
        peak, off, first = one["peak"], one["off_by"], one["off_by_until_4"]
        gaps = [f"{first[name]:.1e} / {off[name]:.1e}" for name in ("kinetic_energy", "enstrophy", "dissipation")]
        cells = [f"{one['points']}^3", str(one["steps"]), f"{peak['2_mu_enstrophy']:.5f}, {peak['time']:.2f}", *gaps,
                 f"{one['balance']:.1e}"]  # fmt: skip
        text_lines.append(f"| {' | '.join(cells)} |")
    return text_lines


def _goal_table(found: Sequence[Goal]) -> list[str]:
    return [*goal_table(found), ""]
