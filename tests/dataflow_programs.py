"""Random programs that touch all there is: ghosts, boxes, lines, parts of sets, maps; and which elements each operation
touches, found by numbering them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.operation.operand import Operand
from meshloom.operation.operation import Operation

Touched = frozenset[int]
Made = tuple[Callable[[], None], list[ml.Field | ml.Global]]  # a program's function, and what to look at behind it


@ml.kernel
def copy(a: ml.Read, b: ml.Write):
    b[...] = a


@ml.kernel
def mix(a: ml.Read, b: ml.ReadWrite):
    b[...] = 0.5 * a + 0.25 * b


def around(step: tuple[int, int]) -> ml.Kernel:
    @ml.kernel
    def at_a_step(a: ml.Read, b: ml.Write):
        b[...] = a[0, 0] - 0.5 * a[step]

    return at_a_step


STENCILS = {step: around(step) for step in ((1, 0), (0, 1), (-1, 0), (0, -1))}


@ml.kernel
def shrink(total: ml.Read, b: ml.ReadWrite):
    b[...] = b / (2.0 + total * total)


@ml.kernel
def count(a: ml.Read, total: ml.Sum):
    total += a


@ml.kernel
def spread(a: ml.Read, b: ml.Inc):
    b[0] += 0.1 * a[1]
    b[1] += 0.2 * a[0]


@ml.kernel
def pick(a: ml.Read, own: ml.Write):
    own[...] = a[0]


@ml.kernel
def draw(b: ml.Write, dice: ml.Random):
    b[...] = dice.uniform()


@dataclass
class World:
    """What random programs are made of. ``call``: a random operation, to be called in a program; ``whole``: what loops
    run over that take all elements; ``looked_at``: what they may change."""

    call: Callable[[], Callable[[], None]]
    whole: Any
    fields: list[ml.Field]
    looked_at: list[ml.Field | ml.Global]


def grid_world(dice: random.Random) -> World:
    """Loops over boxes, ghosts and everything, lines and fills."""
    ghosts, periodic = dice.choice((0, 1)), dice.choice((True, False))
    grid = ml.Grid((5, 4), ghosts=ghosts, periodic=periodic, name="grid")
    few = ml.Set(2, "few")
    there, own = ml.Map(few, grid, [[0], [grid.total - 1]], "there"), few.field("own")
    fields = [grid.field(name, data=np.arange(20.0).reshape(5, 4) + k) for k, name in enumerate("uvw")]
    total = ml.Global(0.0, "total")
    line = ml.linalg.LineOperator(ml.linalg.Tridiagonal(0.25, 1.0, 0.25, periodic=periodic))

    def small() -> ml.Box:
        low = [dice.randrange(n) for n in grid.shape]
        return grid.box(low, [min(a + dice.randint(1, 3), n) for a, n in zip(low, grid.shape, strict=True)])

    def some_box() -> ml.Grid | ml.Box:
        boxes = [grid, grid.everything, small(), small()]
        boxes += [grid.ghost(axis, side) for axis in (0, 1) for side in ("low", "high")] if ghosts else []
        return dice.choice(boxes)

    def call() -> Callable[[], None]:
        a, b = dice.sample(fields, 2)
        step, box = dice.choice([*STENCILS]), some_box()
        column = dice.randrange(1, 3)
        inner = small() if ghosts or periodic else grid.box([1, column], [4, column + 1])
        calls: list[Callable[[], None]] = [
            lambda: copy(box, a, b), lambda: mix(box, a, b), lambda: count(box, a, total), lambda: a.fill(0.5),
            lambda: shrink(box, total, b), lambda: STENCILS[step](inner, a[grid.offsets((0, 0), step)], b),
            lambda: ml.linalg.LineLoop(grid, 1, line, a, b)(), lambda: pick(few, a[there], own),
        ]  # fmt: skip
        return dice.choice(calls)

    return World(call, grid, fields, [*fields, total])


def mesh_world(dice: random.Random) -> World:
    """Loops over cells, parts of them and faces."""
    mesh = ml.generate.box((3, 2))
    fields = [mesh.cells.field(name, data=np.arange(6.0) + k) for k, name in enumerate("uvw")]
    total, numbers = ml.Global(0.0, "total"), ml.Random(seed=1)
    parts = [mesh.cells.subset([0, 1, 4]), mesh.cells.subset([2, 3]), mesh.cells]
    few = ml.Set(3, "few")
    there, own = ml.Map(few, mesh.cells, [[1], [5], [3]], "there"), few.field("own", data=[7.0, 8.0, 9.0])

    @ml.kernel
    def put(a: ml.Read, b: ml.Write):
        b[0] = a

    def call() -> Callable[[], None]:
        a, b = dice.sample(fields, 2)
        part = dice.choice(parts)
        calls: list[Callable[[], None]] = [
            lambda: copy(part, a, b), lambda: mix(part, a, b), lambda: count(part, a, total),
            lambda: shrink(part, total, b), lambda: a.fill(0.5), lambda: put(few, own, b[there]),
            lambda: spread(mesh.faces, a[mesh.face_cells], b[mesh.face_cells]), lambda: draw(mesh.cells, b, numbers),
            lambda: total.assign(0.25),
        ]  # fmt: skip
        return dice.choice(calls)

    return World(call, mesh.cells, fields, [*fields, total, own])


def on_a_grid(dice: random.Random) -> Made:
    """A program of operations on a grid."""
    return _made(grid_world(dice), dice)


def on_a_mesh(dice: random.Random) -> Made:
    """A program of operations on a mesh."""
    return _made(mesh_world(dice), dice)


def _made(world: World, dice: random.Random) -> Made:
    return in_turn([world.call() for _ in range(dice.randint(2, 7))]), world.looked_at


def in_turn(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def body() -> None:
        for one in calls:
            one()

    return body


def touched(operation: Operation, one: Operand) -> Touched:
    """The places in memory that an operation reaches by an operand."""
    domain, reach = operation.domain, one.pattern
    if not isinstance(one.storage, ml.Field):
        return frozenset({0})
    if domain.all_memory:
        return frozenset(range(one.storage.set.total))
    if reach.map is not None:
        return frozenset(np.ravel(reach.map.indices).tolist())
    grid = one.storage.set
    if not isinstance(grid, ml.Grid):
        return frozenset(range(grid.owned))
    box = grid.inside if domain.along_lines else operation.box or grid.everything
    offsets = reach.offsets.offsets if reach.offsets is not None else ((0, 0),)
    return frozenset(row for offset in offsets for row in box.rows(offset).tolist())


def element_dependences(operations: Sequence[Operation]) -> set[tuple[str, int, int, str, int]]:
    """Kind, positions, field and replays of all dependences, found place by place in three replays."""
    found = set()
    written: dict[tuple[object, int], tuple[int, int]] = {}  # who has last written a place: position and replay
    read: dict[tuple[object, int], set[tuple[int, int]]] = {}  # and who has read it since
    for replay in range(3):
        for k, operation in enumerate(operations):
            uses = [(one, (one.storage, place)) for one in operation.operands for place in touched(operation, one)]
            for one, where in uses:
                name = one.storage.name
                if (one.mode.reads or one.mode.combine) and where in written:
                    by, then = written[where]
                    found.add(("flow", by, k, name, replay - then))
                if one.mode.writes and where in written:
                    by, then = written[where]
                    found.add(("output", by, k, name, replay - then))
                for by, then in read.get(where, ()) if one.mode.writes else ():
                    found.add(("anti", by, k, name, replay - then))
            for one, where in uses:
                if one.mode.writes:
                    written[where] = k, replay
                    read[where] = set()
            for one, where in uses:
                if one.mode.reads or one.mode.combine:
                    read.setdefault(where, set()).add((k, replay))
    return {one for one in found if one[-1] <= 1}
