"""Results of ``bench.compact`` on paper, for ``bench.tables`` and the end of a run.

Rows that differ in the axis alone become one line. A goal about the worst axis wants all axes measured in that run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from bench.compact_rows import BLOCKS, MANY, OWN, PLANES, PRIME
from bench.report import Goal, goal_table

_KEY = ("part", "what", "shape", "values", "precision", "ends", "method")
_WORDS = {"float64": "double", "float32": "single"}
_TITLES = {
    "derivative": "The one-pass solver on all sizes",
    "fused": "Flux, derivative and sum of five variables in one pass",
    "methods": "All solvers",
    "seed": "One line of 256 points, and many variables in one launch",
    "forms": "Lines cut up in other ways",
}


def size_of(row: dict[str, Any]) -> str:
    """``512^3``, ``2048^2 x 32`` or ``256 x 128``."""
    shape, values = row["shape"], row.get("values", 1)
    size = f"{shape[0]}^{len(shape)}" if len(set(shape)) == 1 and len(shape) > 1 else " x ".join(map(str, shape))
    return f"{size} x {values}" if values > 1 else size


def grouped(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows that differ in the axis alone, in the order of the axes; groups in the order of their first row."""
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        key = tuple(tuple(row[k]) if isinstance(row[k], list) else row[k] for k in _KEY)
        found.setdefault(key, {})[row["axis"]] = row
    for group in found.values():
        yield [group[axis] for axis in sorted(group)]


def axes_text(group: list[dict[str, Any]], key: str, form: str) -> str:
    """One figure for each axis, ``0.96 / 0.97 / 0.90``; a dash where it was not measured."""
    return " / ".join(format(row[key], form) if key in row else "-" for row in group)


def short_lines(result: dict[str, Any]) -> Iterator[str]:
    """Everything in few characters, for the end of a run."""
    for group in grouped(result["rows"]):
        first = group[0]
        head = f"{first['what']} {size_of(first)} {_WORDS[first['precision']]} {first['ends']} {first['method']}"
        if any("ms" in row for row in group):
            yield f"{head}: {axes_text(group, 'ms', '.4f')} ms, {axes_text(group, 'share_of_limit', '.2f')} of limit"
        else:
            yield f"{head}: {first.get('declined', 'WRONG')}"
    for row in result["peers"]:
        figure = f"{row['ms']:.4f} ms" if "ms" in row else row.get("missing", row.get("failed"))
        yield f"{row['peer']} {size_of(row)} d/d{'xyz'[row['axis']]}: {figure}"


def goals(result: dict[str, Any], *, speedups: bool = True) -> list[Goal]:
    """What was asked of a GPU, from the rows that are there; the worst axis is known when all were measured."""
    timed = [r for r in result["rows"] if "ms" in r]

    def least(text: str, limit: float, key: str, **wanted: Any) -> list[Goal]:
        chosen = [r for r in timed if all(r[k] == v for k, v in wanted.items())]
        complete = chosen and {r["axis"] for r in chosen} == set(range(len(chosen[0]["shape"])))
        return [Goal(text, min(r[key] for r in chosen), "at least", limit)] if complete else []

    own: dict[str, Any] = {"what": "derivative", "method": OWN, "part": "derivative"}
    double: dict[str, Any] = own | {"precision": "float64"}
    cube, plane = list(BLOCKS[-1]), {"shape": list(PLANES[-1]), "values": MANY}
    share = "share_of_limit"
    found = least("512^3, double, worst axis", 0.92, share, **double, shape=cube, ends="periodic")
    found += least("2048^2 x 32, double, worst axis", 0.92, share, **double, **plane, ends="periodic")
    found += least("512^3 closed, double, worst axis", 0.85, share, **double, shape=cube, ends="closed")
    found += least("509^3 closed, double, worst axis", 0.85, share, **double, shape=list(PRIME), ends="closed")
    aligned = double | {"method": f"{OWN}, aligned rows", "shape": list(PRIME)}
    found += least("509^3 closed, aligned rows, double, worst axis", 0.85, share, **aligned, ends="closed")
    found += least("512^3, single, worst axis", 0.85, share, **own, precision="float32", shape=cube, ends="periodic")
    for block, ends in product(BLOCKS, ("periodic", "closed")):
        text = f"fused right-hand side, {block[0]}^3 {ends}, double, worst axis"
        found += least(text, 0.80, share, part="fused", shape=list(block), ends=ends)
    found += _speedups(result) if speedups else []
    return found if result["device"] == "cuda" else []


