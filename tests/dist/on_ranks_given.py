"""Ranks that are given different things, by name: ``python -m tests.dist.on_ranks_given NAME`` for
``test_disagreement.py``. What comes to its end prints "done"."""

from __future__ import annotations

import gc
import os
import platform
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

if os.environ.get("PMI_RANK") == "1":  # what is seen when Meshloom is imported
    if "other_numpy" in sys.argv:
        np.__version__ = "1.0"
    if "other_processor" in sys.argv:
        platform.machine = lambda: "riscv64"

import meshloom as ml
from meshloom.dist import consistency
from tests.dist.on_ranks import spread

CELLS = (6, 4)
Loop = tuple[ml.Mesh, ml.Field, ml.Field]


@ml.kernel
def moved(rate: ml.Read, u: ml.ReadWrite):
    u += rate


def given(cells: tuple[int, int] = CELLS, seed: int | None = 1, width: float = 1.0) -> Loop:
    """A mesh with values; ``rate`` is what a loop adds up."""
    mesh = ml.generate.box(cells, cells="quad", extent=(width, 1.0))
    u = mesh.cells.field("u", data=np.random.default_rng(seed).standard_normal(len(mesh.cells)))
    return mesh, u, mesh.cells.field("rate")


def loop(mesh: ml.Mesh, u: ml.Field, rate: ml.Field) -> None:
    spread(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])


def random_start() -> None:
    loop(*given(seed=None))


def random_restart() -> None:
    mesh, u, rate = given()
    loop(mesh, u, rate)
    u.assign(np.random.default_rng().standard_normal(len(mesh.cells)))
    loop(mesh, u, rate)


def mesh_on_one() -> None:
    """One rank of a node makes meshes, and the others wait for it."""
    if ml.world.rank == 0:
        ml.generate.box(CELLS)


def refused_mesh() -> None:
    ml.generate.box((6, 0))


def other_mesh() -> None:
    loop(*given((6, 4 + ml.world.rank)))


def other_points() -> None:
    loop(*given(width=1.0 + ml.world.rank))


def other_mesh_by_points() -> None:
    mesh = ml.generate.box((6, 4 + ml.world.rank), cells="quad")
    mesh.cells.field("u", data=lambda points: points[:, 0])


def other_map() -> None:
    one, two = ml.Set(8, "one"), ml.Set(8, "two")
    map_ = ml.Map(one, two, (np.arange(16).reshape(8, 2) + ml.world.rank) % 8, "mine")
    spread(one, two.field("u")[map_], two.field("rate")[map_])


def other_type() -> None:
    mesh, u, rate = given()
    kind = np.float32 if ml.world.rank else np.float64
    loop(mesh, mesh.cells.field("u", data=u.numpy().astype(kind)), rate)


def other_shape_of_values() -> None:
    mesh, _, _ = given()
    mesh.cells.field("v", 2, data=lambda points: np.ones((len(points), 2 + ml.world.rank)))


def other_one_value() -> None:
    mesh, _, _ = given()
    mesh.cells.field("v", data=lambda points: points[:, 0].max())


def other_backend() -> None:
    of = given()
    if ml.world.rank:
        ml.use("numpy", strict=True)
    loop(*of)


def other_backend_later() -> None:
    """Behind a loop that has compared all that it was given: it goes along with the next values that ranks gather."""
    of = given()
    loop(*of)
    if ml.world.rank:
        ml.use("cpu")
    loop(*of)
    of[-1].numpy()


def other_numpy() -> None:
    """Seen when Meshloom is imported."""


def other_processor() -> None:
    """Likewise."""


def other_compiler() -> None:
    ml.use("cpu", reproducible=True)
    if ml.world.rank:
        found = consistency.host_compiler()
        consistency.host_compiler = lambda: replace(found, version="c++ 1.0")
    loop(*given())


@ml.kernel
def scaled(u: ml.ReadWrite, factor: ml.Read):
    u *= factor


def scaling() -> tuple[ml.Mesh, ml.Field, ml.Global, Callable[[float], None]]:
    """A loop that has run once; and a function that runs one with a number that its kernel captures."""
    mesh, u, _ = given()
    factor, dt = ml.Global(2.0, "factor"), 1.0

    @ml.kernel
    def further(u: ml.ReadWrite):
        u += dt

    def with_step(value: float) -> None:
        nonlocal dt
        dt = value
        further(mesh.cells, u)

    scaled(mesh.cells, u, factor)
    with_step(1.0)
    return mesh, u, factor, with_step


