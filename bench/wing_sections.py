"""The pressure on the seven sections of the ONERA M6 wing where it was measured, as a picture of one or more runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshloom.solvers.finite_volume.wing import measured_pressure

COLUMNS, DOTS = 4, 150


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """One panel for each section, suction on top: every row that has sections, and the taps of ONERA's test 2308."""
    from matplotlib.figure import Figure

    wings = [row for row in rows if "sections" in row]
    if not wings:
        raise SystemExit("bench.compressible: no row of these results is a wing; --only wing makes one")
    taps = measured_pressure()
    names = list(wings[0]["sections"])
    figure = Figure(figsize=(12.0, 5.6), layout="constrained")
    panels = figure.subplots(-(-len(names) // COLUMNS), COLUMNS, sharex=True, sharey=True).ravel()
    for panel, name in zip(panels, names, strict=False):
        for k, row in enumerate(wings):
            one = row["sections"][name]
            panel.plot(one["x"], one["cp"], ".", markersize=1.5, color=f"C{k}", label=title_of(row))
        own = taps[[percent(eta) == name for eta in taps[:, 0]]]
        panel.plot(own[:, 1], own[:, 2], "o", color="black", markersize=3.5, fillstyle="none", label="test 2308")
        panel.set_title(f"{name} % of the span", fontsize=10)
    panels[0].invert_yaxis()
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].legend(handles, labels, loc="center", markerscale=2.0)
    figure.supxlabel("x/c")
    figure.supylabel("pressure coefficient")
    figure.savefig(file, dpi=DOTS)


def percent(eta: float) -> str:
    """What a section is called: its share of the span."""
    return f"{100.0 * eta:g}"


def title_of(row: dict[str, Any]) -> str:
    equations = row["name"].split(", ")[1]
    return f"{equations}, {row['cells'] / 1e6:.2f} million cells"
