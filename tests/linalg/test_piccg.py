"""PICCG of sparse matrices: against direct solvers, in every combination of its settings, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import io, sparse
from scipy.sparse.linalg import spsolve

import meshloom as ml
from meshloom.errors import MeshloomError
from meshloom.linalg.colored_order import colored
from meshloom.linalg.stored_rows import with_shift
from meshloom.native.cholesky import Sparse, colors_in_turn, factored
from tests.one_line import one_line_from

MARKS = {"numpy": (), "cpu": (), "emulated": (pytest.mark.slow,), "cuda": (pytest.mark.gpu,)}
few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


def on_back_ends(cases: Sequence[Any], quick: int = 1) -> list[Any]:
    """Each of some cases, tuples, on each back end; on ``cpu``, which compiles for each, the first few, or slowly."""
    found = []
    for number, case in enumerate(cases):
        for backend, marks in MARKS.items():
            more = (pytest.mark.slow,) if backend == "cpu" and number >= quick else ()
            found.append(pytest.param(backend, *case, marks=(*marks, *more), id=f"{backend}-{case}"))
    return found


# A covering design: each value of a setting meets each of every other one that it may be used with.
DESIGN: list[dict[str, Any]] = [
    {},
    {"storage": "csr"},
    {"storage": "sell", "chunk": 4, "sigma": 16, "eisenstat": True},
    {"colors": 6, "eisenstat": True, "storage": "csr"},
    {"colors": 6, "eisenstat": True, "shift": 0.05, "sigma": 16},
    {"colors": 6, "precision": "float32", "chunk": 4},
    {"colors": 9, "block": 3, "storage": "csr", "precision": "float32"},
    {"block": 3, "fill": 1, "chunk": 4, "shift": 0.05},
    {"block": 8, "drop": 0.02, "precision": "float32", "sigma": 16},
    {"block": 8, "storage": "csr", "eisenstat": False},
    {"fill": 1, "precision": "float32", "storage": "csr", "shift": 0.05},
    {"fill": 2, "storage": "sell", "colors": 60},
    {"drop": 0.02, "storage": "csr", "chunk": None},
    {"drop": 1e-4, "shift": 0.05},
    {"eisenstat": False, "precision": "float32", "chunk": 1},
    {"eisenstat": False, "precision": "float64", "block": 3, "drop": 0.05},
]


def laplacian(n: int, diagonals: bool = False) -> Any:
    """Of n x n points, symmetric positive definite; with ``diagonals`` nine entries in a row, and triangles."""
    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    one = sparse.identity(n)
    found = sparse.kron(line, one) + sparse.kron(one, line)
    return sparse.csr_matrix(found - 0.2 * sparse.kron(line, line) if diagonals else found)


def random_spd(dice: np.random.Generator, n: int, density: float) -> Any:
    part = sparse.random(n, n, density, random_state=dice, data_rvs=lambda k: dice.uniform(-1.0, 1.0, k))
    return sparse.csr_matrix(part @ part.T + sparse.diags(dice.uniform(0.1, 1.0, n)))


def kershaw() -> Any:
    """Kershaw's matrix, positive definite with a negative pivot in IC(0), among other rows."""
    one = np.array([[3.0, -2.0, 0.0, 2.0], [-2.0, 3.0, -2.0, 0.0], [0.0, -2.0, 3.0, -2.0], [2.0, 0.0, -2.0, 3.0]])
    return sparse.csr_matrix(sparse.block_diag([laplacian(5), one, sparse.identity(3)]))


def solved(matrix: Any, tol: float = 1e-11, **options: Any) -> tuple[np.ndarray, np.ndarray, ml.linalg.Report]:
    b = np.random.default_rng(1).standard_normal(matrix.shape[0])
    x = np.zeros_like(b)
    return x, spsolve(sparse.csc_matrix(matrix), b), ml.linalg.PICCG(matrix, **options).solve(x, b, tol=tol)


@few
@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(0.0, 0.2), st.sampled_from(DESIGN[:6] + DESIGN[7:9]))
def test_random_matrices_as_a_direct_solver(seed: int, n: int, density: float, options: dict[str, Any]) -> None:
    ml.use("numpy")
    matrix = random_spd(np.random.default_rng(seed), n, density)
    options = {key: value for key, value in options.items() if key != "colors"}
    x, right, report = solved(matrix, **options)
    assert report.converged and report.residual <= 1e-11
    np.testing.assert_allclose(x, right, rtol=1e-7, atol=1e-7 * np.abs(right).max())


