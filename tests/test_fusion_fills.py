"""Fused programs: what is set to one number, by fills before a sum or by the last loop, and costs nothing then."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.count import loads
from meshloom.operation.fusion import compose
from meshloom.operation.fusion import contract as fusing
from meshloom.operation.fusion.groups import Group
from meshloom.operation.fusion.memory import Memory
from meshloom.operation.operation import Operation
from tests.fitted import changed
from tests.test_fusion import HERE, copy


@pytest.mark.parametrize("where", HERE)
def test_a_sum_that_somebody_changed_is_not_forgotten(where: str) -> None:
    """The program takes a sum that its last loop clears for zero between replays; where it is not, the first replay
    goes loop by loop."""

    @ml.kernel
    def give(u: ml.Read, total: ml.Inc) -> None:
        total[0] += u[1] - u[0]
        total[1] += u[0] - u[1]

    @ml.kernel
    def take(total: ml.ReadWrite, u: ml.ReadWrite) -> None:
        u[...] = u + 0.1 * total
        total[...] = 0.0

    results = []
    for name, fuse in (("numpy", False), (where, True)):
        ml.use(name)
        mesh = ml.generate.box((40, 30))
        u, total = mesh.cells.field("u", data=np.linspace(0.0, 1.0, 1200) ** 2), mesh.cells.field("total")

        @ml.program(fuse=fuse)
        def step() -> None:
            give(mesh.faces, u[mesh.face_cells], total[mesh.face_cells])  # noqa: B023
            take(mesh.cells, total, u)  # noqa: B023

        step.run(2)
        total.assign(np.random.default_rng(1).random(1200) * 1e-3)
        step.run(2)
        results.append((u.numpy(), total.numpy()))
    assert "total is 0 everywhere between replays" in step.explain()
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("where", HERE)
@pytest.mark.parametrize("read_around", [False, True])
def test_a_fill_for_a_loop_by_itself_is_done_by_the_group_before(
    where: str, read_around: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's strategy was asked for, so it cannot start from the number; the loop before it over the cells sets
    the field on its way, unless it reads that at other cells: then it could not write in place."""

    @ml.kernel
    def spread(near: ml.Read, v: ml.Write, w: ml.Write) -> None:
        v[...] = 0.5 * (near[0] + near[1])
        w[...] = near[0] - near[1]

    @ml.kernel
    def give(v: ml.Read, w: ml.Read, total: ml.Inc) -> None:
        total[0] += v[1] - w[0]
        total[1] += v[0] + w[1]

    changed(monkeypatch, fusion={"worth": np.inf})  # fused though it does not pay
    results = []
    for backend, fuse in (("numpy", False), (where, True)):
        ml.use(backend)
        mesh = ml.generate.box((12, 10))
        cells, at, rng = mesh.cells, mesh.face_cells, np.random.default_rng(2)
        u, total = cells.field("u", data=rng.random(120)), cells.field("total", data=rng.random(120))
        two = ml.Map(cells, cells, np.stack([np.arange(120), rng.permutation(120)], axis=1), "two")

        @ml.program(fuse=fuse)
        def step() -> None:
            v, w = cells.field("v"), cells.field("w")  # noqa: B023
            spread(cells, (total if read_around else u)[two], v, w)  # noqa: B023
            total.fill(0.0)  # noqa: B023
            give(mesh.faces, v[at], w[at], total[at], schedule="color")  # noqa: B023
            copy(cells, total, u)  # noqa: B023

        step.run(2)
        results.append((u.numpy(), total.numpy()))
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    fused = step._fused_recording()
    assert fused is not None and sum(one.domain.all_memory for one in fused.program.operations) == read_around


