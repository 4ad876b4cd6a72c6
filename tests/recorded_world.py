"""One of each kind of thing that a program may meet, and kernels that use them."""

from __future__ import annotations

import numpy as np

import meshloom as ml


@ml.kernel
def spread(u: ml.Read, out: ml.Inc):
    out[0] += 0.5 * u[1]
    out[1] += 0.25 * u[0]


@ml.kernel
def scale(u: ml.ReadWrite, factor: ml.Read, total: ml.Sum):
    u[...] = factor * u + 1.0
    total += u


@ml.kernel
def halve(f: ml.Read, out: ml.Write):
    out[...] = 0.5 * f + out_of_nowhere


@ml.kernel
def add(df: ml.Read, out: ml.ReadWrite):
    out[...] = out + df


out_of_nowhere = 0.125


class World:
    """One of each kind."""

    def __init__(self) -> None:
        self.cells, self.edges = ml.Set(6, "cells"), ml.Set(5, "edges")
        self.ends = ml.Map(self.edges, self.cells, [[k, k + 1] for k in range(5)], "ends")
        self.u, self.v = self.cells.field("u", data=np.arange(1.0, 7.0)), self.cells.field("v")
        self.pair = self.cells.field("pair", 2, data=np.arange(12.0).reshape(6, 2))
        self.total, self.factor = ml.Global(0.0, "total"), ml.Global(1.5, "factor")
        self.vector, self.where = ml.Global(np.arange(3.0), "vector"), ml.Global(0, "where", dtype=np.int64)
        self.grid = ml.Grid((12, 10), periodic=True, ghosts=(1, 0))
        self.stretched = ml.Grid((12,), coordinates=[np.linspace(0.0, 1.0, 12) ** 2], name="stretched")
        self.f = self.grid.field("f", data=np.random.default_rng(0).random((12, 10)))
        self.g, self.h = self.grid.field("g"), self.stretched.field("h", data=np.arange(12.0) ** 2)
        box = ml.generate.box((3, 2))
        self.mesh = ml.Mesh.from_cells(box.coordinates.numpy(), box.cell_nodes.indices, box.kind,
                                       {n: box.boundary_nodes.indices[box.group(n)] for n in box.groups},
                                       cell_groups={"left": [0, 1]})  # fmt: skip
        self.matrix = ml.Matrix(self.cells, through=self.ends)
        self.matrix.assign(np.arange(1.0, 17.0))
        self.kernel = scale
        self.loop = scale.loop(self.cells, self.u, self.factor, self.total)
        self.line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=True))
        self.lines = ml.linalg.LineLoop(self.grid, 1, self.line, self.f, self.f, before=halve, values=1)
        self.poisson = ml.linalg.Poisson(ml.Grid((4, 3), name="plate"))
        self.inner = ml.program(self.step)
        self.scaled = ml.program(self.scale_by_factor)

    def step(self) -> None:
        scale(self.cells, self.u, self.factor, self.total)
        self.v.fill(2.0)
        spread(self.edges, self.u[self.ends], self.v[self.ends])

    def scale_by_factor(self, field: ml.Field, total: ml.Global) -> None:
        scale(self.cells, field, self.factor, total)

    def values(self) -> list[np.ndarray]:
        held = (self.u, self.v, self.pair, self.total, self.factor, self.vector, self.where, self.f, self.g, self.h)
        return [*(one.saved() for one in held), self.mesh.coordinates.numpy(), self.matrix.values.numpy()]
