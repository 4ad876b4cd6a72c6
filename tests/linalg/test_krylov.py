"""Krylov solvers against direct ones, on random systems and Poisson's equation, on every back end."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

import meshloom as ml
from meshloom.errors import MeshloomError
from tests.fitted import changed
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip


def system(n: int, *, symmetric: bool, seed: int = 0) -> sparse.csr_matrix:
    dice = np.random.default_rng(seed)
    some = sparse.random(n, n, 6.0 / n, random_state=seed, data_rvs=lambda k: dice.uniform(-1.0, 1.0, k))
    some = (some + some.T if symmetric else some).tocsr()
    weight = np.asarray(abs(some).sum(axis=1)).ravel() + dice.uniform(0.1, 3.0, n)
    return (some + sparse.diags(weight)).tocsr()


@pytest.mark.parametrize("preconditioner", [None, "jacobi", "block_jacobi"])
@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("solver", ["cg", "bicgstab", "gmres"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_a_direct_solver(backend: str, solver: str, block: int, preconditioner: str | None) -> None:
    ml.use(backend)
    given = system(90, symmetric=solver == "cg")
    matrix = ml.Matrix.from_scipy(given, block=block)
    right = np.random.default_rng(1).uniform(-1.0, 1.0, 90)
    b = matrix.rows.field("b", block, data=right.reshape(-1, block) if block > 1 else right)
    x = matrix.rows.field("x", block)
    options: dict[str, Any] = {"restart": 6} if solver == "gmres" else {}
    report = getattr(ml.linalg, solver)(matrix, x, b, tol=1e-11, preconditioner=preconditioner, **options)
    assert report.converged and report.residual <= 1e-11 and len(report.history) == report.iterations + 1
    assert report.history[0] == 1.0 and report.history[-1] == report.residual and report.reason == "converged"
    np.testing.assert_allclose(x.numpy().ravel(), spsolve(given.tocsc(), right), rtol=1e-8, atol=1e-9)
    real = np.linalg.norm(right - given @ x.numpy().ravel()) / np.linalg.norm(right)
    assert real <= 2e-11, "what it says is what is"


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_operator_that_is_applied(backend: str) -> None:
    """A program with two parameters, a function, and a preconditioner of one's own."""
    ml.use(backend)
    grid = ml.Grid((24, 18), ghosts=1)
    u, b = grid.field("u"), grid.field("b")
    b.assign(np.random.default_rng(0).random((24, 18)))

    @ml.kernel
    def laplace(u: ml.Read, r: ml.Write):
        r[...] = 4.0 * u[0, 0] - u[1, 0] - u[-1, 0] - u[0, 1] - u[0, -1]

    @ml.kernel
    def quarter(r: ml.Read, z: ml.Write):
        z[...] = 0.25 * r

    @ml.program
    def apply(x: ml.Field, y: ml.Field) -> None:
        laplace(grid, x[grid.star(1)], y)

    def as_function(x: ml.Field, y: ml.Field) -> None:
        laplace(grid, x[grid.star(1)], y)

    ones = {n: sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n)) for n in (24, 18)}
    dense = sparse.kron(ones[24], sparse.eye(18)) + sparse.kron(sparse.eye(24), ones[18])
    exact = spsolve(dense.tocsc(), grid.shaped(b).ravel())
    counts = set()
    for operator, close in ((apply, None), (as_function, None), (apply, lambda r, z: quarter(grid, r, z))):
        u.fill(0.0)
        report = ml.linalg.cg(operator, u, b, tol=1e-10, preconditioner=close)
        assert report.converged
        counts.add(report.iterations)
        np.testing.assert_allclose(grid.shaped(u).ravel(), exact, rtol=1e-7, atol=1e-8)
    assert len(counts) == 1, "a multiple of the identity changes nothing"


