"""Files of scripts on any number of ranks, for ``test_files_on_ranks.py``: ``python -m tests.dist.on_ranks_files
BACKEND FOLDER RUN...`` prints a line with digests of results and files of each run, which every rank must have found.
Blocks are small, so that every rank writes some of every file; no field may be gathered for one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import meshloom as ml
from meshloom.dist.array import DistributedArray
from meshloom.errors import RunError, UserError
from meshloom.io import collective
from meshloom.run.output import write_on_grid, write_on_mesh
from tests.dist import on_ranks
from tests.dist.on_ranks_cases import digests
from tests.dist.on_ranks_grids import combined
from tests.io.test_grids import arrays

BLOCK = 512  # bytes
MEASURED: dict[str, Any] = {"probe_every": 2, "checkpoint_every": 2, "every": 3, "progress": False}


@contextmanager
def nothing_gathered() -> Iterator[None]:
    """No rank may have all values of a field meanwhile."""

    def refused(array: DistributedArray) -> np.ndarray:
        raise AssertionError(f"field {array.local.name} is gathered")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DistributedArray, "get", refused)
        yield


def on_mesh(folder: Path) -> list[np.ndarray]:
    """A program with all files that it can have, gone on with; what is saved is loaded into fields that are over ranks,
    and into others."""
    mesh, u = on_ranks.around_an_airfoil()
    step, rate, norm = on_ranks.diffusing(mesh, u)
    on_nodes = mesh.nodes.field("on_nodes", 2, data=lambda points: points[:, ::-1])
    on_faces = mesh.faces.field("on_faces", (2, 2), dtype=np.float32)
    with nothing_gathered():
        for last in (4, 7):
            ml.march(step, steps=last, show=norm, fields=(u, rate, on_nodes), checkpoint=(u, rate, norm), restart=True,
                     out=folder / "run", probes={"nose": (-0.2, 0.3), "tail": {"at": (1.3, 0.1), "fields": ["u"]}},
                     lines={"up": {"from": (0.5, 0.2), "to": (0.5, 2.0), "points": 7}}, integrals={"all": "u", "wall":
                     {"of": "u", "over": "wall", "normal": True}}, surface="wall", **MEASURED)  # fmt: skip
        ml.save(folder / "saved.h5", u, rate, norm, on_faces)
        ml.write(folder / "mesh.vtu", mesh, {"u": u}, {"on_nodes": on_nodes})
    step.run(3)
    after = u.numpy()
    others = mesh.cells.field("rate", dtype=np.float32), ml.Global(0.0, "norm")
    with nothing_gathered():
        ml.load(folder / "saved.h5", u, rate, norm)
        ml.load(folder / "saved.h5", *others)
        sums = mesh.cells.field("sums")
        on_ranks.spread(mesh.faces, u[mesh.face_cells], sums[mesh.face_cells])  # sees what was loaded on other ranks
        step.run(3)
    assert np.array_equal(u.numpy(), after)
    return [after, sums.numpy(), *(one.numpy() for one in others)]


def on_grid(folder: Path) -> list[np.ndarray]:
    """The same on grids, with ghosts and padding, stretched and not."""
    found = []
    stretched = [None, [0.0, 1.0, 3.0], None]
    for name, ghosts, coordinates in (("even", (1, 2, 1), None), ("stretched", (0, 0, 2), stretched)):
        grid = ml.Grid((13, 3, 5), periodic=(name == "stretched", False, False), coordinates=coordinates, ghosts=ghosts,
                       aligned=True)  # fmt: skip
        start = np.random.default_rng(2).standard_normal((13, 3, 5, 3))
        u, v = grid.field("u", 3, data=start), grid.field("v", 3, dtype=np.float64)
        kernel = combined(((0, 0, 0), (1, 0, 0), (-1, 0, 0)), (0.5, 0.2, -0.1))

        @ml.program
        def step(grid: Any = grid, u: Any = u, v: Any = v, kernel: Any = kernel) -> None:
            reach = grid.offsets((0, 0, 0), (1, 0, 0), (-1, 0, 0))
            box = grid.inside if grid.periodic[0] else grid.interior((1, 0, 0))
            kernel(box, u[reach], v)
            kernel(box, v[reach], u)

        out = folder / name
        with nothing_gathered():
            ml.march(step, steps=6, fields={"u": u, "second": v}, out=out, probes={"middle": (0.4, 0.6, 0.3)},
                     integrals={"all": "u"}, lines={"along": {"from": (0.1, 0.5, 0.5), "to": (0.9, 0.5, 0.5),
                     "points": 5}}, **MEASURED)  # fmt: skip
            ml.save(folder / f"{name}.h5", u, v)
        step.run(1)
        with nothing_gathered():
            ml.load(folder / f"{name}.h5", u, v)
        found += [u.saved(), v.saved()]
    return found


def failing(folder: Path) -> list[np.ndarray]:
    """What goes wrong on the last rank is told by all, in one line, and changes nothing."""
    mesh, u = on_ranks.around_an_airfoil()
    step, *_ = on_ranks.diffusing(mesh, u)
    ml.save(folder / "saved.h5", u)
    before = (folder / "saved.h5").read_bytes()
    step.run(1)
    is_last = ml.world.rank == ml.world.size - 1

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patched:
        if is_last:
            patched.setattr(os, "fsync", full)
        with pytest.raises(RunError) as refused:
            ml.save(folder / "saved.h5", u)
    assert str(refused.value) == f"cannot write {folder}/saved.h5: disk full (No space left on device)"
    ml.world.allgathered(0)  # the root has tidied up
    assert (folder / "saved.h5").read_bytes() == before and os.listdir(folder) == ["saved.h5"]
    if ml.world.size > 1:
        _not_shared(folder, step, u, is_last)
        _other_on_one_rank(folder, u, is_last)
    damaged = bytearray(before)
    damaged[-3] ^= 1
    if ml.world.rank == 0:
        (folder / "saved.h5").write_bytes(damaged)
    ml.world.allgathered(0)
    with pytest.raises(UserError, match=r"saved\.h5: damaged or truncated saved state; save it again"):
        ml.load(folder / "saved.h5", u)
    return [u.numpy()]


def _not_shared(folder: Path, step: ml.Program, u: ml.Field, is_last: bool) -> None:
    """A folder that one rank sees elsewhere."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder.parent if is_last else folder)
        with pytest.raises(UserError) as refused:
            ml.march(step, steps=1, out="out", progress=False)
        other = ml.world.size - 1
        assert str(refused.value) == (f"the output folder out is not the same on rank {other} as on rank 0; choose one"
                                      " that all nodes share with out")  # fmt: skip
        ml.world.allgathered(0)
        assert os.listdir(folder) == ["saved.h5"]
        with pytest.raises(UserError, match=rf"saved\.h5: \. is not the same folder on rank {other} as on rank 0;"):
            ml.save("saved.h5", u)


