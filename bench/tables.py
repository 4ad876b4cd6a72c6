"""Every table of README and docs that shows a measurement, made from result files.

A page holds ``<!-- table: KIND FILE... -->``, what was made, and ``<!-- /table -->``; ``python -m bench.report`` makes
all of them again, ``--newest`` from the newest results. One table is one run: only kinds whose every row is a run of
its own (``several``) take more than one file. FILE ``none``: nothing has been measured yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import (
    attack_report,
    bookleaf,
    coloring_report,
    compact_report,
    compare,
    compressible,
    energy,
    flow_report,
    gpu_report,
    incompressible,
    krylov,
    layout_report,
    locality_report,
    meshes,
    poisson,
    ranks,
    report,
    shock_tubes,
    speed,
    starts,
    truth,
    volna_exact,
)
from bench.record import RESULTS, RecordError, load
from bench.stamp import commit_of
from bench.zoo import peers as zoo_peers
from bench.zoo import report as zoo_report

ROOT = Path(__file__).parents[1]
MARKS = re.compile(r"<!-- table: (?P<kind>\w+) (?P<files>[^>]+?) -->\n(?P<text>.*?)<!-- /table -->", re.DOTALL)
NONE = "none"
GPU_ONLY = ("race", "airfoil", "branches")  # their results need not say where they ran
Result = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """How a kind of table is made. ``benchmark``: whose results; ``fits``: does a result hold what it shows?
    ``several``: rows of several files; ``parts``: which of its rows a result holds, each from the newest that does."""

    benchmark: str
    text_lines: Callable[[Any], list[str]]
    fits: Callable[[Result], bool]
    command: str
    several: bool = False
    parts: Callable[[Result], Iterable[Hashable]] | None = None

    @property
    def module(self) -> str:
        return self.command if self.command.startswith("tests.") else f"bench.{self.command}"

    def text(self, names: Sequence[str]) -> str:
        """What stands between the marks."""
        if list(names) == [NONE]:
            return f"Not measured yet; `python -m {self.module}` does.\n"
        if len(names) > 1 and not self.several:
            raise RecordError(f"a table of {self.benchmark} is one run, not {len(names)}: {', '.join(names)}")
        results = [load(RESULTS / name) for name in names]
        for name, result in zip(names, results, strict=True):
            if result["benchmark"].replace("-", "_") != self.benchmark:
                raise RecordError(f"{name}: a result of {result['benchmark']}, not of {self.benchmark}")
        item = "- " if self.several else ""
        head = [f"{item}{source(result, name)}" for name, result in zip(names, results, strict=True)]
        body = self.text_lines(results if self.several else results[0])
        return "\n".join([*head, "", *body]).rstrip("\n") + "\n"

    def newest(self, known: Sequence[tuple[str, Result]]) -> list[str]:
        """The files to show out of stamped ones, the oldest first; none if nothing fits."""
        fitting = [(name, r) for name, r in known
                   if r["benchmark"] == self.benchmark and not r.get("resumed") and self.fits(r)]  # fmt: skip
        if self.parts:
            latest = {part: name for name, result in fitting for part in self.parts(result)}
            return [name for name, _ in fitting if name in latest.values()]
        if self.several:  # runs of the same code on the same machine
            return [n for n, r in fitting if _origin(r) == _origin(fitting[-1][1])]
        return [name for name, _ in fitting[-1:]]


def _origin(result: Result) -> tuple[Any, ...]:
    return result["code"]["sha256"], result["machine"]["processor"]


def source(result: Result, name: str) -> str:
    """Which file, machine and code figures come from."""
    machine = result["machine"]
    backends = (result.get("device"), result.get("backend"), *(run.get("device") for run in _runs(result)))
    gpu = machine.get("gpu") and ("cuda" in backends or result["benchmark"] in GPU_ONLY)
    found = result.get("copy_GBps", [])
    sittings = [f"{one:.0f}" for one in (found if isinstance(found, list) else [found])]
    copy = f", copy {' and '.join(sittings)} GB/s" if sittings else ""
    code = result.get("code")
    commit, changed = commit_of(code) if code else ("", False)
    made = f"commit `{commit[:10]}`{', changed' if changed else ''}" if code else "of no recorded commit"
    where = machine["gpu"] if gpu else f"{machine['processor']}, {machine['cores']} cores"
    pieces = f", put together from {1 + len(result['resumed'])} sittings" if result.get("resumed") else ""
    return " ".join([f"From `bench/results/{name}`: {where}{copy}, {made}{pieces}.", *result.get("notes", ())])


def _runs(result: Result) -> list[Result]:
    runs = result.get("runs", [])
    return [run for run in runs if isinstance(run, dict)]


# --- what fits a table --------------------------------------------------------------------------------------------


def on_gpu(result: Result) -> bool:
    """Measured on a device, at full size."""
    used = {result.get("device"), result.get("backend"), *(run.get("device") for run in _runs(result)),
            *(run.get("backend") for run in _runs(result))}  # fmt: skip
    return bool(result["machine"].get("gpu")) and "cuda" in used and not result.get("quick")


def _race(result: Result) -> bool:
    return bool(result["machine"].get("gpu")) and result["mesh"]["cells"] > 10**6 and bool(result["variants"])


def _whole_race(result: Result) -> bool:
    kinds = {(r["strategy"], r["order"]) for r in result["variants"] if "ms" in r}
    return _race(result) and all(sum(order == o for _, order in kinds) > 5 for o in ("given", "hilbert"))


def _race_of_orders(result: Result) -> bool:
    return _race(result) and len({r["order"] for r in result["variants"] if r["strategy"] == "auto"}) > 2


def _race_with_peers(result: Result) -> bool:
    return _race(result) and any(p["order"] == "hilbert" and "ms" in p for p in result["peers"]) and any(
        r["order"] == "hilbert" and r["strategy"] == "auto" and "ms" in r for r in result["variants"])  # fmt: skip


def _iteration(result: Result) -> bool:
    return bool(result["machine"].get("gpu")) and "ratios" in result and result["runs"][0]["cells"] > 10**6


def _locality(result: Result) -> bool:
    return on_gpu(result) and result["size"] == "paper" and bool(locality_report.raced(result))


def _applications(result: Result) -> bool:
    return on_gpu(result) and result["size"] == "paper" and len(result["applications"]) > 3


def _compact(result: Result) -> bool:
    parts = {r["part"] for r in result["rows"] if "ms" in r and max(r["shape"]) >= 509}
    return on_gpu(result) and "derivative" in parts


def _compact_with_peers(result: Result) -> bool:
    return on_gpu(result) and any("ms" in p and max(p["shape"]) >= 256 for p in result["peers"])


def _cpu_step(result: Result) -> bool:
    return bool(result["mesh"]["cells"] > 5 * 10**5)


def _cpu_whole(result: Result) -> bool:
    return _cpu_step(result) and "memory" in result


def _zoo_peers(result: Result) -> bool:
    """All six, at full size and on all cores."""
    return not result["quick"] and result["threads"] == result["machine"]["cores"] and len(result["rows"]) == 6


def _coloring(result: Result) -> bool:
    """Of the five meshes of the paper; those of the first edition were boxes of hexahedra."""
    return on_gpu(result) and isinstance(result["mesh"], str) and coloring_report.levels(result)[-1:] == [5]


def _coloring_program(result: Result) -> bool:
    return on_gpu(result) and isinstance(result["mesh"], str) and bool(coloring_report.part(result, "program"))


def _truth(result: Result) -> bool:
    return not result["quick"] and result["backend"] in ("cpu", "cuda")


TABLES: dict[str, Table] = {
    "cpu_airfoil": Table("cpu_airfoil", report.cpu_lines, _cpu_whole, "cpu_airfoil"),
    "cpu_steps": Table("cpu_airfoil", report.cpu_repeats, _cpu_step, "cpu_airfoil --step-only", several=True),
    "reference": Table("airfoil_reference", gpu_report.reference_rows, lambda r: True, "airfoil_reference",
                       several=True, parts=lambda r: [(r["backend"], r["precision"])]),
    "race": Table("race", gpu_report.race_rows, _whole_race, "race"),
    "race_orders": Table("race", gpu_report.order_rows, _race_of_orders, "race"),
    "readme_race": Table("race", lambda r: speed.residual(r).text_lines(), _race_with_peers, "race"),
    "iteration": Table("airfoil", gpu_report.iteration_rows, _iteration, "airfoil"),
    "grid": Table("grid", gpu_report.grid_rows, on_gpu, "grid"),
    "direct": Table("direct", gpu_report.direct_rows, on_gpu, "direct"),
    "layouts": Table("layouts", layout_report.time_lines, on_gpu, "layouts --auto"),
    "layout_counts": Table("layouts", layout_report.count_lines, on_gpu, "layouts --auto"),
    "layout_wholes": Table("layouts", layout_report.whole_lines, on_gpu, "layouts --auto"),
    "krylov": Table("krylov", krylov.text_lines, on_gpu, "krylov"),
    "readme_krylov": Table("krylov", lambda r: speed.gradients(r).text_lines(), on_gpu, "krylov"),
    "poisson": Table("poisson", poisson.text_lines, on_gpu, "poisson"),
    "incompressible": Table("incompressible", incompressible.text_lines, lambda r: not r.get("quick"), "incompressible",
                            several=True, parts=lambda r: [row["name"] for row in r["rows"]]),
    "compressible": Table("compressible", compressible.text_lines, lambda r: not r.get("quick"), "compressible",
                          several=True, parts=lambda r: [row["name"] for row in r["rows"]]),
    "shock_tubes": Table("shock_tubes", shock_tubes.text_lines, lambda r: not r.get("quick"), "shock_tubes"),
    "energy": Table("energy", energy.text_lines, lambda r: not r.get("quick"), "energy"),
    "starts": Table("starts", starts.text_lines, on_gpu, "starts --device cuda"),
    "starts_cores": Table("starts", starts.text_lines, lambda r: r["backend"] == "cpu", "starts"),
    "ranks_of_two": Table("ranks", ranks.text_lines, lambda r: r["backend"] == "cpu" and r["cores"] == 2, "ranks"),
    "ranks": Table("ranks", ranks.text_lines, lambda r: r["backend"] == "cpu" and r["cores"] == 16, "ranks --cores 16"),
    "ranks_gpu": Table("ranks", ranks.text_lines, on_gpu, "ranks --device cuda"),
    "ranks_matrix": Table("ranks_matrix", ranks.matrix_lines, lambda r: len(r["rows"]) == 96, "tests.dist.matrix"),
    "compare_gpu": Table("compare", compare.text_lines, lambda r: on_gpu(r) and compare.is_whole(r),
                         "compare --old TREE --device cuda"),
    "compare_some": Table("compare", lambda found: compare.text_lines(*found),
                          lambda r: on_gpu(r) and not compare.is_whole(r),
                          "compare --old TREE --device cuda --only STEP", several=True, parts=lambda r: [r["date"]]),
    "compare_cpu": Table("compare", compare.text_lines, lambda r: r["backend"] == "cpu" and compare.is_whole(r),
                         "compare --old TREE"),
    "strict": Table("strict", gpu_report.strict_rows, on_gpu, "strict --backend cuda"),
    "halves": Table("halves", gpu_report.halves_rows, on_gpu, "halves"),
    "zoo": Table("zoo", zoo_report.text_lines, lambda r: on_gpu(r) and r.get("blocks") != "none", "zoo --device cuda"),
    "zoo_chosen": Table("zoo", zoo_report.text_lines, lambda r: on_gpu(r) and r.get("blocks") == "none",
                        "zoo --device cuda --blocks none --against FILE"),
    "zoo_peers": Table("zoo_peers", zoo_peers.text_lines, _zoo_peers, "zoo.peers"),
    "branches": Table("branches", gpu_report.branch_rows, lambda r: bool(r["machine"].get("gpu")), "branches"),
    "coloring": Table("coloring", coloring_report.conclusion_lines, _coloring, "coloring"),
    "coloring_groups": Table("coloring", coloring_report.group_lines, _coloring, "coloring"),
    "coloring_times": Table("coloring", coloring_report.time_lines, _coloring, "coloring"),
    "coloring_by_group": Table("coloring", coloring_report.by_group_lines, _coloring, "coloring"),
    "coloring_strategies": Table("coloring", coloring_report.strategy_lines, _coloring, "coloring"),
    "coloring_program": Table("coloring", coloring_report.program_lines, _coloring_program, "coloring"),
    "locality": Table("locality", locality_report.loop_rows, _locality, "locality", several=True,
                       parts=locality_report.raced),
    "locality_orders": Table("locality", locality_report.order_rows, _locality, "locality", several=True,
                              parts=locality_report.raced),
    "locality_counters": Table("locality", locality_report.counter_rows, _locality, "locality --counters", several=True,
                                parts=locality_report.raced),
    "applications": Table("locality", locality_report.application_rows, _applications, "locality"),
    "compact": Table("compact", compact_report.text_lines, _compact, "compact"),
    "compact_solvers": Table("compact", compact_report.solver_lines, _compact_with_peers, "compact"),
    "readme_compact": Table("compact", lambda r: speed.tridiagonal(r).text_lines(), _compact_with_peers, "compact"),
    "vortex": Table("vortex", flow_report.vortex_lines, on_gpu, "vortex --device cuda"),
    "flow_truth": Table("flow_truth", flow_report.truth_lines, on_gpu, "flow_truth --device cuda"),
    "flow_truth_cpu": Table("flow_truth", flow_report.truth_lines, lambda r: r["device"] == "cpu", "flow_truth"),
    "truth": Table("truth", truth.text_lines, _truth, "truth", several=True, parts=lambda r: [r["backend"]]),
    "bookleaf_reference": Table("bookleaf", bookleaf.reference_table, lambda r: True, "bookleaf --json FILE"),
    "bookleaf_exact": Table("bookleaf", bookleaf.exact_table, lambda r: "exact" in r, "bookleaf --json FILE"),
    "volna_dam": Table("volna_exact", volna_exact.dam_table, lambda r: True, "volna_exact --json FILE"),
    "attacks": Table("attacks", attack_report.text_lines, attack_report.is_usual, "tests.attacks.run", several=True,
                     parts=attack_report.names),
    "m6_sizes": Table("meshes", meshes.wing_table, lambda r: len(r["wings"]) == 5, "meshes --json FILE"),
    "mesh_quality": Table("meshes", meshes.quality_table, lambda r: len(r["wings"]) == 5, "meshes --json FILE"),
    "volna_bowl": Table("volna_exact", volna_exact.bowl_table, lambda r: True, "volna_exact --json FILE"),
}  # fmt: skip


# --- pages --------------------------------------------------------------------------------------------------------


def pages(root: Path = ROOT) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def marks(text: str) -> Iterator[tuple[str, list[str], str]]:
    """Kind, files and text of every table of a page."""
    for found in MARKS.finditer(text):
        yield found["kind"], found["files"].split(), found["text"]


def stamped() -> list[tuple[str, Result]]:
    """Results that name their code, the oldest first."""
    known = [(path.name, load(path)) for path in sorted(RESULTS.glob("*.json"))]
    return sorted(((n, r) for n, r in known if "code" in r), key=lambda one: str(one[1]["date"]))


def made_again(text: str, known: Sequence[tuple[str, Result]] = ()) -> str:
    """A page with all tables made again; with ``known``, from the newest of those that fit."""

    def one(found: re.Match[str]) -> str:
        kind = found["kind"]
        if kind not in TABLES:
            raise RecordError(f"no table is called {kind!r}: {', '.join(TABLES)}")
        names = TABLES[kind].newest(known) or found["files"].split()
        return f"<!-- table: {kind} {' '.join(names)} -->\n{TABLES[kind].text(names)}<!-- /table -->"

    return MARKS.sub(one, text)


def outside(text: str) -> str:
    """A page without its tables and code."""
    return re.sub(r"```.*?```", "", MARKS.sub("", text), flags=re.DOTALL)