@pytest.mark.parametrize("diagonals", [False, True])
@pytest.mark.parametrize("options", DESIGN, ids=str)
def test_every_setting(options: dict[str, Any], diagonals: bool) -> None:
    ml.use("numpy")
    matrix = laplacian(12, diagonals)
    plain = ml.Matrix.from_scipy(matrix)
    b = plain.rows.field("b", data=np.random.default_rng(1).standard_normal(144))
    without = ml.linalg.cg(plain, plain.rows.field("x"), b, tol=1e-11)
    x, right, report = solved(matrix, **options)
    assert report.converged and report.iterations < 0.75 * without.iterations
    assert len(report.history) == report.iterations + 1 and report.history[-1] == report.residual <= 1e-11
    np.testing.assert_allclose(x, right, rtol=1e-8, atol=1e-8 * np.abs(right).max())


OPTIONS = [{}, {"block": 3, "fill": 1}, {"storage": "csr"}, {"colors": 5, "eisenstat": True},
           {"eisenstat": False, "precision": "float32"}]  # fmt: skip


@pytest.mark.parametrize(("backend", "options"), on_back_ends([(one,) for one in OPTIONS]))
def test_the_same_on_every_back_end(backend: str, options: dict[str, Any]) -> None:
    ml.use("numpy")
    matrix = laplacian(9)
    expected = solved(matrix, 1e-10, **options)
    ml.use(backend)
    x, right, report = solved(matrix, 1e-10, **options)
    assert report.converged and abs(report.iterations - expected[2].iterations) <= 1
    np.testing.assert_allclose(x, right, rtol=1e-8, atol=1e-8 * np.abs(right).max())


@pytest.mark.parametrize("options", [{}, {"eisenstat": False}, {"colors": 4, "eisenstat": True}], ids=str)
def test_as_a_preconditioner_in_a_program(options: dict[str, Any]) -> None:
    """piccg(r, z) is the inverse of the factors, symmetric, whatever Krylov solver takes it."""
    ml.use("numpy")
    matrix = ml.Matrix.from_scipy(laplacian(6))
    piccg = ml.linalg.PICCG(matrix, **options)
    assert piccg.rows is matrix.rows
    r, z = (matrix.rows.field(name) for name in "rz")
    columns = []
    for k in range(36):
        r.assign(np.eye(36)[k])
        piccg(r, z)
        columns.append(z.numpy())
    close = np.array(columns)
    np.testing.assert_allclose(close, close.T, atol=1e-13)
    assert np.linalg.eigvalsh(close @ matrix.to_scipy().toarray() @ np.eye(36)).min() > 0.0
    x, b = matrix.rows.field("x"), matrix.rows.field("b", data=np.arange(36.0))
    alone = piccg.solve(x, b, tol=1e-9)
    x.fill(0.0)
    within = ml.linalg.cg(matrix, x, b, tol=1e-9, preconditioner=piccg)
    assert within.converged and abs(within.iterations - alone.iterations) <= 1


@pytest.mark.parametrize("backend", on_back_ends([()], 0))
def test_matrix_market_files(backend: str, tmp_path: Path) -> None:
    ml.use(backend)
    matrix = random_spd(np.random.default_rng(3), 25, 0.1)
    right = spsolve(sparse.csc_matrix(matrix), np.ones(25))
    for name, symmetry in (("whole.mtx", "general"), ("half.mtx", "symmetric")):
        io.mmwrite(tmp_path / name, sparse.coo_matrix(matrix), symmetry=symmetry)
        text = (tmp_path / name).read_text()
        assert symmetry in text.splitlines()[0]
        for path in (tmp_path / name, str(tmp_path / name)):
            piccg = ml.linalg.PICCG(path)
            x, b = piccg.rows.field("x"), piccg.rows.field("b", data=1.0)
            assert piccg.solve(x, b, tol=1e-12).converged
            np.testing.assert_allclose(x.numpy(), right, rtol=1e-8)
    whole = tmp_path / "integers.mtx"
    whole.write_text("%%MatrixMarket matrix coordinate integer symmetric\n2 2 3\n1 1 4\n2 1 1\n2 2 3\n")
    x = np.zeros(2)
    assert ml.linalg.PICCG(whole).solve(x, np.array([6.0, 7.0])).converged
    np.testing.assert_allclose(x, [1.0, 2.0])