@pytest.mark.parametrize("solver", ["cg", "bicgstab", "gmres"])
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_operators_that_add_to_their_result(backend: str, solver: str) -> None:
    """Fluxes over faces are increments: y is zero before them, and where nothing is written."""
    ml.use(backend)
    mesh = ml.generate.box((6, 5))
    cells, sides = mesh.cells, mesh.face_cells
    right = np.random.default_rng(0).random(len(cells))
    b, x, y = cells.field("b", data=right), cells.field("x"), cells.field("y")
    some = cells.subset(np.arange(7), "some")

    @ml.kernel
    def across(x: ml.Read, y: ml.Inc):
        y[0] += x[0] - x[1]
        y[1] += x[1] - x[0]

    @ml.kernel
    def own(x: ml.Read, y: ml.Inc):
        y += 0.1 * x

    @ml.kernel
    def twice(x: ml.Read, y: ml.Write):
        y[...] = 2.0 * x

    def apply(x: ml.Field, y: ml.Field) -> None:
        across(mesh.faces, x[sides], y[sides])
        own(cells, x, y)

    solve = getattr(ml.linalg, solver)
    assert solve(apply, x, b, tol=1e-10, preconditioner=lambda r, z: own(cells, r, z)).converged
    apply(x, y)
    np.testing.assert_allclose(y.numpy(), right, atol=1e-8)
    b.assign(np.where(np.arange(len(cells)) < 7, right, 0.0))
    x.fill(0.0)
    assert solve(lambda x, y: twice(some, x, y), x, b, tol=1e-10).converged
    np.testing.assert_allclose(2.0 * x.numpy(), b.numpy(), atol=1e-9)
    b.fill(3.0)
    assert solve(lambda x, y: twice(cells, x, y), x, b, tol=1e-10).converged, "one loop that sets all of y is enough"
    np.testing.assert_allclose(x.numpy(), 1.5, atol=1e-9)
    with one_line_from(MeshloomError, f"{solver}: the operator must make y from x by loops, and writes nothing to y"):
        solve(lambda x, y: None, x, b)


@pytest.mark.parametrize("solver", ["cg", "bicgstab", "gmres"])
def test_right_hand_sides_at_the_ends_of_the_range(solver: str) -> None:
    ml.use("cpu")
    given = system(50, symmetric=True)
    for dtype, size in (("float32", 1e-23), ("float32", 1e-20), ("float64", 1e-170), ("float64", 1e-157)):
        matrix = ml.Matrix.from_scipy(given.astype(dtype))
        x, b = matrix.rows.field("x", dtype=dtype), matrix.rows.field("b", data=np.full(50, size, dtype))
        report = getattr(ml.linalg, solver)(matrix, x, b, tol=1e-4)
        assert not report.converged and f"b is too small: in {dtype}" in report.reason and not x.numpy().any()
    for size in (np.nan, np.inf, 1e200):
        report, _ = solved(solver, given.toarray(), np.full(50, size))
        assert not report.converged and report.reason == "values that are not finite" and report.iterations == 0


@pytest.mark.parametrize(("solver", "options"), [("cg", {}), ("bicgstab", {}), ("gmres", {"restart": 10})])
def test_more_iterations_than_are_noted_at_a_time(monkeypatch: pytest.MonkeyPatch, solver: str, options: Any) -> None:
    """The history is whole, and finding its place in it costs the same whatever ``at_most`` is."""
    ml.use("cpu")
    dense, right = system(200, symmetric=True).toarray() + np.diag(np.arange(200.0)), np.arange(1.0, 201.0)
    one, x = solved(solver, dense, right, tol=1e-11, **options)
    changed(monkeypatch, solvers={"noted": 7})
    other, y = solved(solver, dense, right, tol=1e-11, **options)
    assert one.converged and one.iterations == other.iterations > 14
    assert (one.history == other.history).all() and (x == y).all()
    assert solved(solver, dense, right, tol=1e-11, at_most=9, **options)[0].iterations == 9


