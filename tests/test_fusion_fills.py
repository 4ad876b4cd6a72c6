"""Fused programs: what is set to one number, by fills before a sum or by the last loop, and costs nothing then."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.count import loads
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
    assert fused is not None and sum(one.domain.all_memory for one in fused.program.body) == read_around


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
    (fused,), (plain,) = [one for one in recording.program.body if one.composed], step.loops[-1:]
    assert _loads(fused) == _loads(plain)


def _loads(loop: Operation) -> list[tuple[int, ...]]:
    """Where a loop over points loads from, seen from its point; twice what is loaded twice."""
    found = {(k, slot) for k, slot, _ in loads(one.value for one in loop.spec.outputs)}
    return sorted((loop.spec.params[k].offsets or ((0, 0),))[slot] for k, slot in found)
