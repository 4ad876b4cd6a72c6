"""Cases, and scripts with files, on any number of ranks, for ``matrix.py`` and ``test_cases_on_ranks.py``: ``python -m
tests.dist.on_ranks_cases BACKEND FOLDER [unfused] [any_bits] RUN...`` prints a line with the digests of all files of
each run, which every rank must have found; values are in ``FOLDER/name.npz``. A run is a name, or ``name:6``: to
iteration 6, from where the run of that name stopped; or one with words of its own, ``cpu-unfused/name:6``, in a folder
``cpu-unfused``. ``any_bits``: sums in any order; no digest is worth telling."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.backend import current
from meshloom.catalogue import case_names, find
from meshloom.operation.program import Program
from meshloom.process import ranks as of_process
from tests.dist import on_ranks

LAST, ANY_BITS, UNFUSED = 12, "any_bits", "unfused"
#: Sizes, and what is measured, where it is not the least that a case has to show.
SETTINGS: dict[str, dict[str, Any]] = {
    "airfoil": {"mesh.i": 8, "mesh.j": 12, "probes.wake": (1.3, 0.05), "integrals.mass": "density",
                "lines.across": {"from": (0.5, -1.0), "to": (0.5, 1.0), "points": 9}, "output.surface": ("wall",)},
    "lulesh": {"mesh.size": 4},
    "bookleaf_sod": {"mesh.cells": (12, 3)},
    "sod3d": {"mesh.cells": (12, 2, 2)},
    "cylinder": {"mesh.around": 12, "mesh.outward": 6, "mesh.far": 5.0},
    "miniaero_ramp": {"mesh.cells": (6, 4, 2)},
    "onera_m6": {"mesh.cells": 3000},
    "tsunami": {"mesh.nx": 12, "mesh.ny": 8},
}  # fmt: skip
#: Cases in another form than the one that they have unless asked.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "implicit": ("fv", {"mesh.along": 6, "mesh.up": 4, "time.method": "implicit"}),
}
#: All of the package but those that say that they do not run (``on_ranks_refused.py``).
CASES = tuple(name for name in case_names() if not find(name).not_on_ranks)


def case(backend: str, name: str, folder: Path, last: int) -> list[np.ndarray]:
    """A case to an iteration, from where it stopped, with all of its files but pictures."""
    target, own = VARIANTS.get(name, (name, SETTINGS.get(name, {})))
    settings = {**find(target).small, **own} | {
        "run.backend": backend, "run.reproducible": current().reproducible, "run.iterations": last,
        "output.plot": False, "output.every": 3, "output.probe_every": 3,
    }  # fmt: skip
    if folder.exists():
        done = ml.run_case(target, {"run.iterations": last}, restart=folder, progress=False)
    else:
        done = ml.run_case(target, settings, out=folder, progress=False)
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


@ml.kernel
def smoothed(u: ml.Read, v: ml.Write, most: ml.Max):
    v[...] = 0.6 * u[0, 0] + 0.1 * (u[-2, 0] + u[1, 0]) + 0.09 * (u[0, 1] + u[0, -1]) * u[0, 0]
    most[...] = u[0, 0]


@ml.kernel
def taken(v: ml.Read, u: ml.Write, total: ml.Sum):
    u[...] = v
    total += v * v


def stencil(backend: str, name: str, folder: Path, last: int) -> list[np.ndarray]:
    """A program of a script on a grid, from where it stopped, with its files."""
    grid = ml.Grid((18, 7), periodic=(True, False), ghosts=(0, 1), name="plane")
    x, y = np.meshgrid(np.arange(18.0), np.arange(7.0), indexing="ij")
    u, v = grid.field("u", data=np.sin(x) * np.cos(y)), grid.field("v")
    most, total = ml.Global(-9.0, "most"), ml.Global(0.0, "total")

    @ml.program
    def step() -> None:
        total.value = 0.0
        ml.fill_ghosts(u, closed="mirror")
        smoothed(grid, u[grid.offsets((0, 0), (-2, 0), (1, 0), (0, 1), (0, -1))], v, most)
        taken(grid, v, u, total)

    done = ml.march(step, steps=last, every=3, show=(most, total), fields=u, checkpoint=(u, most, total), out=folder,
                    restart=True, progress=False)  # fmt: skip
    assert done.steps == last
    return [u.numpy(), done.history["total"], done.history["most"]]


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
    done = ml.run_case("airfoil", SETTINGS["airfoil"] | {"run.backend": backend, "run.iterations": last,
                       "run.reproducible": current().reproducible}, out=folder, progress=False)  # fmt: skip
    ml.plot(rate, save=folder / "rate.png")
    return [*done.fields.values()]


SCRIPTS: dict[str, Callable[[str, str, Path, int], list[np.ndarray]]] = {
    "march": march, "stencil": stencil, "files": files, "picture": picture
}  # fmt: skip
RUNS = {**SCRIPTS, **dict.fromkeys((*CASES, *VARIANTS), case)}


def digests(folder: Path) -> dict[str, str]:
    """Of the files of a run, but for those that tell of its times."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("report.")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in found}


def ran(backend: str, folder: Path, *runs: str) -> dict[str, Any]:
    """Run by run what came out, and what its files are; a run that is continued counts at its end."""
    found: dict[str, Any] = {}
    for run in runs:
        run, _, last = run.partition(":")
        words, _, name = run.rpartition("/")
        if words:
            backend, *others = words.split("-")
            use(backend, others)
            of_process.on_root(partial((folder / words).mkdir, exist_ok=True, parents=True))
        values = RUNS[name](backend, name, folder / run, int(last or LAST))
        same_bits = current().reproducible
        found[run] = digests(folder / run) | {"values": on_ranks.digest(values)} if same_bits else {}
        of_process.on_root(partial(np.savez, folder / f"{run}.npz", *values))
    return found


_MADE = Program.__init__


def without_fusion(self: Program, function: Callable[[], None], fuse: bool = True, branches: bool = True) -> None:
    """Every loop of a program runs by itself."""
    _MADE(self, function, fuse=False, branches=branches)


def use(backend: str, words: Collection[str]) -> None:
    """From now on."""
    ml.use(backend, reproducible=ANY_BITS not in words)
    Program.__init__ = without_fusion if UNFUSED in words else _MADE  # type: ignore[method-assign]


def main(backend: str, folder: str, *words: str) -> None:
    gc.freeze()  # one case after the other: modules need not be looked through for each
    gc.set_threshold(100_000, 20, 50)
    use(backend, words)
    found = ran(backend, Path(folder), *(one for one in words if one not in (ANY_BITS, UNFUSED)))
    assert ml.world.broadcast(found) == found, "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found | {"ranks": ml.world.size}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
