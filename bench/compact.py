"""Compact derivatives: every solver x axis x size x precision, against the limit of one read and one write per point.

    python -m bench.compact [--device cuda|cpu] [--quick] [--parts ...] [--json FILE] [--seconds N]

Parts: ``derivative`` (our one-pass solver on all sizes), ``fused`` (flux, derivative and sum of five variables),
``methods`` (the tridiagonal systems alone, by all our solvers), ``peers`` (cuSPARSE, cuFFT, JAX), ``seed`` (one line of
256 points, planes with and without transposes, 1 to 14 variables in one launch); ``forms``, only where asked for: other
ways to cut up lines next to the automatic one. Everything is checked against NumPy
before it is timed: on a small grid first, but for ``--quick``, and on some lines of the field itself. The limit is the
compulsory bytes (16 per point in double) at the copy bandwidth measured in the same run. Rows are printed as they come,
and the file is written after each: a run that is stopped keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import meshloom as ml
from bench import counters
from bench.compact_report import goals, short_lines
from bench.compact_rows import (
    BLOCKS,
    FLOW_VALUES,
    MANY,
    OWN,
    PLANES,
    PRIME,
    SMALL,
    Host,
    Problem,
    empty_loop,
    fields,
    rows,
)
from bench.compiling import compile_all
from bench.peers.compact_gpu import PEERS, PeerRun
from bench.race import check_time, stopping_cleanly
from bench.race_loop import GROUPS, LAUNCHES, Device
from bench.started import Started, options_of, started

PARTS = ("derivative", "fused", "methods", "peers", "seed", "forms")
SEED_LINE, SEED_PLANE, SEED_VALUES = (256,), (512, 512), (1, 6, 8, 14)
PRECISIONS = ("float64", "float32")
SLOW = 0.1  # seconds of a peer that is run once
#: Other forms of the one-pass solver, on lines that are not contiguous and on those that are; the first is automatic.
_PLAIN: tuple[dict[str, int], ...] = ({}, {"prefetch": 0}, {"prefetch": 66}, {"prefetch": 132}, {"exchange": 1})
_SHARED = {"shared": 1, "group": FLOW_VALUES, "points": 8, "threads": 512}
FORMS: dict[tuple[str, bool], tuple[dict[str, int], ...]] = {
    ("derivative", False): (*_PLAIN, {"pair": 0, "points": 16, "tile": 16, "threads": 1024, "registers": 64},
                            {"pair": 0, "points": 32, "tile": 32, "threads": 512, "registers": 128},
                            {"pair": 1, "points": 16, "tile": 16, "threads": 512, "registers": 128}),
    ("derivative", True): (*_PLAIN[:2], {"prefetch": 1056}, {"tile": 2}, {"points": 8, "tile": 2, "registers": 64}),
    ("fused", False): (*_PLAIN[:2], {"prefetch": 13}, {"exchange": 0}, {"batch": 1}, {"batch": 8},
                       _SHARED | {"tile": 8},
                       _SHARED | {"tile": 16}),
    ("fused", True): (*_PLAIN[:2], {"group": 1, "points": 16}, {"side": 2}, {"tile": 4}, {"batch": 1}),
}  # fmt: skip


# --- what is measured -------------------------------------------------------------------------------------


def problems(part: str, *, quick: bool, tiny: bool = False) -> list[Problem]:
    """The derivatives of a part, most telling first; ``tiny``: on grids for a test."""
    known = {"derivative": _derivatives, "fused": _fused, "methods": _methods, "seed": _seed, "forms": _forms}
    listed = known[part](quick) if part in known else []
    return list(dict.fromkeys(_tiny(p) if tiny else p for p in listed))


def _tiny(problem: Problem) -> Problem:
    values = FLOW_VALUES if problem.what == "fused" else min(problem.values, 2)
    return replace(problem, shape=SMALL[: len(problem.shape)], values=values)


def _axes(shape: tuple[int, ...]) -> range:
    return range(len(shape))


def _derivatives(quick: bool) -> list[Problem]:
    """Ordered by precision, ends and field: rows on the same field share it. Where rows are no whole cache lines, also
    with rows that begin at them."""
    cube, plane = BLOCKS[-1], PLANES[-1]
    sizes = [(cube, 1), (plane, MANY)] + ([] if quick else [(s, 1) for s in (*BLOCKS[:-1], *reversed(PLANES))])
    cases = [("float64", True, sizes), ("float64", False, [(PRIME, 1), *(sizes[:1] if quick else sizes)]),
             ("float32", True, sizes[:1] if quick else sizes)]  # fmt: skip
    if not quick:
        cases.append(("float32", False, [(PRIME, 1), *sizes]))
    return [Problem(s, a, v, precision, periodic, aligned=aligned) for precision, periodic, listed in cases
            for s, v in listed for aligned in ((False, True) if s == PRIME else (False,))
            for a in _axes(s)]  # fmt: skip


def _fused(quick: bool) -> list[Problem]:
    cases = [(BLOCKS[0], True)] if quick else [(shape, periodic) for shape in BLOCKS for periodic in (True, False)]
    return [Problem(s, a, FLOW_VALUES, periodic=periodic, what="fused") for s, periodic in cases for a in _axes(s)]


def _methods(quick: bool) -> list[Problem]:
    """The tridiagonal systems alone: that is all that the others solve."""
    shapes = (PLANES[-1], BLOCKS[0]) if quick else (PLANES[-1], *reversed(BLOCKS), *PLANES[-2::-1])
    names = (OWN, "thomas", "cyclic_reduction") if quick else (OWN, *_others())
    precisions = PRECISIONS[:1] if quick else PRECISIONS
    return [Problem(s, a, 1, p, False, m, "solve") for p in precisions for s in shapes for a in _axes(s) for m in names]


def _rivalled(quick: bool) -> tuple[tuple[int, ...], ...]:
    """The fields that peers are measured on, too."""
    return (PLANES[-1], BLOCKS[0]) if quick else (PLANES[-1], *BLOCKS)


def _seed(quick: bool) -> list[Problem]:
    """What the slides compared: one line; a plane, contiguous lines with transposes and without; many variables."""
    names = (OWN, *_others())
    found = [Problem(SEED_LINE, 0, periodic=False, method=m, what="solve") for m in names]
    planes = [Problem(SEED_PLANE, a, periodic=False, method=m, what="solve") for a in (0, 1) for m in names]
    as_it_lies = Problem(SEED_PLANE, 1, periodic=False, method="thomas", what="solve", tuning=(("transposed", 0),))
    batches = [(v, a, m) for v in SEED_VALUES for a in (0, 1) for m in ((OWN,) if quick else (OWN, "thomas"))]
    many = [Problem(SEED_PLANE, a, v, periodic=False, method=m, what="solve") for v, a, m in batches]
    return [*found, *([] if quick else [*planes, as_it_lies]), *many]


def _forms(quick: bool) -> list[Problem]:
    """The derivatives of the largest cube and the fluxes of the smallest, cut up in all ways."""
    ends = ((True, "float64"),) if quick else ((True, "float64"), (False, "float64"), (True, "float32"))
    plain = [Problem(BLOCKS[-1], a, 1, precision, periodic) for periodic, precision in ends for a in _axes(BLOCKS[-1])]
    return [replace(p, tuning=tuple(wish.items())) for p in (*plain, *_fused(True))
            for wish in FORMS[p.what, p.axis == len(p.shape) - 1]]  # fmt: skip


def _others() -> tuple[str, ...]:
    """Our other solvers, the direct ones first."""
    return ("thomas", *(m for m in ml.linalg.tridiagonal.methods() if m not in (OWN, "thomas")))


# --- running ----------------------------------------------------------------------------------------------


class Run:
    """One run: its result as it grows, and the file that holds it."""

    def __init__(self, begun: Started, until: float):
        self.device, self.copy, self.record, self.until = begun.device, begun.copy, begun.record, until
        self.device.clear()
        self.result = begun.result
        self.result |= {"device": begun.device.backend, "peers": []}
        print(f"copy {self.copy / 1e9:.1f} GB/s", flush=True)

    def compile(self, parts: dict[str, bool], *, tiny: bool) -> None:
        """All that will be measured, on all cores: one after the other it takes longer than measuring."""
        chosen = {part: problems(part, quick=quick, tiny=tiny) for part, quick in parts.items()}
        listed = [p for part in chosen.values() for p in part]
        smaller = [p.small() for part, quick in parts.items() if not quick for p in chosen[part]]
        wanted = [(p,) for p in dict.fromkeys([*listed, *smaller])]
        seconds = compile_all(architecture(), empty_loop, wanted)
        print(f"{len(wanted)} loops compiled in {seconds:.1f} s", flush=True)

    def parts(self, parts: dict[str, bool], *, tiny: bool = False) -> None:
        """Parts by name, and whether each is quick."""
        try:
            for part, quick in parts.items():
                for row in rows(problems(part, quick=quick, tiny=tiny), self.device, self.copy, twice=not quick):
                    self.add("rows", row | {"part": part}, line_of(row))
                fields.cache_clear()
                if part == "peers" and self.device.has_peers:
                    self.peers((SMALL[:2], SMALL) if tiny else _rivalled(quick))
        except KeyboardInterrupt as stopped:
            self.result["stopped"] = str(stopped) or "by Ctrl-C"
            print(f"stopped: {self.result['stopped']}", flush=True)
        finally:
            self.result["goals"] = [goal.as_json() for goal in goals(self.result)]
            self.record.save()

    def peers(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        for shape in shapes:
            for axis in _axes(shape):
                for row in peer_rows(shape, axis, self.device):
                    self.add("peers", row, peer_line(row))

    def count(self, ncu: str, *, tiny: bool) -> None:
        """Hardware counters of the rows that goals are about."""
        chosen = [p for part in ("derivative", "fused") for p in problems(part, quick=True, tiny=tiny)]
        known = {json.dumps(p.entries()): p for p in chosen}
        rows = [(row, known[key]) for row in self.result["rows"] if "ms" in row
                and (key := json.dumps({k: row[k] for k in chosen[0].entries()})) in known]  # fmt: skip
        job = {"mesh": {"lines": True}, "order": "", "rows": [asdict(problem) for _, problem in rows]}
        for number, launches in counters.count(ncu, job, max(self.until - time.monotonic(), 1.0)):
            row, problem = rows[number]
            points = math.prod(problem.shape) * problem.values
            row["counters"] = counters.summarise(launches, row["bytes_per_point"] * points)
        self.record.save()

    def add(self, part: str, row: dict[str, Any], line: str) -> None:
        self.result[part].append(row)
        print(line, flush=True)
        self.record.save()
        check_time(self.until)


def architecture() -> str:
    """Of the current CUDA device, such as sm_90."""
    import cupy

    return f"sm_{cupy.cuda.Device().compute_capability}"


def peer_rows(shape: tuple[int, ...], axis: int, device: Device) -> Iterator[dict[str, Any]]:
    """One row for each peer; one that is missing or fails says why."""
    points = math.prod(shape)
    for name, make in PEERS.items():
        head = {"peer": name, "shape": list(shape), "axis": axis}
        try:
            for peer in make(shape, axis):
                error, seconds = peer.error(), peer_seconds(peer)
                yield head | {"peer": peer.name, "ms": seconds * 1e3, "Gpoints_per_s": points / seconds / 1e9,
                              "error": error}  # fmt: skip
                del peer
        except ImportError as missing:
            yield head | {"missing": " ".join(str(missing).split())[:200]}
        except Exception as failure:  # a peer's own failure must not end the run
            yield head | {"failed": f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"}
        device.clear()


def peer_seconds(peer: PeerRun) -> float:
    """Seconds of one run, by the clock of the host around groups of runs: the median. Slow ones run less often."""

    def taken(runs: int) -> float:
        peer.wait()
        begin = time.perf_counter()
        for _ in range(runs):
            peer.run()
        peer.wait()
        return (time.perf_counter() - begin) / runs

    peer.run()
    if (once := taken(1)) > SLOW:
        return once
    return sorted(taken(LAUNCHES) for _ in range(GROUPS))[GROUPS // 2]


# --- on paper ---------------------------------------------------------------------------------------------


def title(row: dict[str, Any]) -> str:
    size = " x ".join(map(str, row["shape"])) + (f" x {row['values']} values" if row["values"] > 1 else "")
    kind = f"d/d{'xyz'[row['axis']]} {row['precision']} {row['ends']:<8} {row['method']:<18}"
    return f"{row['what']:<10} {size:<26} {kind}"


def line_of(row: dict[str, Any]) -> str:
    """A row in one line."""
    if "ms" not in row:
        why = f"declined: {row['declined']}" if "declined" in row else f"WRONG by {row['wrong']:.1e}"
        return f"{title(row)} {why}"
    registers = max(((v or 0) for v in row["registers"].values()), default=0)
    occupancy = "-" if row["occupancy"] is None else f"{row['occupancy']:.2f}"
    return (
        f"{title(row)} {row['ms']:9.4f} ms {row['Gpoints_per_s']:8.3f} Gpoint/s {row['share_of_limit']:.2f} of limit"
        f"  registers {registers} shared {row['shared_bytes']} occupancy {occupancy} error {row['error']:.0e}"
    )


def peer_line(row: dict[str, Any]) -> str:
    head = f"peer       {' x '.join(map(str, row['shape'])):<26} d/d{'xyz'[row['axis']]} float64 {row['peer']:<44}"
    if "ms" not in row:
        return f"{head} {'missing' if 'missing' in row else 'failed'}: {row.get('missing', row.get('failed'))}"
    return f"{head} {row['ms']:9.4f} ms {row['Gpoints_per_s']:8.3f} Gpoint/s error {row['error']:.0e}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = options_of("compact", __doc__)
    parser.add_argument("--quick", action="store_true", help="the figures of the goals only")
    parser.add_argument("--tiny", action="store_true", help="grids of some hundred points, to try the program itself")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS[:-1]))
    parser.add_argument("--short", nargs="+", choices=PARTS, default=[], help="parts to measure as --quick does")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, with what is there")
    parser.add_argument("--counters", action="store_true", help="then count what limits them, by Nsight Compute")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    begin = time.monotonic()
    options = parse(arguments)
    begun = started("compact", options, device, Host)
    if begun is None:
        return 2
    run = Run(begun, begin + options.seconds - counters.reserve(options.seconds, options.counters))
    run.result["quick"] = options.quick or options.tiny
    parts = {part: options.quick or part in options.short for part in options.parts}
    with stopping_cleanly():
        if begun.device.backend == "cuda":
            run.compile(parts, tiny=options.tiny)
        run.parts(parts, tiny=options.tiny)
    if options.counters:
        run.until = begin + options.seconds
        try:
            run.count(counters.required_ncu(), tiny=options.tiny)
        except counters.CountersError as missing:
            print(f"no counters: {missing}", file=sys.stderr)
    print("\n".join(short_lines(run.result)))
    for goal in goals(run.result):
        print(f"{goal.text}: {goal.figure()}, {goal.aim()}: {'met' if goal.met else 'missed'}")
    print(f"written to {run.record.file}")
    wrong = [r for r in run.result["rows"] if "wrong" in r]
    if wrong:
        print(f"{len(wrong)} rows gave a wrong result", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
