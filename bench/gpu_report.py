"""Results of ``bench.race``, ``airfoil``, ``airfoil_reference``, ``grid``, ``direct`` and ``branches`` on paper:
Markdown for ``bench.tables``. Each function takes a result and gives lines; what was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from bench.airfoil_reference import TOLERANCE as REFERENCE_TOLERANCE
from bench.report import Goal, goal_table, rows_table
from meshloom.target import H200

Row = dict[str, Any]
_WORDS = {"float64": "double", "float32": "single"}
#: Milliseconds of hand-written CUDA that the strategies were designed by, on 2.88 million cells in double.
DESIGNED = {("owner", "soa"): 0.138, ("atomic", "soa"): 0.206, ("atomic", "aos"): 0.502, ("staged", ""): 0.240,
            ("block_color", ""): 0.404, ("color", ""): 0.825, ("tile", ""): 0.146,
            ("block_atomic", ""): 0.288}  # fmt: skip
RINGS, BY_HAND = "hand CUDA owner by rings, AoS", "hand CUDA owner, AoS"


def timed(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [r for r in rows if "ms" in r and all(r[k] == v for k, v in wanted.items())]


def fastest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda r: r["ms"], default=None)


def figures(row: Row | None) -> list[str]:
    return ["-", "-"] if row is None else [f"{row['ms']:.3f}", f"{row['share_of_copy']:.2f}"]


# --- bench.race -----------------------------------------------------------------------------------------------------


def race_rows(result: Row) -> list[str]:
    """The best block of every strategy and layout in the given and the Hilbert order, fastest first; the peers."""
    kinds = {(r["strategy"], r["variant"], r["layout"]) for r in timed(result["variants"], precision="float64")}
    text_lines = []
    for strategy, variant, layout in kinds:
        like = {"strategy": strategy, "variant": variant, "layout": layout, "precision": "float64"}
        found = [fastest(timed(result["variants"], order=order, **like)) for order in ("given", "hilbert")]
        best = min(r["ms"] for r in found if r)
        schedule = next(r["schedule"] for r in found if r)
        name = f"automatic (`{schedule}`)" if strategy == "auto" else f"`{strategy}`"
        name += "" if variant == "plain" or strategy == "auto" else f" `{variant}`"
        text_lines.append((strategy != "auto", best, [f"{name}, {layout}", *figures(found[0]), *figures(found[1])]))
    rows = [cells for _, _, cells in sorted(text_lines)]
    for peer in dict.fromkeys(p["peer"] for p in timed(result["peers"])):
        found = [fastest(timed(result["peers"], peer=peer, order=order)) for order in ("given", "hilbert")]
        rows.append([peer, *figures(found[0]), *figures(found[1])])
    head = ("variant, double", "given order, ms", "of copy", "Hilbert order, ms", "of copy")
    return [*rows_table(head, rows), "", *goal_table(race_goals(result))]


def race_goals(result: Row) -> list[Goal]:
    """What was asked of the residual loop, from the run."""
    double = timed(result["variants"], precision="float64")
    own = [r for r in double if r["strategy"] != "auto"]
    found: list[Goal] = []
    if auto := fastest(timed(double, strategy="auto")):
        found.append(Goal("residual loop, automatic, double: share of copy", auto["share_of_copy"], "at least", 0.88))
    for order in ("given", "hilbert"):
        auto, best = fastest(timed(double, strategy="auto", order=order)), fastest(timed(own, order=order))
        if auto and best:
            found.append(Goal(f"automatic / best of this run, {order}", auto["ms"] / best["ms"], "at most", 1.05))
    if single := fastest(timed(result["variants"], precision="float32", strategy="auto")):
        found.append(Goal("residual loop, automatic, single: share of copy", single["share_of_copy"], "at least", 0.88))
    for (strategy, layout), ms in DESIGNED.items():
        if one := fastest(r for r in own if r["strategy"] == strategy and layout in ("", r["layout"])):
            name = f"`{strategy}`{', ' + layout if layout else ''}: ms / {ms:.3f} of the design's hand-written CUDA"
            found.append(Goal(name, one["ms"] / ms, "at most", 1.10))
    return found


def order_rows(result: Row) -> list[str]:
    """The automatic schedule in all orders of a run, next to the hand-written kernel with the same tables."""
    rows = []
    for order in dict.fromkeys(r["order"] for r in result["variants"]):
        auto = fastest(timed(result["variants"], order=order, strategy="auto", precision="float64"))
        hand = fastest(timed(result["peers"], order=order, peer=RINGS))
        if auto:
            rows.append([order, *figures(auto), f"`{auto['schedule']}`, {auto['layout']}", figures(hand)[0]])
    declined = [f"Declined: {order}: {one['declined']}." for order, one in result["orders"].items()
                if "declined" in one]  # fmt: skip
    missing = [o for o in asked_for(result, "--orders") if o not in result["orders"] and o not in {r[0] for r in rows}]
    more = [*declined, *([f"Not reached in this run: {', '.join(missing)}."] if missing else [])]
    head = ("order, double", "automatic, ms", "of copy", "schedule", "hand CUDA by rings, ms")
    return [*rows_table(head, rows), *(["", *more] if more else [])]


def asked_for(result: Row, option: str) -> list[str]:
    """The words after an option of the command that made a result."""
    words = str(result.get("command", "")).split()
    after = words[words.index(option) + 1 :] if option in words else []
    return [*takewhile(lambda word: not word.startswith("--"), after)]


# --- bench.airfoil --------------------------------------------------------------------------------------------------


def iteration_rows(result: Row) -> list[str]:
    rows = []
    for order in dict.fromkeys(r["order"] for r in result["runs"]):
        for fused in (False, True):
            mine = {r["precision"]: r for r in result["runs"] if (r["order"], r["fused"]) == (order, fused)}
            if len(mine) == 2:
                double, single = mine["float64"], mine["float32"]
                rows.append([f"{'fused' if fused else 'loop by loop'}, {order}", f"{double['ms']:.3f}",
                             f"{single['ms']:.3f}", str(double["launches"]),
                             f"{double['share_of_limit']:.2f}"])  # fmt: skip
    head = ("", "double, ms", "single, ms", "launches", "compulsory bytes of the loops at copy speed, double")
    text_lines = rows_table(head, rows)
    if cpu := result.get("cpu"):
        text_lines += ["", f"{against_cores(result)} ({cpu['ms']:.1f} ms per iteration, {cpu['threads']} threads)."]
    return [*text_lines, "", *goal_table(iteration_goals(result))]


def against_cores(result: Row) -> str:
    """One sentence: the cores next to the GPU, loop by loop as they run, against both ways on the GPU."""
    cpu = result["cpu"]
    apart, fused = (next(r["ms"] for r in result["runs"] if (r["order"], r["precision"], r["fused"])
                         == (cpu["order"], "float64", f)) for f in (False, True))  # fmt: skip
    return (f"The cores of the same machine took, loop by loop, {cpu['ms'] / apart:.0f} times as long as the"
            f" GPU loop by loop and {cpu['ms'] / fused:.0f} times as long as the fused iteration")  # fmt: skip


def iteration_goals(result: Row) -> list[Goal]:
    runs, ratios = result["runs"], result.get("ratios", {})
    found: list[Goal] = []
    if apart := [r["share_of_limit"] for r in runs if not r["fused"] and r["precision"] == "float64"]:
        found.append(Goal("loop by loop, double: share of the limit, worst order", min(apart), "at least", 0.80))
    if faster := [v for k, v in ratios.get("loops_by_fused", {}).items() if k.endswith("float64")]:
        found.append(Goal("loop by loop / fused, double, worst order", min(faster), "at least", 1.5))
        found.append(Goal("the same, in the end", min(faster), "at least", 2.5))
    if apart := [v for k, v in ratios.get("double_by_single", {}).items() if k.endswith("loops")]:
        found.append(Goal("double / single, loop by loop, worst order", min(apart), "at least", 1.7))
    if shuffled := ratios.get("shuffled_by_given", {}).values():
        found.append(Goal("shuffled, then arranged by itself / given, worst", max(shuffled), "at most", 1.05))
    for row in result.get("small", []):
        if row["fused"]:
            found.append(Goal("7,200 cells, fused, per iteration", row["ms"] * 1e3, "at most", 20.0, " µs"))
        else:
            found.append(Goal("7,200 cells, loops per second", row["loops_per_second"], "at least", 2e4))
    return found


def reference_rows(results: Sequence[Row]) -> list[str]:
    """The runs against the original's residual."""
    rows = []
    for result in results:
        goal = Goal("", result["error"], "at most", REFERENCE_TOLERANCE[result["precision"]])
        rows.append([result["backend"], result["machine"]["gpu"] if result["backend"] == "cuda" else
                     result["machine"]["processor"], result["precision"], f"{result['error']:.1e}", goal.aim(),
                     goal.word()])  # fmt: skip
    head = ("back end", "machine", "precision", "residual of iteration 1000, off the published one by", "aim", "")
    return rows_table(head, rows)


