"""Random programs of all that a program may hold: loops over sets, maps, parts, boxes, ghosts and lines, fills, copies,
temporary fields and fields made on the way, calls of functions, inner programs, and programs that are repeated until a
condition holds, inside of each other. What they leave in memory, ghosts included, is the same fused and loop by loop,
on every back end and for every target: to rounding, and to the bit between fused and not where sums keep their order
(``reproducible``)."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import meshloom as ml
from meshloom.errors import MeshloomError
from tests.attacks.campaign import Broken, Campaign
from tests.dataflow_programs import Made, World, copy, grid_world, in_turn, mesh_world, mix

RUNS, REPLAYS = 3, 2  # before the last one, and of each of them
ROUNDING = 1e-11  # of the largest value that a program leaves anywhere (loops add fields of all sizes, and what is left
# of such a sum may be small); sums of a few dozen values, at most some hundred times one after the other
FUSED = "the same, loops fused"
DEPTH = 2  # of programs inside of each other
Piece = Callable[[], Any]


@ml.kernel
def one_more(rounds: ml.ReadWrite):
    rounds += 1.0


def mixed(dice: random.Random) -> Made:
    """The function of a random program, and what it may change."""
    world = dice.choice((grid_world, mesh_world))(dice)
    return in_turn(_pieces(world, dice, 0)), world.looked_at


def _pieces(world: World, dice: random.Random, depth: int) -> list[Piece]:
    kinds: list[Callable[[World, random.Random, int], Piece]] = [_chain, _chain, _by_a_temporary, _by_a_new_field]
    kinds += [_called, *([_inner, _repeated] if depth < DEPTH else [])]
    return [
        dice.choice(kinds)(world, dice, depth) if dice.random() < 0.5 else world.call()
        for _ in range(dice.randint(2, 5))
    ]


def _chain(world: World, dice: random.Random, depth: int) -> Piece:
    """Loops over the same elements, one after the other."""
    calls: list[Piece] = []
    for _ in range(dice.randint(2, 4)):
        a, b = dice.sample(world.fields, 2)
        calls.append(partial(dice.choice((copy, mix)), world.whole, a, b))
    return in_turn(calls)


def _by_a_temporary(world: World, dice: random.Random, depth: int) -> Piece:
    """Through a field that has no values outside of the program, perhaps with something else in between."""
    a, b = dice.sample(world.fields, 2)
    made = world.whole.field(f"t{depth}", temporary=True)
    between = [world.call()] if dice.random() < 0.5 else []
    return in_turn([lambda: copy(world.whole, a, made), *between, lambda: mix(world.whole, made, b)])


def _by_a_new_field(world: World, dice: random.Random, depth: int) -> Piece:
    """Through a field that the program makes when it is recorded."""
    a, b = dice.sample(world.fields, 2)

    def through() -> None:
        made = world.whole.field(f"m{depth}")
        copy(world.whole, a, made)
        mix(world.whole, made, b)

    return through


def _called(world: World, dice: random.Random, depth: int) -> Piece:
    """By a function of Python, which may say what it reads and writes."""
    a, b = dice.sample(world.fields, 2)

    def average() -> None:
        b.assign(0.5 * (a.numpy() + b.numpy()))

    said: dict[str, Any] = {"reads": (a, b), "writes": (b,)} if dice.random() < 0.5 else {}
    return lambda: ml.call(average, **said)


def _inner(world: World, dice: random.Random, depth: int) -> Piece:
    program, times = ml.program(in_turn(_pieces(world, dice, depth + 1))), dice.randint(1, 2)
    return program if times == 1 else lambda: program.run(times)


def _repeated(world: World, dice: random.Random, depth: int) -> Piece:
    """Until a counter is there, or as often as is allowed."""
    once, rounds = ml.Set(1, "once"), ml.Global(0.0, "rounds")
    world.looked_at.append(rounds)
    program = ml.program(in_turn([*_pieces(world, dice, depth + 1), lambda: one_more(once, rounds)]))
    wanted, most = dice.randint(1, 3), dice.randint(1, 3)

    def again() -> None:
        rounds.assign(0.0)
        program.repeat(until=rounds > wanted - 0.5, at_most=most)

    return again


# --- what they leave ----------------------------------------------------------------------------------------------


@cache
def back_ends() -> tuple[dict[str, Any], ...]:
    """As ``ml.use`` takes them: that of the cores, all that can be emulated, and a GPU where there is one."""
    found = [{"name": "cpu"}, *({"name": "emulated", "target": one} for one in ("cuda", "hip", "gfx942"))]
    try:
        ml.use("cuda")
    except MeshloomError:
        return tuple(found)
    return ({"name": "cuda"}, *found)


def left_by(seed: str, use: dict[str, Any], *, fuse: bool) -> tuple[list[np.ndarray], bool]:
    """All memory behind runs of a program, and whether loops of it became one. Between two runs somebody may write."""
    ml.use(**use)
    function, looked_at = mixed(random.Random(seed))
    program, dice = ml.program(fuse=fuse)(function), random.Random(f"runs of {seed}")
    fields = [one for one in looked_at if isinstance(one, ml.Field)]
    for _ in range(RUNS):
        program.run(dice.randint(1, REPLAYS))
        for one in fields if dice.random() < 0.5 else ():
            dice.choice((lambda _: None, lambda one: one.fill(0.5), lambda one: one.assign(-one.numpy())))(one)
    program.run(1)
    joined = fuse and any(len(one.composed) > 1 for one in program.fused_steps)
    return [_memory(one) for one in looked_at], joined


def _memory(one: ml.Field | ml.Global) -> np.ndarray:
    """A copy of all there is of it, ghosts included, from where it is."""
    stored: Any = one.storage[: one.set.total] if isinstance(one, ml.Field) else one.storage
    return np.array(stored.get() if hasattr(stored, "get") else stored)


def attempt(dice: random.Random, folder: Path) -> str:
    seed, before = str(dice.random()), ml.backend()
    in_order, fewer = random.Random(f"order of {seed}").random() < 0.5, False
    try:
        wanted, _ = left_by(seed, {"name": "numpy"}, fuse=False)
        for use in ({**one, "reproducible": in_order} for one in back_ends()):
            where = f"program {seed} on {use}"
            (fused, joined), (apart, _) = (left_by(seed, use, fuse=fuse) for fuse in (True, False))
            fewer |= joined
            _compare(fused, wanted, f"{where}, fused")
            _compare(apart, wanted, f"{where}, loop by loop")
            if in_order:
                _compare_bits(fused, apart, f"{where}, fused against loop by loop")
    finally:
        ml.use(before, reproducible=False)
    return FUSED if fewer else "the same"


def _compare(found: list[np.ndarray], wanted: list[np.ndarray], where: str) -> None:
    largest = max(np.abs(one).max(initial=0.0) for one in wanted)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        off = np.abs(one - other).max(initial=0.0)
        if not off <= ROUNDING * largest:
            raise Broken(f"{where}: storage {number} is off by {off:.1e}")


def _compare_bits(found: list[np.ndarray], wanted: list[np.ndarray], where: str) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.tobytes() != other.tobytes():
            raise Broken(f"{where}: storage {number} has other bits, off by {np.abs(one - other).max():.1e}")


CAMPAIGNS = (
    Campaign("programs", "random programs of loops, lines, fills, temporaries, calls, inner and repeated programs",
             "fused and loop by loop the memory of NumPy, ghosts included, on the cores, emulated and real GPUs",
             attempt, few=10, many=2_000, met=FUSED),
)  # fmt: skip
