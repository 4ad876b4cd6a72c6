"""The flow cases: milliseconds per step of the vortex outflow and what they are made of, and Taylor-Green per cell.

    python -m bench.vortex [--device cpu|cuda] [--quick] [--box 256] [--forms] [--json FILE]

Before anything is timed, some steps must give what the back end ``numpy`` gives. With ``--device cuda`` the vortex also
runs on the CPU of the same machine. Parts of a step are programs of their own, replayed like the step; shares are
against a copy of large fields in the same run. The compulsory bytes are those of passes that store no flux, each value
that a pass needs read once and each that it sets written once; the plain count has 16 bytes for every derivative.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from bench.compact_rows import form_of
from bench.measure import fastest, surroundings
from bench.record import Record
from bench.report import Goal
from meshloom.backend import current
from meshloom.operation.dataflow import Dataflow
from meshloom.operation.fusion.into_lines import fuse_epilogues, fuse_prologues
from meshloom.operation.recorded import Recorded
from meshloom.recording import recorder
from meshloom.solvers.navier_stokes import TaylorGreen, VortexOutflow
from meshloom.solvers.navier_stokes.case import FlowCase
from meshloom.solvers.runge_kutta import STAGES, advance_kernel

VORTEX_GOAL, TAYLOR_GREEN_GOAL = 0.6, 0.30  # share of the compulsory bytes; ns per cell, equation and right-hand side
TOLERANCE = 1e-10
_CHECK_STEPS = 2
_BYTES = 16  # of a derivative in double: read once, written once


def vortex(points: int) -> VortexOutflow:
    plain = VortexOutflow.Config()
    return VortexOutflow(replace(plain, mesh=replace(plain.mesh, points=(points, points))))


def taylor_green(points: int) -> TaylorGreen:
    plain = TaylorGreen.Config()
    return TaylorGreen(replace(plain, mesh=replace(plain.mesh, points=points)))


# --- checks -----------------------------------------------------------------------------------------------


def check_vortex(device: str, points: int) -> float:
    """Largest difference to the back end numpy after some steps, relative to the largest value; must be rounding."""
    found = {}
    for name in ("numpy", device):
        ml.use(name)
        case = vortex(points)
        case.program.run(_CHECK_STEPS)
        found[name] = case.grid.shaped(case.flow.q)
    error = float(np.abs(found[device] - found["numpy"]).max() / np.abs(found["numpy"]).max())
    if not error < TOLERANCE:
        raise SystemExit(f"bench.vortex: the vortex on {device} differs from numpy by {error:.1e}")
    return error


def check_box(case: FlowCase) -> float:
    """Some steps of Taylor-Green: energy must decay as viscosity says and mass must stay; returns how far it is off."""
    rows = case.monitor_rows(case.program.run(_CHECK_STEPS, record=case.recorded))
    lost, due = 0.125 - rows[-1, 2], rows[-1, 0] * 2.0 * case.gas.viscosity * 0.375
    mass = float(abs(rows[-1, 4] / rows[0, 4] - 1.0))
    if not (0.5 * due < lost < 2.0 * due and mass < TOLERANCE):
        raise SystemExit(f"bench.vortex: Taylor-Green lost the energy {lost:.3e}, expected {due:.3e}; mass {mass:.1e}")
    return mass


# --- measuring --------------------------------------------------------------------------------------------


class Piece:
    """Operations of a step by themselves. They read what the step has written before, which a program may not."""

    def __init__(self, case: FlowCase, function: Callable[[], None]):
        self.name = function.__name__
        recorded = Recorded()
        token = recorder.set(recorded)
        try:
            function()
        finally:
            recorder.reset(token)
        names = {o.name for o in recorded}
        assert names <= {o.name for o in case.program.loops}, names
        self._replay = current().recording([o.prepare() for o in recorded], Dataflow(recorded).waits)

    def run(self, times: int = 1) -> None:
        self._replay.run(times, ())


def into_lines(function: Callable[[], None], *, on_gpu: bool) -> Dataflow:
    """What a function records, with loops taken along by line loops or, as on a GPU, not."""
    graph = fuse_prologues(Dataflow(ml.program(function).loops), on_gpu=on_gpu)
    return fuse_epilogues(graph, on_gpu=on_gpu)


class OtherWay:
    """The operations of a right-hand side with loops taken along by line loops where the back end would not, or not."""

    name = "other_right_hand_side"

    def __init__(self, function: Callable[[], None]):
        graph = into_lines(function, on_gpu=not current().target.is_simt)
        loops = [one for one in graph.operations if not one.domain.all_memory]
        self._replay = current().recording([one.prepare() for one in loops], Dataflow(loops).waits)

    def run(self, times: int = 1) -> None:
        self._replay.run(times, ())


def parts(case: FlowCase, *, both: bool = True) -> dict[str, ml.Program | Piece | OtherWay]:
    """The programs that a step is made of; ``TIMES`` says how often a step needs each. The step first: parts by
    themselves, over and over, lead to states that mean nothing. On a GPU the step also without branches. ``both``: also
    the right-hand side with what is derived evaluated by the line loops, or by loops before them, whichever is not the
    usual way."""
    flow, equations = case.flow, case.flow.equations
    rate, stage, total = (flow.q.like(name) for name in ("rate", "stage", "total"))

    def right_hand_side() -> None:
        equations.take_slopes(flow.q, flow.slopes)
        equations.rate(flow.q, flow.slopes, rate)

    def slopes() -> None:
        equations.take_slopes(flow.q, flow.slopes)

    def fluxes() -> None:
        equations.rate(flow.q, flow.slopes, rate)

    def boundaries() -> None:
        assert flow.boundaries is not None
        flow.boundaries(flow.q, flow.slopes, rate)

    def monitors() -> None:
        flow.measure()

    def update() -> None:
        for number in range(len(STAGES)):
            ends = (stage, total) if number + 1 < len(STAGES) else (total,)
            advance_kernel(number)(flow.equations.grid, flow.q, rate, *ends, flow.dt)

    functions = (right_hand_side, slopes, fluxes, monitors)
    programs: list[ml.Program | Piece | OtherWay] = [ml.program(one) for one in functions]
    programs += [OtherWay(right_hand_side)] if both else []
    programs += [Piece(case, one) for one in (update, boundaries) if one is update or flow.boundaries]
    steps: dict[str, ml.Program | Piece | OtherWay] = {"step": case.program}
    if current().target.is_simt:
        steps["step_in_one_branch"] = ml.Program(case.program.function, branches=False)
    return steps | {one.name: one for one in programs}


TIMES = {"step": 1, "step_in_one_branch": 1, "right_hand_side": 4, "slopes": 4, "fluxes": 4, "boundaries": 4,
         "update": 1, "monitors": 1, "other_right_hand_side": 4}  # fmt: skip


def fused_loops(case: FlowCase) -> list[ml.Loop]:
    """The passes of a right-hand side that stores no flux: their bytes are the fewest that do."""
    flow, equations = case.flow, case.flow.equations
    rate = flow.q.like("rate")

    def right_hand_side() -> None:
        equations.take_slopes(flow.q, flow.slopes)
        equations.rate(flow.q, flow.slopes, rate)

    return [o for o in into_lines(right_hand_side, on_gpu=False).operations if o.domain.along_lines]


def measure(case: FlowCase, bandwidth: float, *, rounds: int, target: float, both: bool = True) -> dict[str, Any]:
    """Milliseconds of every part in a step, and how near the derivatives come to their bytes."""
    programs = parts(case, both=both)
    seconds = {name: fastest({name: one.run}, rounds=rounds, target=target)[name] for name, one in programs.items()}
    grid, equations = case.grid, case.grid.rank + 2
    points, derivatives = math.prod(grid.shape), grid.rank * (2 * grid.rank + 3)
    compulsory = sum(o.compulsory for o in fused_loops(case))
    taken, other = seconds["right_hand_side"], seconds.get("other_right_hand_side")
    return {
        "points": list(grid.shape),
        "passes": "stored" if current().target.is_simt else "fused",
        "ms_per_step": seconds["step"] * 1e3,
        "ms_in_a_step": {name: TIMES[name] * s * 1e3 for name, s in seconds.items()},
        "derivatives": derivatives,
        "bytes_of_right_hand_side": compulsory,
        "share_of_compulsory_bytes": compulsory / bandwidth / taken,
        "share_of_the_other_passes": compulsory / bandwidth / other if other else None,
        "share_of_16_bytes_per_derivative": derivatives * _BYTES * points / bandwidth / taken,
        "ns_per_cell_equation_right_hand_side": taken / (points * equations) * 1e9,
        "ns_per_cell_equation_stage_of_step": seconds["step"] / 4 / (points * equations) * 1e9,
        "launches_per_step": case.program.launches,
        "graph_of_step": case.program.graph,
    }


FORMS: tuple[dict[str, int], ...] = (
    {}, {"tile": 8}, {"tile": 16}, {"points": 8, "tile": 8}, {"points": 8, "tile": 16}, {"points": 8, "registers": 64},
)  # fmt: skip


def alone(loop: ml.Loop) -> ml.Program:
    """A program of one loop."""

    def one() -> None:
        loop()

    return ml.program(one)


def forms(case: FlowCase, bandwidth: float, *, rounds: int, target: float) -> dict[str, list[dict[str, Any]]]:
    """How fast every pass of a right-hand side is when lines are cut up in other ways; the fastest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    program = parts(case, both=False)["right_hand_side"]
    assert isinstance(program, ml.Program)
    for loop in program.loops:
        if not loop.domain.along_lines:
            continue
        rows = []
        for wish in FORMS:
            try:
                other = loop.by(wish)
                seconds = fastest({"": alone(other).run}, rounds=rounds, target=target)[""]
            except ml.errors.MeshloomError as reason:
                rows.append({"form": wish, "us": math.inf, "share": 0.0, "why": str(reason)})
                continue
            resources = getattr(other.prepare(), "resources", None)
            rows.append({"form": wish, "us": seconds * 1e6, "share": other.compulsory / bandwidth / seconds,
                         "made": form_of(other), "resources": resources})  # fmt: skip
        found[loop.name] = sorted(rows, key=lambda row: row["us"])
        best, usual = found[loop.name][0], next(row for row in rows if not row["form"])
        print(f"  {loop.name}: usual {usual['us']:.4g} us ({usual['share']:.2f}); best {best['us']:.4g} us"
              f" ({best['share']:.2f}) with {best['form']}", flush=True)  # fmt: skip
    return found


