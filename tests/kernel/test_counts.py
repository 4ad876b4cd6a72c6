"""Counts: flops against a run with numbers that count, bytes against a count by hand."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import FUSED, Node, operate
from meshloom.kernel.passes import rewrite
from meshloom.schedule.choice.counts import Counts
from meshloom.solvers.airfoil import AirfoilConfig, AirfoilGas, kernels

NI, NJ = 6, 4


class Counting:
    """A number that notes what is done with it; NumPy's loops over object arrays call these methods."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self, value: float):
        self.value = float(value)

    def _do(self, kind: str, value: float) -> Counting:
        Counting.seen[kind] += 1
        return Counting(value)

    def __add__(self, o):
        return self._do("add", self.value + value_of(o))

    def __radd__(self, o):
        return self._do("add", value_of(o) + self.value)

    def __sub__(self, o):
        return self._do("add", self.value - value_of(o))

    def __rsub__(self, o):
        return self._do("add", value_of(o) - self.value)

    def __mul__(self, o):
        return self._do("mul", self.value * value_of(o))

    __rmul__ = __mul__

    def __truediv__(self, o):
        return self._do("div", self.value / value_of(o))

    def __rtruediv__(self, o):
        return self._do("div", value_of(o) / self.value)

    def __neg__(self):
        return self._do("sign", -self.value)

    def __abs__(self):
        return self._do("sign", abs(self.value))

    def sqrt(self):
        return self._do("sqrt", np.sqrt(self.value))


def value_of(number: object) -> float:
    return number.value if isinstance(number, Counting) else float(number)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def loops() -> dict[str, ml.Loop]:
    """The airfoil's loops on a tiny mesh, in double precision."""
    mesh = ml.generate.naca0012(NI, NJ)
    k = kernels(AirfoilGas.of(AirfoilConfig().flow))
    cells, x = mesh.cells, mesh.coordinates
    q, qold, res, adt = (cells.field(n, d) for n, d in (("q", 4), ("qold", 4), ("res", 4), ("adt", 1)))
    rms = ml.Global(0.0)
    fc, bc = mesh.face_cells, mesh.boundary_cells
    return {
        "save_soln": k.save_soln.loop(cells, q, qold),
        "adt_calc": k.adt_calc.loop(cells, x[mesh.cell_nodes], q, adt),
        "res_calc": k.res_calc.loop(mesh.faces, x[mesh.face_nodes], q[fc], adt[fc], res[fc]),
        "bres_calc": k.bres_calc.loop(
            mesh.boundary_faces, x[mesh.boundary_nodes], q[bc], adt[bc], res[bc], mesh.boundary_group
        ),
        "update": k.update.loop(cells, qold, q, res, adt, rms),
    }


def taken_apart(node: Node) -> Node:
    """A sum that has taken a product in as the two that it was: the product counts once, whoever has it."""
    if node.op not in FUSED:
        return node
    *factors, other = node.args
    terms = operate("mul", factors), other
    return operate("add" if node.op == "fma" else "sub", reversed(terms) if node.op == "fnma" else terms)


@pytest.mark.parametrize("name", ["save_soln", "adt_calc", "res_calc", "update"])
def test_flops_equal_a_counting_run(loops: dict[str, ml.Loop], name: str) -> None:
    """The program that is emitted, executed with numbers that count; what merges results is added by hand."""
    loop = loops[name]
    roots = rewrite([o.value for o in loop.spec.outputs], taken_apart)
    Counting.seen.clear()
    with np.errstate(all="ignore"):
        evaluate(roots, lambda node: np.array([Counting(1.0 + 0.1 * sum(node.value))], object))
    merged = sum(1 for o in loop.spec.outputs if loop.spec.params[o.param].mode.combine)
    expected = dict(Counting.seen)
    if merged:
        expected["add"] = expected.get("add", 0) + merged
    assert loop.counts.flops_by_kind == expected
    assert loop.counts.flops == sum(v for k, v in expected.items() if k != "sign")


