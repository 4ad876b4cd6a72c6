"""Whatever way lines are cut up on a GPU, the numbers are those of NumPy: random grids and forms, emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.target import H200
from tests.backend import on_hip
from tests.linalg.test_lines import accumulate, differ, flux, lele6, mixed

LENGTHS = (5, 7, 16, 17, 32, 33, 48, 64, 100, 129, 255, 256, 300, 513)
SIDES = (1, 2, 3, 4, 5, 8, 9, 17)
WISHES: dict[str, tuple[int, ...]] = {
    "points": (4, 8, 16, 32), "tile": (1, 2, 4, 8, 16, 32), "threads": (32, 64, 128, 256), "group": (1, 2, 3),
    "shared": (0, 1), "pair": (0, 1), "exchange": (0, 1), "prefetch": (0, 1, 3), "side": (1, 2, 3),
    "batch": (1, 3, 4, 8),
}  # fmt: skip
KINDS = {"derivative": None, "accumulate": accumulate, "mixed": mixed}


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.sampled_from(SIDES)) for _ in range(rank)]
    shape[axis] = draw(st.sampled_from(LENGTHS))
    wanted = draw(st.sets(st.sampled_from(sorted(WISHES)), max_size=5))
    return {"shape": tuple(shape), "axis": axis, "periodic": [draw(st.booleans()) for _ in range(rank)],
            "aligned": draw(st.booleans()), "ghosts": [min(draw(st.integers(0, 2)), n) for n in shape],
            "precision": draw(st.sampled_from(["float64", "float32"])), "kind": draw(st.sampled_from(sorted(KINDS))),
            "tuning": {name: draw(st.sampled_from(WISHES[name])) for name in sorted(wanted)}}  # fmt: skip


def solved(problem: dict[str, Any], back_end: str) -> np.ndarray:
    """The result of a problem by a back end, (*shape, 3)."""
    ml.use(back_end)
    shape, axis, dtype = problem["shape"], problem["axis"], problem["precision"]
    grid = ml.Grid(shape, periodic=problem["periodic"], ghosts=problem["ghosts"], aligned=problem["aligned"])
    rng, operator = np.random.default_rng(5), lele6(problem["periodic"][axis])

    def field(name: str, dim: int, low: float) -> ml.Field:
        return grid.field(name, dim, dtype=dtype, data=(low + rng.random((*shape, dim))).astype(dtype))

    q, metric, out, after = field("q", 3, 1.0), field("metric", 1, 0.0), field("out", 3, 0.0), KINDS[problem["kind"]]
    given: dict[str, Any] = {"tuning": problem["tuning"]}
    if after is None:
        loop = ml.linalg.LineLoop(grid, axis, operator, q, out, **given)
    else:
        half = ml.Global(0.5, "half", dtype=dtype)
        loop = ml.linalg.LineLoop(grid, axis, operator, (q, half), (metric, out), before=flux, after=after, values=3,
                                  **given)  # fmt: skip
    loop()
    return grid.shaped(out)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize("back_end", ["emulated", on_hip.NAME])
@given(problem=problems())
def test_any_form_gives_the_same(problem: dict[str, Any], back_end: str) -> None:
    found, expected = solved(problem, back_end), solved(problem, "numpy")
    assert differ(found, expected) < (1e-13 if problem["precision"] == "float64" else 1e-5)


@pytest.mark.parametrize("tuning", [
    {"tile": 32},  # more lines than a block has threads for
    {"points": 4, "tile": 32, "threads": 32},  # parts of one segment, joined by their ends
])  # fmt: skip
def test_wishes_that_cannot_be_are_cut_down(tuning: dict[str, int]) -> None:
    for axis, shape in ((1, (2, 513)), (0, (300, 3))):
        problem = {"shape": shape, "axis": axis, "periodic": [False, False], "ghosts": 0, "aligned": False,
                   "precision": "float64", "kind": "mixed", "tuning": tuning}  # fmt: skip
        assert differ(solved(problem, "emulated"), solved(problem, "numpy")) < 1e-13


@pytest.mark.parametrize("periodic", [True, False])
def test_generated_cuda_compiles_without_spilling(periodic: bool) -> None:
    """The usual forms for lines of 512 points, where NVRTC is to be had. They were chosen on sm_90; others must
    compile, and may put a few values of a thread aside: the back end gives a thread more registers where many blocks
    fit."""
    from meshloom.backend.cuda import dialect, nvrtc
    from meshloom.backend.translation_unit import make_unit

    try:
        nvrtc.library()
    except ml.errors.CompilerError as absent:
        pytest.skip(str(absent))
    ml.use("emulated")
    grid = ml.Grid((512, 512, 16), periodic=periodic)
    f, out = grid.field("f"), grid.field("out")
    line = ml.Grid((16, 512), periodic=periodic)
    cases = [(grid, 1, f, out, "sm_80"), (line, 1, line.field("f"), line.field("out"), "sm_100")]
    limits = {"sm_80": 128, "sm_90": 0, "sm_100": 128}
    for on, axis, source, target, architecture in cases:
        loop = ml.linalg.LineLoop(on, axis, lele6(periodic), source, target)
        unit, threads = make_unit(loop.spec, loop.plan, target=H200), H200.whole_warps(loop.plan.block)
        blocks = H200.registers // (loop.spec.tiling.registers * threads)
        made = dialect.kernels(unit, loop.plan.block, threads, [blocks])
        for one in (architecture, "sm_90"):
            _, log = nvrtc.build(dialect.render(unit, made, wide_index=False), "lines", one)
            assert nvrtc.resources(log)["pass0"]["spills"] <= limits[one], (axis, one, loop.spec.tiling)
