"""All measurements that the tables of README and docs need, the most important first, packed into one file.

    python -m bench.everything --plan --minutes 9                # which jobs there are, and how they fall into slices
    python -m bench.everything --minutes 9 --slice 1 --out DIR   # the first slice; DIR/results-1.tar.gz holds its files
    python -m bench.everything --only compact race --out DIR     # some of them
    python -m bench.everything --unpack FILE.tar.gz ...          # puts them into bench/results

Each job is a process group of its own with a limit: one that fails or takes too long costs itself alone, and what it
had saved by then is kept. They run one after the other, as each wants the machine for itself, but for those of which
the GPU has little to do (``together``): these prepare side by side and measure in turns. ``--group cpu``: the tables of
the CPU instead. ``--tiny``: to see that it works.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import meshloom as ml
from bench import exclusive, record
from bench.locality_loops import PAPERS
from bench.stamp import VARIABLE, stamp, with_commit

GRACE = 20.0  # seconds between being asked to end and being ended
RESERVE = 15.0  # seconds of a limit that a job which watches the clock itself leaves for its end


@dataclass(frozen=True)
class Job:
    """One run of a benchmark. ``limit`` in seconds; ``watches``: it has ``--seconds`` and ends by itself with what it
    has; ``tiny``: what makes it small, on a CPU; None where it needs a GPU. ``tables``: whose figures it gives."""

    name: str
    module: str
    arguments: tuple[str, ...]
    limit: float
    tables: str
    group: str = "gpu"
    watches: bool = False
    tiny: tuple[str, ...] | None = None
    counters: bool = False  # may ask Nsight Compute
    together: str = ""  # runs beside the neighbours in this table that say the same

    def command(self, file: Path, *, tiny: bool, counters: bool) -> list[str]:
        words = [sys.executable, "-m", f"bench.{self.module}", *((self.tiny or ()) if tiny else self.arguments)]
        words += ["--counters"] if self.counters and counters and not tiny else []
        words += ["--seconds", f"{max(self.limit - RESERVE, 1.0):g}"] if self.watches else []
        return [*words, "--json", str(file)]


_GPU = ("--device", "cuda")
_FEW = ("--layouts", "aos", "soa", "--blocks", "128")
_ALL = ("--strategies", "auto", "fastest", *ml.strategies())
JOBS: tuple[Job, ...] = (
    Job("compact", "compact", (*_GPU, "--short", "methods", "peers", "seed"), 270, "compact, compact_solvers, README",
        watches=True, counters=True, tiny=("--device", "cpu", "--tiny", "--quick", "--parts", "fused")),
    Job("race-orders", "race", (*_GPU, "--orders", "hilbert", "given", "gps", "rcb", "rcm", "greedy", "kaminpar",
                                "random", "--strategies", "auto", "owner", "--layouts", "aos", "--blocks", "64",
                                "--precisions", "float64"), 120, "race_orders", watches=True),
    Job("airfoil", "airfoil", _GPU, 150, "iteration"),
    *(Job(f"locality-{name}", "locality", (*_GPU, *_FEW, "--loops", name, "--no-applications", *_ALL), 400,
          "locality", watches=True, counters=True, together="locality",
          tiny=("--device", "cpu", "--size", "small", "--loops", name, "--orders", "given", "--strategies", "auto",
                "--layouts", "aos", "--blocks", "64", "--no-applications")) for name in PAPERS),
    Job("krylov", "krylov", _GPU, 60, "krylov, README", tiny=("--device", "cpu", "--sides", "24")),
    Job("poisson", "poisson", _GPU, 400, "poisson",
        tiny=("--device", "cpu", "--sides", "12", "--cubes", "--only", "fast", "cg")),
    Job("starts", "starts", _GPU, 130, "starts",
        tiny=("--device", "cpu", "--only", "airfoil", "--set", "mesh.i=8", "--set", "mesh.j=12")),
    Job("layouts", "layouts", (*_GPU, "--auto"), 260, "layouts, layout_counts, layout_wholes",
        tiny=("--device", "cpu", "--quick", "--points", "8", "--forms", "orthogonal", "--layouts", "aos", "soa")),
    Job("applications", "locality", (*_GPU, "--orders", "--loops", *PAPERS), 300, "applications", watches=True),
    Job("race", "race", (*_GPU, *_FEW, "--orders", "hilbert", "given"), 180, "race, README", watches=True,
        counters=True),
    Job("vortex", "vortex", _GPU, 220, "vortex", tiny=("--device", "cpu", "--quick", "--box", "0")),
    Job("direct", "direct", _GPU, 90, "direct", tiny=("--device", "cpu", "--small")),
    Job("halves", "halves", (*_GPU, "--orders", "cells", "hands", "cards"), 100, "halves"),
    Job("strict", "strict", ("--backend", "cuda"), 120, "strict",
        tiny=("--backend", "cpu", "--quick", "--only", "airfoil")),
    Job("grid", "grid", (*_GPU, "--quick"), 50, "grid"),
    Job("coloring", "coloring", _GPU, 300, "coloring, coloring_groups, coloring_times, coloring_by_group,"
        " coloring_strategies, coloring_program", tiny=("--device", "cpu", "--cells", "200", "--parts", "algorithms")),
    Job("branches", "branches", _GPU, 90, "branches"),
    Job("airfoil_reference", "airfoil_reference", ("--backend", "cuda"), 60, "reference",
        together="accuracy"),
    Job("truth", "truth", ("--backend", "cuda"), 120, "truth", together="accuracy"),
    Job("flow_truth", "flow_truth", _GPU, 260, "flow_truth", together="accuracy",
        tiny=("--device", "cpu", "--vortex", "24", "--boxes", "--end", "0.1")),
    Job("channel", "incompressible", (*_GPU, "--only", "channel"), 120, "incompressible", together="accuracy",
        tiny=("--device", "cpu", "--quick", "--only", "cavity")),
    Job("compressible", "compressible", _GPU, 400, "compressible", together="accuracy",
        tiny=("--device", "cpu", "--quick", "--only", "cylinder")),
    Job("incompressible-cpu", "incompressible", ("--device", "cpu", "--only", "cavity", "step"), 900, "incompressible",
        "cpu", tiny=("--device", "cpu", "--quick", "--only", "cavity")),
    Job("cpu_airfoil", "cpu_airfoil", (), 400, "cpu_airfoil, cpu_steps", "cpu", tiny=("--quick", "--step-only")),
    *(Job(f"cpu_airfoil-step-{k}", "cpu_airfoil", ("--step-only",), 150, "cpu_steps", "cpu") for k in (1, 2, 3)),
    Job("airfoil_reference-cpu", "airfoil_reference", ("--backend", "cpu"), 300, "reference", "cpu"),
    Job("truth-cpu", "truth", ("--backend", "cpu"), 400, "truth", "cpu"),
    Job("bookleaf", "bookleaf", (), 300, "bookleaf_reference, bookleaf_exact", "cpu"),
    Job("volna_exact", "volna_exact", (), 400, "volna_dam, volna_bowl", "cpu"),
    Job("meshes", "meshes", (), 400, "m6_sizes, mesh_quality", "cpu", tiny=("--levels",)),
    Job("flow_truth-cpu", "flow_truth", ("--device", "cpu", "--vortex", "193", "--boxes", "24", "48"), 900,
        "flow_truth_cpu", "cpu"),
)  # fmt: skip


@dataclass
class Outcome:
    """How a job ended. ``code``: its exit status, negative for a signal; ``last``: the last line it printed."""

    name: str
    tables: str
    code: int | None
    seconds: float
    limit: float
    file: str | None
    last: str

    def word(self) -> str:
        if self.code == 0:
            return "done"
        ended = "ran past its limit" if self.code is None else f"ended with {self.code}"
        return f"{ended}, {'file kept' if self.file else 'no file'}"


def batches(jobs: list[Job]) -> list[list[Job]]:
    """Jobs in their order: those that run together, else each by itself."""
    return [batch for label, run in groupby(jobs, key=lambda job: job.together)
            for batch in ([list(run)] if label else [[job] for job in run])]  # fmt: skip


def longest(jobs: list[Job]) -> float:
    """Seconds that jobs take at most."""
    return sum(max(job.limit for job in batch) for batch in batches(jobs))


def slices(jobs: list[Job], seconds: float) -> list[list[Job]]:
    """Jobs in their order, cut so that the limits of each part fit into so many seconds; a longer one is alone."""
    parts: list[list[Job]] = []
    for batch in batches(jobs):
        if parts and longest(parts[-1] + batch) <= seconds:
            parts[-1] += batch
        else:
            parts.append(batch)
    return parts


def run_batch(batch: list[Job], folder: Path, *, tiny: bool, counters: bool, left: float) -> list[Outcome]:
    """Jobs that run together, which measure in turns."""

    def one(job: Job) -> Outcome:
        print(f"{job.name}: begins, at most {min(job.limit, left):.0f} s", flush=True)
        found = run_job(job, folder, tiny=tiny, counters=counters, left=left)
        print(f"{job.name}: {found.word()} after {found.seconds:.0f} s", flush=True)
        return found

    with ThreadPoolExecutor(len(batch)) as pool:
        return list(pool.map(one, batch))


def run_job(job: Job, folder: Path, *, tiny: bool, counters: bool, left: float) -> Outcome:
    """One job in a process group of its own, its output in a log; ended when its limit, or the time left, is over."""
    file, log, limit = folder / f"{job.name}.json", folder / f"{job.name}.log", min(job.limit, left)
    begin = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        environment = os.environ | ({exclusive.VARIABLE: str(folder / "turn")} if job.together else {})
        process = subprocess.Popen(job.command(file, tiny=tiny, counters=counters), stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True, env=environment)  # fmt: skip
        code = _ended(process, limit)
    printed = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = " ".join((printed or [""])[-1].replace(str(folder), "").split())[:160]
    return Outcome(job.name, job.tables, code, round(time.monotonic() - begin, 1), limit,
                   file.name if file.is_file() else None, last)  # fmt: skip


def _ended(process: subprocess.Popen[Any], limit: float) -> int | None:
    """The exit status, or None for a process that had to be ended: first asked, then made to."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience)
                break
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
    return None