def test_what_rounding_does_not_allow_is_no_breakdown() -> None:
    ml.use("cpu")
    chain = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (50, 50)).toarray()
    report, _ = solved("bicgstab", chain, np.ones(50), tol=1e-17)
    assert not report.converged and report.reason == "stalled" and report.residual < 1e-11


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_a_solver_is_used_again(backend: str) -> None:
    ml.use(backend)
    given = system(60, symmetric=True)
    matrix = ml.Matrix.from_scipy(given)
    b, x = matrix.rows.field("b", data=1.0), matrix.rows.field("x")
    solver = ml.linalg.ConjugateGradients(matrix, preconditioner="jacobi")
    first = solver.solve(x, b, tol=1e-10)
    assert solver.solve(x, b, tol=1e-9).iterations == 0, "it starts from the x that is there"
    matrix.values.assign(3.0 * matrix.values.numpy())  # and sees the entries of now
    b.assign(np.arange(60.0))
    assert solver.solve(x, b, tol=1e-10).converged and first.converged
    np.testing.assert_allclose(3.0 * (given @ x.numpy()), np.arange(60.0), atol=1e-7)


@pytest.mark.parametrize(("method", "preconditioner"), [
    *((ml.linalg.ConjugateGradients, name) for name in ("jacobi", "block_jacobi", "lu_sgs")),
    (ml.linalg.BiCGStab, "jacobi"), (ml.linalg.GMRES, "jacobi"),
])  # fmt: skip
def test_a_preconditioner_follows_the_entries_of_its_matrix(method: Any, preconditioner: str) -> None:
    """Rows and columns are scaled by numbers of any size: a solver of before takes the very steps of a new one."""
    ml.use("numpy")
    matrix = ml.Matrix.from_scipy(system(24, symmetric=True), block=1 if preconditioner == "jacobi" else 2)
    size = matrix.block[0]
    x, b = (matrix.rows.field(name, size) for name in "xb")
    old = method(matrix, preconditioner=preconditioner)
    b.fill(1.0)
    before = old.solve(x, b, tol=1e-6).history
    scale = sparse.diags(10.0 ** np.random.default_rng(4).uniform(-2.0, 2.0, 24))
    matrix.values.assign(ml.Matrix.from_scipy(scale @ matrix.to_scipy() @ scale, block=size).values.numpy())
    found = []
    for solver in (old, method(matrix, preconditioner=preconditioner)):
        x.fill(0.0)
        found.append(solver.solve(x, b, tol=1e-6).history)
    assert np.array_equal(*found) and not np.array_equal(found[0], before)


@pytest.mark.parametrize("method", [ml.linalg.ConjugateGradients, ml.linalg.BiCGStab, ml.linalg.GMRES])
@pytest.mark.parametrize("backend", ["numpy", pytest.param("emulated", marks=pytest.mark.slow)])
def test_a_solver_keeps_neither_x_nor_b(backend: str, method: Any) -> None:
    """And the next ones of their kind find everything recorded."""
    ml.use(backend)
    given = system(30, symmetric=True)
    matrix = ml.Matrix.from_scipy(given)
    solver = method(matrix, **({"restart": 3} if method is ml.linalg.GMRES else {}))
    for size in (1.0, 2.0):
        x, b = matrix.rows.field("x"), matrix.rows.field("b", data=np.full(30, size))
        assert solver.solve(x, b, tol=1e-10).converged
        np.testing.assert_allclose(given @ x.numpy(), size, atol=1e-8)
        refs, made = (weakref.ref(x), weakref.ref(b)), solver._made[1]
        del x, b
        assert [one() for one in refs] == [None, None], "they go at once"
    single = [matrix.rows.field(name, dtype=np.float32) for name in "xb"]
    assert solver.solve(*single, tol=1e-3).converged and solver._made[1] is not made, "another kind"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_single_precision_ends_where_it_can_go_no_further(dtype: str) -> None:
    ml.use("cpu")
    given = system(80, symmetric=True)
    matrix = ml.Matrix.from_scipy(given.astype(dtype))
    b, x = (matrix.rows.field(name, dtype=dtype) for name in "bx")
    b.fill(1.0)
    report = ml.linalg.cg(matrix, x, b, tol=1e-12, at_most=300)
    real = np.linalg.norm(1.0 - given @ x.numpy().astype(float)) / np.sqrt(80.0)
    assert report.converged == (dtype == "float64")
    assert real < (1e-5 if dtype == "float32" else 2e-12)
    assert abs(report.residual - real) < 1e-6


