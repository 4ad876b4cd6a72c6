"""What the forms of the incompressible scheme lose of the kinetic energy of vortices, and what they say about it.

On few cells, and almost inviscid.

    python -m bench.energy [--end TIME] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.measure import surroundings
from bench.record import Record
from meshloom.config import Setting, build
from meshloom.solvers.fractional_step import DecayingVortices
from meshloom.solvers.fractional_step.energy import LOST

CELLS, REYNOLDS, END = (16, 16), 1e6, 10.0
#: Form, convection and the length of a step.
ROWS = (
    ("staggered", "central", 0.25), ("staggered", "central", 0.05), ("staggered", "quick", 0.05),
    ("collocated", "central", 0.25), ("collocated", "central", 0.05),
)  # fmt: skip


def vortices(form: str, convection: str, step: float, end: float) -> DecayingVortices:
    settings = {
        ("mesh", "cells"): CELLS, ("flow", "reynolds"): REYNOLDS, ("time", "end"): end, ("time", "dt"): step,
        ("scheme", "form"): form, ("scheme", "convection"): convection,
    }  # fmt: skip
    return DecayingVortices(build(DecayingVortices.Config, [Setting(k, v, "bench") for k, v in settings.items()]))


def measured(form: str, convection: str, step: float, end: float) -> dict[str, Any]:
    """Mean kinetic energies at the start and at the end, and what the monitor says is lost."""
    made = vortices(form, convection, step, end)
    start = float(made.flow.energy.value) / made.cells.volume
    recorded = made.program.run(made.steps_left(made.recorded_now()), record=made.recorded)
    last = dict(zip(made.monitors, made.monitor_rows(recorded)[-1].tolist(), strict=True))
    return {"form": form, "convection": convection, "step": step, "steps": len(recorded), "end": last["time"],
            "energy_at_start": start, "energy_at_end": last["kinetic_energy"], "lost": last[LOST]}  # fmt: skip


def text_lines(result: dict[str, Any]) -> list[str]:
    """A row for every run, as Markdown."""
    heads = ["`scheme.form`", "`scheme.convection`", "step", "mean kinetic energy at the start", "at the end",
             f"`{LOST}`"]  # fmt: skip
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *map(_row, result["rows"]))]


def _row(row: dict[str, Any]) -> list[str]:
    energies = [_four_places(row[name]) for name in ("energy_at_start", "energy_at_end", "lost")]
    return [row["form"], row["convection"], f"{row['step']:g}", *energies]


def _four_places(value: float) -> str:
    return f"{value:.4f}".replace("-0.0000", "0.0000")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.energy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--end", type=float, default=END, help=f"time at the end (default {END:g})")
    parser.add_argument("--json", type=Path, help="result file (default: a dated one in bench/results/)")
    options = parser.parse_args(arguments)
    ml.use("cpu", threads=1)
    about = {"benchmark": "energy", "cells": CELLS, "reynolds": REYNOLDS, "quick": options.end < END, "rows": []}
    result = surroundings() | about
    record = Record(result, options.json, "cpu")
    for row in ROWS:
        result["rows"].append(measured(*row, options.end))
        print(", ".join(_row(result["rows"][-1])), flush=True)
        record.save()
    print("\n" + "\n".join(text_lines(result)) + f"\nwritten to {record.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
