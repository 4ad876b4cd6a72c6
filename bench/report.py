"""Results on paper: goals met or missed, tables for the terminal, and all tables of README and docs.

    python -m bench.report               # every table again from the file that it names
    python -m bench.report --newest      # from the newest results that name their code (bench.tables says which fit)
    python -m bench.report --check       # fails where a page is not what its files say
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STEP_BY_CPP, STEP_BY_NUMBA = "step: Meshloom / best hand-written C++", "step: best numba / Meshloom"


@dataclass(frozen=True)
class Goal:
    """A figure and its limit. ``sense`` is "at most" or "at least"."""

    text: str
    value: float
    sense: str
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit

    def figure(self) -> str:
        return f"{self.value:.3g}{self.unit}"

    def word(self) -> str:
        return "met" if self.met else "**missed**"

    def aim(self) -> str:
        return f"{self.sense} {self.limit:g}{self.unit}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def step_rows(result: dict[str, Any]) -> list[tuple[str, float]]:
    """The best variant of each kind and its time over Meshloom's: 1 is equal, 2 is twice as slow."""
    step = result["step"]
    own = step["seconds"]["meshloom"]
    return [(name, step["seconds"][name] / own) for name in step["best"].values()]


def goals(result: dict[str, Any]) -> list[Goal]:
    return [Goal(**{k: v for k, v in g.items() if k != "met"}) for g in result["goals"]]


def cpu_lines(result: dict[str, Any]) -> list[str]:
    """What the README shows of a run of ``bench.cpu_airfoil``."""
    mesh = result["mesh"]
    about = (f"{mesh['cells']:,} cells, {mesh['edges']:,} edges, double, {result['threads']} threads,"
             f" {result['versions']['compiler']}; `make bench` measures yours.")  # fmt: skip
    return [about, "", *markdown(result).splitlines()]


def cpu_repeats(results: Sequence[dict[str, Any]]) -> list[str]:
    """The two goals of the step, run by run."""
    rows = []
    for result in results:
        by_text = {goal.text: goal for goal in goals(result)}
        own, numba = by_text[STEP_BY_CPP], by_text.get(STEP_BY_NUMBA)
        cells = [f"{own.value:.2f}", own.word(), *([f"{numba.value:.2f}", numba.word()] if numba else ["-", "-"])]
        rows.append([str(result["date"])[:16].replace("T", " "), *cells])
    head = ("run, UTC", "Meshloom / best C++", "at most 1.05", "best numba / Meshloom", "at least 1.5")
    every = [goal for result in results for goal in goals(result)]
    verdicts = [_verdict(f"The goal of {aim}", [goal.met for goal in every if goal.text == text])
                for text, aim in ((STEP_BY_CPP, "1.05"), (STEP_BY_NUMBA, "1.5"))]  # fmt: skip
    return [*rows_table(head, rows), "", " ".join(verdicts).strip()]


def _verdict(goal: str, met: Sequence[bool]) -> str:
    """In how many runs a goal is met; nothing where none asked."""
    if not met:
        return ""
    runs = f"{len(met)} run{'' if len(met) == 1 else 's'}"
    return f"{goal} is met in {sum(met)} of {runs}{'.' if all(met) else ', which counts as missed.'}"


def markdown(result: dict[str, Any]) -> str:
    """The two tables of the README."""
    text_lines = rows_table(("the airfoil step, 2 stages", "time, Meshloom = 1"),
                       [(name, f"{ratio:.2f}") for name, ratio in step_rows(result)])  # fmt: skip
    return "\n".join([*text_lines, "", *goal_table(goals(result))])


def rows_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as Markdown."""
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def goal_table(found: Sequence[Goal]) -> list[str]:
    """Goals as Markdown, met or missed by what was measured; nothing without goals."""
    rows = [(g.text, g.aim(), g.figure(), g.word()) for g in found]
    return rows_table(("goal", "aim", "measured", ""), rows) if rows else []


def print_tables(result: dict[str, Any]) -> None:
    """The same, and the strategies, in the terminal."""
    from rich.console import Console

    console = Console()
    console.print(_table("The airfoil step", ("variant", "time / Meshloom"), [
        (name, f"{ratio:.2f}") for name, ratio in step_rows(result)]))  # fmt: skip
    if strategies := result.get("strategies"):
        automatic = strategies["auto"]["seconds"]
        loops = [(name, entry["schedule"], f"{entry['seconds'] / automatic:.2f}") if "seconds" in entry
                 else (name, entry["declined"], "-") for name, entry in strategies.items()]  # fmt: skip
        console.print(_table("res_calc by strategy", ("strategy", "schedule", "time / automatic"), loops))
    rows = [(g.text, g.aim(), g.figure(), "met" if g.met else "missed") for g in goals(result)]
    console.print(_table("Goals", ("goal", "aim", "measured", ""), rows))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def main(arguments: list[str] | None = None) -> int:
    from bench import tables

    parser = argparse.ArgumentParser(prog="python -m bench.report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="pages to make (default: README.md and docs/)")
    parser.add_argument("--newest", action="store_true", help="show the newest results that name their code")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not what its files say")
    parser.add_argument("--list", action="store_true", help="only list which table comes from which file")
    options = parser.parse_args(arguments)
    known, stale = tables.stamped() if options.newest else [], 0
    for page in options.pages or tables.pages():
        before = page.read_text(encoding="utf-8")
        if options.list:
            for kind, files, _ in tables.marks(before):
                print(f"{page.name}: {kind}: {' '.join(files)}")
            continue
        after = tables.made_again(before, known)
        if after != before:
            stale += 1
            print(f"{page.name}: {'not what its files say' if options.check else 'made again'}")
            if not options.check:
                page.write_text(after, encoding="utf-8")
    return int(options.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
