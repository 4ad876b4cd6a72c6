"""What ``test_overlap.py`` runs on any number of ranks, as ``on_ranks.py``, which prints the digests: loops along
lines, loops that run while messages travel, which all do here that can, and reductions that are put together later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.dist import overlap
from meshloom.dist.checks import poisons_halos
from meshloom.target.numbers import MessageNumbers
from tests.dist import on_ranks, on_ranks_grids

FREE = MessageNumbers(0.0, 0.0, per_cut=-1.0)  # whatever can be cut is


@ml.kernel
def spread(u: ml.Read, v: ml.Write):
    values: Any = u
    v[...] = 0.5 * values[0, 0] + 0.1 * (values[-2, 0] + values[-1, 0] + values[1, 0] + values[2, 1]) + 0.05 * v_of(u)


def v_of(u: Any) -> Any:
    return u[0, -1] * u[0, 1]


@ml.kernel
def blended(v: ml.Read, u: ml.ReadWrite):
    u[...] = 0.75 * u + 0.25 * v


def in_turn() -> list[np.ndarray]:
    """A stencil, and a loop that changes what it reads: the core of one after the other, then their rims."""
    found = []
    for periodic in (False, True):
        grid = ml.Grid((17, 6), periodic=(periodic, True), ghosts=(2, 0) if not periodic else 0)
        dice = np.random.default_rng(3)
        u, v = (grid.field(name, data=dice.standard_normal((17, 6))) for name in "uv")
        reach = grid.offsets((0, 0), (-2, 0), (-1, 0), (1, 0), (2, 1), (0, -1), (0, 1))

        @ml.program
        def step(grid: ml.Grid = grid, u: ml.Field = u, v: ml.Field = v, reach: Any = reach) -> None:
            if grid.ghosts[0]:
                ml.fill_ghosts(u)
            spread(grid, u[reach], v)
            blended(grid, v, u)
            spread(grid, u[reach], v)
            blended(grid.boundary(1, "low", 2), v, u)

        step.run(3)
        spread(grid, u[reach], v)
        found += [u.numpy(), v.numpy()]
        if ml.world.size > 1:
            said = step.explain()
            assert "exchange of u with rank" in said, said
            assert ml.world.size > 3 or "overlapped with spread" in said, "slabs of four planes have no core"
            polled = ml.world.size == 2 and not periodic and not poisons_halos()  # which is done between loops
            assert not polled or "spread, blended, polled once meanwhile" in said, said
            assert "halos      of u, exchanged before it" in spread.loop(grid, u[reach], v).explain()
    return found


@ml.kernel
def doubled(u: ml.Read, f: ml.Write):
    f[...] = 2.0 * u - 1.0


@ml.kernel
def added(y: ml.Read, u: ml.Inc):
    u[...] += 0.25 * y


def lines(dtype: type = np.float64) -> list[np.ndarray]:
    """Along axes that are not cut, with kernels before and after, coefficients that vary, and stencils between."""
    dice, found = np.random.default_rng(11), []
    shape = (9, 8, 7)
    for axis, periodic in ((1, False), (2, True), (1, True), (2, False)):
        grid = ml.Grid(shape, periodic=(False, periodic, periodic), ghosts=(1, 0, 0))
        u, v, w = (grid.field(name, dtype=dtype, data=dice.standard_normal(shape).astype(dtype)) for name in "uvw")
        matrix = ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=periodic)
        operator = ml.linalg.LineOperator(matrix)
        systems = ml.linalg.LineSystems(grid, axis, dice.uniform(-1.0, 1.0, shape), 4.0, 0.5, dtype=dtype)
        sweep = ml.linalg.LineLoop(grid, axis, operator, u, w, before=doubled, after=added, values=1)
        step = _sweeping(grid, sweep, systems, u, v, w)
        step.run(2)
        ml.linalg.line_loop(grid, axis, operator, u, w)
        found += [one.numpy() for one in (u, v, w)]
    return found


@ml.kernel
def across(u: ml.Read, w: ml.ReadWrite):
    values: Any = u
    w[...] = 0.5 * w + 0.1 * (values[-1, 0, 0] - values[1, 0, 0])


def _sweeping(grid: ml.Grid, sweep: Any, systems: Any, u: ml.Field, v: ml.Field, w: ml.Field) -> ml.Program:
    @ml.program
    def step() -> None:
        ml.fill_ghosts(u)
        across(grid, u[grid.offsets((-1, 0, 0), (1, 0, 0))], w)
        systems.solve(w, v)
        sweep()
        blended(grid, v, u)

    return step


@ml.kernel
def measured(x: ml.Read, y: ml.ReadWrite, to: ml.Inc, total: ml.Sum, least: ml.Min, count: ml.Sum):
    y[...] = 0.5 * y + x[0] * x[1]
    to[0] += y
    to[1] -= 0.5 * y
    total += y * x[0]
    least[...] = y - x[1]
    count += 1


@ml.kernel
def judged(total: ml.Read, count: ml.Read, x: ml.ReadWrite, size: ml.Sum):
    x[...] = 0.5 * x + 0.001 * total / count
    size += x * x


def reductions() -> list[np.ndarray]:
    """Of loops that visit elements of others, several to be put together, and one Global of two loops."""
    dice = np.random.default_rng(8)
    things, places = ml.Set(120, "things"), ml.Set(50, "places")
    ends = ml.Map(things, places, np.sort(dice.integers(0, 50, (120, 2)), axis=0), "ends")
    some = things.subset(np.arange(0, 120, 3))
    x, to = (places.field(name, data=dice.standard_normal(50)) for name in ("x", "to"))
    y = things.field("y", data=dice.standard_normal(120))
    total, least, size, count = ml.Global(0.5, "total"), ml.Global(9.0, "least"), ml.Global(0.0, "size"), ml.Global(0)

    @ml.program
    def step() -> None:
        count.value = 0
        measured(things, x[ends], y, to[ends], total, least, count)
        measured(some, x[ends], y, to[ends], total, least, count)
        judged(places, total, count, x, size)

    history = step.run(3, record=[total, size])
    measured(things, x[ends], y, to[ends], total, least, count)
    return [np.asarray(history), *(one.numpy() for one in (x, y, to)),
            *(np.array(one.value, ndmin=1) for one in (total, least, size, count))]  # fmt: skip


RUNS: dict[str, Callable[[], list[np.ndarray]]] = {
    "in turn": in_turn, "lines": lines, "lines, single": partial(lines, np.float32), "reductions": reductions,
    **{f"grid {seed}": partial(on_ranks_grids.run, seed) for seed in range(24)},
}  # fmt: skip


if __name__ == "__main__":
    overlap.message_numbers = lambda: FREE
    overlap.across_nodes = lambda: True
    on_ranks.RUNS = RUNS
    on_ranks.main(*sys.argv[1:])