@pytest.mark.parametrize("offsets", [((0, 0), (0, 1)), ((0, 1), (1, 0), (0, 0), (-1, 0))])
def test_a_stencil_that_takes_a_sum_that_starts_anew_loads_its_own_point_once(
    offsets: tuple[tuple[int, ...], ...],
) -> None:
    """With its neighbours, as the loop does alone: a second load of the same value made it 2.4 times as slow."""

    @ml.kernel
    def measure(u: ml.Read, v: ml.Write, total: ml.Sum) -> None:
        v[...] = 2.0 * u[0, 0] - u[0, 1]
        total += (u[0, 0] - u[0, 1]) ** 2

    found = []
    for where in ("numpy", "emulated"):
        ml.use(where)
        grid = ml.Grid((8, 40), periodic=True)
        u, total = grid.field("u", data=np.linspace(0.0, 1.0, 320).reshape(8, 40) ** 2), ml.Global(0.0, "total")
        v = grid.field("v")

        @ml.program
        def step() -> None:
            total.value = 0.0  # noqa: B023
            measure(grid, u[grid.offsets(*offsets)], v, total)  # noqa: B023

        step.run(2)
        found.append((float(total.value), v.numpy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-13)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-13)
    recording = step._fused_recording()
    assert recording is not None
    (fused,), (plain,) = [one for one in recording.program.operations if one.composed], step.loops[-1:]
    assert _loads(fused) == _loads(plain)


def _loads(loop: Operation) -> list[tuple[int, ...]]:
    """Where a loop over points loads from, seen from its point; twice what is loaded twice."""
    found = {(k, slot) for k, slot, _ in loads(one.value for one in loop.spec.outputs)}
    return sorted((loop.spec.params[k].offsets or ((0, 0),))[slot] for k, slot in found)


@pytest.mark.parametrize("where", HERE)
@pytest.mark.parametrize("apart", [False, True])
def test_groups_are_composed_once_whatever_turns_out_to_be_no_constant(
    where: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``a`` and ``b`` are zero where a replay ends. A group sets ``b`` in between and clears it, or a loop by itself
    sets it: then what goes before that counts on zero, what follows loads, and nothing is put together again."""

    @ml.kernel
    def take(a: ml.ReadWrite, b: ml.Read, u: ml.ReadWrite) -> None:
        u[...] = 0.5 * u + a + b
        a[...] = 0.0

    @ml.kernel
    def spread(near: ml.Read, b: ml.Write) -> None:
        b[...] = near[0] - near[1]

    @ml.kernel
    def clear(b: ml.ReadWrite, u: ml.ReadWrite) -> None:
        u[...] += 0.25 * b
        b[...] = 0.0

    composed: list[tuple[str, ...]] = []

    def counted(group: Group, memory: Memory) -> list[Operation]:
        composed.append(tuple(one.name for one in group.parts))
        return compose.fused(group, memory)

    changed(monkeypatch, fusion={"worth": np.inf})
    monkeypatch.setattr(fusing, "fused", counted)
    results = []
    for name, fuse in (("numpy", False), (where, True)):
        ml.use(name)
        cells, rng = ml.Set(40, "cells"), np.random.default_rng(3)
        u = cells.field("u", data=rng.random(40))
        a, b, c = (cells.field(name) for name in "abc")
        two = ml.Map(cells, cells, np.stack([np.arange(40), rng.permutation(40)], axis=1), "two")

        @ml.program(fuse=fuse)
        def step() -> None:
            take(cells, a, b, u)  # noqa: B023
            copy(cells, u, c)  # noqa: B023
            spread(cells, u[two], b, schedule={"order": "random"} if apart else None)  # noqa: B023
            copy(cells, b, c)  # noqa: B023
            clear(cells, b, u)  # noqa: B023

        for start in (0.0, 1.0):
            b.fill(start)
            step.run(2)
            results.append([one.numpy() for one in (u, a, b, c)])
    assert len(composed) == len(set(composed)) > 0, composed
    for expected, found in zip(results[:2], results[2:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    said = step.explain()
    assert "a is 0 everywhere between replays, so it is neither loaded nor stored" in said
    known = "not loaded at the start of one" if apart else "neither loaded nor stored"
    assert f"b is 0 everywhere between replays, so it is {known}" in said