def _speedups(result: dict[str, Any]) -> list[Goal]:
    """The least ratio of our own other solvers, and of cuSPARSE, to the one-pass solver on the same field and axis."""
    others: dict[str, list[float]] = {}
    timed = [r for r in result["rows"] if "ms" in r and r["part"] == "methods" and r["precision"] == "float64"]
    ours = {(tuple(r["shape"]), r["axis"]): r["ms"] for r in timed if r["method"] == OWN}
    for r in timed:
        if r["method"].startswith(("thomas", "cyclic")) and (key := (tuple(r["shape"]), r["axis"])) in ours:
            others.setdefault(f"our {r['method']}", []).append(r["ms"] / ours[key])
    for r in result["peers"]:
        if "ms" in r and "cuSPARSE" in r["peer"] and (key := (tuple(r["shape"]), r["axis"])) in ours:
            others.setdefault("cuSPARSE", []).append(r["ms"] / ours[key])
    return [Goal(f"{name} / segmented, least of all fields and axes", min(ratios), "at least",
                 5.0 if name == "cuSPARSE" else 3.0) for name, ratios in others.items()]  # fmt: skip


def text_lines(result: dict[str, Any]) -> list[str]:
    """The one-pass solver: goals, all sizes, fluxes, counters."""
    text = "Figures with slashes are for the axes x, y, z; z is contiguous in space, y in a plane. Fields that fit into"
    shown = [f"{text} the cache may beat the limit.", "", *_goal_table(goals(result | {"peers": []}, speedups=False))]
    for part in ("derivative", "fused", "forms"):
        shown += _part_table(_TITLES[part], [row for row in result["rows"] if row["part"] == part])
    return [*shown, *_counter_table(result["rows"])]


def solver_lines(result: dict[str, Any]) -> list[str]:
    """The tridiagonal systems by all our solvers, and what others offer."""
    shown = _goal_table(_speedups(result))
    for part in ("methods", "seed"):
        shown += _part_table(_TITLES[part], [row for row in result["rows"] if row["part"] == part])
    return [*shown, *_peer_table(result["peers"])]


def _goal_table(goals: list[Goal]) -> list[str]:
    return [*goal_table(goals), ""] if goals else []


def _part_table(title: str, rows: list[dict[str, Any]]) -> list[str]:
    found = []
    for group in grouped(rows):
        if any("ms" in row for row in group):
            first = group[0]
            used = " / ".join(str(max(filter(None, row.get("registers", {}).values()), default="-")) for row in group)
            found.append(
                f"| {size_of(first)} | {_WORDS[first['precision']]} | {first['ends']} | {first['method']} |"
                f" {axes_text(group, 'ms', '.4f')} | {axes_text(group, 'Gpoints_per_s', '.1f')} |"
                f" {axes_text(group, 'share_of_limit', '.2f')} | {used} | {axes_text(group, 'shared_bytes', ',')} |"
                f" {_occupancies(group)} |"
            )
    columns = ("field", "", "ends", "solver", "ms", "Gpoint/s", "of the limit", "registers", "shared", "occupancy")
    head = [f"**{title}**", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*head, *found, ""] if found else []


def _counter_table(rows: list[dict[str, Any]]) -> list[str]:
    """What the hardware counted: bytes moved over those that must be, warps at work, what they wait for."""
    found = []
    for row in rows:
        if not (counted := row.get("counters")):
            continue
        figures = [f"{counted[key]:.2f}" if key in counted else "-"
                   for key in ("dram_over_useful", "achieved_occupancy", "l1_hit", "l2_hit")]  # fmt: skip
        waits = ", ".join(f"{reason.replace('_', ' ')} {share:.2f}" for reason, share in counted["stalls"].items())
        what = f"{row['what']}, {_WORDS[row['precision']]}, {row['ends']}" + row["method"].removeprefix(OWN)
        found.append(f"| {size_of(row)} | d/d{'xyz'[row['axis']]} | {what} | {' | '.join(figures)} | {waits} |")
    columns = ("field", "", "", "bytes moved / needed", "occupancy", "L1 hits", "L2 hits", "warps wait for")
    head = ["**What the counters say** (Nsight Compute)", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*head, *found, ""] if found else []


def _occupancies(group: list[dict[str, Any]]) -> str:
    return " / ".join("-" if row.get("occupancy") is None else f"{row['occupancy']:.2f}" for row in group)


def _peer_table(peers: list[dict[str, Any]]) -> list[str]:
    rows = [f"| {size_of(p)} | d/d{'xyz'[p['axis']]} | {p['peer']} | {p['ms']:.4f} | {p['Gpoints_per_s']:.1f} |"
            for p in peers if "ms" in p]  # fmt: skip
    missing = sorted({f"{p['peer']}: {p.get('missing', p.get('failed'))}" for p in peers if "ms" not in p})
    head = ["**Peers** (cuSPARSE solves only: its right-hand side is not timed)", "",
            "| field | | peer | ms | Gpoint/s |", "|---|---|---|---|---|"]  # fmt: skip
    return ([*head, *rows, ""] if rows else []) + [f"Not measured: {one}." for one in missing]
