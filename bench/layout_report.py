"""Results of ``bench.layouts`` on paper: times, counts next to the paper's tables, and a picture like its Figure 5."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from bench.layout_steps import STEPS
from bench.report import Goal, goal_table, rows_table

Row = dict[str, Any]
WORDS = {"general": "general coordinates", "orthogonal": "lines along x, y, z"}


class Printed(NamedTuple):
    """What the paper prints of a step, in its Tables 5 and 6: seconds on 4 P100, shares of all that it times in %, how
    much faster SoA is, V/S and B/F."""

    aos: float
    aos_share: float
    soa: float
    soa_share: float
    faster: float
    vs: float
    bf: float


PAPER = {"u*": Printed(574, 27.1, 335, 22.1, 1.71, 8.25, 1.43),
        "interpolate": Printed(367, 17.4, 131, 8.6, 2.82, 5, 14),
        "Poisson": Printed(341, 16.2, 346, 22.8, 0.99, 1.2, 4.51),
        "project points": Printed(94, 4.4, 97, 6.4, 0.97, 1.5, 8),
        "project faces": Printed(203, 9.6, 102, 6.7, 1.99, 2, 8)}  # fmt: skip
ALIKE = 0.05  # ratios this near to 1 make no difference
GOAL_FLOW, GOAL = "cavity3d", 0.75
PAPER_IN_ALL = 1.39  # by which everything was faster, what the five steps leave out included


def with_shares(rows: Sequence[Row]) -> list[Row]:
    """Rows with their share of the five steps of their layout, and how much faster than AoS they are."""
    sums: dict[tuple[str, str], float] = {}
    by_aos = {(row["form"], row["step"]): row["ms"] for row in rows if row["layout"] == "aos" and "ms" in row}
    for row in rows:
        if "ms" in row:
            key = row["form"], row["layout"]
            sums[key] = sums.get(key, 0.0) + row["ms"]
    return [row if "ms" not in row else row | {"share": row["ms"] / sums[row["form"], row["layout"]],
            "speedup": by_aos[row["form"], row["step"]] / row["ms"] if (row["form"], row["step"]) in by_aos else None}
            for row in rows]  # fmt: skip


def totals(rows: Iterable[Row], form: str) -> dict[str, float]:
    """Milliseconds of the five steps by layout, where all of them were timed."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["form"] == form and "ms" in row:
            found.setdefault(row["layout"], []).append(row["ms"])
    return {layout: sum(each) for layout, each in found.items() if len(each) == len(STEPS)}


def ratio(rows: Iterable[Row], form: str, step: str, layout: str) -> float | None:
    """How much faster a step is in a layout than as AoS."""
    wanted = form, step, layout
    return next((row.get("speedup") for row in rows if (row["form"], row["step"], row["layout"]) == wanted), None)


def without_vectors(rows: Iterable[Row], form: str, step: str, layout: str) -> float | None:
    """The same where every thread has one point, so that no layout moves several numbers at a time; None on a CPU."""
    least: dict[str, float] = {}
    for row in rows:
        if (row["form"], row["step"]) == (form, step) and "ms" in row:
            single = [one["ms"] for one in row["tried"] if prod(one.get("tile", (0,))) == 1]
            least |= {row["layout"]: min(single)} if single else {}
    return least["aos"] / least[layout] if {"aos", layout} <= set(least) else None


def best_grouped(rows: Iterable[Row], form: str, step: str) -> Row | None:
    """The fastest AoSoA of a step."""
    found = [row for row in rows if row["form"] == form and row["step"] == step and "ms" in row
             and row["layout"].startswith("aosoa")]  # fmt: skip
    return min(found, key=lambda row: float(row["ms"]), default=None)


# --- in the terminal --------------------------------------------------------------------------------------------------


def show_rows(rows: Sequence[Row]) -> None:
    for row in rows:
        what = f"{row['form']:<11}{row['step']:<15}{row['layout']:<8}"
        if "wrong" in row:
            print(f"{what} WRONG by {row['wrong']:.1e}")
            continue
        faster = f"{row['speedup']:6.2f} times AoS" if row["speedup"] else ""
        print(f"{what}{row['ms']:9.4f} ms {100 * row['share']:5.1f} % {row['share_of_copy']:6.2f} of copy {faster}"
              f"  {row['schedule']}", flush=True)  # fmt: skip


