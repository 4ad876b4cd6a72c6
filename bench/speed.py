"""Draw the README's picture of speed: ``python -m bench.speed [FILE]``, from the result files that the README names.

One panel is one run: the share of copy bandwidth that a loop of ours reaches, and what peers reach in the same run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from bench.compact_rows import OWN
from bench.gpu_report import BY_HAND, RINGS, fastest, timed
from bench.record import RESULTS, load
from bench.stamp import commit_of

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "img" / "speed.svg"
MARK = re.compile(r"<!-- table: (readme_\w+) (\S+) -->")
Result = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """``shares``: of copy bandwidth, by name; ours is the first, peers follow from the fastest to the slowest."""

    title: str
    shares: dict[str, float]

    def text_lines(self) -> list[str]:
        return [f"{self.title}: {', '.join(f'{name} {figure(share)}' for name, share in self.shares.items())}."]


def figure(share: float) -> str:
    return f"{share:.2f}" if share >= 0.005 else "below 0.01"


def _panel(title: str, own: float, peers: dict[str, float]) -> Panel:
    return Panel(title, {"Meshloom": own} | dict(sorted(peers.items(), key=lambda one: -one[1])))


def residual(result: Result) -> Panel:
    """The airfoil's residual loop in Hilbert order, with the automatic schedule."""
    own = fastest(timed(result["variants"], order="hilbert", strategy="auto", precision="float64"))
    words = {RINGS: "hand-written CUDA (same tables)", BY_HAND: "hand-written CUDA (plain)"}
    peers = {str(words.get(p["peer"], p["peer"])): p["share_of_copy"] for p in timed(result["peers"], order="hilbert")
             if p["peer"] in words or not p["peer"].startswith("hand CUDA")}  # fmt: skip
    assert own is not None
    return _panel(f"Residual loop, {result['mesh']['cells'] / 1e6:.2f} million cells", own["share_of_copy"], peers)


def gradients(result: Result) -> Panel:
    """An iteration of conjugate gradients on the largest grid."""
    side = max(row["side"] for row in timed(result["rows"]))
    shares = {row["kind"]: row["share_of_copy"] for row in timed(result["rows"], side=side)}
    peers = {name.partition(",")[0]: share for name, share in shares.items() if "cg" in name}
    return _panel(f"Conjugate gradients, {side} x {side} points", shares["grid"], peers)


def tridiagonal(result: Result) -> Panel:
    """Tridiagonal systems along the first axis of the largest grid that peers have solved: 16 bytes a point."""
    shape = max((row["shape"] for row in result["peers"] if "ms" in row), key=prod)
    own = fastest(timed(result["rows"], part="methods", shape=shape, axis=0, method=OWN))
    assert own is not None
    peers: dict[str, float] = {}
    for name, word in {"cuSPARSE": "cuSPARSE", "JAX jit, tridiagonal_solve": "JAX jit"}.items():
        if row := fastest(p for p in timed(result["peers"], shape=shape, axis=0) if p["peer"].startswith(name)):
            peers[word] = 16e-6 * prod(shape) / row["ms"] / result["copy_GBps"]
    return _panel(f"Tridiagonal systems, {' x '.join(map(str, shape))} points", own["share_of_limit"], peers)


PANELS: dict[str, Callable[[Result], Panel]] = {
    "readme_race": residual, "readme_krylov": gradients, "readme_compact": tridiagonal,
}  # fmt: skip


def shown() -> dict[str, str]:
    """Kind of panel -> the result file that the README names."""
    return dict(MARK.findall((ROOT / "README.md").read_text(encoding="utf-8")))


def source(result: Result, name: str) -> str:
    return f"{name.removesuffix('.json')}, {result['machine']['gpu']}, commit {commit_of(result['code'])[0][:10]}"


def draw(path: Path) -> None:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    results = {kind: load(RESULTS / name) for kind, name in shown().items()}
    panels = {kind: PANELS[kind](result) for kind, result in results.items()}
    heights = [len(panel.shares) + 1.5 for panel in panels.values()]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "speed", "font.family": "sans-serif"}):
        canvas = Figure(figsize=(8.0, 0.3 * sum(heights) + 0.3), layout="constrained")
        FigureCanvasSVG(canvas)
        all_axes: Any = canvas.subplots(len(panels), 1, sharex=True, height_ratios=heights)
        for axes, (kind, panel) in zip(all_axes, panels.items(), strict=True):
            names, values = list(panel.shares), list(panel.shares.values())
            axes.barh(names, values, color=["teal", *["silver"] * (len(names) - 1)])
            axes.bar_label(axes.containers[0], labels=map(figure, values), padding=3)
            axes.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
            axes.invert_yaxis()
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(0.0, 1.05)
            axes.set_title(f"{panel.title}, double", loc="left", fontsize=10, fontweight="bold", pad=14)
            run = source(results[kind], shown()[kind])
            axes.text(0.0, 1.02, run, transform=axes.transAxes, fontsize=7, color="dimgray")
        all_axes[-1].set_xlabel("share of the bandwidth of a copy (dotted), measured in the same run; longer is better")
        canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
