"""Loops over grids as CUDA: compiled for three architectures, without spills, without indices; graphs on a device."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend.cuda import dialect
from meshloom.backend.translation_unit import make_unit
from meshloom.target import H200
from tests.backend.test_cuda import ARCHITECTURES, CompileBackend, needs_nvrtc
from tests.test_grid_loops import MIXED_OFFSETS, mixed, star2, star3, star_of

KINDS = {"periodic": True, "closed": False}


@needs_nvrtc
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_stencil_compiles_without_spills_and_reads_no_indices(precision: str) -> None:
    grid = ml.Grid((16, 16, 128), periodic=True)
    u, out, backend = grid.field("u", dtype=precision), grid.field("out", dtype=precision), CompileBackend()
    loop = star3.loop(grid, u[grid.star(1)], out).on(backend)
    loop.prepare()
    found = backend.engine.resources
    assert set(found) == {f"star3 {a}" for a in ARCHITECTURES}
    assert all(r["pass0"]["spills"] == 0 and r["pass0"]["registers"] <= 128 for r in found.values())
    unit = make_unit(loop.spec, loop.plan, target=H200)
    (kernel,) = dialect.kernels(unit, loop.plan.block, 256)
    assert [name for declared, name in kernel.parameters if "*" in declared] == ["f0_u", "f1_out"]
    ctype, vector = ("double", 2) if precision == "float64" else ("float", 4)
    text = "\n".join(kernel.text_lines)
    assert f"ml_load<{ctype}, {vector}>" in text and f"ml_store<{ctype}, {vector}>" in text


@needs_nvrtc
@pytest.mark.parametrize(("layout", "precision"), [("aos", "float64"), ("soa", "float32")])
def test_reductions_and_every_mode_compile_without_spills(layout: str, precision: str) -> None:
    grid = ml.Grid((7, 68), periodic=(False, True))
    fields = [grid.field(f"f{k}", dim, dtype=precision, layout=layout) for k, dim in enumerate((2, 1, 2, 1, 1))]
    v, s, *written = fields
    results = [ml.Global(0.0), ml.Global(0.0, dtype=precision), ml.Global(0.0, dtype=precision)]
    at_v, at_s = (grid.offsets(*o) for o in MIXED_OFFSETS)
    loop = mixed.loop(grid.interior(1), v[at_v], s[at_s], *written, *results)
    backend = CompileBackend()
    loop.on(backend).prepare()
    assert len(backend.engine.resources) == len(ARCHITECTURES)
    assert all(r["pass0"]["spills"] == 0 for r in backend.engine.resources.values())


@pytest.mark.gpu
@pytest.mark.parametrize("periodic", KINDS.values(), ids=KINDS)
def test_a_program_of_box_loops_is_a_graph(periodic: bool) -> None:
    ml.use("cuda")
    grid = ml.Grid((70, 130), periodic=periodic)
    values = np.random.default_rng(0).random(grid.shape)
    u, out = grid.field("u", data=values), grid.field("out")

    @ml.program
    def step() -> None:
        star2(grid.interior(1), u[grid.star(1)], out)

    step.run(2)
    np.testing.assert_allclose(grid.shaped(out), star_of(grid, values, grid.interior(1)), atol=1e-13)
    assert step.launches == 1


@ml.kernel
def mean_of_rows(v: ml.Read, out: ml.ReadWrite):
    out[...] = 0.5 * out + v[-1, 0] - v[1, 0] + 0.25 * v[0, 1]


@pytest.mark.parametrize(("precision", "vector"), [("float64", 2), ("float32", 4)])
def test_rows_of_neighbouring_points_are_moved_together(precision: str, vector: int) -> None:
    """Vectors of three as aos: those of the points of a tile are loaded and stored in pieces of 16 bytes."""
    found = {}
    for backend in ("numpy", "emulated"):
        ml.use(backend)
        grid = ml.Grid((6, 128), periodic=True)
        dice = np.random.default_rng(4)
        v, out = (grid.field(name, 3, layout="aos", dtype=precision, data=dice.random((6, 128, 3)).astype(precision))
                  for name in ("v", "out"))  # fmt: skip
        loop = mean_of_rows.loop(
            grid, v[grid.offsets((-1, 0), (1, 0), (0, 1))], out, schedule=ml.Schedule("box", variant="row")
        )
        loop()
        found[backend] = out.numpy()
    np.testing.assert_allclose(found["emulated"], found["numpy"], rtol=1e-6 if vector == 4 else 1e-14)
    (kernel,) = dialect.kernels(make_unit(loop.spec, loop.plan, target=H200), loop.plan.block, 256)
    text, ctype = "\n".join(kernel.text_lines), "double" if vector == 2 else "float"
    middle, edge = text.split("else", 1)
    assert middle.count(f"ml_load<{ctype}, {vector}>") >= 3 * 3 and middle.count(f"ml_store<{ctype}, {vector}>") == 3
    assert "ml_load<" not in edge, "at the ends of a box each value by itself"