def show_counts(result: Row) -> None:
    for one in result["counts"]:
        paper = PAPER[one["step"]]
        print(f"{one['form']:<11}{one['step']:<15} V {one['vector_reads']} + {one['vector_writes']}, S"
              f" {one['scalar_reads']} + {one['scalar_writes']}, {one['flops']} flops: V/S {one['vs']:.2f} (paper"
              f" {paper.vs:g}; engine's {one['engine_vs']:.2f}), B/F {one['bf']:.2f} (paper {paper.bf:g}; engine's"
              f" {one['engine_bf']:.2f})")  # fmt: skip
    for one in result["wholes"]:
        print(f"{one['whole']}: step without Poisson {one['ms']:.4f} ms, {one['share_of_copy']:.2f} of copy"
              f" ({one['loops_share_of_copy']:.2f} by the bytes of its loops), {_launches(one)} launches")  # fmt: skip
    for one in result["automatic"]:
        print(verdict_words(one))


def verdict_words(one: Row) -> str:
    text = f"{WORDS[one['form']]}: the engine takes {one['chosen']} by itself; the fastest of all is {one['fastest']}"
    return text if one["chosen"] == one["fastest"] else f"{text}, by {100 * one['slower_by']:.1f} %"


# --- on paper ---------------------------------------------------------------------------------------------------------