def test_bytes_equal_a_count_by_hand(loops: dict[str, ml.Loop]) -> None:
    """Sizes from the facts of the mesh: nodes, cells, faces, boundary faces."""
    nodes, cells = (3 * NI + 1) * (NJ + 1), 3 * NI * NJ
    faces, boundary = (3 * NI - 1) * NJ + 3 * NI * (NJ - 1) + NI, 4 * NI + 2 * NJ
    interior_face_nodes = len(np.unique(loops["res_calc"].maps[0].indices))
    expected = {
        "save_soln": cells * (4 + 4) * 8,
        "adt_calc": nodes * 2 * 8 + cells * (4 + 1) * 8 + cells * 4 * 4,
        "res_calc": interior_face_nodes * 2 * 8 + cells * (4 + 1 + 2 * 4) * 8 + faces * (2 + 2) * 4,
        "update": cells * (4 + 4 + 4 + 1) * 8,
    }
    assert {k: loops[k].counts.bytes.compulsory for k in expected} == expected
    assert loops["res_calc"].counts.bytes.issued == faces * ((4 + 8 + 2 + 2 * 8) * 8 + 4 * 4)
    touched = len(np.unique(loops["bres_calc"].maps[1].indices))
    points = len(np.unique(loops["bres_calc"].maps[0].indices))
    assert loops["bres_calc"].counts.bytes.compulsory == (
        points * 2 * 8 + touched * (4 + 1 + 2 * 4) * 8 + boundary * (2 * 4 + 4 + 4)
    )


def test_ratios(loops: dict[str, ml.Loop]) -> None:
    counts = loops["res_calc"].counts
    assert counts.vector_scalar_ratio == (4 + 8 + 8) / 2
    assert counts.bytes_per_flop == pytest.approx(counts.bytes.compulsory / (counts.flops * counts.elements))


def test_lines_depend_on_order_and_layout() -> None:
    """A shuffled map touches more lines; a direct loop touches each line once whatever the layout."""
    mesh = ml.generate.box((40, 40))

    @ml.kernel
    def scatter(v: ml.Read, out: ml.Inc):
        out[0] += v
        out[1] += 2.0 * v

    def lines(mesh: ml.Mesh, layout: str) -> int:
        v, out = mesh.faces.field("v", 4, layout=layout), mesh.cells.field("out", 4, layout=layout)
        return scatter.counts(
            mesh.faces, v, out[mesh.face_cells], schedule=ml.Schedule("atomic", block=128)
        ).bytes.cache_lines

    assert lines(mesh.reordered("random"), "aos") > 1.5 * lines(mesh, "aos")
    assert lines(mesh.reordered("random"), "soa") > lines(mesh.reordered("random"), "aos")

    @ml.kernel
    def copy(a: ml.Read, b: ml.Write):
        b[...] = a

    n = 64 * 128
    on = ml.Set(n, "points")
    for layout in ("aos", "soa", "aosoa8"):
        a, b = on.field("a", 4, layout=layout), on.field("b", 4, layout=layout)
        counts = copy.counts(on, a, b, schedule=ml.Schedule(block=128))
        assert counts.bytes.cache_lines == counts.bytes.compulsory == 2 * n * 4 * 8


def test_bytes_for_the_cost_model_count_no_cache_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusion weighs many loops that never run; blocks of a large grid looked at line by line would take seconds."""

    def refused(self: Counts) -> int:
        raise AssertionError("nobody asked for cache lines")

    monkeypatch.setattr(Counts, "_cache_lines", refused)
    grid = ml.Grid((12, 10))
    u, v = grid.field("u"), grid.field("v")

    @ml.kernel
    def spread(u: ml.Read, v: ml.Write):
        v[...] = u[1, 0] + u[-1, 0]

    loop = spread.loop(grid.interior(), u[grid.star(1)], v)
    assert loop.compulsory == loop.counts.compulsory and loop.estimate > 0.0
    assert loop.counts.bytes_per_flop == loop.compulsory / loop.flops