def _other_on_one_rank(folder: Path, u: ml.Field, is_last: bool) -> None:
    """A file that one rank finds missing, damaged, or to be another one, which is whole: all are told, and nobody has
    other values than before."""
    values, at_home = u.numpy(), (folder / "saved.h5").read_bytes()
    other = folder.parent / "other"
    if is_last:
        other.mkdir()
    damaged = bytes([*at_home[:-3], at_home[-3] ^ 1, *at_home[-2:]])
    whole = folder.parent / "whole.h5"
    ml.save(whole, u)
    assert whole.read_bytes() != at_home, "of another moment"
    for there, said in (
        (None, "no such saved state file"),
        (damaged, "damaged or truncated saved state; save it again"),
        (whole.read_bytes(), "ranks find different files there; give a folder that all nodes share"),
    ):
        if is_last and there is not None:
            (other / "saved.h5").write_bytes(there)
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(other if is_last else folder)
            whose = f"rank {ml.world.size - 1}: " if there is None else ""  # the others have it
            with pytest.raises(UserError, match=rf"^{whose}saved\.h5: {said}"):
                ml.load("saved.h5", u)
        assert np.array_equal(u.numpy(), values)
    ml.world.allgathered(0)
    if is_last:
        shutil.rmtree(other)
        whole.unlink()