def test_factors_of_the_engine_against_dense_ones() -> None:
    """Complete where nothing is dropped; with fill 0 the product is A wherever A has entries."""
    ml.use("numpy")
    matrix = laplacian(7, diagonals=True)
    a = Sparse.checked(matrix.indptr, matrix.indices, matrix.data)
    each = np.arange(49, dtype=np.int32)
    for fill, drop in ((None, 0.0), (0, 0.0), (1, 0.0), (49, 0.0)):
        made = factored(a, each, fill=fill, drop=drop, shift=0.0)
        assert not isinstance(made, int)
        above = sparse.csr_matrix((made.above.values, made.above.columns, made.above.offsets), shape=(49, 49)).toarray()
        product = (np.eye(49) + above).T @ np.diag(made.pivots) @ (np.eye(49) + above)
        apart = np.abs(product - matrix.toarray())
        assert apart[matrix.toarray() != 0].max() < 1e-13
        assert (apart.max() < 1e-13) == (fill in (None, 49)), fill
    one = np.linalg.cholesky(matrix.toarray())
    full = factored(a, each, fill=None, drop=0.0, shift=0.0)
    assert not isinstance(full, int)
    np.testing.assert_allclose(np.sqrt(full.pivots), np.diag(one))


@few
@given(st.integers(0, 10**6), st.integers(1, 80), st.integers(1, 9), st.sampled_from([None, 3]), st.integers(1, 3))
def test_stages_have_no_entry_in_common(seed: int, n: int, block: int, window: int | None, reach: int) -> None:
    matrix = random_spd(np.random.default_rng(seed), n, 0.05)
    matrix.sort_indices()
    a = Sparse.checked(matrix.indptr, matrix.indices, matrix.data)
    order = colored(a, colors=None, block=block, window=window, reach=reach)
    assert sorted(order.rows) == list(range(n)) and order.starts[-1] == n
    in_order = order.applied(a)
    there = sparse.csr_matrix((in_order.values, in_order.columns, in_order.offsets), shape=(n, n))
    np.testing.assert_array_equal(there.toarray(), matrix.toarray()[np.ix_(order.rows, order.rows)])
    stage = order.stages
    assert stage.tolist() == np.repeat(np.arange(len(order.starts) - 1), np.diff(order.starts)).tolist()
    made, _ = with_shift(lambda shift: factored(in_order, stage, fill=reach - 1, drop=0.0, shift=shift), 0.0, "matrix")
    for one in (in_order, made.above):
        row = np.repeat(np.arange(n), np.diff(one.offsets))
        beside = one.columns != row
        assert (stage[row[beside]] != stage[one.columns[beside]]).all()
    lengths = np.diff(in_order.offsets)
    if window is not None:
        for first, last in zip(order.starts[:-1], order.starts[1:], strict=True):
            for start in range(first, last, window):
                assert (np.diff(lengths[start : min(start + window, last)]) <= 0).all()
    in_turn = colors_in_turn(a, np.arange(n + 1), np.arange(n), 50)
    assert in_turn is None or all(in_turn[i] != in_turn[j] for i, j in zip(*matrix.nonzero(), strict=True) if i != j)


def test_a_pivot_that_breaks_down_raises_the_shift() -> None:
    ml.use("numpy")
    matrix = kershaw()
    for options in ({"colors": "auto", "block": 37}, {"colors": 30}, {"block": 4, "precision": "float32"}):
        piccg = ml.linalg.PICCG(matrix, eisenstat=False, **options)
        b, x = np.arange(1.0, 33.0), np.zeros(32)
        report = piccg.solve(x, b, tol=1e-10)
        assert report.converged
        np.testing.assert_allclose(x, spsolve(matrix.tocsc(), b), rtol=1e-7)
        raised = piccg.shift > 0.0
        said = f"a pivot broke down, so the diagonal was raised by {piccg.shift:.3g} of itself" in report.reason
        assert raised == said
        if options.get("block") == 37:
            assert raised, "in the order given IC(0) has a negative pivot"
    already = ml.linalg.PICCG(matrix, block=37, shift=0.9)
    assert already.shift == 0.9 and "broke down" not in already.solve(np.zeros(32), np.ones(32)).reason


