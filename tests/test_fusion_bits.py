"""Fused is strict: random programs of strict kernels have the bits of the reference, fused or not, on every back end.
Where sums are to be reproducible, programs of any kernels have the same bits fused or not; otherwise fusion changes
nothing at targets that nothing is given to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshloom as ml

BACK_ENDS = ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 1e16, -1e16, 0.1, -3.7, 1e300, 5e-324, np.inf, -np.inf, np.nan])
HARMLESS = SPECIAL[:-3]  # finite: infinities and NaN hide everything that comes after
N = 600  # more than a chunk of a CPU


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of both signs, cancellation, rounding; now and then infinities and NaN."""
    found = rng.choice(HARMLESS, shape) * rng.choice([1.0, 1.0, 1.1], shape)
    rare = rng.random(shape) < 0.01
    found[rare] = rng.choice(SPECIAL, int(rare.sum()))
    return found


class World:
    """Sets that give to cells through maps of several arities; some cells get nothing. A ring has symmetric tables."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.cells = ml.Set(N, "cells")
        self.maps = {}
        around = np.arange(N)
        rows = {f"to_{arity}": rng.integers(0, N - 50, (2 * N // arity, arity)) for arity in (1, 2, 3)}
        rows["ring"] = np.stack([around, (around + 1) % N], axis=1)
        for name, row in rows.items():
            row = np.sort(row, axis=0) if rng.random() < 0.8 else row  # near each other, so that chunks pay
            faces = ml.Set(len(row), name)
            self.maps[name] = ml.Map(faces, self.cells, row, f"{name}_cells")
        self.given = {name: one.source.field(f"g_{name}", 2, data=numbers(rng, (len(one.source), 2)))
                      for name, one in self.maps.items()}  # fmt: skip
        self.fields = {name: self.cells.field(name, dim, data=numbers(rng, (N, dim) if dim > 1 else (N,)))
                       for name, dim in (("r", 2), ("s", 1), ("low", 1), ("q", 2), ("out", 2))}  # fmt: skip

    def values(self) -> dict[str, np.ndarray]:
        return {name: one.numpy().copy() for name, one in self.fields.items()}


def steps_of(world: World, seed: int, strict: bool) -> list[Callable[[], Any]]:
    """A random program: gathers of every arity and mode, fills, loops over the cells. ``strict``: of all kernels, else
    of one in five."""
    rng = np.random.default_rng(1000 + seed)
    f, factor, dice = world.fields, float(rng.choice([1.0, -1.0, 0.1])), np.random.default_rng(seed)

    def kernel(function: Callable[..., None]) -> ml.Kernel:
        return ml.kernel(function, strict=strict or bool(dice.random() < 0.2))

    def gather(name: str) -> Callable[[], Any]:
        one, given = world.maps[name], world.given[name]
        kind = rng.integers(3)
        far = bool(rng.random() < 0.3)

        def to_rows(g: ml.Read, q: ml.Read, r: ml.Inc) -> None:
            for k in range(one.arity):
                r[k] += (g if k % 2 == 0 else -g) if not far or one.arity != 2 else (q[1 - k] - q[k]) * g

        def to_numbers(g: ml.Read, q: ml.Read, s: ml.Inc) -> None:
            for k in range(one.arity):
                s[k] -= g[0] * factor

        def lowest(g: ml.Read, q: ml.Read, low: ml.Min) -> None:
            for k in range(one.arity):
                low[k] = g[1] + k

        function = (to_rows, to_numbers, lowest)[kind]
        target = (f["r"], f["s"], f["low"])[kind]
        made = kernel(function)
        return lambda: made(one.source, given, f["q"][one], target[one])

    def fill() -> Callable[[], Any]:
        target, value = f[str(rng.choice(["r", "s", "low"]))], float(rng.choice([0.0, -0.0, 1e16, 2.5]))
        return lambda: target.fill(value)

    def use() -> Callable[[], Any]:
        def scaled(s: ml.Read, r: ml.ReadWrite) -> None:
            r[...] = r * factor + s

        def kept(r: ml.Read, out: ml.Write) -> None:
            out[...] = r - 0.1 * r

        def both(r: ml.Read, s: ml.Inc) -> None:
            s += r[0] * r[1]

        kind = rng.integers(3)
        made, operands = ((kernel(scaled), "sr"), (kernel(kept), ("r", "out")), (kernel(both), "rs"))[kind]
        return lambda: made(world.cells, *[f[one] for one in operands])

    kinds = [lambda: gather(str(rng.choice(list(world.maps)))), lambda: gather("ring"), fill, use]
    return [kinds[int(rng.choice(4, p=[0.4, 0.15, 0.2, 0.25]))]() for _ in range(rng.integers(2, 7))]


def ran(back_end: str, seed: int, how: str, *, reproducible: bool = False) -> tuple[dict[str, np.ndarray], bool]:
    """Values after two steps, and whether any loops became one. ``how``: "loops", "program" or "unfused". All kernels
    are strict, or sums are ``reproducible``."""
    ml.use(back_end, reproducible=reproducible)
    world = World(seed)
    steps = steps_of(world, seed, strict=not reproducible)

    def step() -> None:
        for one in steps:
            one()

    if how == "loops":
        step()
        step()
        return world.values(), False
    program = ml.program(step, fuse=how == "program")
    program.run(2)
    return world.values(), any(one.policy.as_one for one in program.fused_steps)


def bits(values: np.ndarray) -> np.ndarray:
    """All NaNs are one; which of two zeros is smaller NumPy leaves to the processor."""
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def differing(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    found = [n for n in a if n != "low" and not np.array_equal(bits(a[n]), bits(b[n]))]
    return found + [n for n in ("low",) if not np.array_equal(a[n], b[n], equal_nan=True)]


def check(back_end: str, seeds: range) -> int:
    fused = 0
    for seed in seeds:
        expected, _ = ran("numpy", seed, "loops")
        assert not differing(expected, ran("numpy", seed, "program")[0]), f"numpy, program {seed}"
        for how in ("loops", "program"):
            found, as_one = ran(back_end, seed, how)
            fused += as_one
            assert not differing(expected, found), f"{back_end}, {how} of program {seed}: {differing(expected, found)}"
    return fused


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_strict_programs_have_the_bits_of_the_reference(back_end: str) -> None:
    assert check(back_end, range(6)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_many_strict_programs_have_the_bits_of_the_reference(back_end: str) -> None:
    assert check(back_end, range(6, 150)) >= 40


def check_reproducible(back_end: str, seeds: range) -> int:
    fused = 0
    for seed in seeds:
        expected, _ = ran(back_end, seed, "loops", reproducible=True)
        for how in ("unfused", "program"):
            found, as_one = ran(back_end, seed, how, reproducible=True)
            fused += as_one
            assert not differing(expected, found), f"{back_end}, {how} of program {seed}: {differing(expected, found)}"
    return fused


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_reproducible_programs_have_the_same_bits_fused_or_not(back_end: str) -> None:
    assert check_reproducible(back_end, range(12, 18)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_many_reproducible_programs_have_the_same_bits_fused_or_not(back_end: str) -> None:
    assert check_reproducible(back_end, range(80)) >= 40


@ml.kernel
def given_to_two(g: ml.Read, r: ml.Inc):
    r[0] += g[0] * 0.3
    r[1] -= g[1] * g[0]


@ml.kernel
def given_to_one(g: ml.Read, r: ml.Inc):
    r[0] += g[0] * g[1]


@ml.kernel
def turned_round(r: ml.ReadWrite):
    r[...] = -r


@ml.kernel
def taken(r: ml.Read, out: ml.Write):
    out[...] = r


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_fusion_changes_nothing_where_nothing_is_given(back_end: str) -> None:
    """By fast algebra, too: targets without an increment keep every bit, signs of zeros included; whether the sum
    begins with what was there, with a fill, or with a formula of that."""
    ml.use(back_end)
    on, one, two = ml.Set(N, "cells"), ml.Set(2 * N, "ones"), ml.Set(N, "twos")
    to_one = ml.Map(one, on, (np.arange(2 * N)[:, None] // 4), "to_one")  # the second half of the cells gets nothing
    to_two = ml.Map(two, on, np.stack([np.arange(N) // 2, np.arange(N) // 2 + 1], axis=1), "to_two")
    rng = np.random.default_rng(0)
    g, h = (s.field("g", 2, data=rng.random((len(s), 2))) for s in (one, two))
    start = rng.choice(SPECIAL, N)
    r, s, t, out = (on.field(name, data=start) for name in ("r", "s", "t", "out"))

    @ml.program
    def step() -> None:
        turned_round(on, s)
        t.fill(-0.0)
        for target in (r, s, t):
            given_to_one(one, g, target[to_one])
            given_to_two(two, h, target[to_two])
        taken(on, r, out)

    step.run(1)
    assert any(o.policy.as_one for o in step.fused_steps)
    untouched = slice(N // 2 + 1, None)
    for found, expected in ((r, start), (out, start), (s, -start), (t, np.full(N, -0.0))):
        assert np.array_equal(bits(found.numpy())[untouched], bits(expected)[untouched]), found.name
