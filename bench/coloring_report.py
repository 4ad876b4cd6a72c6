"""Results of ``bench.coloring`` on paper, next to what the paper printed: tables, conclusions, goals and the picture.

Everything is computed from a result file; which of the paper's conclusions still hold, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import coloring_paper as paper
from bench.coloring_forms import ALGORITHMS, FLUX_SUM, LOCAL_MAXIMUM, LOOPS
from bench.report import Goal, goal_table, rows_table

Row = dict[str, Any]
PRECISIONS = ("float64", "float32")
WORDS = {"float64": "double", "float32": "single", FLUX_SUM: "flux summation", LOCAL_MAXIMUM: "local maximum"}
#: Operations in a second, in double precision, without tensor cores, by the data sheets; of others bytes count alone.
PEAKS = {"NVIDIA H200": 34e12}
WING, STEP_SHARE, OVER_CORES = "onera_m6", 0.6, 25.0  # a whole step of the wing
FAST_SHARE, FASTER, COLORING_SECONDS, MOST_GROUPS = 0.85, 15.0, 5.0, 8
SMALL_BOX = 0  # the level of a box of any size, which is no mesh of the paper
ALIKE = 0.05  # the paper: shared memory helps by less than this


# --- what a result holds ----------------------------------------------------------------------------------------------


def part(result: Row, name: str) -> list[Row]:
    return [row for row in result["rows"] if row["part"] == name]


def levels(result: Row) -> list[int]:
    return sorted({row["level"] for row in part(result, "groups")})


def seconds(result: Row, algorithm: str, precision: str, level: int, *, components: int = 1,
            order: str = "given") -> float | None:  # fmt: skip
    """Of 1000 runs of an algorithm."""
    place = (algorithm, precision, level, components, order)
    for row in part(result, "algorithms"):
        if place == tuple(row[key] for key in ("algorithm", "precision", "level", "components", "order")):
            return row.get("s_per_1000")
    return None


def ratios(result: Row, algorithm: str, precision: str) -> dict[int, float]:
    """By level: the time of an algorithm over that of the plain one."""
    found = {}
    for level in levels(result):
        took = seconds(result, algorithm, precision, level)
        plain = seconds(result, f"alg{ALGORITHMS[algorithm].plain}", precision, level)
        if took and plain:
            found[level] = took / plain
    return found


def printed_ratios(gpu: str, algorithm: str, precision: str) -> dict[int, float]:
    """The same, as the paper has it."""
    times = paper.TIMES[gpu, precision]
    pairs = zip(times[algorithm], times[f"alg{ALGORITHMS[algorithm].plain}"], strict=True)
    return {level: took / plain for level, (took, plain) in enumerate(pairs, 1)}


def strategy_rows(result: Row, loop: str, precision: str, components: int, level: int) -> list[Row]:
    """The strategies that were timed, the fastest first."""
    found = [row for row in part(result, "strategies") if "s_per_1000" in row and row["level"] == level and
             (row["loop"], row["precision"], row["components"]) == (loop, precision, components)]  # fmt: skip
    return sorted(found, key=lambda row: row["s_per_1000"])


# --- tables -----------------------------------------------------------------------------------------------------------


def group_lines(result: Row) -> list[str]:
    """Group sizes next to Table 3."""
    found = {row["level"]: row for row in part(result, "groups")}
    most = max([len(row["sizes"]) for row in found.values()] + [MOST_GROUPS])
    head = ["", *(f"mesh {level} (here) | mesh {level} (paper)" if level in paper.GROUPS else f"mesh {level}"
                  for level in found)]  # fmt: skip
    rows = [["cells", *_pairs(found, lambda row: f"{row['cells']:,}", lambda k: f"{paper.MESHES[k][0]}e6")],
            ["faces", *_pairs(found, lambda row: f"{row['faces']:,}", lambda k: f"{sum(paper.GROUPS[k]):,}")],
            *([f"group {color + 1}", *_pairs(found, partial(_size_here, color), partial(_size_there, color))]
              for color in range(most))]  # fmt: skip
    rows.append(["seconds of coloring and grouping", *_pairs(found, lambda row: f"{row['seconds']:.3f}", lambda k: "")])
    rows.append(["along conflict lists", *_pairs(found, lambda row: f"{row['seconds_by_lists']:.3f}", lambda k: "")])
    return _table(head, rows)


def _size_here(color: int, row: Row) -> str:
    return f"{row['sizes'][color]:,}" if color < len(row["sizes"]) else "-"


def _size_there(color: int, level: int) -> str:
    return f"{paper.GROUPS[level][color]:,}" if color < len(paper.GROUPS[level]) else "-"


def _pairs(found: dict[int, Row], here: Callable[[Row], str], there: Callable[[int], str]) -> list[str]:
    """For each mesh what it is here and, where the paper has one, there."""
    return [text for level, row in found.items() for text in
            (here(row), *([there(level)] if level in paper.GROUPS else []))]  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """As ``rows_table``; a head may stand for two columns."""
    return rows_table(" | ".join(head).split(" | "), rows)


def time_lines(result: Row) -> list[str]:
    """Seconds of 1000 runs next to Tables 4 to 7."""
    text_lines: list[str] = []
    for precision in PRECISIONS:
        rows = []
        for name, one in ALGORITHMS.items():
            cells = [_compared(result, name, precision, level) for level in levels(result)]
            if any(cells):
                rows.append([str(one.number), f"{WORDS[one.loop]}, {one.words}", *(cell or "-" for cell in cells)])
        if rows:
            head = ("algorithm", "", *(f"mesh {level}: here / V100 / K80" for level in levels(result)))
            text_lines += [f"Seconds of 1000 runs, {WORDS[precision]}, one unknown:", "", *rows_table(head, rows), ""]
    return [*text_lines, *before_lines(result)]


def _compared(result: Row, name: str, precision: str, level: int) -> str:
    took = seconds(result, name, precision, level)
    if took is None:
        return ""
    there = [f"{paper.TIMES[gpu, precision][name][level - 1]:.3f}" for gpu in ("V100", "K80")] if level else ["-", "-"]
    return " / ".join([f"{took:.3f}", *there])


def before_lines(result: Row) -> list[str]:
    """What algorithm 11 does before its launches, which the paper may not have timed."""
    found = [f"mesh {row['level']} {row['before_s_per_1000']:.3f}" for row in part(result, "algorithms")
             if "before_s_per_1000" in row and (row["precision"], row["components"], row["order"]) ==
             ("float64", 1, "given")]  # fmt: skip
    return [f"Copying fluxes to the order of colors before algorithm 11, in double, not in these: {', '.join(found)}."
            ] if found else []  # fmt: skip


def by_group_lines(result: Row) -> list[str]:
    """Every group by itself, next to Table 8."""
    found = [row for row in part(result, "algorithms") if "groups_s_per_1000" in row and row["order"] == "given"]
    rows = []
    for row in found:
        is_paper = (row["level"], row["precision"]) == (paper.BY_GROUP_LEVEL, paper.BY_GROUP_PRECISION)
        printed = [f" ({one:.3f})" for one in paper.BY_GROUP[row["algorithm"]]] if is_paper else []
        each = [f"{one:.4f}{printed[k] if k < len(printed) else ''}" for k, one in enumerate(row["groups_s_per_1000"])]
        rows.append([f"mesh {row['level']}, {WORDS[row['precision']]}", row["algorithm"].removeprefix("alg"),
                     *(each + ["-"] * MOST_GROUPS)[:max(MOST_GROUPS, len(each))]])  # fmt: skip
    most = max([len(row) for row in rows] + [2 + MOST_GROUPS])
    return rows_table(("", "algorithm", *(f"group {k + 1}" for k in range(most - 2))), rows)


def strategy_lines(result: Row) -> list[str]:
    """Meshloom's strategies on the largest mesh, and the automatic choice on all of them."""
    last, text_lines = levels(result)[-1], []
    for loop in LOOPS:
        kinds = [(p, k) for p in PRECISIONS for k in (1, 5) if strategy_rows(result, loop, p, k, last)]
        found = {kind: _by_form(strategy_rows(result, loop, *kind, last)) for kind in kinds}
        forms = list(dict.fromkeys(form for one in found.values() for form in one))
        head = ("strategy", *(f"{WORDS[p]}, {k} unknown{'s' if k > 1 else ''}: s, of copy" for p, k in kinds))
        rows = [[f"`{form}`" if "," not in form else form, *(_figures(found[kind].get(form)) for kind in kinds)]
                for form in forms]  # fmt: skip
        title = f"{WORDS[loop].capitalize()}, mesh {last}, seconds of 1000 runs:"
        text_lines += [title, "", *rows_table(head, rows), ""]
    return [*text_lines, *automatic_lines(result)]