def other_global() -> None:
    mesh, u, factor, _ = scaling()
    factor.value = 3.0 + ml.world.rank
    scaled(mesh.cells, u, factor)
    u.sum()


def other_fill() -> None:
    mesh, u, factor, _ = scaling()
    u.fill(5.0 + ml.world.rank)
    scaled(mesh.cells, u, factor)
    u.sum()


def other_fill_to_gather() -> None:
    """No loop comes between."""
    _, u, _, _ = scaling()
    u.fill(5.0 + ml.world.rank)
    u.numpy()


def random_values_to_gather() -> None:
    mesh, u, _, _ = scaling()
    u.assign(np.random.default_rng().standard_normal(len(mesh.cells)))
    u.numpy()


def random_values_to_save() -> None:
    """Of a field over ranks, whose rows each of them writes."""
    mesh, u, _, _ = scaling()
    u.assign(np.random.default_rng().standard_normal(len(mesh.cells)))
    refused_and_nothing_written(lambda path: ml.save(path, u))


def random_values_to_write() -> None:
    """Of one that no loop has used."""
    mesh = given()[0]
    v = mesh.cells.field("v", data=np.random.default_rng().standard_normal(len(mesh.cells)))
    refused_and_nothing_written(lambda path: ml.write(path.with_suffix(".vtu"), mesh, {"v": v}))


def other_global_to_save() -> None:
    mass = ml.Global(float(ml.world.rank), "mass")
    refused_and_nothing_written(lambda path: ml.save(path, mass))


def partition_without_its_mesh() -> None:
    ml.use("numpy", partition=np.arange(24) % 2)
    mesh = ml.generate.box(CELLS, cells="quad")
    u, ends, faces = mesh.cells.field("u"), mesh.face_cells, mesh.faces
    del mesh
    gc.collect()
    spread(faces, u[ends], u.set.field("rate")[ends])


def refused_and_nothing_written(write: Callable[[Path], None]) -> None:
    with TemporaryDirectory() as folder:
        try:
            write(Path(ml.world.broadcast(folder), "file.h5"))
        finally:
            assert not [*Path(folder).iterdir()]


def other_end() -> None:
    """Ranks would part after the first replay."""
    mesh, u, _, _ = scaling()
    most = ml.Global(0.0, "most")

    @ml.kernel
    def highest(u: ml.Read, most: ml.Max):
        most[...] = u

    ml.program(lambda: highest(mesh.cells, u, most)).repeat(until=most < (1e9 if ml.world.rank else -1.0), at_most=4)
    u.numpy()


def gathered_by_points() -> None:
    """A rank has none of the two cells, and is not asked."""
    _, u, _, _ = scaling()
    ml.generate.box((2, 1)).cells.field("v", data=lambda points: points[:, 0] + u.numpy().mean())


def other_fill_of_a_program() -> None:
    mesh, u, factor, _ = scaling()
    ml.program(lambda: (u.fill(5.0 + ml.world.rank), scaled(mesh.cells, u, factor))).run(2)
    u.numpy()


def other_number() -> None:
    """The kernels of both ranks read other numbers than before."""
    _, u, _, with_step = scaling()
    with_step(2.0 + ml.world.rank)
    u.numpy()


def other_number_of_one() -> None:
    """For rank 0 there is nothing new; what is read is a sum."""
    _, u, _, with_step = scaling()
    with_step(1.0 + ml.world.rank)
    u.sum().value  # noqa: B018


def other_argument() -> None:
    """A number in place of a Global."""
    mesh, u, _, _ = scaling()
    scaled(mesh.cells, u, 2.0)
    scaled(mesh.cells, u, 2.0 + ml.world.rank)
    u.numpy()


def other_argument_as_before() -> None:
    """All ranks know both numbers."""
    mesh, u, _, _ = scaling()
    for factor in (0.5, 2.0, 2.0 if ml.world.rank else 0.5):
        scaled(mesh.cells, u, factor)
    u.sum().value  # noqa: B018


def what_changes_often_goes_along() -> None:
    """What is given at first is compared in one collective, and nothing else is."""
    mesh, u, factor, with_step = scaling()
    asked, before = [], type(ml.world).allgathered
    type(ml.world).allgathered = lambda *given: asked.append(given) or before(*given)
    for step in range(3):
        with_step(1.0 + step)
        scaled(mesh.cells, u, factor)
        scaled(mesh.cells, u, 1.0 + step)
    assert not asked
    factor.value = 3.0
    for _ in range(3):
        scaled(mesh.cells, u, factor)
    assert not asked, "what was compared once goes along with the next sum"
    u.fill(1.0)
    scaled(mesh.cells, u, factor)
    assert not asked
    u.sum()
    u.sum()
    assert len(asked) == 1, "its Globals are compared once"