def solved(solver: str, dense: np.ndarray, right: np.ndarray, **options: Any) -> tuple[Any, np.ndarray]:
    matrix = ml.Matrix.from_scipy(sparse.csr_matrix(dense))
    b, x = matrix.rows.field("b", data=right.astype(float)), matrix.rows.field("x")
    return getattr(ml.linalg, solver)(matrix, x, b, **options), x.numpy()


def test_ends_are_honest() -> None:
    ml.use("cpu")
    report, x = solved("cg", np.diag([1.0, 2.0, 3.0]), np.zeros(3))
    assert report.converged and report.iterations == 0 and not x.any() and report.history.tolist() == [0.0]
    report, _ = solved("cg", np.diag([1.0, -2.0, 3.0]), np.array([0.0, 1.0, 0.0]))
    assert not report.converged and report.reason == "broke down"
    report, _ = solved("cg", np.diag([1.0, 0.0, 3.0]), np.array([1.0, 1.0, 1.0]), at_most=50)
    assert not report.converged, "singular, and b is not in its range"
    report, _ = solved("cg", np.diag([1.0, np.nan, 3.0]), np.array([1.0, 1.0, 1.0]), at_most=50)
    assert not report.converged and report.reason == "values that are not finite" and report.iterations < 3
    report, _ = solved("cg", system(40, symmetric=True).toarray(), np.ones(40), tol=1e-12, at_most=2)
    assert not report.converged and report.iterations == 2 and report.reason == "not converged"
    assert len(report.history) == 3 and report.residual == report.history[-1] > 1e-12
    report, x = solved("gmres", np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 1.0]), restart=2)
    assert report.converged and report.iterations == 2 and np.allclose(x, [-1.0, 1.0], atol=1e-12), "exact after two"
    report, x = solved("gmres", np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 1.0]), restart=1, at_most=9)
    assert not report.converged and report.iterations == 9 and report.reason == "not converged", "it cannot move"
    report, x = solved("gmres", np.diag([2.0, 3.0]), np.array([1.0, 0.0]), restart=5)
    assert report.converged and np.allclose(x, [0.5, 0.0]) and report.iterations == 1, "done before the cycle is"
    report, x = solved("bicgstab", np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 1.0]), at_most=20)
    assert report.converged == bool(np.allclose(x, [-1.0, 1.0], atol=1e-6)), "a rotation may break it, not fool it"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_gmres_stops_where_there_is_nothing_new(scale: float) -> None:
    """The images of b span as many dimensions as there are eigenvalues; steps after that do not count."""
    ml.use("numpy")
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))
    dense = scale * turn @ np.diag(np.repeat([1.0, 2.0, 3.0, 5.0], 10)) @ turn.T
    report, x = solved("gmres", dense, np.arange(1.0, 41.0), restart=8, tol=1e-11)
    assert report.converged and report.iterations == 4 and len(report.history) == 5
    np.testing.assert_allclose(dense @ x, np.arange(1.0, 41.0), rtol=1e-9)
    singular = scale * np.diag([1.0, 2.0, 3.0, 0.0])
    report, x = solved("gmres", singular, np.ones(4), restart=6, at_most=1000)
    assert not report.converged and report.reason == "stalled" and report.iterations < 20
    np.testing.assert_allclose(x[:3] * scale, [1.0, 0.5, 1 / 3], rtol=1e-6)
    assert abs(report.residual - 0.5) < 1e-9, "what is left is b outside of the range"