def test_what_cannot_be_positive_definite_stops_honestly() -> None:
    """Indefinite with a positive diagonal: the factors are there, the method breaks down, and the report says so."""
    ml.use("numpy")
    matrix = sparse.csr_matrix(1.9 * np.eye(3) - 0.9)
    assert np.linalg.eigvalsh(matrix.toarray()).min() < -0.5
    for options in ({}, {"block": 3}, {"colors": 3, "eisenstat": True}):
        x = np.zeros(3)
        report = ml.linalg.PICCG(matrix, **options).solve(x, np.array([1.0, 2.0, -3.0]))
        wrong = np.linalg.norm(np.array([1.0, 2.0, -3.0]) - matrix @ x) / np.sqrt(14.0)
        assert report.converged == (wrong <= 1e-8) and (report.converged or report.reason.startswith("broke down"))


def test_entries_that_change_are_factored_anew() -> None:
    ml.use("numpy")
    matrix = ml.Matrix.from_scipy(laplacian(5))
    piccg = ml.linalg.PICCG(matrix)
    x, b = matrix.rows.field("x"), matrix.rows.field("b", data=1.0)
    assert piccg.solve(x, b).converged
    before = x.numpy()
    matrix.assign(2.0 * matrix.values.numpy())
    assert piccg.solve(x, b).converged
    np.testing.assert_allclose(2.0 * x.numpy(), before, rtol=1e-7)


@ml.kernel
def mass(x: ml.Read, m: ml.Inc):
    for i in range(3):
        for j in range(3):
            m[i, j] += (2.0 if i == j else 1.0) * (0.1 + x[i, 0] * x[j, 0])


@pytest.mark.parametrize("options", [{}, {"block": 4, "fill": 1}, {"storage": "csr"}], ids=str)
def test_matrices_that_kernels_assemble_on_a_mesh_in_any_order(options: dict[str, Any]) -> None:
    ml.use("numpy")
    for mesh in (one := ml.generate.box((6, 5), cells="triangle"), one.arranged("random")):
        matrix = ml.Matrix(mesh.nodes, through=mesh.cell_nodes, name="mass")
        mass(mesh.cells, mesh.coordinates[mesh.cell_nodes], matrix[mesh.cell_nodes])
        b, x = mesh.nodes.field("b", data=np.arange(42.0)), mesh.nodes.field("x")
        assert ml.linalg.PICCG(matrix, **options).solve(x, b, tol=1e-11).converged
        right = spsolve(matrix.to_scipy().tocsc(), np.arange(42.0))
        np.testing.assert_allclose(x.numpy(), right, atol=1e-8 * np.abs(right).max())


def test_single_precision_long_rows_and_stops() -> None:
    ml.use("numpy")
    x, right, report = solved(sparse.csr_matrix(laplacian(8), dtype=np.float32), 1e-5)
    assert report.converged and np.abs(x - right).max() < 1e-3 * np.abs(right).max()
    n = 90  # an arrow: one row is as long as there are rows
    arrow = sparse.lil_matrix(sparse.diags(np.full(n, 2.0 * n)))
    arrow[0, :] = arrow[:, 0] = 1.0
    arrow[0, 0] = 2.0 * n
    for options in ({}, {"eisenstat": False}, {"fill": 1}, {"storage": "csr"}):
        x, right, report = solved(sparse.csr_matrix(arrow), **options)
        assert report.converged
        np.testing.assert_allclose(x, right, rtol=1e-9)
    with one_line_from(MeshloomError, "a row has 89 entries .* storage='sell' takes 64 at most; leave storage out"):
        ml.linalg.PICCG(sparse.csr_matrix(arrow), storage="sell")
    piccg, b = ml.linalg.PICCG(laplacian(20)), np.random.default_rng(0).standard_normal(400)
    short = piccg.solve(np.zeros(400), b, at_most=3)
    assert not short.converged and short.iterations == 3 and short.reason == "not converged"
    x = np.ones(400)
    assert piccg.solve(x, np.zeros(400)).reason == "b is zero, and so is x" and not x.any()
    b[7] = np.nan
    x = np.ones(400)
    assert "not finite" in piccg.solve(x, b).reason and (x == 1.0).all()
    for options in ({}, {"eisenstat": False}, {"colors": 4, "eisenstat": True}):
        x = np.full(400, np.nan)
        assert not ml.linalg.PICCG(laplacian(20), **options).solve(x, np.ones(400), at_most=50).converged