def pack(folder: Path, outcomes: list[Outcome], file: Path) -> Path:
    """Results, logs and a summary as one compressed archive."""
    summary = {"code": stamp(), "jobs": [asdict(one) for one in outcomes]}
    (folder / "summary.txt").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w:gz") as archive:
        for path in sorted(path for path in folder.iterdir() if path.suffix):
            archive.add(path, arcname=path.name)
    return file


def unpack(file: Path, results: Path) -> list[Path]:
    """Put the results of an archive into a folder, each under the first free name of its day, job and machine."""
    placed = []
    with tarfile.open(file) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and member.name.endswith(".json") else None
            if content is None:
                continue
            result = json.loads(io.TextIOWrapper(content, "utf-8").read())
            name = f"{result['date'][:10]}_{Path(member.name).stem}_{record.place(result['machine'], _backend(result))}"
            placed.append(record.placed(with_commit(result), results / f"{name}.json"))
    return placed


def _backend(result: dict[str, Any]) -> str:
    """What a result was measured on."""
    runs = result.get("runs") or [{}]
    said = (result.get("device"), result.get("backend"), runs[0].get("backend"), runs[0].get("device"))
    only_gpu = result["benchmark"] == "race" and result["machine"].get("gpu")
    return "cuda" if only_gpu else next((one for one in said if one), "cpu")


