"""Random programs on random meshes for ``test_ranks_meshes.py``: ``python -m tests.dist.on_ranks_meshes BACKEND
SEED...`` prints a digest for each, as ``on_ranks.py`` does. A seed decides the mesh (mixed, periodic, reordered, of few
cells), its parts, who owns which cells, and what a program does: loops over cells, faces, nodes and parts, through maps
of fixed and varying arity and by formula, matrices, extremes and where they are, random numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.dist.partition import PARTITIONERS, PartitionTask
from meshloom.mesh.numbering import Rows
from tests.dist.on_ranks import report
from tests.dist.on_ranks_programs import flux, given
from tests.mesh.mixed_samples import plane, space

MESHES: tuple[Callable[[np.random.Generator], ml.Mesh], ...] = (
    lambda dice: ml.generate.box(dice.integers(2, 8, 2).tolist(), cells="triangle"),
    lambda dice: ml.generate.box((5, int(dice.integers(2, 6)))).periodic({"xmin": "xmax"}),
    lambda dice: ml.Mesh.from_cells(*plane(int(dice.integers(9)), polygons=False)),
    lambda dice: ml.Mesh.from_cells(*space(int(dice.integers(9)), 2)),
    lambda dice: ml.generate.box((6, 5)).reordered(str(dice.choice(["random", "hilbert", "rcm"]))),
    lambda dice: ml.generate.naca0012(4, 6),
    lambda dice: ml.generate.box((int(dice.integers(1, 5)), 1)),
)
AT_RANDOM = "at_random"
asked: list[int] = []  # how often cells were shared out at random


def at_random(task: PartitionTask, ranks: int) -> np.ndarray:
    """Cells go anywhere, or one to each of some ranks and the rest to another; some ranks have none."""
    asked.append(task.n)
    dice = np.random.default_rng([task.n, ranks])
    some = dice.permutation(ranks)[: dice.integers(1, ranks + 1)]
    found = some[dice.integers(0, len(some), task.n)]
    if dice.random() < 0.5:
        found[:] = some[0]
        alone = dice.permutation(task.n)[: len(some) - 1]
        found[alone] = some[1 : 1 + len(alone)]
    return found


@ml.kernel
def at_sides(normal: ml.Read, u: ml.Read, own: ml.ReadWrite, r: ml.Inc):
    own[...] = 0.5 * own + normal[0]
    r[0] += 0.1 * u[0] * own


@ml.kernel
def moved(r: ml.Read, u: ml.ReadWrite):
    u[...] = 0.8 * u + 0.05 * r


@ml.kernel
def to_nodes(u: ml.Read, n: ml.Inc):
    for k in range(len(n)):
        n[k] += u[0] * (1.0 + 0.1 * k)


@ml.kernel
def around(u: ml.Read, n: ml.ReadWrite):
    n[...] = 0.5 * n + 0.1 * np.sum(u[:, 0] * u[:, 1]) + 0.01 * np.max(u[:, 1], initial=-1.0)


@ml.kernel
def along(u: ml.Read, r: ml.ReadWrite):
    r[...] = 0.6 * r + 0.2 * u[1] - 0.1 * u[0]


@ml.kernel
def assemble(f: ml.Read, m: ml.Inc):
    m[0, 1] += 0.1 * f[0]
    m[1, 0] -= 0.1 * f[1]
    m[0, 0] += 0.3


@ml.kernel
def shaken(u: ml.ReadWrite, dice: ml.Random):
    u += 0.1 * dice.uniform(2)


@ml.kernel
def extremes(u: ml.Read, low: ml.Write, least: ml.Min, total: ml.Sum):
    low[...] = u[0] - u[1]
    least[...] = u[0] - u[1]
    total += u[0] * u[1]


@ml.kernel
def decide(least: ml.Read, pace: ml.ReadWrite):
    pace[...] = np.minimum(0.5 * pace, 1.0 + least * least)


@ml.kernel
def slowed(pace: ml.Read, r: ml.ReadWrite):
    r *= 0.5 + 0.1 * pace


class World:
    """A mesh at random with fields, and the pieces of a program."""

    def __init__(self, seed: int):
        self.dice = dice = np.random.default_rng(seed)
        mesh = self.mesh = MESHES[seed % len(MESHES)](dice)
        cells = mesh.cells
        size = len(cells)
        self.u, self.r = (cells.field(name, 2, data=dice.standard_normal((size, 2))) for name in "ur")
        self.low = cells.field("low")
        self.f = mesh.faces.field("f", 2, data=dice.random((len(mesh.faces), 2)))
        self.n = mesh.nodes.field("n", data=dice.random(len(mesh.nodes)))
        self.sides = [mesh.boundary(name) for name in sorted(mesh.groups)[:2]]
        self.own = [one.field("own", data=dice.random(len(one))) for one in self.sides]
        self.some = cells.subset(np.flatnonzero(dice.random(size) < 0.4))
        self.kinds = [cells.of(kind) for kind in cells.kinds]
        self.next = ml.Map.computed(cells, cells, lambda e: (e, (e + 1) % size), "next")
        self.matrix = ml.Matrix(cells, through=mesh.face_cells)
        self.x, self.y = (cells.field(name, data=dice.random(size)) for name in "xy")
        self.clock, self.random = ml.Set(1, "clock"), ml.Random(seed=seed)
        self.least, self.total, self.pace = ml.Global(9.0, "least"), ml.Global(0.0, "total"), ml.Global(1.0, "pace")
        self.where = ml.Global(0, "where", dtype=np.int64)

    def pieces(self) -> list[Callable[[], Any]]:
        """What a program is made of."""
        mesh, cells, u, r, f, n = self.mesh, self.mesh.cells, self.u, self.r, self.f, self.n

        def by_temporary() -> None:
            passed = mesh.faces.field("passed", 2)
            flux(mesh.faces, u[mesh.face_cells], passed)
            given(mesh.faces, passed, r[mesh.face_cells])

        def at_the_boundary() -> None:
            for side, own in zip(self.sides, self.own, strict=True):
                at_sides(side, side.normal, u[side.cells], own, r[side.cells])

        def decided() -> None:
            self.least.value = 9.0
            extremes(cells, u, self.low, self.least, self.total)
            ml.locate(self.low, self.least, self.where)
            decide(self.clock, self.least, self.pace)
            slowed(cells, self.pace, r)

        return [
            lambda: flux(mesh.faces, u[mesh.face_cells], f),
            lambda: given(mesh.faces, f, r[mesh.face_cells]),
            by_temporary, at_the_boundary, decided,
            lambda: moved(cells, r, u),
            lambda: moved(self.some, r, u),
            lambda: [to_nodes(one, u, n[one.nodes]) for one in self.kinds],
            lambda: around(mesh.nodes, u[mesh.node_cells], n),
            lambda: along(cells, u[self.next], r),
            lambda: r.fill(0.25),
            lambda: shaken(cells, u, self.random),
            lambda: (self.matrix.fill(0.0), assemble(mesh.faces, f, self.matrix[mesh.face_cells])),
            lambda: self.matrix(self.x, self.y),
        ]  # fmt: skip

    def values(self) -> list[np.ndarray]:
        fields = [self.u, self.r, self.f, self.n, self.y, self.low, self.matrix.values, *self.own]
        totals = self.least, self.total, self.pace, self.where
        return [*(one.numpy() for one in fields), *(np.array(one.value, ndmin=1) for one in totals)]


def in_turn(calls: list[Callable[[], Any]]) -> None:
    for one in calls:
        one()


def left_by(seed: int) -> list[np.ndarray]:
    """All values behind a few runs of a random program, with writes and loops by themselves in between."""
    world = World(seed)
    pieces, dice = world.pieces(), world.dice
    program = ml.program(partial(in_turn, [pieces[k] for k in dice.integers(0, len(pieces), dice.integers(3, 9))]),
                         fuse=bool(dice.random() < 0.7))  # fmt: skip
    for _ in range(3):
        program.run(int(dice.integers(1, 4)))
        if dice.random() < 0.3:
            world.n.fill(0.5)
        if dice.random() < 0.5:
            world.u.assign(-world.u.numpy())
        if dice.random() < 0.5:
            pieces[int(dice.choice([0, 1, 3, 5, 8, 9]))]()
    return world.values()


def main(backend: str, *seeds: str) -> None:
    ml.use(backend, reproducible=True)
    PARTITIONERS[AT_RANDOM] = at_random
    found = {}
    for one in seeds:
        Rows.placement.cutting = "rcb" if int(one) % 3 == 0 else AT_RANDOM
        found[one] = left_by(int(one))
    report(found)
    assert asked or ml.world.size == 1 or all(int(one) % 3 == 0 for one in seeds), "some are cut at random"


if __name__ == "__main__":
    main(*sys.argv[1:])
