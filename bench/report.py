"""Results on paper: goals met or missed, tables for the terminal, and the same as Markdown for the README.

``python -m bench.report bench/results/FILE.json`` prints the README's table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")


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

    def aim(self) -> str:
        return f"{self.sense} {self.limit:g}{self.unit}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def load(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def save(result: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def step_rows(result: dict[str, Any]) -> list[tuple[str, float]]:
    """The best variant of each kind and its time over Meshloom's: 1 is equal, 2 is twice as slow."""
    step = result["step"]
    own = step["seconds"]["meshloom"]
    return [(name, step["seconds"][name] / own) for name in step["best"].values()]


def goals(result: dict[str, Any]) -> list[Goal]:
    return [Goal(**{k: v for k, v in g.items() if k != "met"}) for g in result["goals"]]


def markdown(result: dict[str, Any]) -> str:
    """The two tables of the README."""
    lines = ["| the airfoil step, 2 stages | time, Meshloom = 1 |", "|---|---|"]
    lines += [f"| {name} | {ratio:.2f} |" for name, ratio in step_rows(result)]
    lines += ["", "| goal | aim | measured | |", "|---|---|---|---|"]
    lines += [f"| {g.text} | {g.aim()} | {g.figure()} | {'met' if g.met else '**missed**'} |" for g in goals(result)]
    return "\n".join(lines)


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


if __name__ == "__main__":
    print(markdown(load(Path(sys.argv[1]))))
