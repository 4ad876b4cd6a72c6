"""Four ranks on two nodes, by name: ``python -m tests.dist.on_ranks_nodes NAME`` for ``test_once.py``. What comes to
its end prints "done"."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

import numpy as np

import meshloom as ml
from meshloom.dist import once, shared
from meshloom.dist.once import MADE
from meshloom.errors import CompilerError, MeshError, RankError
from meshloom.mesh import arrange, generate
from meshloom.process.ranks import by_root
from tests.dist.on_ranks_given import loop, run

FIRST = ml.world.on_node(ml.world.rank, "who is there")[0]
FIRST_NODE = FIRST == 0
LATE = 4.0  # seconds: longer than ranks wait for each other there


def check_alike(mesh: ml.Mesh) -> ml.Mesh:
    """All have it, and go on with it together."""
    assert len(set(ml.world.allgathered((mesh.digest, mesh.cells.kept[MADE].digest)))) == 1
    used(mesh)
    return mesh


def used(mesh: ml.Mesh) -> None:
    u, rate = (mesh.cells.field(name, data=1.0) for name in ("u", "rate"))
    loop(mesh, u, rate)
    assert np.isfinite(rate.numpy()).all()


def made_by_one_of_each() -> None:
    counted: list[int] = []
    faces = generate._airfoil_faces
    generate._airfoil_faces = lambda *given: (counted.append(1), faces(*given))[1]
    check_alike(ml.generate.naca0012(40, 40).reordered("random").arranged("hilbert"))
    assert [len(counted)] == [int(ml.world.node_rank == 0)]


def no_compiler_on_one() -> None:
    """Meshes lie otherwise then, which the first loop tells."""
    before = arrange.ordering

    def ordering(mesh: ml.Mesh, name: str, **how: int) -> object:
        if name == arrange._BEST and not FIRST_NODE:
            raise CompilerError("there is none")
        return before(mesh, name, **how)

    mesh = ml.generate.box((200, 200)).reordered("random")
    arrange.ordering = ordering
    arranged = mesh.arranged()
    assert (arranged.arrangement.numbers is not None) == FIRST_NODE
    used(arranged)


def no_file_for_one() -> None:
    without = ml.world.rank == ml.world.size - 1
    if without:
        shared._opened = lambda path: None
    large = ml.generate.naca0012(80, 80)
    assert shared.is_in_file(large.coordinates.storage) != without
    check_alike(large.reordered("random").arranged("random"))


def failing(where: str) -> Callable[..., NoReturn]:
    def fail(*given: object) -> NoReturn:
        raise MeshError(f"on the {where}")

    return fail


def error_on_one_node() -> None:
    """All ranks have it, and may go on."""
    faces = generate._airfoil_faces
    if not FIRST_NODE:
        generate._airfoil_faces = failing("one")
    try:
        ml.generate.naca0012(40, 40)
    except MeshError as error:
        found = str(error)
    assert len(set(ml.world.allgathered(found))) == 1
    generate._airfoil_faces = faces
    check_alike(ml.generate.naca0012(40, 40))


def error_of_each_node() -> None:
    """Its own, where both have one."""
    generate._airfoil_faces = failing("first" if FIRST_NODE else "other")
    try:
        ml.generate.naca0012(40, 40)
    except MeshError as error:
        found = str(error)
    assert found == f"on the {'first' if FIRST_NODE else 'other'}"


def changed_on_one() -> None:
    """It makes its own, as others do, and nobody waits in vain."""
    mesh = ml.generate.box((6, 4))
    if ml.world.rank == 1:
        mesh.coordinates.assign(2.0 * mesh.coordinates.numpy())
    own = mesh.reordered("random")
    assert MADE not in own.cells.kept
    assert ml.world.allgathered(own.digest == mesh.reordered("random").digest, "how it went") == [True] * 4


def changed_by_loops() -> None:
    """Values are over ranks, and all ask for them to make a mesh of these."""
    mesh = ml.generate.box((6, 4))
    shift(mesh.nodes, mesh.coordinates)
    own = mesh.reordered("random")
    assert MADE not in own.cells.kept and np.array_equal(np.sort(own.nodes.points[:, 0]),
                                                         np.sort(mesh.coordinates.numpy()[:, 0]))  # fmt: skip
    used(own)


def slowly(work: Callable[..., object]) -> Callable[..., object]:
    def slow(*of: object) -> object:
        time.sleep(LATE)
        return work(*of)

    return slow


def one_takes_long() -> None:
    """Others wait longer than they would for a call: one node, whose first rank makes and writes what is large."""
    if ml.world.rank == 0:
        for module, name in ((once, "pack"), (shared, "written")):
            setattr(module, name, slowly(getattr(module, name)))
    shared.LEAST = 0
    check_alike(ml.generate.box((6, 4)))
    square = ml.Mesh.from_cells([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]], [[0, 1, 4, 3], [1, 2, 5, 4]], "quad")
    used(square)


def asked_by_the_root() -> None:
    """What the root does for all asks no other rank: an error of all, which may go on."""
    mesh = ml.generate.box((6, 4))
    u = mesh.cells.field("u", data=np.arange(float(len(mesh.cells))))
    rate = mesh.cells.field("rate")
    loop(mesh, u, rate)
    refused: list[Callable[[], object]] = [
        by_root(rate.numpy), by_root(lambda: u.sum().value), by_root(lambda: loop(mesh, u, rate)),
        by_root(lambda: ml.world.allgathered(1)), by_root(lambda: ml.world.broadcast(1)),
    ]  # fmt: skip
    for call in refused:
        try:
            call()
        except RankError as error:
            found = str(error)
        assert "in what it does for others" in found and len(set(ml.world.allgathered(found))) == 1, found
        found = ""
    generate._airfoil_faces = lambda *given: rate.numpy()
    try:
        ml.generate.naca0012(40, 40)
    except RankError as error:  # of the first rank of each node
        found = str(error)
    assert f"rank {FIRST} gathers field rate" in found, found
    assert np.isfinite(rate.numpy()).all()


@ml.kernel
def shift(x: ml.ReadWrite):
    x[0] += 1.0


RUNS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (
        made_by_one_of_each, no_compiler_on_one, no_file_for_one, error_on_one_node, error_of_each_node, changed_on_one,
        changed_by_loops, one_takes_long, asked_by_the_root,
    )
}  # fmt: skip


if __name__ == "__main__":
    run(RUNS)