def test_fewer_bytes_in_all_than_conjugate_gradients() -> None:
    """The engine's own counts: two colors of a general matrix take less than 0.45 of what a plain solution does."""
    ml.use("numpy")
    matrix, n = laplacian(48), 48 * 48
    plain = ml.Matrix.from_scipy(matrix)
    x, b = plain.rows.field("x"), plain.rows.field("b", data=np.random.default_rng(0).standard_normal(n))
    solver = ml.linalg.ConjugateGradients(plain)
    without = solver.solve(x, b)
    assert solver._made is not None
    each = sum(one.compulsory for one in solver._made[1].iterate.bind(x, b).loops)
    x.fill(0.0)
    piccg = ml.linalg.PICCG(plain)
    report = piccg.solve(x, b)
    assert report.iterations <= 0.52 * without.iterations
    assert report.iterations * piccg.bytes_per_iteration < 0.45 * without.iterations * each
    assert ml.linalg.PICCG(plain, eisenstat=False).bytes_per_iteration > 1.8 * piccg.bytes_per_iteration


def with_arrays(**arrays: list[int]) -> sparse.csr_matrix:
    """The identity of two rows, with its arrays changed afterwards."""
    matrix = sparse.identity(2, format="csr")
    for name, values in arrays.items():
        setattr(matrix, name, np.array(values, np.int32))
    return matrix


NAN = sparse.csr_matrix(np.array([[1.0, 0.0], [0.0, np.nan]]))
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (sparse.csr_matrix(np.array([[2.0, 1.0], [0.5, 2.0]])), {}, "not symmetric: 1 at row 0, column 1, but 0.5 at"),
    (sparse.csr_matrix(np.array([[2.0, 1.0], [0.0, 2.0]])), {}, "not symmetric: 1 at row 0, column 1, but 0 at"),
    (sparse.csr_matrix((2, 3)), {}, "is 2 x 3, and must be square"),
    (sparse.csr_matrix((0, 0)), {}, "is empty: it has no rows"),
    (sparse.coo_matrix(([1.0, 0.0], ([0, 1], [0, 1]))), {}, "is singular: row 1 has no entry other than zero"),
    (sparse.coo_matrix(([1.0], ([0], [0])), (2**62, 2**62)), {}, f"is singular: 1 entry in {2**62} rows"),
    (with_arrays(indices=[0, 2]), {}, "has indices that do not fit: "),
    (with_arrays(indices=[-1, 1]), {}, "has indices that do not fit: "),
    (with_arrays(indptr=[0, 3, 2]), {}, "has indices that do not fit: "),
    (sparse.csr_matrix(np.diag([1.0, -2.0])), {}, "not positive definite: its entry on the diagonal at row 1 is -2"),
    (sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, 1.0]])), {}, "its entry on the diagonal at row 0 is 0"),
    (sparse.csr_matrix(np.ones((2, 2))), {}, "singular, or not positive definite: so are row 1 and those that it has"),
    (sparse.csr_matrix(np.ones((2, 2))), {"eisenstat": False, "shift": 0.1}, "singular, or not positive definite"),
    (sparse.csr_matrix(1e9 - 1e9 * np.eye(3) + np.eye(3)), {}, "no incomplete factorisation: a pivot breaks down at"),
    (NAN, {}, "has nan at row 1, column 1"),
    (sparse.identity(2) * np.inf, {}, "has inf at row 0, column 0"),
    (sparse.identity(2) * 1j, {}, "has complex numbers; it must be of real numbers"),
    (np.eye(3), {}, "must be a Matrix, a Poisson operator, a matrix of scipy.sparse or the path .*, got ndarray"),
    (None, {}, "got NoneType"),
    ("no_such_file.mtx", {}, "cannot read 'no_such_file.mtx'"),
    (laplacian(3), {"colors": 1}, "1 colors are too few, the coloring needs 2"),
    (laplacian(3), {"colors": "many"}, "colors must be a whole number from 1 to 4096 or 'auto', got 'many'"),
    (laplacian(3), {"block": 0}, "block must be a whole number from 1"),
    (laplacian(3), {"fill": -1}, "fill must be a whole number from 0 to 16"),
    (laplacian(3), {"fill": 1, "drop": 0.1}, "give fill, a level, or drop, a tolerance, and not both"),
    (laplacian(3), {"drop": 0.0}, "drop must be a number between 0 and 1, got 0.0"),
    (laplacian(3), {"shift": -0.1}, "shift must be a number from 0 to 1, got -0.1"),
    (laplacian(3), {"shift": np.nan}, "shift must be a number from 0 to 1, got nan"),
    (laplacian(3), {"storage": "ell"}, "unknown storage of piccg 'ell'; did you mean 'sell'"),
    (laplacian(3), {"storage": "csr", "chunk": 4}, "chunk and sigma are of storage='sell', and this is 'csr'"),
    (laplacian(3), {"chunk": 4096}, "chunk must be a whole number from 1 to 1024"),
    (laplacian(3), {"sigma": 0}, "sigma must be a whole number from 1"),
    (laplacian(3), {"precision": "float16"}, "precision: dtype must be float32 or float64, got 'float16'"),
    (laplacian(3), {"eisenstat": "yes"}, "eisenstat must be True or False"),
    (laplacian(3), {"eisenstat": True, "block": 2}, "eisenstat needs factors with the very entries of A, and block=2"),
    (laplacian(3), {"eisenstat": True, "fill": 1}, "eisenstat needs .*, and fill or drop makes others"),
    (laplacian(3), {"eisenstat": True, "precision": "float32"}, "eisenstat needs .*, and precision=float32"),
]  # fmt: skip