def test_blocks_that_kernels_do_not_invert_are_told_what_to_do() -> None:
    ml.use("cpu")
    matrix = ml.Matrix.from_scipy(sparse.eye(16) * 2.0, block=8)
    x, b = matrix.rows.field("x", 8), matrix.rows.field("b", 8, data=1.0)
    with one_line_from(MeshloomError, "square blocks of at most 6 x 6 are inverted, these are 8 x 8; use 'jacobi'"):
        ml.linalg.cg(matrix, x, b, preconditioner="block_jacobi")
    assert not x.numpy().any() and ml.linalg.cg(matrix, x, b, preconditioner="jacobi").converged


def test_inside_a_program_it_is_called_at_every_replay() -> None:
    ml.use("cpu")
    matrix = ml.Matrix.from_scipy(sparse.eye(3))
    x, b = matrix.rows.field("x"), matrix.rows.field("b", data=1.0)
    for solve in (ml.linalg.cg, ml.linalg.bicgstab, ml.linalg.gmres):
        step = ml.Program(lambda solve=solve: solve(matrix, x, b))
        assert [one.name for one in step.operations] == [f"{solve.__name__}.solve"] and not x.numpy().any()
        step.run(2)
        assert np.allclose(x.numpy(), 1.0)
        x.fill(0.0)


@pytest.mark.parametrize(("change", "words"), [
    ({"tol": 0.0}, "tol must be a number between 0 and 1, got 0.0"), ({"tol": "x"}, "tol must be"),
    ({"tol": float("nan")}, "tol must be"), ({"at_most": -1}, "at_most"), ({"at_most": 2.5}, "at_most"),
    ({"preconditioner": "ilu"}, "preconditioner must be 'jacobi', 'block_jacobi', 'lu_sgs'"),
    ({"operator": 3}, "must be a Matrix or callable"), ({"x": np.zeros(3)}, "x must be a Field, got ndarray"),
    ({"operator": lambda x, y: None, "preconditioner": "jacobi"}, "needs the diagonal of a Matrix"),
])  # fmt: skip
def test_wrong_use_is_one_line(change: dict[str, Any], words: str) -> None:
    ml.use("cpu")
    matrix = ml.Matrix.from_scipy(sparse.eye(3))
    given = {"operator": matrix, "x": matrix.rows.field("x"), "b": matrix.rows.field("b", data=1.0)} | change
    with one_line_from(MeshloomError, words):
        ml.linalg.cg(given.pop("operator"), given.pop("x"), given.pop("b"), **given)


def test_fields_that_do_not_fit_are_refused() -> None:
    ml.use("cpu")
    matrix = ml.Matrix.from_scipy(sparse.eye(3))
    x, other = matrix.rows.field("x"), ml.Set(3).field("other")
    for b in (x, other, matrix.rows.field("two", 2), matrix.rows.field("single", dtype=np.float32)):
        with one_line_from(MeshloomError, "x and b"):
            ml.linalg.cg(matrix, x, b)
    whole = matrix.rows.field("i", dtype=int), matrix.rows.field("j", dtype=int)
    with one_line_from(MeshloomError, "floating-point"):
        ml.linalg.cg(matrix, *whole)
    with one_line_from(MeshloomError, "no entry on the diagonal at row 1"):
        hole = ml.Matrix.from_scipy(sparse.csr_matrix(([1.0, 2.0], ([0, 2], [0, 2])), shape=(3, 3)))
        ml.linalg.cg(hole, hole.rows.field("x"), hole.rows.field("b", data=1.0), preconditioner="jacobi")


@pytest.mark.parametrize(
    ("reason", "iterations", "words"),
    [
        ("converged", 1, "converged after 1 iteration, residual 1.00e-09"),
        ("stalled", 2, "stalled after 2 iterations, residual 1.00e-09"),
        ("converged; b was cut", 3, "converged after 3 iterations, residual 1.00e-09; b was cut"),
        ("b is zero, and so is x", 0, "b is zero, and so is x; no iterations, residual 1.00e-09"),
    ],
)
def test_a_report_reads_as_a_sentence(reason: str, iterations: int, words: str) -> None:
    report = ml.linalg.Report(True, iterations, 1e-9, np.zeros(iterations + 1), reason)
    assert repr(report) == f"Report({words})"