# --- bench.grid, bench.direct ---------------------------------------------------------------------------------------


def grid_rows(result: Row) -> list[str]:
    """The automatic schedule of every stencil: share of copy, closed / periodic."""
    rows = []
    auto = [r for r in timed(result["rows"]) if r["automatic"]]
    for stencil, shape in dict.fromkeys((r["stencil"], tuple(r["shape"])) for r in auto):
        cells = [stencil.removeprefix("stencil") + " points", f"{shape[0]}^{len(shape)}"]
        for precision in ("float64", "float32"):
            mine = {r["periodic"]: r for r in auto
                    if (r["stencil"], tuple(r["shape"]), r["precision"]) == (stencil, shape, precision)}  # fmt: skip
            cells += [" / ".join(format(mine[p][key], form) if p in mine else "-" for p in (False, True))
                      for key, form in (("ms", ".3f"), ("share_of_copy", ".2f"))]  # fmt: skip
        rows.append(cells)
    head = ("stencil", "grid", "double, ms: closed / periodic", "of copy", "single, ms", "of copy")
    return rows_table(head, rows)


def direct_rows(result: Row) -> list[str]:
    """Every light loop: the automatic choice, one element for each thread, and the best."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in timed(result["rows"]):
        groups.setdefault((row["loop"], row["dim"], row["layout"], row["precision"]), []).append(row)
    rows = []
    for (loop, dim, layout, precision), group in groups.items():
        auto = fastest(r for r in group if r["automatic"])
        one = fastest(r for r in group if r["elements_per_thread"] == 1)
        best = min(group, key=lambda r: r["ms"])
        shares = ["-" if r is None else f"{r['share_of_copy']:.2f}" for r in (auto, one, best)]
        rows.append([f"{loop}, {dim} component{'s' if dim > 1 else ''}", layout, _WORDS[precision],
                     "-" if auto is None else str(auto["elements_per_thread"]), *shares])  # fmt: skip
    head = ("loop", "layout", "", "elements for each thread", "of copy", "with one", "best")
    return rows_table(head, rows)


# --- bench.branches -------------------------------------------------------------------------------------------------


def branch_rows(result: Row) -> list[str]:
    """Milliseconds of a step by the threshold; the shipped one is marked, and said to be missing where it is."""
    shares, large = sorted({r["large"] for r in result["rows"] if r["large"] is not None}), H200.gpu.graph.large
    names = [f"**{share:g}** (shipped)" if share == large else f"{share:g}" for share in shares]
    rows = []
    for case in dict.fromkeys(r["case"] for r in result["rows"]):
        mine = {r["large"]: r["ms_per_step"] for r in result["rows"] if r["case"] == case}
        rows.append([case, *(f"{mine[s]:.3f}" if s in mine else "-" for s in (*shares, None))])
    text_lines = rows_table(("ms of a step, by the share of the device that is large", *names, "one branch"), rows)
    missing = f"The shipped threshold, {large:g}, was not measured in this run."
    return _with_gaps(text_lines if large in shares else [*text_lines, "", missing])


def _with_gaps(text_lines: list[str]) -> list[str]:
    """A table, with a word about cells that are empty: a run may have been cut off."""
    gaps = any("| - |" in line for line in text_lines)
    said = ["", "A dash: not reached before the time of this run was up, or does not apply."]
    return [*text_lines, *(said if gaps else [])]


# --- bench.strict, bench.halves -------------------------------------------------------------------------------------


def strict_rows(result: Row) -> list[str]:
    """What formulas as written cost, application by application."""
    rows = [[f"`{r['application']}`", f"{r['operations_fast']:,}", f"{r['operations_strict']:,}",
             f"{1e3 * r['seconds_fast']:.3f}", f"{1e3 * r['seconds_strict']:.3f}", f"{r['ratio']:.2f}"]
            for r in result["rows"]]  # fmt: skip
    head = ("application", "operations of a step, fast", "strict", "ms of a step, fast", "strict", "strict / fast")
    return rows_table(head, rows)


def halves_rows(result: Row) -> list[str]:
    """What was chosen for meshes that lie half in order, and what it takes of the best."""
    rows = []
    for order, loop in dict.fromkeys((r["order"], r["loop"]) for r in result["rows"]):
        mine = {r["strategy"]: r for r in result["rows"] if (r["order"], r["loop"]) == (order, loop) and "ms" in r}
        named = sorted((r["ms"], name) for name, r in mine.items() if name not in ("auto", "fastest"))
        shown = [f"{mine[w]['ms']:.3f} (`{mine[w]['schedule'].split()[0]}`, {mine[w]['ratio']:.2f})"
                 for w in ("auto", "fastest")]  # fmt: skip
        rows.append([order, f"`{loop}`", *shown, f"{named[0][0]:.3f} (`{named[0][1]}`)"])
    head = ("order", "loop", "`auto`, ms (chosen, of the best deterministic)", "`fastest`, ms (chosen, of the best)",
            "best of all, ms")  # fmt: skip
    return rows_table(head, rows)
