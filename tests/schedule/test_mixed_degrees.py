"""``owner`` on a GPU where cells of several kinds meet: tables as wide as the largest kind needs, with gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import meshloom as ml
from bench.race_loop import res_calc
from meshloom.errors import PlanError
from meshloom.schedule.plan.plan import Topology
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.strategies.common.gather import roomy_degree, usual_degree
from meshloom.schedule.strategies.common.neighbours import SlotTables, SymmetricTables, TabledIncidence
from meshloom.target import H200


@ml.kernel
def flux_sum(flux: ml.Read, res: ml.Inc):
    res[0] += flux
    res[1] -= flux


@ml.kernel
def one_way(flux: ml.Read, q: ml.Read, res: ml.Inc):
    """What the two cells get has nothing in common."""
    res[0] += flux * q[1] ** 2
    res[1] += 3.0 * q[0]


@ml.kernel
def local_maximum(q: ml.Read, most: ml.Max):
    most[0] = q[1]
    most[1] = q[0]


KERNELS = (flux_sum, one_way, local_maximum)


class Mixed:
    """Quadrilaterals on the left and triangles on the right of a square of n x n, as sets and maps made by hand."""

    def __init__(self, n: int):
        node = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
        corners = [(node[i, j], node[i + 1, j], node[i + 1, j + 1], node[i, j + 1]) for i in range(n) for j in range(n)]
        half = len(corners) // 2
        cells = [*corners[:half], *(part for a, b, c, d in corners[half:] for part in ((a, b, c), (a, c, d)))]
        sides: dict[tuple[int, int], list[int]] = {}
        for cell, around in enumerate(cells):
            for a, b in zip(around, (*around[1:], around[0]), strict=True):
                sides.setdefault((b, a) if (b, a) in sides else (a, b), []).append(cell)
        inner = {ends: both for ends, both in sides.items() if len(both) == 2}
        self.nodes, self.cells = ml.Set(node.size, "nodes"), ml.Set(len(cells), "cells")
        self.faces = ml.Set(len(inner), "faces")
        self.face_cells = ml.Map(self.faces, self.cells, np.array(list(inner.values())), "face_cells")
        self.face_nodes = ml.Map(self.faces, self.nodes, np.array(list(inner)), "face_nodes")
        self.where = np.stack(np.divmod(np.arange(node.size), n + 1), axis=1).astype(float)


def incidence_of(loop: ml.Loop, m: int) -> TabledIncidence:
    found = loop.plan.gathers[m]
    assert isinstance(found, TabledIncidence)
    return found


def offsets(*counts: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(counts, np.int64))])


@pytest.mark.parametrize(("counts", "usual", "roomy"), [
    ((4,) * 80 + (5,) * 20, 4, 5), ((4,) * 45 + (5,) * 55, 0, 5), ((3,) * 50 + (4,) * 50, 0, 4),
    ((4,) * 100, 4, 4), ((2, 3) * 3 + (4,) * 94, 4, 4), ((4,) * 999 + (9,), 4, 4), ((4,) * 60 + (9,) * 40, 0, 0),
    ((2,) * 70 + (6,) * 30, 0, 0), ((0,) * 10, 0, 0), ((1,) * 50, 0, 0), ((), 0, 0)])  # fmt: skip
def test_how_wide_tables_are(counts: tuple[int, ...], usual: int, roomy: int) -> None:
    assert (usual_degree(offsets(*counts)), roomy_degree(offsets(*counts))) == (usual, roomy)


def mapped(more: int = 0) -> tuple[ml.Set, ml.Set, np.ndarray]:
    """Faces between cells of which some meet four others, some five, one none and ``more`` of them too many."""
    rng = np.random.default_rng(2)
    quads, cells = 400, 801
    ring = np.arange(800)
    pairs = [np.stack([ring, np.roll(ring, -1)], axis=1), np.stack([ring, np.roll(ring, -30)], axis=1),
             np.stack([ring[:quads:2], ring[1:quads:2]], axis=1)]  # fmt: skip
    pairs += [np.stack([np.full(9, 600 + k), 650 + 9 * k + np.arange(9)], axis=1) for k in range(more)]
    joined = rng.permutation(np.concatenate(pairs))
    return ml.Set(len(joined), "faces"), ml.Set(cells, "cells"), joined


def results(kernel: ml.Kernel, backend: str, more: int, dtype: type) -> tuple[np.ndarray, ml.Loop]:
    ml.use(backend)
    faces, cells, joined = mapped(more)
    sides, rng = ml.Map(faces, cells, joined, "sides"), np.random.default_rng(1)
    flux = faces.field("flux", 2, dtype=dtype, data=rng.random((faces.size, 2)))
    q = cells.field("q", 2, dtype=dtype, data=rng.random((cells.size, 2)))
    res = cells.field("res", 2, dtype=dtype, data=rng.random((cells.size, 2)))
    arguments = {"flux_sum": (flux, res[sides]), "one_way": (flux, q[sides], res[sides])}
    loop = kernel.loop(faces, *arguments.get(kernel.name, (q[sides], res[sides])), schedule="owner")
    loop()
    return res.numpy(), loop


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_gaps_add_nothing(kernel: ml.Kernel, more: int) -> None:
    """Emulated CUDA against NumPy; also where a cell has no face, and where some have too many for the table."""
    for dtype, tolerance in ((np.float64, 1e-13), (np.float32, 1e-5)):
        expected, _ = results(kernel, "numpy", more, dtype)
        found, loop = results(kernel, "emulated", more, dtype)
        tables = incidence_of(loop, 0)
        assert tables.degree == 5 and tables.padded and tables.in_tables.sum() == 801 - more
        assert isinstance(tables.tables, SymmetricTables if kernel is local_maximum else SlotTables)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_a_gap_loads_is_not_seen(bad: float) -> None:
    """Gaps load element 0, whatever stands there."""
    ml.use("emulated")
    faces, cells, joined = mapped()
    sides, values = ml.Map(faces, cells, joined, "sides"), np.ones(faces.size)
    values[0] = bad
    flux, res = faces.field("flux", data=values), cells.field("res")
    flux_sum.loop(faces, flux, res[sides], schedule="owner")()
    assert set(np.flatnonzero(~np.isfinite(res.numpy()))) == set(joined[0])


def test_the_general_way_is_left_out_where_nobody_takes_it() -> None:
    for more in (0, 2):
        _, loop = results(flux_sum, "emulated", more, np.float64)
        (one,) = strategy("owner").passes(loop.spec, loop.plan, target=H200)
        assert ("entries0" in str(one)) == (more > 0)


@pytest.mark.parametrize("mode", ["gap", "mark", "entry", "row"])
def test_the_verifier_rejects_spoilt_gaps(mode: str) -> None:
    _, loop = results(one_way, "emulated", 2, np.float64)
    found = incidence_of(loop, 0)
    tables = found.tables
    assert isinstance(tables, SlotTables)
    entry, near = tables.entry.copy(), tables.near[0].copy()
    gap = int(np.flatnonzero(entry[4] == -1)[0])
    if mode == "gap":
        entry[4, gap] = 7
    elif mode == "mark":
        entry[:, 600] = -1
    elif mode == "entry":
        entry[3, gap] = -1
    else:
        near[-1, gap] = 10**6
    spoilt = replace(found, tables=replace(tables, entry=entry, near={0: near}))
    words = {"gap": "a gap of the neighbour table is none", "mark": "is not marked", "entry": "another entry",
             "row": "a gap has no row of map 0 to load"}  # fmt: skip
    faces, cells, joined = mapped(2)
    at = Topology(faces.size, {0: (joined, cells.size)}, {0: 0})
    verify(loop.plan, at)
    with pytest.raises(PlanError, match=words[mode]):
        verify(replace(loop.plan, gathers={0: spoilt}), at)


def airfoil(backend: str, fused: bool) -> np.ndarray:
    """The airfoil's residual, added to the solution, on triangles beside quadrilaterals."""
    ml.use(backend)
    mesh, rng = Mixed(12), np.random.default_rng(5)
    q = mesh.cells.field("q", 4, data=1.0 + rng.random((mesh.cells.size, 4)))
    adt, res = mesh.cells.field("adt", data=rng.random(mesh.cells.size)), mesh.cells.field("res", 4)
    x = mesh.nodes.field("x", 2, data=mesh.where)
    cells = mesh.face_cells

    @ml.kernel
    def advance(res: ml.ReadWrite, q: ml.ReadWrite):
        q[...] = q - 1e-2 * res
        res[...] = 0.0 * res

    def step() -> None:
        res_calc(mesh.faces, x[mesh.face_nodes], q[cells], adt[cells], res[cells])
        advance(mesh.cells, res, q)

    if backend == "emulated":
        loop = res_calc.loop(mesh.faces, x[mesh.face_nodes], q[cells], adt[cells], res[cells], schedule="owner")
        found = incidence_of(loop, 1)
        assert found.degree == 4 and found.padded
        assert isinstance(found.tables, SymmetricTables) and 0 in found.tables.ring
    ml.Program(step, fuse=fused).run(3)
    return q.numpy()


@pytest.mark.parametrize("fused", [False, True])
def test_rings_of_triangles_and_quadrilaterals(fused: bool) -> None:
    expected = airfoil("numpy", False)
    np.testing.assert_allclose(airfoil("emulated", fused), expected, rtol=1e-12)
