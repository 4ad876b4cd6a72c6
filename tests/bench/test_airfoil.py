"""The benchmark of the whole iteration: its inputs are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from bench.airfoil import SHUFFLED, make, measure, mesh_of, shuffled, summary


def test_a_shuffled_mesh_is_the_same_mesh_in_the_worst_order() -> None:
    mesh = ml.generate.naca0012(9, 7)
    other = shuffled(mesh)
    np.testing.assert_allclose(np.sort(other.cell_volumes), np.sort(mesh.cell_volumes), rtol=1e-13)
    assert other.digest != mesh.digest and other.groups == mesh.groups and shuffled(mesh).digest == other.digest


@pytest.mark.slow
def test_shuffled_input_is_arranged_and_gives_the_same_residual() -> None:
    before = ml.backend()
    try:
        given, moved = (make("cpu", mesh_of(60, 50, order), "double") for order in ("given", SHUFFLED))
        assert given.mesh.arrangement.order == "given" and moved.mesh.arrangement.order == "hilbert"
        rms = [case.program.run(5, record=case.recorded)[-1, 0] for case in (given, moved)]
        assert rms[1] == pytest.approx(rms[0], rel=1e-11)
        row = measure(moved, 1, fuse=False)
        assert row["cells"] == 9000 and row["ms"] > 0.0 and "hilbert" in row["numbering"] and row["fused_bytes"] is None
    finally:
        ml.use(before)


def test_ratios_of_a_run() -> None:
    times = {("given", "float64"): (4.0, 2.0), ("given", "float32"): (2.0, 1.0),
             (SHUFFLED, "float64"): (5.0, 2.1), (SHUFFLED, "float32"): (2.5, 1.5)}  # fmt: skip
    rows = [{"order": o, "precision": p, "fused": f, "ms": ms[f]} for (o, p), ms in times.items() for f in (0, 1)]
    found = summary(rows)
    assert found["loops_by_fused"]["given float64"] == 2.0 and found["double_by_single"]["given loops"] == 2.0
    assert found["shuffled_by_given"] == {"float64 loops": 1.25, "float64 fused": 1.05, "float32 loops": 1.25,
                                          "float32 fused": 1.5}  # fmt: skip
