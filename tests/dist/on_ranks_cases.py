"""Cases, and scripts with files, on any number of ranks, for ``test_cases_on_ranks.py``: ``python -m
tests.dist.on_ranks_cases BACKEND FOLDER RUN...`` prints a line with the digests of all files of each run, which every
rank must have found. A run is a name, or ``name:6``: to iteration 6, from where the run of that name has stopped."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from tests.dist import on_ranks

LAST = 12
CASES: dict[str, dict[str, Any]] = {
    "airfoil": {"mesh.i": 8, "mesh.j": 12, "probes.wake": (1.3, 0.05), "integrals.mass": "density",
                "lines.across": {"from": (0.5, -1.0), "to": (0.5, 1.0), "points": 9}, "output.surface": ("wall",)},
    "lulesh": {"mesh.size": 4},
    "bookleaf_sod": {"mesh.cells": (12, 3)},
    "sod3d": {"mesh.cells": (12, 2, 2)},
    "cylinder": {"mesh.around": 12, "mesh.outward": 6, "mesh.far": 5.0},
    "miniaero_ramp": {"mesh.cells": (6, 4, 2)},
    "tsunami": {"mesh.nx": 12, "mesh.ny": 8},
}  # fmt: skip


def case(backend: str, name: str, folder: Path, last: int) -> list[np.ndarray]:
    """A case to an iteration, from where it stopped, with all of its files but pictures."""
    settings = CASES[name] | {
        "run.backend": backend, "run.reproducible": True, "run.iterations": last, "output.plot": False,
        "output.every": 3, "output.probe_every": 3,
    }  # fmt: skip
    if folder.exists():
        done = ml.run_case(name, {"run.iterations": last}, restart=folder, progress=False)
    else:
        done = ml.run_case(name, settings, out=folder, progress=False)
    assert done.iterations <= last and done.folder == folder
    return [*done.history.values(), *done.fields.values()]


def march(backend: str, name: str, folder: Path, last: int) -> list[np.ndarray]:
    """A program of a script with its files, until somebody says that it is enough."""
    mesh, u = on_ranks.around_an_airfoil()
    step, rate, norm = on_ranks.diffusing(mesh, u)
    asked = []

    def enough() -> bool:
        asked.append(float(u.numpy()[0]))  # a question that all ranks answer together
        return len(asked) > 1 and ml.world.rank == 0  # and a different one on each: the root's counts

    done = ml.march(step, steps=last, every=last, show=norm, fields=u, checkpoint=(u, rate, norm), stop=enough,
                    out=folder, restart=True, checkpoint_every=3, probes={"nose": (0.0, 0.3)}, probe_every=2,
                    progress=True)  # fmt: skip
    assert done.steps == last and done.why == "stop"
    return [u.numpy(), done.history["norm"]]


def files(backend: str, name: str, folder: Path, last: int) -> list[np.ndarray]:
    """What a script writes by itself, and reads again."""
    if ml.world.rank == 0:
        folder.mkdir()
    mesh = ml.generate.box((5, 4), cells="triangle")
    u, rate = mesh.cells.field("u", data=lambda points: points[:, 0] * points[:, 1]), mesh.cells.field("rate")
    v, norm = mesh.nodes.field("v", 2, data=lambda points: points[:, :2]), ml.Global(2.5, "norm")
    on_ranks.spread(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])
    ml.save(folder / "saved.h5", rate, v, norm)
    ml.write(folder / "mesh.vtu", mesh, {"rate": rate}, {"v": v})
    again, total = mesh.cells.field("rate"), ml.Global(0.0, "norm")
    ml.load(folder / "saved.h5", again, norm=total)
    on_ranks.move(mesh.cells, again, u, total)
    read = ml.read(folder / "mesh.vtu")
    return [u.numpy(), np.array([float(total), len(read.cells)]), read.coordinates.numpy()]


def picture(backend: str, name: str, folder: Path, last: int) -> list[np.ndarray]:
    """What a script draws, and pictures at the end of a case."""
    mesh = ml.generate.box((5, 4), cells="triangle")
    u, rate = mesh.cells.field("u", data=lambda points: points[:, 0] * points[:, 1]), mesh.cells.field("rate")
    on_ranks.spread(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])
    done = ml.run_case("airfoil", CASES["airfoil"] | {"run.backend": backend, "run.reproducible": True,
                       "run.iterations": last}, out=folder, progress=False)  # fmt: skip
    ml.plot(rate, save=folder / "rate.png")
    return [*done.fields.values()]


RUNS: dict[str, Callable[[str, str, Path, int], list[np.ndarray]]] = {
    "march": march, "files": files, "picture": picture, **dict.fromkeys(CASES, case)
}  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    """Of the files of a run, but for those that tell of its times."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("report.")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in found}


def ran(backend: str, folder: Path, *runs: str) -> dict[str, Any]:
    """Run by run what came out, and what its files are; a run that is continued counts at its end."""
    found: dict[str, Any] = {}
    for run in runs:
        name, _, last = run.partition(":")
        values = on_ranks.digest(RUNS[name](backend, name, folder / name, int(last or LAST)))
        found[name] = digests(folder / name) | {"values": values}
    return found


def main(backend: str, folder: str, *runs: str) -> None:
    ml.use(backend, reproducible=True)
    found = ran(backend, Path(folder), *runs)
    assert ml.world.broadcast(found) == found, "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found | {"ranks": ml.world.size}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