def show(name: str, device: str, row: dict[str, Any]) -> None:
    split = ", ".join(f"{part} {ms:.4g}" for part, ms in row["ms_in_a_step"].items() if part != "step")
    print(f"{name} {'x'.join(map(str, row['points']))} on {device}: {row['ms_per_step']:.4g} ms per step ({split});"
          f" {row['derivatives']} derivatives at {row['share_of_compulsory_bytes']:.2f} of their compulsory bytes with"
          f" {row['passes']} fluxes, {row['share_of_the_other_passes'] or math.nan:.2f} otherwise"
          f" ({row['share_of_16_bytes_per_derivative']:.2f} of 16 bytes each);"
          f" {row['ns_per_cell_equation_right_hand_side']:.4g} ns per cell, equation and right-hand side;"
          f" {row['launches_per_step']} launches; {row['graph_of_step']}", flush=True)  # fmt: skip


def run(device: str, sizes: list[int], box: int, *, quick: bool, race: bool = False) -> dict[str, Any]:
    """All measurements of one device: vortices on so many points along each side, Taylor-Green on ``box`` unless 0."""
    timing: dict[str, Any] = {"rounds": 3, "target": 0.03} if quick else {"rounds": 7, "target": 0.3}
    error = check_vortex(device, sizes[0])
    ml.use(device)
    bandwidth = current().copy_bandwidth()
    print(f"{device}: copy {bandwidth / 1e9:.4g} GB/s; the vortex differs from numpy by {error:.1e}", flush=True)
    rows: dict[str, Any] = {"device": device, "copy_bytes_per_second": bandwidth, "differs_from_numpy": error}
    rows["threads"] = ml.threads() if device == "cpu" else None
    cases = [("vortex_outflow", vortex, n) for n in sizes] + ([("taylor_green", taylor_green, box)] if box else [])
    for name, make, points in cases:
        case = make(points)
        if name == "taylor_green":
            check_box(case)
        row = measure(case, bandwidth, **timing, both=not quick or name == "vortex_outflow")
        rows.setdefault(name, []).append(row)
        show(name, device, row)
        if race and points in (sizes[0], box):
            row["forms"] = forms(case, bandwidth, rounds=3, target=0.02)
    return rows


