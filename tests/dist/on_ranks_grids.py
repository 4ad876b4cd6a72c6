"""Programs on grids for ``test_ranks_grids.py``: ``python -m tests.dist.on_ranks_grids BACKEND SEED...`` prints a line
with a digest of all results of each; every rank must have found the same. A seed decides everything: axes, ends,
ghosts, types, layouts, and what the loops of a program are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from tests.dist.on_ranks import digest

Index = tuple[int, ...]
DTYPES, LAYOUTS, COMPONENTS = (np.float64, np.float32), ("soa", "aos", "aosoa4"), (1, 3, 2)
PLANES, FAR = (16, 19), 3  # of the first axis: for four ranks at most four away


def combined(offsets: tuple[Index, ...], weights: tuple[float, ...]) -> Any:
    """The kernel of a stencil, not a linear one."""

    @ml.kernel
    def combine(u: ml.Read, v: ml.ReadWrite) -> None:
        values: Any = u
        total = weights[0] * values[offsets[0]]
        for offset, weight in zip(offsets[1:], weights[1:], strict=True):
            total = total + weight * values[offset] * (1.0 + values[offsets[0]])
        v[...] = 0.5 * v + total

    return combine


@ml.kernel
def raise_by(u: ml.ReadWrite, step: ml.Read):
    u[...] = u * 0.75 + step


@ml.kernel
def measured(u: ml.Read, total: ml.Sum, low: ml.Min, high: ml.Max, count: ml.Sum):
    total += np.sum(u * u)
    low[...] = np.min(u)
    high[...] = np.max(u)
    count += 1


@ml.kernel
def shaken(u: ml.ReadWrite, r: ml.Random):
    u += 0.1 * r.normal()


@ml.kernel
def looked_up(u: ml.Read, seen: ml.ReadWrite):
    seen[...] = 0.5 * seen + u[0] - 0.25 * u[1]


@ml.kernel
def spread(seen: ml.Read, u: ml.Inc):
    u[0] += 0.125 * seen
    u[1] -= 0.0625 * seen


@ml.kernel
def from_points(u: ml.Read, v: ml.ReadWrite, seen: ml.Inc, total: ml.Sum):
    v[...] = 0.5 * v + u
    seen[0] += 0.01 * v
    total += np.sum(v)


@dataclass(frozen=True)
class Sample:
    """A grid at random, with three fields, and what loops on it are made of."""

    random: np.random.Generator
    grid: ml.Grid
    fields: tuple[ml.Field, ...]
    totals: tuple[ml.Global, ...]
    source: ml.Random

    @classmethod
    def of(cls, seed: int) -> Sample:
        random, axes = np.random.default_rng(seed), 1 + seed % 3
        shape = (int(random.integers(*PLANES)), *map(int, random.integers(4, 8, axes - 1)))
        periodic, ghosts = random.random(axes) < 0.5, random.integers(0, 3, axes) * (random.random(axes) < 0.6)
        grid = ml.Grid(shape, periodic=periodic.tolist(), ghosts=ghosts.tolist(), aligned=bool(random.random() < 0.3))
        dtype, dim, layout = DTYPES[seed % 2], COMPONENTS[seed // 2 % 3], LAYOUTS[seed // 3 % 3]
        each = (dim,) if dim > 1 else ()
        fields = tuple(grid.field(name, dim, data=random.standard_normal((*shape, *each)).astype(dtype), layout=layout)
                       for name in "uvw")  # fmt: skip
        totals = (*(ml.Global(first, name, dtype=dtype) for first, name in
                    ((0.0, "total"), (np.inf, "low"), (-np.inf, "high"))), ml.Global(0, "count"))  # fmt: skip
        return cls(random, grid, fields, totals, ml.Random(seed=seed))

    def box(self, reach: Index = (), *, whole: bool = False) -> ml.Box:
        """One from which all that is so many points away is there; the largest, or a smaller one."""
        ends = []
        for n, ghosts, wraps, far in zip(self.grid.shape, self.grid.ghosts, self.grid.wraps,
                                         reach or (0,) * self.grid.rank, strict=True):  # fmt: skip
            low, high = (0, n) if wraps else (far - ghosts, n + ghosts - far)
            first = low if whole else int(self.random.integers(low, high))
            ends.append((first, high if whole else int(self.random.integers(first + 1, high + 1))))
        return self.grid.box(*zip(*ends, strict=True))

    def two(self) -> tuple[ml.Field, ml.Field]:
        one, other = self.random.choice(len(self.fields), 2, replace=False)
        return self.fields[one], self.fields[other]

    def stencil(self, far: int) -> Callable[[ml.Field, ml.Field], None]:
        """A loop that looks so many points away along each axis, or as many as there are."""
        reach = tuple(
            min(far, n // 2 if wraps else (n + 2 * ghosts - 1) // 2)
            for n, ghosts, wraps in zip(self.grid.shape, self.grid.ghosts, self.grid.wraps, strict=True)
        )
        count = int(self.random.integers(2, 6))
        drawn = {tuple(int(self.random.integers(-r, r + 1)) for r in reach) for _ in range(count)}
        offsets = tuple(sorted({(reach[0], *(0,) * (self.grid.rank - 1)), (0,) * self.grid.rank} | drawn))
        kernel = combined(offsets, tuple(self.random.uniform(-0.2, 0.2, len(offsets))))
        box = self.box(reach, whole=self.random.random() < 0.7)
        return lambda u, v: kernel(box, u[self.grid.offsets(*offsets)], v)

    def through_maps(self) -> list[Callable[[], None]]:
        """Between a set and points, ghosts among them; from all points, where there is nothing else in memory."""
        grid, probes, (u, v), (s, t) = self.grid, ml.Set(11, "probes"), self.two(), self.two()
        rows = np.setdiff1d(np.arange(grid.total), grid.padding)
        where = ml.Map(probes, grid, self.random.choice(rows, (11, 2)), "where")
        seen = probes.field("seen", u.components, dtype=u.dtype)
        found = [lambda: looked_up(probes, u[where], seen), lambda: spread(probes, seen, v[where])]
        if grid.total == grid.size:
            home = ml.Map(grid, probes, self.random.integers(0, 11, grid.total), "home")
            found.append(lambda: from_points(grid, s, t, seen[home], self.totals[0]))
        return found

    def loops(self) -> list[Callable[[], None]]:
        """What a program consists of: each kind once at least, in any order."""
        grid, (u, v), (p, q), (s, t) = self.grid, self.two(), self.two(), self.two()
        first, second = self.stencil(1), self.stencil(2)
        axis, side = int(self.random.integers(grid.rank)), ("low", "high")[int(self.random.integers(2))]
        parts = grid.boundary(axis, side), self.box(), self.box()
        closed = (None, "copy", "mirror")[int(self.random.integers(3))]

        def by_temporary() -> None:
            there = grid.field("there", p.components, dtype=p.dtype, layout=p.layout)
            first(p, there)
            second(there, q)

        found = [lambda: first(u, v), lambda: second(s, t), by_temporary, lambda: raise_by(parts[0], u, 0.25),
                 lambda: raise_by(parts[1], v, -0.5), lambda: shaken(grid, q, self.source),
                 lambda: shaken(parts[2], p, self.source), lambda: measured(grid, u, *self.totals),
                 lambda: measured(parts[1], s, *self.totals), lambda: ml.fill_ghosts(u, p, closed=closed),
                 lambda: t.fill(0.125), *self.through_maps()]  # fmt: skip
        return [found[k] for k in self.random.permutation(len(found))]


def run(seed: int) -> list[np.ndarray]:
    """A program of everything, replayed; then loops by themselves, one of which reaches further than those before."""
    sample = Sample.of(seed)
    loops, (u, v) = sample.loops(), sample.two()

    @ml.program
    def step() -> None:
        for loop in loops:
            loop()

    history = step.run(2, record=sample.totals[:1])
    sample.stencil(FAR)(u, v)
    shaken(sample.grid.boundary(0, "high", 2), u, sample.source)
    sums = [float(one) for field in sample.fields for one in (field.sum(), field.norm(), field.max())]
    for one in sample.fields:
        whole = one.numpy().reshape(sample.grid.size, -1)
        assert np.array_equal(whole[sample.grid.mine], one.local().reshape(-1, one.dim))
    found = [sample.grid.shaped(one, ghosts=True) for one in sample.fields]
    u.assign(v.numpy())
    sample.stencil(1)(u, v)
    return [*found, v.numpy(), np.asarray(history), np.array(sums), *(np.array(one.value) for one in sample.totals)]


def main(backend: str, *seeds: str) -> None:
    ml.use(backend, reproducible=True)
    found = {seed: digest(run(int(seed))) for seed in seeds}
    everybody = ml.world.gathered(np.frombuffer(json.dumps(found).encode().ljust(4096), np.uint8).reshape(1, -1))
    assert all(np.array_equal(one, everybody[0]) for one in everybody), "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found | {"ranks": ml.world.size}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
