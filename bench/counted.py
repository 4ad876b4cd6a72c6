"""The process that ``bench.counters`` runs under Nsight Compute: some variants of a loop, each launched once.

    python -m bench.counted JOB.json DONE.json

JOB names the mesh, its order and the rows (precision, layout, schedule); DONE gets the number of launches of each row
done so far, 0 for one that does not apply.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.compact_rows import Problem, Setup, fields
from bench.frozen import Frozen
from bench.locality_loops import CONTESTS
from bench.race_loop import Cuda, Data, Device, res_calc, wished
from meshloom.errors import MeshloomError


def launch_all(job: dict[str, Any], done: Path, device: Device) -> list[int]:
    """Launch every row once; returns how many launches each took."""
    ml.use("cpu")  # what setting up a case launches must not be counted
    kinds = {"contest": contest_loops, "lines": line_loops}
    made = next((make for name, make in kinds.items() if name in job["mesh"]), race_loops)
    loop_of = made(job["mesh"], job["order"])
    ml.use(device.backend)
    launches: list[int] = []
    for row in job["rows"]:
        launches.append(_launched(loop_of(row)))
        device.wait()
        done.write_text(json.dumps(launches))
        device.clear()
    return launches


def race_loops(mesh: dict[str, Any], order: str) -> Callable[[dict[str, Any]], ml.Loop]:
    """The race's loop by rows."""
    given = ml.generate.naca0012(mesh["i"], mesh["j"])
    data = Data(given if order == "given" else given.reordered(order))
    return lambda row: res_calc.loop(data.mesh.faces, *data.fields(row["precision"], row["layout"]),
                                     schedule=wished(row))  # fmt: skip


def contest_loops(mesh: dict[str, Any], order: str) -> Callable[[dict[str, Any]], ml.Loop]:
    """One of the locality paper's loops by rows."""
    contest = CONTESTS[mesh["contest"]]
    case = contest.make(mesh["size"])
    case.program.run(1)
    frozen, arranged = Frozen(contest.loop(case), case.mesh), case.mesh.arranged(order)
    return lambda row: frozen.on(arranged, row["precision"], row["layout"]).loop(wished(row))


def line_loops(mesh: dict[str, Any], order: str) -> Callable[[dict[str, Any]], ml.Loop]:
    """What ``bench.compact`` measures, by the entries of its problems."""

    def loop(row: dict[str, Any]) -> ml.Loop:
        fields.cache_clear()
        known = row | {"shape": tuple(row["shape"]), "tuning": tuple((k, v) for k, v in row["tuning"])}
        return Setup(Problem(**known), ml.backend()).loop

    return loop


def _launched(loop: ml.Loop) -> int:
    try:
        executable: Any = loop.prepare()
    except MeshloomError:
        return 0
    executable.launch()
    return len(executable.steps)


def main(arguments: list[str], device: Device | None = None) -> int:
    job, done = map(Path, arguments)
    launch_all(json.loads(job.read_text()), done, device or Cuda())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
