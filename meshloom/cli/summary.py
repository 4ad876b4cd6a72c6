"""The end of a run in words and as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from math import isfinite
from pathlib import Path

import meshloom as ml
from meshloom.case import Case
from meshloom.launch import threads_in_use
from meshloom.run.facts import Outcome, summary_rows
from meshloom.run.folder import RunFolder
from meshloom.run.names import CHECKPOINT, REPORT, SERIES, restart_command

_NOT_NAMED = (".vtu", ".vti", ".vtr", ".json")
_WIDEST = 40  # letters of the names in the table, for which all lines make room


def table(case: Case, folder: RunFolder, outcome: Outcome) -> str:
    """Final monitors, time and rate, and where the files are."""
    rows = [
        *summary_rows(case, outcome),
        *((path.name, f"{path}{_what_for(path, case, folder, outcome)}") for path in listed(folder.files())),
    ]
    width = min(max(len(name) for name, _ in rows), _WIDEST)  # a longer name moves its own line alone
    return "\n".join(f"  {name:{width}}  {text}" for name, text in rows)


def listed(files: list[Path]) -> list[Path]:
    """The files worth naming, those to look at first: the page, pictures, and then the others, the settings last. A
    series stands for its VTK files, the drawing of a chart for its numbers, and the page for what it was made of."""
    drawn = [path for path in files if path.suffix == ".png"]
    others = [path for path in reversed(files) if path.suffix not in (".png", *_NOT_NAMED)]
    found = drawn + [path for path in others if path.with_suffix(".png") not in drawn]
    return sorted(found, key=lambda path: path.name != REPORT)


def _what_for(path: Path, case: Case, folder: RunFolder, outcome: Outcome) -> str:
    go_on = f"go on: {going_on(folder)}{f' {case.longer()}' if outcome.finished else ''}"
    purpose = {REPORT: "open in a browser", SERIES: "open in ParaView", CHECKPOINT: go_on}
    if path.name in purpose:
        return f"  ({purpose[path.name]})"
    return "  (and .csv)" if path.suffix == ".png" and path.with_suffix(".csv").is_file() else ""


def going_on(folder: RunFolder) -> str:
    """What a person types to go on from the checkpoint of a run."""
    return restart_command(folder.checkpoint, sys.stderr.encoding)


def as_json(case: Case, folder: RunFolder, outcome: Outcome, *, profile: bool = False) -> str:
    """One line for programs; ``profile``: with the time by loop."""
    times = {"profile": asdict(outcome.times) if outcome.times else None} if profile else {}
    return json.dumps(
        {
            "case": case.name,
            "finished": outcome.finished,
            "converged": outcome.verdict.converged if outcome.verdict is not None else None,
            "verdict": outcome.verdict.text if outcome.verdict is not None else "",
            "sizes": case.sizes(),
            "iterations": outcome.iteration,
            "monitors": {name: value if isfinite(value) else None for name, value in outcome.monitors.items()},
            "wall_seconds": outcome.seconds,
            "seconds_to_first_iteration": outcome.seconds_to_first_iteration,
            "seconds_per_iteration": 1.0 / outcome.rate if outcome.rate else None,
            "backend": ml.backend(),
            "precision": case.config.run.precision,
            "threads": threads_in_use(),
            "ranks": ml.world.size,
            "reproducible": case.config.run.reproducible,
            "numbering": case.numbering(),
            "schedules": schedules(case),
            "warnings": list(case.doubts()),
            "failures": list(outcome.failures),
            "files": {path.name: str(path) for path in folder.files()},
            **times,
        }
    )


def schedules(case: Case) -> dict[str, str]:
    """The schedule in force for every loop of the case; of a loop along lines, how these are solved."""
    loops = [loop for loop in case.program.loops if not loop.domain.all_memory]
    return {loop.name: loop.policy.words(loop) for loop in sorted(loops, key=lambda loop: loop.domain.along_lines)}