def _by_form(rows: Sequence[Row]) -> dict[str, Row]:
    """The fastest block of each schedule on each numbering."""
    best: dict[str, Row] = {}
    for row in rows:
        words = " ".join(w for w in row["wish"].split() if not w.startswith("block="))
        chosen = f"auto: {row['schedule'].split()[0]}" if row["wish"] == "auto" else words
        best.setdefault(chosen if row["order"] == "hilbert" else f"`{chosen}`, {row['order']}", row)
    return best


def _figures(row: Row | None) -> str:
    return f"{row['s_per_1000']:.4f}, {row['share_of_copy']:.2f}" if row else "-"


def automatic_lines(result: Row) -> list[str]:
    """The engine's own choice along the Hilbert curve, mesh by mesh."""
    rows = []
    for loop in LOOPS:
        for precision in PRECISIONS:
            cells = []
            for level in levels(result):
                mine = [row for row in strategy_rows(result, loop, precision, 1, level)
                        if row["wish"] == "auto" and row["order"] == "hilbert"]  # fmt: skip
                cells.append(_figures(mine[0]) if mine else "-")
            if set(cells) != {"-"}:
                rows.append([WORDS[loop], WORDS[precision], *cells])
    head = ("automatic choice", "", *(f"mesh {level}: s, of copy" for level in levels(result)))
    return rows_table(head, rows) if rows else []


