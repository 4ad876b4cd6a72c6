"""A random program of loops and forks: python -m tests.attacks.forking SEED says "all right" or fails.

Everything that uses OpenMP is done before and after forks: loops, replays, fills, sorts and solvers along lines.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from multiprocessing import get_context

import numpy as np

import meshloom as ml
from meshloom.order.curves import bisect, hilbert_keys

Step = Callable[[], np.ndarray]


@ml.kernel
def spread(q: ml.Read, res: ml.Inc):
    res[0] += 3 * q[0] - q[1]
    res[1] += q[1] + 2 * q[0]


@ml.kernel
def total(q: ml.Read, sum_: ml.Sum):
    sum_ += q


def steps() -> dict[str, Step]:
    """What a process may do, each with an answer that is always the same."""
    mesh = ml.generate.box((80, 80))
    q, res, whole = mesh.cells.field("q"), mesh.cells.field("res"), ml.Global(0.0, "sum_")
    q.assign(np.arange(mesh.cells.size, dtype=float).reshape(-1, 1) % 13)
    points = np.random.default_rng(0).random((60000, 2))
    grid = ml.Grid((48, 64), extent=2 * np.pi, periodic=True)
    f, df = grid.field("f", data=np.sin(grid.meshgrid()[1])), grid.field("df")
    third = 1.0 / 3.0
    slope = ml.linalg.LineOperator(ml.linalg.Tridiagonal(third, 1.0, third, periodic=True),
                                   ml.linalg.LineStencil({-2: -1 / 36, -1: -7 / 9, 1: 7 / 9, 2: 1 / 36}))  # fmt: skip

    def loop(strategy: str) -> Step:
        def run() -> np.ndarray:
            res.fill(1.0)
            spread(mesh.faces, q[mesh.face_cells], res[mesh.face_cells], schedule=strategy)
            return res.numpy()

        return run

    def summed() -> np.ndarray:
        whole.value = 0.0
        total(mesh.cells, q, whole)
        return np.array(whole.value)

    @ml.program
    def twice() -> None:
        res.fill(0.0)
        spread(mesh.faces, q[mesh.face_cells], res[mesh.face_cells])

    def replayed() -> np.ndarray:
        twice.run(3)
        return res.numpy()

    def lines() -> np.ndarray:
        ml.linalg.line_loop(grid, 1, slope, f, df)
        return df.numpy()

    return {"loop": loop("owner"), "colors": loop("color"), "blocks": loop("block_color"), "sum": summed,
            "replay": replayed, "lines": lines, "curve": lambda: hilbert_keys(points),
            "cuts": lambda: bisect(points, 64)}  # fmt: skip


class Program:
    """Random things to do, and what they must give."""

    def __init__(self, seed: int):
        self.steps = steps()
        self.expected: dict[str, np.ndarray] = {}
        self.seed = seed

    def do(self, name: str) -> None:
        found = self.steps[name]().copy()
        assert np.array_equal(found, self.expected.setdefault(name, found)), name

    def some(self, dice: random.Random, most: int) -> None:
        for name in dice.choices(list(self.steps), k=dice.randint(1, most)):
            self.do(name)

    def fork(self, dice: random.Random, depth: int) -> None:
        """A child that does something too, and may have children."""
        child = os.fork()
        if not child:
            code = 1
            try:
                self.live(random.Random(dice.random()), depth + 1)
                code = 0
            finally:
                os._exit(code)
        dice.random()  # as the child has drawn
        if dice.random() < 0.3:
            self.some(dice, 2)  # both at the same time
        assert os.waitpid(child, 0)[1] == 0, f"child at depth {depth + 1}"

    def pool(self, dice: random.Random) -> None:
        with get_context("fork").Pool(2) as workers:
            assert all(workers.map(worker, dice.choices(list(self.steps), k=4), chunksize=1))

    def live(self, dice: random.Random, depth: int) -> None:
        for _ in range(dice.randint(1, 4)):
            kind = dice.random()
            if kind < 0.45:
                self.some(dice, 3)
            elif kind < 0.55:
                ml.use("cpu", threads=dice.randint(1, 4))
            elif kind < 0.85 and depth < 3:
                self.fork(dice, depth)
            elif depth < 2:
                self.pool(dice)


program: Program


def worker(name: str) -> bool:
    program.do(name)
    return True


def main(seed: int) -> None:
    global program
    dice = random.Random(seed)
    ml.use("cpu", threads=2)
    program = Program(seed)
    if dice.random() < 0.9:
        for name in program.steps:
            program.do(name)  # with threads
    program.live(dice, 0)
    program.fork(dice, 0)
    program.some(dice, 3)
    print("all right")


if __name__ == "__main__":
    main(int(sys.argv[1]))
