"""Krylov solvers stop when the tolerance is met, and say after how many iterations: as many as SciPy's take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import linalg

import meshloom as ml
from meshloom.linalg.gmres import GMRES


def _system(trial: int, *, symmetric: bool) -> tuple[Any, np.ndarray, float]:
    """A sparse matrix, a right-hand side and a tolerance."""
    numbers = np.random.default_rng(trial)
    n = int(numbers.integers(20, 60))
    matrix = sparse.random(n, n, 0.1, random_state=trial) + numbers.uniform(1.0, 4.0) * sparse.eye(n)
    matrix = matrix + matrix.T + 10.0 * sparse.eye(n) if symmetric else matrix
    return sparse.csr_matrix(matrix), numbers.normal(size=n), float(10.0 ** numbers.uniform(-9.0, -0.3))


def _both(name: str, trial: int, **options: Any) -> tuple[Any, int, float, float]:
    """Our report, SciPy's iterations, the norm of the residual by SciPy's product as a part of that of b, and the
    tolerance."""
    matrix, right, tol = _system(trial, symmetric=name == "cg")
    ours = ml.Matrix.from_scipy(matrix)
    x, b = ours.rows.field("x"), ours.rows.field("b", data=right)
    report, seen = getattr(ml.linalg, name)(ours, x, b, tol=tol, **options), []
    listen = {"callback_type": "pr_norm"} if name == "gmres" else {}
    getattr(linalg, name)(matrix, right, rtol=tol, callback=lambda _: seen.append(1), **options, **listen)
    left = float(np.linalg.norm(right - matrix @ x.numpy()) / np.linalg.norm(right))
    return report, len(seen), left, tol


@pytest.mark.parametrize(("name", "options"), [("gmres", {"restart": 5}), ("gmres", {"restart": 20}), ("cg", {}),
                                               ("bicgstab", {})])  # fmt: skip
@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
                                     pytest.param("cuda", marks=pytest.mark.gpu)])  # fmt: skip
def test_as_many_iterations_as_scipy_takes(name: str, options: dict[str, Any], backend: str) -> None:
    ml.use(backend)
    for trial in range(2):
        report, theirs, left, tol = _both(name, trial, **options)
        assert report.converged and left <= tol * (1.0 + 1e-6)
        assert abs(report.iterations - theirs) <= 1 and len(report.history) == report.iterations + 1
        assert np.isclose(report.residual, left, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(40))
def test_gmres_on_many_systems_takes_as_many_iterations_as_scipy(trial: int) -> None:
    report, theirs, left, tol = _both("gmres", trial, restart=(1, 5, 20, 60)[trial % 4])
    assert report.converged and left <= tol * (1.0 + 1e-6) and abs(report.iterations - theirs) <= 1


@pytest.mark.parametrize("preconditioner", [None, "lu_sgs"])
def test_gmres_does_no_step_that_it_does_not_report(preconditioner: str | None) -> None:
    """Whatever the length of a cycle: a tolerance of 0.1 does not cost 20 of them."""
    ml.use("numpy")
    matrix, right, _ = _system(1, symmetric=False)
    ours = ml.Matrix.from_scipy(matrix)
    x, b = ours.rows.field("x"), ours.rows.field("b", data=right)
    solver, ran = GMRES(ours, preconditioner=preconditioner), []
    solver.solve(x, b, tol=0.5)
    assert solver._made is not None
    cycles: Any = solver._made[1]
    cycles.parts = [lambda *given, part=part: (ran.append(1), part(*given)) for part in cycles.parts]
    x.fill(0.0)
    report = solver.solve(x, b, tol=0.1)
    assert report.converged and 0 < report.iterations < 10 and len(ran) == report.iterations


def test_gmres_does_not_do_more_iterations_than_it_may() -> None:
    ml.use("numpy")
    matrix, right, _ = _system(2, symmetric=False)
    ours = ml.Matrix.from_scipy(matrix)
    for most in (1, 7):
        x, b = ours.rows.field("x"), ours.rows.field("b", data=right)
        report = ml.linalg.gmres(ours, x, b, tol=1e-14, at_most=most, restart=5)
        assert report.iterations == most and not report.converged and report.reason == "not converged"


def test_gmres_goes_on_after_a_solution_that_was_not_finite() -> None:
    ml.use("numpy")
    matrix, right, _ = _system(3, symmetric=False)
    ours = ml.Matrix.from_scipy(matrix)
    x, b = ours.rows.field("x"), ours.rows.field("b", data=right)
    solver, values = GMRES(ours, restart=8), ours.values.numpy()
    ours.assign(1e200 * values)
    assert not solver.solve(x, b, tol=1e-6).converged
    x.fill(0.0)
    ours.assign(values)
    assert solver.solve(x, b, tol=1e-3).converged