def program_lines(result: Row) -> list[str]:
    """Shares of a step by loop next to Table 1, and the GPU against the cores next to Figure 8."""
    text_lines: list[str] = []
    for row in part(result, "program"):
        rows = [[f"`{one['loop']}`", one["races"] or "-", f"{one['ms']:.4f}", f"{100 * one['share']:.1f}",
                 f"{of_limit(result, {'loops': [one]}):.2f}" if "bytes" in one else "-"]
                for one in row["loops"] if one["share"] >= 0.005]  # fmt: skip
        racy = sum(one["share"] for one in row["loops"] if one["races"])
        text_lines += [f"`{row['case']}`, {row['cells']:,} cells:", "",
                  *rows_table(("loop", "elements meet in a", "ms", "share, %", "of its limit"), rows), "",
                  f"Loops with races take {100 * racy:.0f} % of the loops' time; in the paper's program"
                  f" {sum(one for _, _, one in paper.SHARES):.0f} %."]  # fmt: skip
        if all("bytes" in one for one in row["loops"]):
            text_lines += [f"Their bytes could be copied, and their operations done, in {of_limit(result, row):.2f} of"
                      " that time."]  # fmt: skip
        if row.get("step_bytes"):
            text_lines += [f"As a whole, with its loops fused, a step moves {row['step_bytes'] / 1e9:.2f} GB instead of"
                      f" {sum(one['bytes'] for one in row['loops']) / 1e9:.2f}:"
                      f" {of_limit(result, row, as_run=True):.2f} of its own limit."]  # fmt: skip
        if "cores_ms" in row:
            text_lines += [f"A step takes {row['ms']:.3f} ms on the GPU and {row['cores_ms']:.1f} ms on all"
                      f" {result['machine']['cores']} cores of the machine: {row['cores_ms'] / row['ms']:.0f} times as"
                      f" long (the paper: {paper.GPU_OVER_CORES:.0f} times, a V100 and 28 cores)."]  # fmt: skip
        text_lines.append("")
    return text_lines + goal_table(program_goals(result))


# --- conclusions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conclusion:
    """What the paper concludes, what was found here, and whether that still holds; None: not measured."""

    text: str
    found: str
    holds: bool | None

    def word(self) -> str:
        return "not measured" if self.holds is None else "holds" if self.holds else "**does not hold**"


