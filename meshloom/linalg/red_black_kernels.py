"""What is done in a cell of two points along each axis, half of them red and half black: kernels of a red-black solver.

A point is known by its parity along each axis; black ones have an even sum, and neighbours differ in color. ``e``: for
each axis the numbers along it at the cell, behind a slot: three links, two widths and two links to walls. Fields of one
color have a component for each of its points, in the order of ``points``; those that are seen around have a slot for
the cell itself, and for the one before and behind along each axis.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.operation.loop import Kernel, kernel

Parity = tuple[int, ...]
BLACK, RED = 0, 1
LINKS, WIDTHS, WALLS, NUMBERS = 0, 3, 5, 7  # where each begins in the numbers along an axis, and how many there are


def points(rank: int, color: int) -> tuple[Parity, ...]:
    """The points of a color in a cell."""
    return tuple(one for one in product((0, 1), repeat=rank) if sum(one) % 2 == color)


def neighbours(one: Parity) -> list[tuple[int, int, int, int]]:
    """Of each neighbour of a point: the axis, which of its links leads there, the slot of its cell, and which of the
    other color's points it is."""
    found, rank = [], len(one)
    others = points(rank, 1 - sum(one) % 2)
    for axis, step in product(range(rank), (0, 1)):
        there = tuple(1 - i if a == axis else i for a, i in enumerate(one))
        leaves = one[axis] == step
        found.append((axis, one[axis] + step, 1 + 2 * axis + step if leaves else 0, others.index(there)))
    return found


def area(e: Any, one: Parity, axis: int) -> Any:
    """Of the faces of a point's volume across an axis."""
    return prod((e[a][0, WIDTHS + i] for a, i in enumerate(one) if a != axis), start=1.0)


def links_of(e: Any, one: Parity) -> list[tuple[Any, int, int]]:
    """For each neighbour of a point: its link, its slot and which it is."""
    return [(e[a][0, LINKS + k] * area(e, one, a), slot, which) for a, k, slot, which in neighbours(one)]


def wall_of(e: Any, one: Parity) -> Any:
    """What links a point to walls of given value."""
    return sum(e[a][0, WALLS + i] * area(e, one, a) for a, i in enumerate(one))


def diagonal_of(e: Any, one: Parity) -> Any:
    """That of A; 1 where a point only fills a cell up."""
    found = sum(link for link, _, _ in links_of(e, one)) + wall_of(e, one)
    return np.where(found > 0.0, found, 1.0)


def nearby(e: Any, one: Parity, other: Any) -> Any:
    """The values of the other color round a point, each times its link."""
    return sum(link * other[slot, which] for link, slot, which in links_of(e, one))


def image(e: Any, one: Parity, own: Any, other: Any) -> Any:
    """What A makes at a point, from its own value and those of the other color: differences, so that little is lost."""
    near = sum(link * (own - other[slot, which]) for link, slot, which in links_of(e, one))
    return near + wall_of(e, one) * own


class Halves:
    """The points of both colors in a cell of some axes, and their values in fields, where one alone has no axis."""

    def __init__(self, rank: int):
        self.rank, self.black, self.red = rank, points(rank, BLACK), points(rank, RED)
        self.each = range(len(self.black))
        self._alone = len(self.black) == 1

    def own(self, x: Any, k: int) -> Any:
        return x if self._alone else x[k]

    def store(self, x: Any, k: int, value: Any) -> None:
        x[... if self._alone else k] = value

    def seen(self, x: Any) -> Any:
        """(slots, points)."""
        return x[:, None] if self._alone else x


@cache
def kernels(rank: int) -> SimpleNamespace:
    """Of a number of axes."""
    halves = Halves(rank)
    return SimpleNamespace(**_of_iterations(halves), **_of_start(halves), **_of_factors(halves), **_of_transfer(halves))


