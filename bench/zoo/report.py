"""What a run of the zoo says of each loop on each mesh: the best, the best deterministic one, and what is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.record import RESULTS, load
from bench.report import rows_table
from bench.zoo.design import CHOSEN
from meshloom.errors import MeshloomError
from meshloom.target.limit import ATOMICS

Row = dict[str, Any]
COLUMNS = ("loop", "family", "order", "precision", "size")
NEAR, FAR = 1.05, 1.25  # times the best
BEFORE = "chosen before"


def against(file: Path) -> list[tuple[str, list[Row]]]:
    """What runs have measured, by their files: this one, and those that it was held against, one after the other. What
    they have chosen was a schedule, too."""
    try:
        found = load(file)
        rows = [row | {"strategy": BEFORE} if row["strategy"] in CHOSEN else row for row in found["rows"]]
    except (OSError, ValueError, KeyError) as error:
        raise MeshloomError(f"{file}: no result of the zoo ({type(error).__name__})") from error
    return [(file.name, rows), *(against(file.with_name(found["against"])) if "against" in found else [])]


def summary(rows: Iterable[Row]) -> list[Row]:
    """Of each loop on each mesh that has run by named schedules: the best, the best that is deterministic, and what is
    chosen, by the best ones."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if "ms" in row and "fused" not in row:
            groups.setdefault(tuple(row[name] for name in COLUMNS), []).append(row)
    found = []
    for key, ran in groups.items():
        strict = [row for row in ran if row["deterministic"]]
        best, best_strict = (min(some, key=lambda row: row["ms"], default=None) for some in (ran, strict))
        chosen = {row["strategy"]: row for row in ran if row["strategy"] in CHOSEN}
        by_name = [row for row in ran if row["strategy"] not in (*CHOSEN, BEFORE)]
        if best is not None and best_strict is not None and len(CHOSEN) == len(chosen) and by_name:
            found.append(dict(zip(COLUMNS, key, strict=True)) | {
                "best": named(best), "ms": best["ms"], "share": best["share_of_copy"],
                "deterministic": named(best_strict), "deterministic_by_best": best_strict["ms"] / best["ms"],
                "auto": chosen["auto"]["schedule"], "auto_by_deterministic": chosen["auto"]["ms"] / best_strict["ms"],
                "auto_share": chosen["auto"]["share_of_copy"],
                "fastest": chosen["fastest"]["schedule"], "fastest_by_best": chosen["fastest"]["ms"] / best["ms"],
                **of_own_limit(best_strict),
            })  # fmt: skip
    return found


def of_own_limit(row: Row) -> Row:
    """What binds a loop whatever its schedule, bytes or arithmetic, and how near this schedule comes to it; nothing of
    rows of before, which do not say."""
    parts = {name: ms for name, ms in row.get("limit_ms", {}).items() if name != ATOMICS}
    if not parts:
        return {}
    binds = max(parts, key=lambda name: parts[name])
    return {"binds": binds, "share_of_limit": parts[binds] / row["ms"]}


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


def text_lines(result: Row, folder: Path = RESULTS) -> list[str]:
    """A table in Markdown, and how often what is chosen is near the best. ``folder``: where other results are."""
    others = against(folder / result["against"]) if "against" in result else []
    found = summary([*result["rows"], *(row for _, rows in others for row in rows)])
    ordered = sorted(found, key=lambda one: (one["loop"], one["family"]))
    rows = [[f"`{one['loop']}`", one["family"], f"{one['ms']:.4f}", f"{one['share']:.2f}", f"`{one['best']}`",
             f"`{one['deterministic']}`", f"{one['deterministic_by_best']:.2f}", f"`{one['auto']}`",
             f"{one['auto_by_deterministic']:.2f}", f"`{one['fastest']}`", f"{one['fastest_by_best']:.2f}"]
            for one in ordered]  # fmt: skip
    if limits := [one["share_of_limit"] for one in found if "share_of_limit" in one]:
        for row, one in zip(rows, ordered, strict=True):
            row.append(f"{one['share_of_limit']:.2f} ({one['binds']})" if "binds" in one else "")
    head = ("loop", "mesh", "ms", "of copy", "best", "best deterministic", "by best", "`auto`",
            "by the best deterministic", "`fastest`", "by best",
            *(("best deterministic, of the loop's own limit",) if limits else ()))  # fmt: skip
    near = sum(one["auto_by_deterministic"] <= NEAR for one in found)
    close = sum(one["deterministic_by_best"] <= FAR for one in found)
    names = " and ".join(f"`{name}`" for name, _ in others)
    measured = f", both with the schedules of {names}" if others else ""
    said = f"`auto` takes at most {NEAR} of the best deterministic schedule in {near} of {len(found)}"
    share = f" Half of the loops reach {median(limits):.2f} of their own limit." if limits else ""
    said += f", and that at most {FAR} of the best of all in {close}{measured}.{share}"
    return [*rows_table(head, rows), "", said]