def conclusions(result: Row) -> Iterator[Conclusion]:
    """Those of the paper, in double and single together."""
    shared = _all_ratios(result, ("alg7", "alg8"))
    yield Conclusion("shared memory helps by less than 5 % (7 by 5, 8 by 6)", _range(shared),
                     min(shared) > 1.0 - ALIKE if shared else None)  # fmt: skip
    yield _renumbering(result)
    ordered = _all_ratios(result, ("alg11",))
    worst = max(one for gpu in ("V100", "K80") for p in PRECISIONS for one in printed_ratios(gpu, "alg11", p).values())
    yield Conclusion("face data in the order of colors save 10 to 20 % (11 by 5)", _range(ordered),
                     max(ordered) <= worst if ordered else None)  # fmt: skip
    maximum = _all_ratios(result, ("alg8", "alg10"))
    yield Conclusion("the local maximum gains from neither (8 and 10 by 6)", _range(maximum),
                     min(maximum) > 1.0 - ALIKE if maximum else None)  # fmt: skip
    yield from (_atomics(result, loop) for loop in LOOPS)
    if faster := [row["cores_ms"] / row["ms"] for row in part(result, "program") if "cores_ms" in row]:
        text = f"the whole program is {paper.GPU_OVER_CORES:.0f} times as fast on a GPU as on the cores next to it"
        yield Conclusion(text, _range(faster), min(faster) >= paper.GPU_OVER_CORES)


def _all_ratios(result: Row, names: Sequence[str]) -> list[float]:
    return [one for name in names for precision in PRECISIONS for one in ratios(result, name, precision).values()]


def _range(found: Sequence[float]) -> str:
    return f"{min(found):.2f} to {max(found):.2f}" if found else "-"


def _renumbering(result: Row) -> Conclusion:
    """For one group, and for all others, from the groups that were timed by themselves."""
    text = "renumbering for the largest color speeds up that group and spoils the others (9 by 5)"
    timed = [row for row in part(result, "algorithms") if "groups_s_per_1000" in row and row["order"] == "given"]
    times = {(row["level"], row["precision"], row["algorithm"]): row["groups_s_per_1000"] for row in timed}
    first, others = [], []
    for (level, precision, name), plain in times.items():
        new = times.get((level, precision, "alg9"))
        if name == "alg5" and new and len(plain) > 1:
            sizes = next(row["sizes"] for row in part(result, "groups") if row["level"] == level)
            largest = sizes.index(max(sizes))
            first.append(new[largest] / plain[largest])
            others.append((sum(new) - new[largest]) / (sum(plain) - plain[largest]))
    found = f"the largest {_range(first)}, the others {_range(others)}"
    return Conclusion(text, found, max(first) < 1.0 < min(others)) if first else Conclusion(text, "-", None)


def _atomics(result: Row, loop: str) -> Conclusion:
    """Not of this paper but of the authors' earlier one: atomics beat the best coloring."""
    text = f"{WORDS[loop]}: atomics beat the best coloring {'twice' if loop == FLUX_SUM else '1.5 to 2 times'} (2020)"
    last, found = levels(result)[-1], []
    for precision in PRECISIONS:
        own = [r["s_per_1000"] for r in strategy_rows(result, loop, precision, 1, last) if r["wish"] == "atomic"]
        colored = [seconds(result, name, precision, last, order=order) for name, one in ALGORITHMS.items()
                   if one.loop == loop for order in ("given", "hilbert")]  # fmt: skip
        timed = [one for one in colored if one]
        found += [min(timed) / min(own)] if own and timed else []
    return Conclusion(text, _range(found), min(found) >= (2.0 if loop == FLUX_SUM else 1.5) if found else None)


def conclusion_lines(result: Row) -> list[str]:
    tiny = levels(result) == [SMALL_BOX]  # all of it is in the caches: what takes time there is another question
    rows = [(one.text, one.found, "too few cells to tell" if tiny and one.holds is not None else one.word())
            for one in conclusions(result)]  # fmt: skip
    return [*rows_table(("the paper's conclusion", "here", ""), rows), "", *goal_table(goals(result))]


# --- goals ------------------------------------------------------------------------------------------------------------


