"""The end of a run in words and as JSON."""

from __future__ import annotations

import json
import os
import shlex
import sys
from math import isfinite
from pathlib import Path

import meshloom as ml
from meshloom.case import Case
from meshloom.errors import one_line
from meshloom.launch import threads_in_use
from meshloom.run.folder import RunFolder
from meshloom.run.report import duration
from meshloom.run.runner import Outcome

_WIDEST = 40  # letters of the names in the table, for which all lines make room


def table(case: Case, folder: RunFolder, outcome: Outcome) -> str:
    """Final monitors, time and rate, and where the files are."""
    rows = [
        ("iterations", f"{outcome.iteration:,}"),
        *end_row(case),
        *((one_line(name), f"{value:.10g}") for name, value in outcome.monitors.items()),
        ("wall time", _time_text(outcome)),
        *_rate_row(case, outcome.seconds_per_iteration),
        ("numbering", case.numbering()),
        *((path.name, f"{path}{_what_for(path, case, folder, outcome)}") for path in listed(folder.files())),
    ]
    width = min(max(len(name) for name, _ in rows), _WIDEST)  # a longer name moves its own line alone
    return "\n".join(f"  {name:{width}}  {text}" for name, text in rows)


def end_row(case: Case) -> list[tuple[str, str]]:
    """Whether what may end the case before its time has done so; nothing where it has not come to an end."""
    if not (early := case.early_end()):
        return []
    now = case.recorded_now()
    span = case.time_span(now)
    if span is None or case.steps_left(now) != 0:
        return []
    return [("ended", early if span[0] < span[1] else f"at time {span[1]:g}, not yet {early}")]


def _rate_row(case: Case, each: float) -> list[tuple[str, str]]:
    """``each``: seconds per iteration; nothing where there was none."""
    if each == 0.0:
        return []
    return [("rate", f"{each * 1e3:.3g} ms per iteration, {case.elements / each / 1e6:.3g} M {case.element_name}/s")]


def _time_text(outcome: Outcome) -> str:
    """The whole wall time and its parts, which add up to it."""
    if outcome.seconds_per_iteration == 0.0:
        return f"{duration(outcome.seconds)}, without an iteration"
    rest = outcome.seconds - outcome.seconds_to_first_iteration - outcome.seconds_iterating
    parts = [
        f"{duration(outcome.seconds_to_first_iteration)} until the first iteration (setting up, compiling)",
        f"{duration(outcome.seconds_iterating)} iterating",
        f"{duration(rest)} writing",
    ]
    return f"{duration(outcome.seconds)}: {', '.join(parts)}"


def listed(files: list[Path]) -> list[Path]:
    """The files worth naming, those to look at first: pictures, and then the others, the settings last. A series stands
    for its VTK files, the drawing of a chart for its numbers."""
    drawn = [path for path in files if path.suffix == ".png"]
    others = [path for path in files if path.suffix not in (".png", ".vtu", ".vti", ".vtr")]
    return drawn + [path for path in reversed(others) if path.with_suffix(".png") not in drawn]


def _what_for(path: Path, case: Case, folder: RunFolder, outcome: Outcome) -> str:
    go_on = f"go on: {going_on(folder)}{f' {case.longer()}' if outcome.finished else ''}"
    purpose = {"fields.pvd": "open in ParaView", "checkpoint.h5": go_on}
    if path.name in purpose:
        return f"  ({purpose[path.name]})"
    return "  (and .csv)" if path.suffix == ".png" and path.with_suffix(".csv").is_file() else ""


def going_on(folder: RunFolder) -> str:
    """What a person types to go on from the checkpoint of a run."""
    return f"meshloom run --restart {as_typed(str(folder.checkpoint), sys.stderr.encoding)}"


def as_typed(path: str, encoding: str | None) -> str:
    """A path for a command line, in one line. What the terminal cannot show is spelled out, as shells read it."""
    try:
        path.encode(encoding or "ascii")
        if path.isprintable():
            return shlex.quote(path)
    except UnicodeError:
        pass
    letters = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in os.fsencode(path))
    return f"$'{''.join(letters)}'"


def as_json(case: Case, folder: RunFolder, outcome: Outcome) -> str:
    """One line for programs."""
    return json.dumps(
        {
            "case": case.name,
            "finished": outcome.finished,
            "sizes": case.sizes(),
            "iterations": outcome.iteration,
            "monitors": {name: value if isfinite(value) else None for name, value in outcome.monitors.items()},
            "wall_seconds": outcome.seconds,
            "seconds_to_first_iteration": outcome.seconds_to_first_iteration,
            "seconds_per_iteration": outcome.seconds_per_iteration,
            "backend": ml.backend(),
            "precision": case.config.run.precision,
            "threads": threads_in_use(),
            "numbering": case.numbering(),
            "schedules": schedules(case),
            "failures": list(outcome.failures),
            "files": {path.name: str(path) for path in folder.files()},
        }
    )


def schedules(case: Case) -> dict[str, str]:
    """The schedule in force for every loop of the case; of a loop along lines, how these are solved."""
    loops = [loop for loop in case.program.loops if not loop.domain.all_memory]
    return {loop.name: loop.how.words(loop) for loop in sorted(loops, key=lambda loop: loop.domain.along_lines)}
