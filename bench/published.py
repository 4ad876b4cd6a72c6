"""Cases against published figures: what ``bench.compressible`` and ``bench.incompressible`` have in common.

A benchmark of this kind has some words, each for a few rows; a row is made by one function, and written down at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from bench.grid import Cpu
from bench.race_loop import Device
from bench.started import Started, options_of, started

Row = dict[str, Any]
#: By its first word: what each row is called, and how it is made.
Work = dict[str, list[tuple[str, Callable[[], Row]]]]


def parser_of(name: str, text: str | None, work: Callable[[bool], Work]) -> argparse.ArgumentParser:
    """``work(quick)``: what is to be done; ``text``: the docstring of the benchmark."""
    words = tuple(work(True))
    parser = options_of(name, text)
    parser.add_argument("--only", nargs="+", choices=words, default=list(words), help="some of it")
    parser.add_argument("--quick", action="store_true", help="few cells and steps: to see that it works")
    return parser


def measured(
    name: str, options: argparse.Namespace, work: Callable[[bool], Work], device: Device | None
) -> Started | None:
    """The benchmark with all rows that were asked for; None, and a line why, if it cannot run."""
    run = started(name, options, device, Cpu)
    if run is None:
        return None
    run.result["quick"] = options.quick
    todo = work(options.quick)
    for title, make_row in (one for word in options.only for one in todo[word]):
        row = {"name": title} | make_row()
        run.result["rows"].append(row)
        print(line_of(row), flush=True)
        run.save()
    return run


def line_of(row: Row) -> str:
    """A row as it is told: its size, and all that is one number."""
    sizes = [f"{row[key]} {key}" for key in ("cells", "steps") if key in row]
    figures = [f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float)]
    found = f"; {row['found']}" if "found" in row else ""
    return f"{row['name']}: {', '.join([*sizes, *figures])}{found}"


def latest(found: Iterable[dict[str, Any]]) -> list[Row]:
    """The rows of several results; a later one of the same name stands for an earlier one."""
    return list({row["name"]: row for result in found for row in result["rows"]}.values())