@pytest.mark.parametrize(("matrix", "options", "message"), WRONG, ids=[one[2] for one in WRONG])
def test_what_is_refused(matrix: Any, options: dict[str, Any], message: str) -> None:
    with one_line_from(MeshloomError, message):
        ml.linalg.PICCG(matrix, **options)


def test_wrong_files_and_fields(tmp_path: Path) -> None:
    ml.use("numpy")
    head, no_file = "%%MatrixMarket matrix coordinate", "is no Matrix Market file"
    for text, message in (("hello\n", no_file), ("", no_file), (f"{head} real general\n2 2 9\n1 1 1\n", no_file),
                          (f"{head} complex hermitian\n1 1 1\n1 1 2 0\n", "complex numbers")):  # fmt: skip
        (tmp_path / "some.mtx").write_text(text)
        with one_line_from(MeshloomError, message):
            ml.linalg.PICCG(tmp_path / "some.mtx")
    blocks = ml.Matrix.from_scipy(sparse.identity(4, format="csr"), block=2)
    with one_line_from(MeshloomError, "matrix matrix has blocks of 2 x 2, and the factorisation takes single numbers"):
        ml.linalg.PICCG(blocks)
    piccg = ml.linalg.PICCG(laplacian(3))
    x, b, other = piccg.rows.field("x", data=4.0), piccg.rows.field("b"), ml.Set(9).field("b")
    for one, two, message in ((x, x, "x and b are the same field"), (x, other, "b must be a field of single numbers"),
                              (np.zeros(9), b, "both are arrays .* of shape \\(9,\\), and b is Field"),
                              (np.zeros(9), np.zeros(8), "and b is float64 \\(8,\\)"),
                              (np.zeros(9, int), np.zeros(9), "and x is int64 \\(9,\\)")):  # fmt: skip
        with one_line_from(MeshloomError, message):
            piccg.solve(one, two)
    with one_line_from(MeshloomError, "r and z are the same field"):
        piccg(x, x)
    with one_line_from(MeshloomError, "piccg: x must be a Field, got ndarray"):
        ml.program(lambda: piccg.solve(np.zeros(9), np.ones(9))).run()
    fixed = np.zeros(9)
    fixed.flags.writeable = False
    with one_line_from(MeshloomError, "x is an array that cannot be written to"):
        piccg.solve(fixed, np.ones(9))
    assert (x.numpy() == 4.0).all()


@pytest.mark.parametrize("chosen", [{}, {"colors": 14, "eisenstat": True}, {"eisenstat": False}])
def test_what_is_claimed_is_so_but_for_rounding(chosen: dict[str, Any]) -> None:
    """Rows whose sizes differ by up to 1e12: the trick carries along another norm then, by as much another one."""
    ml.use("numpy")
    dice, n = np.random.default_rng(5), 14
    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    for tol in (1e-4, 1e-11):
        sizes = sparse.diags(10.0 ** dice.uniform(-3.0, 3.0, n))
        matrix, b, x = sparse.csr_matrix(sizes @ line @ sizes), dice.standard_normal(n), np.zeros(n)
        report = ml.linalg.PICCG(matrix, **chosen).solve(x, b, tol=tol, at_most=2000)
        left, norm = np.linalg.norm(b - matrix @ x) / np.linalg.norm(b), np.linalg.norm(abs(matrix) @ abs(x))
        rounding = 4.0 * np.finfo(float).eps * norm / np.linalg.norm(b)
        assert report.converged == (report.residual <= tol) and (report.converged or rounding > tol)
        assert abs(left - report.residual) <= 1e-6 * left + rounding, (report, left, rounding)
