"""What is run on any number of ranks by ``test_ranks.py``: ``python -m tests.dist.on_ranks BACKEND NAME...`` prints a
line with a digest of all results of each; every rank must have found the same."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import meshloom as ml


@ml.kernel
def spread(u: ml.Read, rate: ml.Inc):
    d = 0.1 * (u[1] - u[0])
    rate[0] += d
    rate[1] -= d


@ml.kernel
def move(rate: ml.Read, u: ml.ReadWrite, norm: ml.Sum):
    u += rate
    norm += rate * rate


def diffusing(mesh: ml.Mesh, u: ml.Field) -> tuple[ml.Program, ml.Field, ml.Global]:
    """A step of diffusion; rates, and their norm."""
    rate, norm = mesh.cells.field("rate"), ml.Global(0.0, "norm")

    @ml.program
    def step() -> None:
        rate.fill(0.0)
        norm.value = 0.0
        spread(mesh.faces, u[mesh.face_cells], rate[mesh.face_cells])
        move(mesh.cells, rate, u, norm)

    return step, rate, norm


def around_an_airfoil() -> tuple[ml.Mesh, ml.Field]:
    """A mesh, and a start as a function of points."""
    mesh = ml.generate.naca0012(16, 24)
    return mesh, mesh.cells.field("u", data=lambda points: points[:, 0] * points[:, 1] + points[:, 0])


def diffusion() -> list[np.ndarray]:
    """A program on a mesh, its start a function of points; its sum."""
    mesh, u = around_an_airfoil()
    step, _, norm = diffusing(mesh, u)
    history = step.run(5, record=[norm])
    whole = u.numpy()
    assert np.array_equal(whole[mesh.cells.mine], u.local())
    return [whole, np.array([float(norm)]), np.asarray(history)]


@ml.kernel
def all_kinds(x: ml.Read, w: ml.Read, total: ml.Inc, low: ml.Min, high: ml.Max):
    for k in range(3):
        total[k] += w * x[k] * x[(k + 1) % 3]
        low[k] = x[k] - w
        high[k] = x[k] + w


@ml.kernel
def taken(x: ml.Read, y: ml.Write):
    y[0] = 2.0 * x - 1.0


@ml.kernel
def extremes(y: ml.Read, low: ml.Min, high: ml.Max, count: ml.Sum):
    low[...] = y
    high[...] = y
    count += 1


def by_hand() -> list[np.ndarray]:
    """Sets and maps made by hand, without points: three slots, every kind of access, a one-to-one map, a part, vectors,
    single precision, whole numbers, a loop that reaches further than those before it."""
    random = np.random.default_rng(5)
    things, places = ml.Set(90, "things"), ml.Set(40, "places")
    three = ml.Map(things, places, random.integers(0, 40, (90, 3)), "three")
    one = ml.Map(places, things, random.permutation(90)[:40], "one")
    far = ml.Map(places, places, np.arange(40)[::-1], "far")
    found = []
    for dtype in (np.float64, np.float32):
        x = places.field("x", 2, data=random.standard_normal((40, 2)).astype(dtype))
        w = things.field("w", 2, data=random.standard_normal((90, 2)).astype(dtype))
        total, low, high = (places.field(name, 2, dtype=dtype) for name in ("total", "low", "high"))
        all_kinds(things, x[three], w, total[three], low[three], high[three])
        y = things.field("y", 2, dtype=dtype)
        taken(places, total, y[one])
        least, most = ml.Global(np.full(2, np.inf), dtype=dtype), ml.Global(np.full(2, -np.inf), dtype=dtype)
        count = ml.Global(0)
        part = places.subset(np.arange(3, 40, 4))
        extremes(part, total, least, most, count)
        taken(places, total, x[far])
        all_kinds(things, x[three], w, total[three], low[three], high[three])
        found += [one.numpy() for one in (x, total, low, high, y)]
        found += [np.array(one.value, ndmin=1) for one in (least, most, count)]
    return found


def few_cells() -> list[np.ndarray]:
    """Fewer cells than ranks; values given later; a condition."""
    mesh = ml.generate.box((2, 1), cells="quad")
    u = mesh.cells.field("u")
    u.assign([1.0, 3.0])
    step, _, norm = diffusing(mesh, u)
    times = step.repeat(until=norm < 1e-6, at_most=100)
    assert 1 < times < 100
    return [u.numpy(), np.array([float(norm), times])]


def kinds_of_values() -> list[np.ndarray]:
    """Functions of points whose values have another type, or number of axes, where a rank has some points alone, or
    none: lists of whole numbers and others, lists of lists, one value for all."""
    functions: list[Callable[[np.ndarray], Any]] = [
        lambda points: [1 if x < 0.4 else 0.125 * x for x, *_ in points],
        lambda points: np.array([x > 0.4 for x, *_ in points]),
        lambda points: np.array([[x, y] for x, y in points]),
        lambda points: [[int(x < 0.4), 2**40] for x, _ in points],
        lambda points: 3,
        lambda points: 2.5 if len(points) and (points[:, 0] < -1).any() else np.float32(2.5),
    ]
    found = []
    for on in (ml.generate.box((8, 4)).cells, ml.generate.box((2, 1)).cells, ml.generate.box((2, 1)).faces):
        for k, function in enumerate(functions):
            found.append(on.field(f"u{k}", 2 if k in (2, 3) else 1, data=function))
    return [one for field in found for one in (field.numpy(), np.frombuffer(str(field.dtype).encode(), np.uint8))]


def own_values() -> list[np.ndarray]:
    """Those that each rank has made of its own, put into a field that is over ranks."""
    mesh, u = around_an_airfoil()
    step, _, _ = diffusing(mesh, u)
    step.run(2)
    before, own = u.local(), u.local() * np.sqrt(mesh.cells.mine)
    given = mesh.cells.field("given", data=lambda points: own)
    move(mesh.cells, given, u, ml.Global(0.0, "norm"))
    assert np.array_equal(u.local(), before + own)
    step()
    return [u.numpy(), given.numpy()]


@ml.kernel
def most_of(y: ml.Read, most: ml.Max):
    most[...] = np.maximum(y[0], y[1])


def extremes_of_zeros() -> list[np.ndarray]:
    """0.0 and -0.0 are the same number, and which of them is an extreme hangs on who compares them in which order:
    here that of the ranks is the other way around than that of the cells."""
    found = []
    for values in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]):
        for dtype in (np.float64, np.float32):
            cells = (mesh := ml.generate.box((40, 1))).cells
            with ml.using(ml.backend(), reproducible=True, partition=np.sort(np.arange(40) % ml.world.size)[::-1]):
                y = mesh.cells.field("y", 2, dtype=dtype, data=np.repeat(values, 40).reshape(40, 2))
                low, high = (ml.Global(np.full(2, at), dtype=dtype) for at in (np.inf, -np.inf))
                most = ml.Global(-0.0, dtype=dtype)
                extremes(cells, y, low, high, ml.Global(0))
                most_of(cells, y, most)
                found += [np.array(one.value, ndmin=1) for one in (low, high, most, y.max(), y.min())]
    return found


@ml.kernel
def measured(u: ml.Read, seen: ml.Write, total: ml.ReadWrite, count: ml.ReadWrite):
    seen[...] = 2.0 * u
    total += u
    count += 1


@ml.kernel
def pulled(seen: ml.Read, total: ml.Read, u: ml.ReadWrite):
    u += 0.1 * seen - 0.01 * total


@ml.kernel
def collected(u: ml.Read, at: ml.Inc):
    at[0] += u


def set_at_one_element() -> list[np.ndarray]:
    """Globals that loops set over one cell, which one rank has, and over a set of one element, which is on every rank
    until a loop adds to it through a map: by hand, and in a program; others go by what they are."""
    mesh, single, found = ml.generate.box((5, 4)), ml.Set(1, "single"), list[np.ndarray]()
    u, at = mesh.cells.field("u", data=np.arange(20.0)), single.field("at", data=0.5)
    to = ml.Map(mesh.cells, single, np.zeros((20, 1), int), "to")
    seen, total, count = ml.Global(-1.0, "seen"), ml.Global(0.0, "total"), ml.Global(0, "count")

    def looked(on: ml.Set, values: ml.Field) -> Callable[[], None]:
        def loops() -> None:
            measured(on, values, seen, total, count)
            pulled(mesh.cells, seen, total, u)

        return loops

    for of in (looked(mesh.cells.subset([13]), u), looked(single, at)):
        step = ml.program(of)
        found.append(step.run(2, record=(seen, total, count)))
        of()
        collected(mesh.cells, u, at[to])
        found += [step.run(2, record=(seen, total, count)), u.numpy(), at.numpy()]
        found.append(np.array([float(seen), float(total), int(count), step.repeat(until=count > 9, at_most=5)]))
    return found


RUNS: dict[str, Callable[[], list[np.ndarray]]] = {
    "diffusion": diffusion, "by_hand": by_hand, "few_cells": few_cells, "own_values": own_values,
    "kinds_of_values": kinds_of_values, "extremes_of_zeros": extremes_of_zeros,
    "set_at_one_element": set_at_one_element,
}  # fmt: skip


def digest(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:16]


def report(results: dict[str, list[np.ndarray]]) -> None:
    """Rank 0 prints the digests of all."""
    found = {name: digest(one) for name, one in results.items()}
    everybody = ml.world.gathered(np.frombuffer(json.dumps(found).encode().ljust(16384), np.uint8).reshape(1, -1))
    assert all(np.array_equal(one, everybody[0]) for one in everybody), "every rank has the same"
    if ml.world.rank == 0:
        print(json.dumps(found | {"ranks": ml.world.size}), flush=True)


def main(backend: str, *names: str) -> None:
    ml.use(backend, reproducible=True)
    report({name: RUNS[name]() for name in names or RUNS})


if __name__ == "__main__":
    main(*sys.argv[1:])
