"""The process that ``bench.counters`` runs under Nsight Compute: some variants of the race's loop, each launched once.

    python -m bench.counted JOB.json DONE.json

JOB names the mesh, its order and the rows (precision, layout, schedule); DONE gets the number of launches of each row
done so far, 0 for one that does not apply.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import meshloom as ml
from bench.race_loop import Cuda, Data, Device, res_calc, wished
from meshloom.errors import MeshloomError


def launch_all(job: dict[str, Any], done: Path, device: Device) -> list[int]:
    """Launch every row once; returns how many launches each took."""
    mesh = ml.generate.naca0012(job["i"], job["j"])
    data = Data(mesh if job["order"] == "given" else mesh.reordered(job["order"]))
    ml.use(device.backend)
    launches: list[int] = []
    for row in job["rows"]:
        launches.append(_launched(data, row))
        done.write_text(json.dumps(launches))
        device.clear()
    return launches


def _launched(data: Data, row: dict[str, Any]) -> int:
    loop = res_calc.loop(data.mesh.faces, *data.fields(row["precision"], row["layout"]), schedule=wished(row))
    try:
        executable: Any = loop.prepare()
    except MeshloomError:
        return 0
    executable.launch()
    data.res.numpy()  # waits for the device
    return len(executable.steps)


def main(arguments: list[str], device: Device | None = None) -> int:
    job, done = map(Path, arguments)
    launch_all(json.loads(job.read_text()), done, device or Cuda())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