def _of_iterations(halves: Halves) -> dict[str, Kernel]:
    own, store, seen, black, red = halves.own, halves.store, halves.seen, halves.black, halves.red

    @kernel
    def new_direction(alpha: Read, beta: Read, r: Read, g: Read, p: Read, new: Write, x: ReadWrite, t: Write,
                      pq: Sum, *e: Read):  # fmt: skip
        p, energy = seen(p), 0.0
        direction = seen(g) * seen(r) + beta * p
        for k in halves.each:
            store(new, k, direction[0, k])
            store(x, k, own(x, k) + alpha * p[0, k])
            energy = energy + wall_of(e, black[k]) * direction[0, k] ** 2
        for k in halves.each:
            links = links_of(e, red[k])
            value = sum(link * direction[slot, which] for link, slot, which in links) / diagonal_of(e, red[k])
            store(t, k, value)
            energy = energy + sum(link * (direction[slot, which] - value) ** 2 for link, slot, which in links)
            energy = energy + wall_of(e, red[k]) * value**2
        pq += energy

    @kernel
    def new_residual(alpha: Read, p: Read, t: Read, g: Read, r: ReadWrite, rr: Sum, rz: Sum, *e: Read):
        squares, products = 0.0, 0.0
        for k in halves.each:
            left = own(r, k) - alpha * image(e, black[k], own(p, k), seen(t))
            store(r, k, left)
            squares, products = squares + left * left, products + own(g, k) * left * left
        rr += squares
        rz += products

    @kernel
    def last_step(alpha: Read, p: Read, x: ReadWrite):
        x += alpha * p

    return {"new_direction": new_direction, "new_residual": new_residual, "last_step": last_step}


def _of_start(halves: Halves) -> dict[str, Kernel]:
    own, store, seen, black, red = halves.own, halves.store, halves.seen, halves.black, halves.red

    @kernel
    def solve_red(x: Read, b: Read, y: Write, *e: Read):
        for k in halves.each:
            store(y, k, (own(b, k) + nearby(e, red[k], seen(x))) / diagonal_of(e, red[k]))

    @kernel
    def black_residual(x: Read, y: Read, b: Read, g: Read, r: Write, rr: Sum, rz: Sum, size: Sum, *e: Read):
        squares, products, whole = 0.0, 0.0, 0.0
        for k in halves.each:
            left = own(b, k) - image(e, black[k], own(x, k), seen(y))
            store(r, k, left)
            squares, products = squares + left * left, products + own(g, k) * left * left
            whole = whole + own(b, k) ** 2
        rr += squares
        rz += products
        size += whole

    @kernel
    def red_residual(x: Read, y: Read, b: Read, rr: Sum, size: Sum, *e: Read):
        rr += sum((own(b, k) - image(e, red[k], own(y, k), seen(x))) ** 2 for k in halves.each)
        size += sum(own(b, k) ** 2 for k in halves.each)

    return {"solve_red": solve_red, "black_residual": black_residual, "red_residual": red_residual}


def _of_factors(halves: Halves) -> dict[str, Kernel]:
    own, store, seen, black, red = halves.own, halves.store, halves.seen, halves.black, halves.red

    @kernel
    def over_diagonal(r: Read, q: Write, *e: Read):
        for k in halves.each:
            store(q, k, own(r, k) / diagonal_of(e, red[k]))

    @kernel
    def close_black(r: Read, q: Read, g: Read, z: Write, *e: Read):
        for k in halves.each:
            store(z, k, own(g, k) * (own(r, k) + nearby(e, black[k], seen(q))))

    return {"over_diagonal": over_diagonal, "close_black": close_black}


def _of_transfer(halves: Halves) -> dict[str, Kernel]:
    store, seen, black, red = halves.store, halves.seen, halves.black, halves.red
    every = list(product((0, 1), repeat=halves.rank))

    @kernel
    def into_halves(x: Read, black_x: Write, red_x: Write, *e: Read):
        for into, ones in ((black_x, black), (red_x, red)):
            for k, one in enumerate(ones):
                there = prod((e[a][0, WIDTHS + i] for a, i in enumerate(one)), start=1.0)
                store(into, k, np.where(there > 0.0, x[every.index(one)], 0.0))

    @kernel
    def out_of_halves(which: Read, black_x: Read, red_x: Read, x: Write):
        values = [*(seen(black_x)[0, k] for k in halves.each), *(seen(red_x)[0, k] for k in halves.each)]
        x[...] = sum(np.where(which == k, value, 0.0) for k, value in enumerate(values))

    return {"into_halves": into_halves, "out_of_halves": out_of_halves}
