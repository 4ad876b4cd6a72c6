"""What is done in a cell of two points along each axis, half of them red and half black: kernels of a red-black solver.

A point is known by its parity along each axis; black ones have an even sum, and neighbours differ in color. Fields of
one color have a component for each of its points, in the order of ``points``; those that are seen around have a slot
for the cell itself, and for the one before and behind along each axis. A is its links, minus what it has next to the
diagonal, and its walls, what the diagonal has besides the sum of the links. ``e``, the last arguments of a kernel, are
what a form of coefficients, ``AlongAxes`` or ``AtPoints``, finds both in.
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
Link = tuple[Any, int, int]  # to a neighbour: how strong it is, the slot of its cell, which of the other color it is
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


class AlongAxes:
    """Coefficients of a Poisson operator. ``e``: for each axis the numbers along it at the cell, behind a slot: three
    links, two widths and two links to walls."""

    @staticmethod
    def links(e: Any, one: Parity) -> list[Link]:
        return [(e[a][0, LINKS + k] * _area(e, one, a), slot, which) for a, k, slot, which in neighbours(one)]

    @staticmethod
    def wall(e: Any, one: Parity) -> Any:
        return sum(e[a][0, WALLS + i] * _area(e, one, a) for a, i in enumerate(one))

    @staticmethod
    def inside(e: Any, one: Parity) -> Any:
        return prod((e[a][0, WIDTHS + i] for a, i in enumerate(one)), start=1.0) > 0.0


def _area(e: Any, one: Parity, axis: int) -> Any:
    """Of the faces of a point's volume across an axis."""
    return prod((e[a][0, WIDTHS + i] for a, i in enumerate(one) if a != axis), start=1.0)


class AtPoints:
    """Coefficients of a matrix with an entry for each neighbour of a point. ``e``: one field, seen around, which has
    for each red point its links, in the order of ``neighbours``, then the walls of the red and of the black points."""

    @staticmethod
    def links(e: Any, one: Parity) -> list[Link]:
        red, each, found = points(len(one), RED), 2 * len(one), []
        for number, (axis, k, slot, which) in enumerate(neighbours(one)):
            if one in red:
                found.append((e[0][0, red.index(one) * each + number], slot, which))
            else:  # the same number stands at the red point, under the step that leads back
                back = 2 * axis + 1 - (k - one[axis])
                found.append((e[0][slot, which * each + back], slot, which))
        return found

    @staticmethod
    def wall(e: Any, one: Parity) -> Any:
        return e[0][0, place_of_wall(one)]

    @staticmethod
    def inside(e: Any, one: Parity) -> Any:
        return sum(link for link, _, _ in AtPoints.links(e, one)) + AtPoints.wall(e, one) > 0.0


def place_of_wall(one: Parity) -> int:
    """Which of the numbers of a cell is what a point has on the diagonal besides its links."""
    rank, color = len(one), sum(one) % 2
    halves = 2 ** (rank - 1)
    return halves * 2 * rank + (0 if color == RED else halves) + points(rank, color).index(one)


class Halves:
    """The points of both colors in a cell of some axes, their values in fields, where one alone has no axis, and A."""

    def __init__(self, rank: int, form: type[AlongAxes] | type[AtPoints]):
        self.rank, self.black, self.red = rank, points(rank, BLACK), points(rank, RED)
        self.links, self.wall, self.inside = form.links, form.wall, form.inside
        self.each = range(len(self.black))
        self._alone = len(self.black) == 1

    def own(self, x: Any, k: int) -> Any:
        return x if self._alone else x[k]

    def store(self, x: Any, k: int, value: Any) -> None:
        x[... if self._alone else k] = value

    def seen(self, x: Any) -> Any:
        """(slots, points)."""
        return x[:, None] if self._alone else x

    def diagonal(self, e: Any, one: Parity) -> Any:
        """That of A; 1 where a point only fills a cell up."""
        found = sum(link for link, _, _ in self.links(e, one)) + self.wall(e, one)
        return np.where(found > 0.0, found, 1.0)

    def nearby(self, e: Any, one: Parity, other: Any) -> Any:
        """The values of the other color around a point, each times its link."""
        return sum(link * other[slot, which] for link, slot, which in self.links(e, one))

    def image(self, e: Any, one: Parity, own: Any, other: Any) -> Any:
        """What A makes at a point, from its own value and those of the other color: differences, so that little is
        lost."""
        near = sum(link * (own - other[slot, which]) for link, slot, which in self.links(e, one))
        return near + self.wall(e, one) * own