def goals(rows: dict[str, Any]) -> list[Goal]:
    """What was aimed at on the GPU."""
    share = rows["vortex_outflow"][0]["share_of_compulsory_bytes"]
    text = "vortex outflow 512 x 512: derivatives, share of their compulsory bytes"
    found = [Goal(text, share, "at least", VORTEX_GOAL)]
    per_cell = [row["ns_per_cell_equation_right_hand_side"] for row in rows.get("taylor_green", [])]
    text = "Taylor-Green: ns per cell, equation and right-hand side"
    return [*found, *(Goal(text, one, "at most", TAYLOR_GREEN_GOAL) for one in per_cell)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--box", type=int, help="points of Taylor-Green along each axis; 0 leaves it out")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: to see that it works")
    parser.add_argument("--forms", action="store_true", help="also try other ways to cut up lines, pass by pass")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if reason := ml.backends()[options.device]:
        print(f"bench.vortex: back end {options.device} cannot be used: {reason}", file=sys.stderr)
        return 2
    result: dict[str, Any] = surroundings() | {"benchmark": "vortex", "quick": options.quick}
    record = Record(result, options.json, options.device)
    sizes = {"cuda": [512] if options.quick else [512, 1024, 2048], "cpu": [64] if options.quick else [512]}
    box = {"cuda": 256, "cpu": 24 if options.quick else 64}[options.device] if options.box is None else options.box
    result["runs"] = [run(options.device, sizes[options.device], box, quick=options.quick, race=options.forms)]
    record.save()
    if options.device == "cuda":
        result["goals"] = [goal.as_json() for goal in goals(result["runs"][0])]
        result["runs"].append(run("cpu", [512], 0, quick=options.quick))
        gpu, cpu = (one["vortex_outflow"][0] for one in result["runs"])
        result["cpu_over_gpu"] = cpu["ms_per_step"] / gpu["ms_per_step"]
        print(f"vortex outflow: the CPU takes {result['cpu_over_gpu']:.4g} times as long per step")
        for goal in goals(result["runs"][0]):
            print(f"{goal.text}: {goal.figure()}, aim {goal.aim()}: {'met' if goal.met else 'missed'}")
    print(f"written to {record.save()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