def time_lines(result: Row) -> list[str]:
    """For each form a table: a row for each step, a column for each layout; the paper's ratio at the end."""
    text_lines: list[str] = []
    for form in dict.fromkeys(row["form"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["form"] == form and "ms" in row]
        layouts = list(dict.fromkeys(row["layout"] for row in rows))
        text_lines += [f"{result['points']}^3 points, {WORDS[form]}: milliseconds (share of the five steps; times as"
                       " fast as AoS; share of copy)", ""]  # fmt: skip
        body = [[step, *(_cell(rows, step, layout) for layout in layouts), _paper_cell(PAPER[step])]
                for step in STEPS]  # fmt: skip
        sums = totals(rows, form)
        body.append(["all five", *(f"{sums[one]:.3f} ({sums['aos'] / sums[one]:.2f})" if one in sums and "aos" in sums
                                   else "-" for one in layouts), f"({PAPER_IN_ALL})"])  # fmt: skip
        text_lines += [*rows_table(("step", *layouts, "the paper: seconds, AoS and SoA"), body), ""]
    return [*text_lines, *(f"{verdict_words(one)}." for one in result.get("automatic", ()))]


def _cell(rows: Sequence[Row], step: str, layout: str) -> str:
    row = next((one for one in rows if one["step"] == step and one["layout"] == layout), None)
    if row is None:
        return "-"
    faster = f"; {row['speedup']:.2f}" if row.get("speedup") else ""
    return f"{row['ms']:.3f} ({100 * row['share']:.0f} %{faster}; {row['share_of_copy']:.2f})"


def _paper_cell(paper: Printed) -> str:
    return f"{paper.aos:g} ({paper.aos_share:g} %) and {paper.soa:g} ({paper.soa_share:g} %; {paper.faster:g})"


def count_lines(result: Row) -> list[str]:
    """Accesses as the paper counts them and as the engine does, with the speed-ups, next to the paper's Table 6."""
    rows = []
    for one in result["counts"]:
        paper, soa = PAPER[one["step"]], ratio(result["rows"], one["form"], one["step"], "soa")
        grouped = best_grouped(result["rows"], one["form"], one["step"])
        rows.append([one["step"], WORDS[one["form"]], f"{one['vector_reads']} + {one['vector_writes']}",
                     f"{one['scalar_reads']} + {one['scalar_writes']}", str(one["flops"]), f"{one['vs']:.2f}",
                     f"{one['bf']:.2f}", f"{one['engine_vs']:.2f}", f"{one['engine_bf']:.2f}",
                     f"{paper.vs:g}, {paper.bf:g}", _times(soa),
                     _times(without_vectors(result["rows"], one["form"], one["step"], "soa")),
                     f"{_times(grouped['speedup'])} ({grouped['layout']})" if grouped else "-",
                     f"{paper.faster:g}", as_printed(soa, paper.faster)])  # fmt: skip
    head = ("step", "form", "vector: read + written", "scalar: read + written", "flops", "V/S", "B/F", "engine's V/S",
            "engine's B/F", "the paper's V/S, B/F", "SoA over AoS", "one point a thread", "best AoSoA over AoS",
            "the paper's SoA over AoS",
            "as in the paper?")  # fmt: skip
    return rows_table(head, rows)


def as_printed(found: float | None, printed: float) -> str:
    """Does SoA win, lose or make no difference, as it does in the paper?"""
    if found is None:
        return "-"
    return "yes" if _sense(found) == _sense(printed) else "no"


def _sense(value: float) -> int:
    return 0 if abs(value - 1.0) < ALIKE else 1 if value > 1.0 else -1


def whole_lines(result: Row) -> list[str]:
    """Steps without Poisson as programs."""
    rows = [[WORDS.get(one["whole"], one["whole"]), str(len(one["parts"])), str(_launches(one) or "-"),
             f"{one['ms']:.3f}", f"{one['bytes'] / result['points'] ** 3:.0f}", f"{one['share_of_copy']:.2f}",
             f"{one['bytes_of_loops'] / result['points'] ** 3:.0f}", f"{one['loops_share_of_copy']:.2f}"]
            for one in result["wholes"]]  # fmt: skip
    head = (
        "flow",
        "programs",
        "launches",
        "ms",
        "bytes for a point, at least",
        "of copy",
        "bytes of its loops",
        "of copy",
    )
    return [*rows_table(head, rows), "", *goal_table(goals(result))]


def _launches(one: Row) -> int:
    return sum(part["launches"] for part in one["parts"])


def goals(result: Row) -> list[Goal]:
    text = f"{result['points']}^3, step without Poisson: share of copy by compulsory bytes"
    return [
        Goal(f"{one['whole']}, {text}", one["share_of_copy"], "at least", GOAL)
        for one in result["wholes"]
        if one["whole"].startswith(GOAL_FLOW)
    ]


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# --- the picture ------------------------------------------------------------------------------------------------------


def draw(result: Row, file: Path) -> None:
    """Speed-ups over V/S and B/F: circles as large as the ratio, of the paper and of SoA and the best AoSoA here."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    paper = [(step, one.vs, one.bf, one.faster) for step, one in PAPER.items()]
    _circles(panels[0], "the paper: SoA over AoS, 4 P100", [("C7", "", paper)])
    for panel, which in ((panels[1], "soa"), (panels[2], "AoSoA")):
        kinds = [(color, f"{WORDS[form]}: ", _measured(result, form, which)) for form, color in
                 (("general", "C0"), ("orthogonal", "C1"))]  # fmt: skip
        _circles(panel, f"{'SoA' if which == 'soa' else 'best AoSoA'} over AoS, {result['points']}^3 points", kinds)
    panels[0].set_ylabel("B/F: bytes of accesses over flops")
    figure.savefig(file, dpi=120)


def _measured(result: Row, form: str, which: str) -> list[tuple[str, float, float, float]]:
    found = []
    for one in result["counts"]:
        if one["form"] == form:
            grouped = best_grouped(result["rows"], form, one["step"]) or {}
            value = ratio(result["rows"], form, one["step"], "soa") if which == "soa" else grouped.get("speedup")
            found += [(one["step"], one["vs"], one["bf"], value)] if value else []
    return found


def _circles(panel: Any, title: str, kinds: Sequence[tuple[str, str, list[tuple[str, float, float, float]]]]) -> None:
    panel.set(title=title, xscale="log", yscale="log", xlabel="V/S: vector over scalar accesses")
    panel.grid(alpha=0.3)
    panel.margins(0.2)
    for color, label, points in kinds:
        for number, (step, vs, bf, value) in enumerate(points):
            panel.scatter([vs], [bf], s=120.0 * value**2, color=color, alpha=0.5,
                          label=label.rstrip(": ") if label and not number else None)  # fmt: skip
            panel.annotate(f"{step} {value:.2f}", (vs, bf), (0, 3.0 + 5.5 * value), textcoords="offset points",
                           fontsize=7, ha="center", va="bottom")  # fmt: skip
    if any(label for _, label, points in kinds if points):
        panel.legend(fontsize=7, loc="lower right")