@cache
def kernels(rank: int, along_axes: bool) -> SimpleNamespace:
    """Of a number of axes and coefficients in one form or the other."""
    halves = Halves(rank, AlongAxes if along_axes else AtPoints)
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
            energy = energy + halves.wall(e, black[k]) * direction[0, k] ** 2
        for k in halves.each:
            links = halves.links(e, red[k])
            value = sum(link * direction[slot, which] for link, slot, which in links) / halves.diagonal(e, red[k])
            store(t, k, value)
            energy = energy + sum(link * (direction[slot, which] - value) ** 2 for link, slot, which in links)
            energy = energy + halves.wall(e, red[k]) * value**2
        pq += energy

    @kernel
    def new_residual(alpha: Read, p: Read, t: Read, g: Read, r: ReadWrite, rr: Sum, rz: Sum, *e: Read):
        squares, products = 0.0, 0.0
        for k in halves.each:
            left = own(r, k) - alpha * halves.image(e, black[k], own(p, k), seen(t))
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
            store(y, k, (own(b, k) + halves.nearby(e, red[k], seen(x))) / halves.diagonal(e, red[k]))

    @kernel
    def black_residual(x: Read, y: Read, b: Read, g: Read, r: Write, rr: Sum, rz: Sum, size: Sum, *e: Read):
        squares, products, of_b = 0.0, 0.0, 0.0
        for k in halves.each:
            left = own(b, k) - halves.image(e, black[k], own(x, k), seen(y))
            store(r, k, left)
            squares, products = squares + left * left, products + own(g, k) * left * left
            of_b = of_b + own(b, k) ** 2
        rr += squares
        rz += products
        size += of_b

    @kernel
    def red_residual(x: Read, y: Read, b: Read, rr: Sum, size: Sum, *e: Read):
        rr += sum((own(b, k) - halves.image(e, red[k], own(y, k), seen(x))) ** 2 for k in halves.each)
        size += sum(own(b, k) ** 2 for k in halves.each)

    return {"solve_red": solve_red, "black_residual": black_residual, "red_residual": red_residual}


def _of_factors(halves: Halves) -> dict[str, Kernel]:
    own, store, seen, black, red = halves.own, halves.store, halves.seen, halves.black, halves.red

    @kernel
    def over_diagonal(r: Read, q: Write, *e: Read):
        for k in halves.each:
            store(q, k, own(r, k) / halves.diagonal(e, red[k]))

    @kernel
    def close_black(r: Read, q: Read, g: Read, z: Write, *e: Read):
        for k in halves.each:
            store(z, k, own(g, k) * (own(r, k) + halves.nearby(e, black[k], seen(q))))

    return {"over_diagonal": over_diagonal, "close_black": close_black}


def _of_transfer(halves: Halves) -> dict[str, Kernel]:
    store, seen, black, red = halves.store, halves.seen, halves.black, halves.red
    every = list(product((0, 1), repeat=halves.rank))

    @kernel
    def into_halves(x: Read, black_x: Write, red_x: Write, *e: Read):
        for into, ones in ((black_x, black), (red_x, red)):
            for k, one in enumerate(ones):
                store(into, k, np.where(halves.inside(e, one), x[every.index(one)], 0.0))

    @kernel
    def out_of_halves(which: Read, black_x: Read, red_x: Read, x: Write):
        values = [*(seen(black_x)[0, k] for k in halves.each), *(seen(red_x)[0, k] for k in halves.each)]
        x[...] = sum(np.where(which == k, value, 0.0) for k, value in enumerate(values))

    return {"into_halves": into_halves, "out_of_halves": out_of_halves}
