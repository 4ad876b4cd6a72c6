"""Random programs for ranks: loops over several sets and parts of them, directly and through maps, with temporary
fields, fills, reductions, inner and repeated programs, and values that are written in between. As ``on_ranks.py``:
``python -m tests.dist.on_ranks_programs BACKEND SEED...`` prints a digest for each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
from tests.dist.on_ranks import report

CELLS = 120


@ml.kernel
def flux(u: ml.Read, f: ml.Write):
    f[...] = 0.3 * (u[1] - u[0]) + 0.1 * u[0] * u[1]


@ml.kernel
def given(f: ml.Read, r: ml.Inc):
    r[0] += f
    r[1] -= 0.7 * f


@ml.kernel
def at_once(u: ml.Read, w: ml.Read, r: ml.Inc):
    d = w * (u[1] - u[0])
    r[0] += d
    r[1] -= d


@ml.kernel
def averaged(u: ml.Read, n: ml.Inc):
    for k in range(3):
        n[k] += u * (1.0 + 0.1 * k)


@ml.kernel
def back(n: ml.Read, u: ml.ReadWrite):
    u[...] = 0.5 * u + 0.1 * (n[0] + n[1] - n[2])


@ml.kernel
def moved(r: ml.Read, u: ml.ReadWrite):
    u[...] = 0.9 * u + 0.05 * r


@ml.kernel
def scaled(f: ml.ReadWrite):
    f[...] = 0.5 * f + 0.25


@ml.kernel
def looked_at(u: ml.Read, total: ml.Sum, most: ml.Max):
    total += u[0] * u[1]
    most[...] = u[0]


@ml.kernel
def both(u: ml.Read, w: ml.ReadWrite, r: ml.Inc, total: ml.Sum, most: ml.Max):
    d = w * (u[1] - u[0])
    r[0] += d
    r[1] -= d
    w[...] = 0.9 * w + 0.01
    total += d[0] * w
    most[...] = d[1]


@ml.kernel
def extreme(u: ml.Read, r: ml.Max):
    r[0] = u[1]
    r[1] = u[0] - 0.5


@ml.kernel
def stored(u: ml.Read, f: ml.Write):
    f[0] = u + 0.125


class World:
    """Faces and triangles lead to cells and nodes at random; a part of the cells, and faces that are one cell's."""

    def __init__(self, seed: int):
        dice = self.dice = np.random.default_rng(seed)
        size = int(dice.choice([1, 5, CELLS]))
        self.cells, self.faces, self.nodes = ml.Set(size, "cells"), ml.Set(2 * size, "faces"), ml.Set(size + 3, "nodes")
        near = np.sort(dice.integers(0, size, (2 * size, 2)), axis=0)
        self.ends = ml.Map(self.faces, self.cells, near, "ends")
        self.corners = ml.Map(self.cells, self.nodes, dice.integers(0, size + 3, (size, 3)), "corners")
        self.own_face = ml.Map(self.cells, self.faces, dice.permutation(2 * size)[:size, None], "own_face")
        self.part = self.cells.subset(np.flatnonzero(dice.random(size) < 0.4))
        self.u, self.r = (self.cells.field(name, 2, data=dice.standard_normal((size, 2))) for name in "ur")
        self.w = self.faces.field("w", data=dice.random(2 * size))
        self.f = self.faces.field("f", 2, data=dice.random((2 * size, 2)))
        self.t = self.faces.field("t", 2, temporary=True)
        self.n = self.nodes.field("n", 2, data=dice.random((size + 3, 2)))
        self.total, self.most = ml.Global(0.0, "total"), ml.Global(np.zeros(()) - 9.0, "most")

    def pieces(self) -> list[Callable[[], Any]]:
        """What a program is made of."""
        one = self
        return [
            lambda: flux(one.faces, one.u[one.ends], one.f),
            lambda: given(one.faces, one.f, one.r[one.ends]),
            lambda: (flux(one.faces, one.u[one.ends], one.t), scaled(one.faces, one.t),
                     given(one.faces, one.t, one.r[one.ends])),
            lambda: at_once(one.faces, one.u[one.ends], one.w, one.r[one.ends]),
            lambda: averaged(one.cells, one.u, one.n[one.corners]),
            lambda: back(one.cells, one.n[one.corners], one.u),
            lambda: moved(one.cells, one.r, one.u),
            lambda: moved(one.part, one.r, one.u),
            lambda: scaled(one.faces, one.f),
            lambda: one.r.fill(0.25),
            lambda: one.n.fill(0.0),
            lambda: looked_at(one.cells, one.u, one.total, one.most),
            lambda: both(one.faces, one.u[one.ends], one.w, one.r[one.ends], one.total, one.most),
            lambda: extreme(one.faces, one.u[one.ends], one.r[one.ends]),
            lambda: stored(one.cells, one.u, one.f[one.own_face]),
        ]  # fmt: skip


def left_by(seed: int, fuse: bool = True) -> list[np.ndarray]:
    """All values behind a few runs of a random program."""
    world = World(seed)
    pieces, dice = world.pieces(), world.dice
    chosen = [pieces[k] for k in dice.integers(0, len(pieces), dice.integers(2, 8))]
    inner = ml.program(partial(in_turn, [pieces[k] for k in dice.integers(0, len(pieces), 2)]), fuse=fuse)
    if dice.random() < 0.4:
        chosen.insert(int(dice.integers(0, len(chosen))), inner)
    program = ml.program(partial(in_turn, chosen), fuse=fuse)
    fields = [world.u, world.r, world.f, world.n]
    for _ in range(3):
        program.run(int(dice.integers(1, 4)))
        written = fields[int(dice.integers(4))]
        kind = int(dice.integers(4))
        if kind == 0:
            written.assign(-written.numpy())
        elif kind == 1:
            written.fill(0.5)
        elif kind == 2:
            pieces[int(dice.choice([0, 1, 3, 4, 5, 6, 8, 12]))]()  # a loop by itself
    found = [one.numpy() for one in (*fields, world.w)]
    return [*found, *(np.array(one.value, ndmin=1) for one in (world.total, world.most))]


def in_turn(calls: list[Callable[[], Any]]) -> None:
    for one in calls:
        one()


def main(backend: str, *seeds: str) -> None:
    ml.use(backend, reproducible=True)
    report({one: left_by(int(one)) for one in seeds})


if __name__ == "__main__":
    main(*sys.argv[1:])