def goals(result: Row) -> list[Goal]:
    """Those that the largest of the paper's meshes decides, where it was run."""
    found: list[Goal] = []
    if 5 in levels(result):
        for loop in LOOPS:
            rows = strategy_rows(result, loop, "float64", 1, 5)
            if rows:
                names = tuple(name for name, one in ALGORITHMS.items() if one.loop == loop)
                best = paper.best("V100", "float64", names, 5)
                what = f"{WORDS[loop]}, mesh 5, double, one unknown"
                found += [Goal(f"{what}: share of copy, `{rows[0]['schedule'].split()[0]}`", rows[0]["share_of_copy"],
                               "at least", FAST_SHARE),
                          Goal(f"{what}: times as fast as the paper's best on a V100", best / rows[0]["s_per_1000"],
                               "at least", FASTER)]  # fmt: skip
        largest = next(row for row in part(result, "groups") if row["level"] == 5)
        took = largest["seconds"]
        found.append(Goal("greedy coloring and grouping, mesh 5", took, "at most", COLORING_SECONDS, " s"))
    groups = [len(row["sizes"]) for row in part(result, "groups") if row["level"] in paper.GROUPS]
    if groups:
        found.append(Goal("most groups of any mesh", max(groups), "at most", MOST_GROUPS))
    return found + program_goals(result)


def program_goals(result: Row) -> list[Goal]:
    """Those of a step of the wing."""
    found: list[Goal] = []
    for row in part(result, "program"):
        if row["case"] == WING and all("bytes" in one for one in row["loops"]):
            what = f"step of `{WING}`, {row['cells']:,} cells"
            found.append(Goal(f"{what}: share of the limit of its loops", of_limit(result, row), "at least",
                              STEP_SHARE))  # fmt: skip
            if "cores_ms" in row:
                found.append(Goal(f"{what}: times as fast as all cores", row["cores_ms"] / row["ms"], "at least",
                                  OVER_CORES))  # fmt: skip
    return found


def of_limit(result: Row, row: Row, as_run: bool = False) -> float:
    """Of all loops of a step, or of the whole of it as it runs: the time in which bytes could be copied or operations
    done, whichever takes longer, over the time that it takes."""
    peak = PEAKS.get(result["machine"].get("gpu", ""), math.inf)

    def limit(moved: float, done: float) -> float:
        return max(moved / (1e9 * result["copy_GBps"]), done / peak)

    if as_run:
        return float(limit(row["step_bytes"], row["step_flops"]) / (1e-3 * row["ms"]))
    every = sum(limit(one["bytes"], one.get("flops", 0.0)) for one in row["loops"])
    return float(every / (1e-3 * sum(one["ms"] for one in row["loops"])))


# --- the picture ------------------------------------------------------------------------------------------------------


def draw(result: Row, file: Path) -> None:
    """Figures 4 to 7: times over those of the plain algorithm, here and in the paper."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True)
    for line, loop in zip(panels, LOOPS, strict=True):
        for panel, precision in zip(line, PRECISIONS, strict=True):
            _ratios_panel(panel, result, loop, precision)
    figure.savefig(file, dpi=120)


def _ratios_panel(panel: Any, result: Row, loop: str, precision: str) -> None:
    shown = [(name, one) for name, one in ALGORITHMS.items() if one.loop == loop and one.number != one.plain]
    for number, (name, one) in enumerate(shown):
        kinds = ((ratios(result, name, precision), "-", "o", ""),
                 (printed_ratios("V100", name, precision), "--", None, ", V100"),
                 (printed_ratios("K80", name, precision), ":", None, ", K80"))  # fmt: skip
        for found, style, marker, where in kinds:
            panel.plot(list(found), list(found.values()), style, marker=marker, color=f"C{number}",
                       label=f"{one.number}: {one.words}{where}" if not where else f"{one.number}{where}")  # fmt: skip
    plain = 5 if loop == FLUX_SUM else 6
    panel.axhline(1.0, color="C7", linewidth=0.8)
    panel.set(title=f"{WORDS[loop]}, {WORDS[precision]}", xlabel="mesh", ylabel=f"time / algorithm {plain}")
    panel.set_xticks(range(1, 6))
    panel.grid(alpha=0.3)
    if precision == PRECISIONS[-1]:  # both panels of a row have the same lines
        panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