def pieces(folder: Path) -> list[np.ndarray]:
    """What the pieces of all ranks show, put together."""
    place = folder / "in" / "pieces"  # which are others on another number of ranks
    if ml.world.rank == 0:
        place.mkdir(parents=True)
        (place / "fields_0000001_0077.vtu").touch()  # of a run on more ranks
    mesh, u = on_ranks.around_an_airfoil()
    step, rate, _ = on_ranks.diffusing(mesh, u)
    on_nodes = mesh.nodes.field("on_nodes", 2, data=lambda points: points[:, ::-1])
    grid = ml.Grid((13, 3, 5), ghosts=1, coordinates=[None, [0.0, 1.0, 3.0], None])
    w, v = (grid.field(name, 2, data=np.random.default_rng(1).random((13, 3, 5, 2))) for name in "wv")
    combined(((0, 0, 0), (1, 0, 0)), (0.5, 0.2))(grid.inside, w[grid.offsets((0, 0, 0), (1, 0, 0))], v)
    step.run(2)
    with nothing_gathered():
        listed = write_on_mesh(place / "fields_0000001", mesh, {"u": u, "rate": rate}, {"on_nodes": on_nodes},
                               pieces=True)  # fmt: skip
        on_grid = write_on_grid(place / "fields_0000002", grid, {"v": v}, pieces=True)
    ml.world.allgathered(0)
    assert (listed.name, on_grid.name) == ("fields_0000001.pvtu", "fields_0000002.pvtr")
    return [*shown_cells(listed), shown_points(on_grid, "v")]


def sources(listed: Path) -> list[Any]:
    """The pieces of a list, which are all that there are."""
    found = list(ElementTree.parse(listed).getroot().iter("Piece"))
    assert {one.get("Source") for one in found} == {one.name for one in listed.parent.glob(f"{listed.stem}_*")}
    return found


def shown_cells(listed: Path) -> list[np.ndarray]:
    """Of all cells, in the order of their middles, the corners, and what is shown there, as meshio sees them."""
    meshio, rows = pytest.importorskip("meshio"), []
    for one in sources(listed):
        found = meshio.read(listed.parent / one.get("Source"))
        (block,) = found.cells
        corners = found.points[block.data].reshape(len(block.data), -1)
        rows.append(np.column_stack([corners, found.cell_data["u"][0], found.cell_data["rate"][0],
                                     found.point_data["on_nodes"][block.data].reshape(len(corners), -1)]))  # fmt: skip
    everything = np.concatenate(rows)
    return [everything[np.lexsort(everything.T)]]


def shown_points(listed: Path, name: str) -> np.ndarray:
    """Values at all points, of pieces that agree where they overlap."""
    values, behind = np.full((13, 3, 5, 2), np.nan), 0
    for one in sources(listed):
        ends = [int(end) for end in one.get("Extent").split()]
        assert ends[0] == behind, "no cell between two pieces is missing"
        behind = ends[1]
        part = arrays(listed.parent / one.get("Source"), "PointData")[name].reshape(5, 3, -1, 2).transpose(2, 1, 0, 3)
        there = values[ends[0] : ends[1] + 1]
        assert ends[2:] == [0, 2, 0, 4] and part.shape == there.shape
        assert np.array_equal(there[~np.isnan(there)], part[~np.isnan(there)])
        there[...] = part
    assert np.isfinite(values).all()
    return values


def killed(folder: Path) -> list[np.ndarray]:
    """The last rank is killed while the third checkpoint is written, when some of it is on the disk."""
    mesh, u = on_ranks.around_an_airfoil()
    step, rate, norm = on_ranks.diffusing(mesh, u)
    seen, sync = [], os.fsync

    def counted(handle: int) -> None:
        sync(handle)
        seen.append(handle)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    if ml.world.rank == ml.world.size - 1 > 0:
        os.fsync = counted
    ml.march(step, steps=8, show=norm, checkpoint=(u, rate, norm), out=folder / "run", restart=True, checkpoint_every=2,
             checkpoint_seconds=0.0, progress=False)  # fmt: skip
    return [u.numpy()]


RUNS: dict[str, Callable[[Path], list[np.ndarray]]] = {
    "on_mesh": on_mesh, "on_grid": on_grid, "failing": failing, "pieces": pieces, "killed": killed,
}  # fmt: skip


def ran(folder: Path, *runs: str) -> dict[str, Any]:
    """Run by run what came out, and what its files are."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(collective, "BLOCK", BLOCK)
        for name in runs:
            place = folder / name
            if ml.world.rank == 0:
                place.mkdir(parents=True, exist_ok=True)
            ml.world.allgathered(0)
            found[name] = {"values": on_ranks.digest(RUNS[name](place)), **digests(place)}
            found[name] |= {f"{one.name}/{file}": digest for one in sorted(place.iterdir()) if one.is_dir()
                            for file, digest in digests(one).items()}  # fmt: skip
    return found


def main(backend: str, folder: str, *runs: str) -> None:
    ml.use(backend, reproducible=True)
    found = ran(Path(folder), *runs)
    assert ml.world.broadcast(found) == found, "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found | {"ranks": ml.world.size}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
