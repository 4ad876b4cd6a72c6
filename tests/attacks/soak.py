"""One process that makes things and drops them: ``python -m tests.attacks.soak fields 100000 SEED``.

After a warm-up its memory, its mappings and the number of living objects must stay what they are: exit status 0 and one
line with the figures, or 1 and one line that says what grew. The collector works as in any process, and nobody calls it
between two looks; with ``off`` as a fourth argument it does not work at all, so what waits for it is seen at once.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import meshloom as ml
from meshloom import compact
from meshloom.errors import ProgramError

MOST_BYTES = 20e6  # more than after the warm-up, at any look
MOST_MAPPINGS = 20
LOOKS = 50
WARM_UP = 0.1  # of the rounds
COUNTED = (ml.Field, ml.Global, ml.Set, ml.Map, ml.Mesh, ml.Loop, ml.Program, ml.Kernel)
SIZE = 50_000
LIBRARIES = 3  # different ones for each way to compile a kernel


@ml.kernel
def scaled(u: ml.Read, by: ml.Read, out: ml.Write):
    out[...] = by * u


@ml.kernel
def spread(u: ml.Read, out: ml.Inc):
    out[0] += 0.5 * u[1]
    out[1] += u[0]


@ml.kernel
def summed(u: ml.Read, total: ml.Sum):
    total += u


def chain(size: int) -> np.ndarray:
    return np.stack([np.arange(size - 1), np.arange(1, size)], axis=1)


class World:
    """What stays."""

    def __init__(self) -> None:
        self.cells, self.edges = ml.Set(SIZE, "cells"), ml.Set(SIZE - 1, "edges")
        self.ends = ml.Map(self.edges, self.cells, chain(SIZE), "ends")
        self.u, self.out, self.by = self.cells.field("u", data=np.ones(SIZE)), self.cells.field("out"), ml.Global(2.0)
        self.grid = ml.Grid((200, 200), periodic=True)
        self.f = self.grid.field("f")
        self.totals: list[ml.Global] = []


def field(w: World, dice: random.Random) -> None:
    """A call with something that was made for it."""
    kind = dice.randrange(10)
    ml.use("numpy" if kind == 0 else "cpu")
    if kind < 4:
        scaled(w.cells, w.u, ml.Global(dice.random()), w.cells.field("new"))
    elif kind < 6:
        spread(w.edges, w.u[w.ends], w.cells.field("new")[w.ends])
    elif kind == 6:
        new = w.cells.field("new", 2)
        scaled(w.cells, new, w.by, copy.deepcopy(new))
        new.relayout("soa")
        scaled(w.cells, new, w.by, copy.deepcopy(new))
    elif kind == 7:
        low = dice.randrange(190)
        scaled(w.grid.box((low, 0), (low + 10, 200)), w.f, w.by, w.grid.field("new"))
    elif kind == 8:  # the old field goes, the young global stays for a while
        w.totals = [*w.totals[-20:], ml.Global(0.0)]
        summed(w.cells, w.cells.field("new"), w.totals[-1])
    else:
        compact.d(w.f, dice.randrange(2))


def program(w: World, dice: random.Random) -> None:
    """A program with fields of its own, perhaps with another one inside it; every third one fails half-way."""
    ml.use(dice.choice(["cpu"] * 16 + ["numpy"] * 3 + ["emulated"]))
    new, total = w.cells.field("new"), ml.Global(0.0)
    between, fails = w.cells.field("between", temporary=True), dice.randrange(3) == 0
    inner = ml.program(lambda: scaled(w.cells, w.u, w.by, new))

    @ml.program
    def step() -> None:
        total.value = 0.0
        inner()
        scaled(w.cells, new, w.by, between)
        if fails:
            new.numpy()
        summed(w.cells, between, total)

    try:
        step.run(2, record=(total,))
        assert not fails
    except ProgramError:
        assert fails


def kernel(w: World, dice: random.Random) -> None:
    """A kernel of its own; those that are compiled come to a few libraries, with buffers of threads (tile) or not."""
    ml.use(dice.choice(["cpu"] * 6 + ["numpy"] * 12 + ["emulated"]))
    by = dice.random() if ml.backend() == "numpy" else float(dice.randrange(LIBRARIES))
    way = dice.choice(["auto", "tile"]) if ml.backend() == "cpu" else None
    table = np.full(1000, dice.random())

    @ml.kernel
    def own(u: ml.Read, out: ml.Inc) -> None:
        out[0] += by * u[1] + min(table[0], 0.0)
        out[1] += u[0]

    own(w.edges, w.u[w.ends], w.out[w.ends], schedule=way)


def mesh(w: World, dice: random.Random) -> None:
    """Sets, maps, a mesh or a grid, used and dropped."""
    ml.use(dice.choice(["cpu", "cpu", "numpy"]))
    kind = dice.randrange(3)
    if kind == 0:
        size = 20_000
        cells, edges = ml.Set(size), ml.Set(size - 1)
        ends = ml.Map(edges, cells, chain(size))
        spread(edges, cells.field("u")[ends], cells.field("out")[ends])
    elif kind == 1:
        made = ml.generate.box((60, 60))
        spread(made.faces, made.cells.field("u")[made.face_cells], made.cells.field("out")[made.face_cells])
    else:
        grid = ml.Grid((100, 100), periodic=True, ghosts=dice.choice((0, 1)))
        scaled(grid, grid.field("u"), w.by, grid.field("out"))


ROUNDS: dict[str, Callable[[World, random.Random], None]] = {
    "fields": field, "programs": program, "kernels": kernel, "meshes": mesh,
}  # fmt: skip


def resident() -> int:
    """Bytes in memory, of those that malloc would give back."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def mappings() -> int:
    """Parts of files in memory: each open library has some, and there may be 65,530 mappings in all."""
    return sum("/" in line for line in Path("/proc/self/maps").read_text().splitlines())


def census() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, COUNTED))


def soak(kind: str, rounds: int, seed: str) -> str:
    """What grew, in one line; empty where nothing did."""
    dice, world, make = random.Random(seed), World(), ROUNDS[kind]
    for _ in range(max(int(WARM_UP * rounds), 40)):
        make(world, dice)
    world.totals.clear()
    objects, maps, before, most = census(), mappings(), resident(), 0
    for k in range(rounds):
        make(world, dice)
        if k % max(rounds // LOOKS, 1) == 0:
            most = max(most, resident() - before)
    world.totals.clear()
    now, more = census(), mappings() - maps
    print(f"{kind}: {rounds:,} rounds, at most {most / 1e6:+.1f} MB, {more:+} mappings, {sum(now.values())} objects")
    if most > MOST_BYTES:
        return f"memory grew by {most / 1e6:.0f} MB in {rounds:,} rounds of {kind}"
    if now != objects:
        return f"{dict(now - objects)} more objects, {dict(objects - now)} fewer, after {rounds:,} rounds of {kind}"
    return f"{more} mappings more after {rounds:,} rounds of {kind}" if more > MOST_MAPPINGS else ""


def main(kind: str, rounds: str, seed: str, collector: str = "on") -> int:
    if collector == "off":
        gc.disable()
    wrong = soak(kind, int(rounds), seed)
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