def show(outcomes: list[Outcome]) -> None:
    print(f"\n{'job':<22} {'seconds':>8} {'limit':>6}  {'how':<34} last line")
    for one in outcomes:
        print(f"{one.name:<22} {one.seconds:8.1f} {one.limit:6.0f}  {one.word():<34} {one.last}")


def plan(parts: list[list[Job]]) -> None:
    for number, jobs in enumerate(parts, 1):
        print(f"slice {number}, at most {longest(jobs) / 60:.1f} minutes")
        for job in jobs:
            group = f"  (together: {job.together})" if job.together else ""
            print(f"  {job.name:<22} {job.limit:4.0f} s  {job.tables}{group}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.everything", description=(__doc__ or "").splitlines()[0])
    names = [job.name for job in JOBS]
    parser.add_argument("--minutes", type=float, default=30.0, help="for a slice (default %(default)s)")
    parser.add_argument("--slice", type=int, default=1, dest="number", help="which slice (default %(default)s)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="JOB", help=f"of {', '.join(names)}")
    parser.add_argument("--group", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--plan", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--tiny", action="store_true", help="small, on a CPU: to see that it works")
    parser.add_argument("--no-counters", action="store_true", help="do not ask Nsight Compute")
    parser.add_argument("--commit", help="the commit of this code, where there is no git")
    parser.add_argument("--out", type=Path, default=Path("runs/everything"), help="where the archive goes")
    parser.add_argument("--unpack", nargs="+", type=Path, metavar="FILE", help="only put results into bench/results")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.unpack:
        for file in (path for archive in options.unpack for path in unpack(archive, record.RESULTS)):
            print(f"{file.name}")
        return 0
    jobs = [job for job in JOBS if (job.name in options.only if options.only else job.group == options.group)
            and (job.tiny is not None or not options.tiny)]  # fmt: skip
    parts = [jobs] if options.only else slices(jobs, 60.0 * options.minutes)
    if options.plan:
        plan(parts)
        return 0
    if options.commit:
        os.environ[VARIABLE] = options.commit
    if not 1 <= options.number <= len(parts):
        print(f"bench.everything: there is no slice {options.number}; {len(parts)} slices", file=sys.stderr)
        return 2
    chosen, packed = parts[options.number - 1], options.out / f"results-{options.number}.tar.gz"
    outcomes: list[Outcome] = []
    until = time.monotonic() + 60.0 * options.minutes
    with tempfile.TemporaryDirectory() as scratch:
        for batch in batches(chosen):
            left = until - time.monotonic()
            if left < 2 * RESERVE and outcomes:
                outcomes += [Outcome(job.name, job.tables, None, 0.0, 0.0, None, "not begun: no time left")
                             for job in batch]  # fmt: skip
                continue
            outcomes += run_batch(batch, Path(scratch), tiny=options.tiny, counters=not options.no_counters, left=left)
            pack(Path(scratch), outcomes, packed)  # after each: what is there is there, should this be ended
        show(outcomes)
        print(f"\npacked in {packed} ({packed.stat().st_size / 1e6:.1f} MB); python -m bench.everything --unpack FILE")
    return int(any(one.code != 0 for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
