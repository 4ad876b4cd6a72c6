"""What a run of the zoo says of each loop on each mesh: the best, the best deterministic one, and what is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.report import rows_table
from bench.zoo.design import CHOSEN

Row = dict[str, Any]
COLUMNS = ("loop", "family", "order", "precision", "size")
NEAR, FAR = 1.05, 1.25  # times the best


def summary(rows: Iterable[Row]) -> list[Row]:
    """Of each loop on each mesh: the best, the best that is deterministic, and what is chosen, by the best ones."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if "ms" in row and "fused" not in row:
            groups.setdefault(tuple(row[name] for name in COLUMNS), []).append(row)
    found = []
    for key, ran in groups.items():
        strict = [row for row in ran if row["deterministic"]]
        best, best_strict = (min(some, key=lambda row: row["ms"], default=None) for some in (ran, strict))
        chosen = {row["strategy"]: row for row in ran if row["strategy"] in CHOSEN}
        if best is not None and best_strict is not None and len(CHOSEN) == len(chosen) < len(ran):
            found.append(dict(zip(COLUMNS, key, strict=True)) | {
                "best": named(best), "ms": best["ms"], "share": best["share_of_copy"],
                "deterministic": named(best_strict), "deterministic_by_best": best_strict["ms"] / best["ms"],
                "auto": chosen["auto"]["schedule"], "auto_by_deterministic": chosen["auto"]["ms"] / best_strict["ms"],
                "auto_share": chosen["auto"]["share_of_copy"],
                "fastest": chosen["fastest"]["schedule"], "fastest_by_best": chosen["fastest"]["ms"] / best["ms"],
            })  # fmt: skip
    return found


def named(row: Row) -> str:
    layout = "" if row["layout"] == "auto" else f", {row['layout']}"
    return f"{row['schedule']}{layout}"


def show(found: Sequence[Row], console: Console) -> None:
    heads = ("best", "ms", "of copy", "best deterministic", "by best", "auto", "by it", "fastest", "by best")
    table = Table(*COLUMNS, *heads)
    for one in found:
        table.add_row(
            *(str(one[name]) for name in COLUMNS), one["best"], f"{one['ms']:.4f}", f"{one['share']:.2f}",
            one["deterministic"], f"{one['deterministic_by_best']:.2f}", one["auto"],
            f"{one['auto_by_deterministic']:.2f}", one["fastest"], f"{one['fastest_by_best']:.2f}",
        )  # fmt: skip
    console.print(table)


def text_lines(result: Row) -> list[str]:
    """A table in Markdown, and how often what is chosen is near the best."""
    found = result["summary"]
    rows = [(f"`{one['loop']}`", one["family"], f"{one['ms']:.4f}", f"{one['share']:.2f}", f"`{one['best']}`",
             f"`{one['deterministic']}`", f"{one['deterministic_by_best']:.2f}", f"`{one['auto']}`",
             f"{one['auto_by_deterministic']:.2f}", f"`{one['fastest']}`", f"{one['fastest_by_best']:.2f}")
            for one in sorted(found, key=lambda one: (one["loop"], one["family"]))]  # fmt: skip
    head = ("loop", "mesh", "ms", "of copy", "best", "best deterministic", "by best", "`auto`",
            "by the best deterministic", "`fastest`", "by best")  # fmt: skip
    near = sum(one["auto_by_deterministic"] <= NEAR for one in found)
    close = sum(one["deterministic_by_best"] <= FAR for one in found)
    against = f", both with the schedules of `{result['against']}`" if "against" in result else ""
    said = f"`auto` takes at most {NEAR} of the best deterministic schedule in {near} of {len(found)}"
    return [*rows_table(head, rows), "", f"{said}, and that at most {FAR} of the best of all in {close}{against}."]
