"""A program with a call in its middle, which tests of calls run."""

from __future__ import annotations

import numpy as np

import meshloom as ml


@ml.kernel
def add_one(u: ml.ReadWrite, total: ml.Sum):
    u += 1.0
    total += u


@ml.kernel
def double(u: ml.ReadWrite):
    u[...] = 2.0 * u


class Work:
    """u + 1, then u squared by NumPy, then twice that."""

    def __init__(self) -> None:
        self.cells = ml.Set(5, "cells")
        self.u, self.total = self.cells.field("u", data=0.0), ml.Global(0.0, "total")
        self.squared = 0
        self.program = ml.program(self.work)

    def work(self) -> None:
        self.before()
        ml.call(self.square)
        self.behind()

    def before(self) -> None:
        self.total.value = 0.0
        add_one(self.cells, self.u, self.total)

    def square(self) -> None:
        self.squared += 1
        self.u.assign(np.sqrt(self.u.numpy()))

    def behind(self) -> None:
        double(self.cells, self.u)


def expected(rounds: int) -> list[float]:
    """u after each round."""
    found, u = [], 0.0
    for _ in range(rounds):
        u = 2.0 * np.sqrt(u + 1.0)
        found.append(u)
    return found
