"""Who makes meshes, and who holds them, for ``test_once.py``: ``python -m tests.dist.on_ranks_once``."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import meshloom as ml
from meshloom.dist.shared import is_in_file
from meshloom.mesh import generate
from meshloom.mesh.mesh import Mesh
from meshloom.process.ranks import on_root


def large(mesh: Mesh) -> list[np.ndarray]:
    lists = mesh.lists
    return [mesh.coordinates.storage, mesh.nodes.points, mesh.cells.points, mesh.faces.points, lists.faces.entries,
            lists.faces.starts, lists.cells.nodes.entries, lists.cells.nodes.starts, mesh.face_cells.positions,
            mesh.cell_nodes.positions, mesh.face_nodes.positions]  # fmt: skip


def held_by_one(make: Callable[[], Mesh]) -> Mesh:
    """A mesh whose arrays all ranks map, and for which the first of them alone has needed memory."""
    tracemalloc.start()
    mesh = make()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = sum(one.nbytes for one in large(mesh))
    assert all(map(is_in_file, large(mesh)))
    ratios = ml.world.allgathered(most / size)
    first = ml.world.allgathered(ml.world.node_rank == 0)
    assert [one > 1.0 for one in ratios] == first and sum(ratios) < 1.2 * max(ratios), ratios
    assert len(set(ml.world.allgathered(mesh.digest))) == 1
    return mesh


def main() -> None:
    counted: list[str] = []
    faces = generate._airfoil_faces

    def counting(node: np.ndarray, cell: np.ndarray, i: int) -> np.ndarray:
        counted.append("faces")
        return faces(node, cell, i)

    generate._airfoil_faces = counting
    mesh = held_by_one(lambda: ml.generate.naca0012(258, 258))
    assert ml.world.allgathered(len(counted)) == [int(one == 0) for one in ml.world.allgathered(ml.world.node_rank)]
    held_by_one(lambda: mesh.reordered("random"))
    folder = on_root(partial(tempfile.mkdtemp, prefix="meshloom-"))
    path = Path(folder) / "mesh.dat"
    ml.write(path, mesh)
    read = held_by_one(lambda: ml.read(path))
    on_root(path.unlink)
    on_root(path.parent.rmdir)
    u, rate = (read.cells.field(name) for name in ("u", "rate"))
    u.fill(1.0)
    spread(read.faces, u[read.face_cells], rate[read.face_cells])  # which cuts it
    assert all(map(is_in_file, large(read))) and not rate.numpy().any()


@ml.kernel
def spread(u: ml.Read, rate: ml.Inc):
    rate[0] += u[1] - u[0]
    rate[1] += u[0] - u[1]


if __name__ == "__main__":
    ml.use("numpy", reproducible=True)
    main()
    if ml.world.rank == 0:
        print("done", flush=True)
