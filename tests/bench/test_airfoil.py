"""The benchmark of the whole iteration: its inputs are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from bench.airfoil import SHUFFLED, make, measure, shuffled


def test_a_shuffled_mesh_is_the_same_mesh_in_the_worst_order() -> None:
    mesh = ml.generate.naca0012(9, 7)
    other = shuffled(mesh)
    np.testing.assert_allclose(np.sort(other.cell_volumes()), np.sort(mesh.cell_volumes()), rtol=1e-13)
    assert other.digest != mesh.digest and other.groups == mesh.groups and shuffled(mesh).digest == other.digest


def test_shuffled_input_is_arranged_and_gives_the_same_residual() -> None:
    before = ml.backend()
    try:
        given, moved = (make("cpu", 60, 50, "double", order) for order in ("given", SHUFFLED))
        assert given.mesh.arrangement.order == "given" and moved.mesh.arrangement.order == "hilbert"
        rms = [case.program.run(5, record=case.recorded)[-1, 0] for case in (given, moved)]
        assert rms[1] == pytest.approx(rms[0], rel=1e-11)
        assert measure("cpu", 6, 4, "double", SHUFFLED, 1)["order"] == SHUFFLED
    finally:
        ml.use(before)
