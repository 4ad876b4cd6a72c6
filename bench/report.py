"""Results on paper: goals met or missed, tables for the terminal, and the same as Markdown for the README.

``python -m bench.report bench/results/FILE.json`` prints the README's tables; with ``--readme`` it puts them there.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.record import load

README = Path(__file__).parents[1] / "README.md"
SECTION = re.compile(r"(?<=<!-- benchmark -->\n).*?(?=<!-- /benchmark -->)", re.DOTALL)


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


def step_rows(result: dict[str, Any]) -> list[tuple[str, float]]:
    """The best variant of each kind and its time over Meshloom's: 1 is equal, 2 is twice as slow."""
    step = result["step"]
    own = step["seconds"]["meshloom"]
    return [(name, step["seconds"][name] / own) for name in step["best"].values()]


def goals(result: dict[str, Any]) -> list[Goal]:
    return [Goal(**{k: v for k, v in g.items() if k != "met"}) for g in result["goals"]]


def readme_section(path: Path) -> str:
    """What stands between the README's benchmark marks: where the figures come from, and the two tables."""
    result = load(path)
    machine, mesh = result["machine"], result["mesh"]
    source = (
        f"From [{path.name}](bench/results/{path.name}): {mesh['cells']:,} cells, {mesh['edges']:,} edges, double,"
        f" {result['threads']} threads of one {machine['architecture']} machine ({machine['processor']}),"
        f" {result['versions']['compiler']}; `make bench` measures yours."
    )
    return f"{source}\n\n{markdown(result)}\n"


def update_readme(path: Path, readme: Path = README) -> None:
    """Put the figures of a result file into the README."""
    text = readme.read_text(encoding="utf-8")
    readme.write_text(SECTION.sub(lambda _: readme_section(path), text), encoding="utf-8")


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="Result files as tables.")
    parser.add_argument("file", type=Path, help="a result file of bench.cpu_airfoil")
    parser.add_argument("--readme", action="store_true", help="put the tables into the README")
    options = parser.parse_args()
    if options.readme:
        update_readme(options.file)
    else:
        print(readme_section(options.file), end="")


if __name__ == "__main__":
    main()