def by_hand() -> tuple[ml.Set, ml.Set, Callable[[], None]]:
    """Two sets, and a loop that reaches from one to the other."""
    one, two = ml.Set(30, "one"), ml.Set(15, "two")
    map_ = ml.Map(one, two, np.random.default_rng(1).integers(0, 15, (30, 2)), "map")
    u, rate = two.field("u", data=np.arange(15.0)), two.field("rate")
    return one, two, lambda: spread(one, u[map_], rate[map_])


def asked_by_one() -> None:
    """Before the first loop, for sets that would be cut otherwise."""
    one, _, run = by_hand()
    if ml.world.rank == 0:
        assert len(one.mine)
    run()


def asked_by_one_in_time() -> None:
    """Behind it, also for a part that nobody else has seen; and before it for sets of a mesh, which are cut as one."""
    one, two, run = by_hand()
    run()
    if ml.world.rank == 0:
        assert len(one.mine) and len(two.subset([0, 3, 14]).mine) <= 3
    run()
    mesh, u, rate = given()
    if ml.world.rank == 1:
        assert len(mesh.faces.mine) and len(u.local())
    loop(mesh, u, rate)


def parts_go() -> None:
    """Those that a time loop makes, and reaches further from by a map of their set."""
    mesh, u, rate = given()
    loop(mesh, u, rate)
    gone = []
    for k in range(20):
        part = mesh.cells.subset(np.flatnonzero((np.arange(24) + k) % 3 == 0))
        moved(part, rate, u)
        front = mesh.faces.subset(np.flatnonzero((np.arange(len(mesh.faces)) + k) % 3 == 0))
        spread(front, u[mesh.face_cells], rate[mesh.face_cells])
        gone += [weakref.ref(part), weakref.ref(front)]
    del part, front
    u.numpy()
    gc.collect()
    assert sum(one() is not None for one in gone) <= 2, "but for the last loops"


class Counted:
    """A communicator of MPI, whose collectives are listed."""

    def __init__(self, ranks: Any):
        self.ranks, self.asked = ranks, []

    def __getattr__(self, name: str) -> Any:
        if name.lower().startswith("allgather"):
            self.asked.append(name)
        return getattr(self.ranks, name)


def values_are_gathered_at_once() -> None:
    """All ranks know who owns what: one collective, of values alone."""
    ranks = Counted(ml.world._ranks)
    object.__setattr__(ml.world, "_ranks", ranks)
    mesh, grid = ml.generate.box((6, 5), cells="quad").reordered("random"), ml.Grid((7, 4), ghosts=1)
    part = mesh.cells.subset(np.arange(3, 30, 4))
    for on in (mesh.cells, part, grid):
        values = np.arange(3.0 * on.size, dtype=np.float32).reshape(*on.array_shape, 3)
        x = on.field("x", 3, data=values)
        scaled(on, x, ml.Global(2.0, dtype=np.float32))
        ranks.asked = []
        assert np.array_equal(x.numpy(), 2.0 * values) and ranks.asked == ["Allgatherv"], ranks.asked
    ranks.asked = []
    y = mesh.cells.field("y", data=lambda points: points[:, 0] + 10.0 * points[:, 1])
    assert ranks.asked == ["allgather", "Allgatherv"]  # of which kind they are, first
    assert np.array_equal(y.numpy(), mesh.cells.points[:, :2] @ [1.0, 10.0])


RUNS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (
        random_start, random_restart, mesh_on_one, refused_mesh, other_mesh, other_points, other_mesh_by_points,
        other_map, other_type, other_shape_of_values, other_one_value, other_backend, other_backend_later,
        other_numpy, other_processor, other_compiler, other_global, other_fill, other_fill_to_gather,
        random_values_to_gather, gathered_by_points, partition_without_its_mesh, other_end,
        random_values_to_save, random_values_to_write, other_global_to_save, other_fill_of_a_program,
        other_number, other_number_of_one, other_argument, other_argument_as_before,
        what_changes_often_goes_along, asked_by_one, asked_by_one_in_time, parts_go,
        values_are_gathered_at_once,
    )
}  # fmt: skip


def run(runs: dict[str, Callable[[], None]]) -> None:
    """The one that the command names."""
    ml.use("numpy", reproducible=True)
    runs[sys.argv[1]]()
    if ml.world.rank == 0:
        print("done", flush=True)


if __name__ == "__main__":
    run(RUNS)
