"""Sparse matrices: assembled by kernels as NumPy and SciPy would, by every strategy, and multiplied."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.errors import MeshError
from tests.one_line import one_line_from

BACKENDS = ("numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
            pytest.param("cuda", marks=pytest.mark.gpu))  # fmt: skip


@ml.kernel
def couple(weight: ml.Read, m: ml.Inc):
    for i in range(m.shape[0]):
        for j in range(m.shape[1]):
            m[i, j] += weight * (1.0 + i + 10.0 * j)


@ml.kernel
def couple_blocks(weight: ml.Read, m: ml.Inc):
    for i in range(m.shape[0]):
        for j in range(m.shape[1]):
            for a in range(m.shape[2]):
                for b in range(m.shape[3]):
                    m[i, j, a, b] += weight * (1.0 + i + 10.0 * j + 100.0 * a + 1000.0 * b)


def assembled(left: np.ndarray, right: np.ndarray, weight: np.ndarray, shape: tuple[int, int],
              block: tuple[int, int]) -> np.ndarray:  # fmt: skip
    """The same, entry by entry, dense."""
    dense = np.zeros((shape[0] * block[0], shape[1] * block[1]))
    for rows, columns, w in zip(left, right, weight, strict=True):
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                a, b = np.ogrid[: block[0], : block[1]]
                value = 1.0 + i + 10 * j + 100 * a + 1000 * b
                dense[row * block[0] : (row + 1) * block[0], column * block[1] : (column + 1) * block[1]] += w * value
    return dense


@pytest.mark.parametrize("block", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("order", ["given", "random"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_assembly_by_every_strategy(backend: str, order: str, block: tuple[int, int]) -> None:
    ml.use(backend)
    mesh = ml.generate.box((4, 3), cells="triangle").arranged(order)
    dice = np.random.default_rng(0)
    weight = mesh.cells.field("weight", data=dice.integers(1, 6, len(mesh.cells)).astype(float))
    n = len(mesh.nodes)
    nodes = mesh.cell_nodes.indices
    expected = assembled(nodes, nodes, weight.numpy(), (n, n), block)
    matrix = ml.Matrix(mesh.nodes, through=mesh.cell_nodes, block=block)
    assert matrix.shape == expected.shape
    kernel, ran = couple if block == (1, 1) else couple_blocks, 0
    for wish in ("auto", *ml.strategies()):
        loop = kernel.loop(mesh.cells, weight, matrix[mesh.cell_nodes], schedule=ml.Schedule(wish, block=16))
        if loop.applies:
            matrix.fill(0.0)
            loop()
            np.testing.assert_array_equal(matrix.to_scipy().toarray(), expected, err_msg=wish)
            ran += 1
    assert ran > 4
    matrix.fill(0.0)
    kernel.python(mesh.cells, weight, matrix[mesh.cell_nodes])
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), expected)
    x = mesh.nodes.field("x", block[1], data=dice.integers(-5, 5, (n, block[1])).astype(float))
    y = mesh.nodes.field("y", block[0], data=np.ones((n, block[0])))
    matrix.multiply(x, y)
    np.testing.assert_array_equal(y.numpy().ravel(), expected @ x.numpy().ravel())


def test_rows_and_columns_of_different_sets() -> None:
    ml.use("cpu")
    mesh = ml.generate.box((5, 4)).arranged("random")
    matrix = ml.Matrix(mesh.cells, through=mesh.face_cells, columns=mesh.face_nodes, name="incidence")
    weight = mesh.faces.field("w", data=1.0)
    couple(mesh.faces, weight, matrix[mesh.face_cells, mesh.face_nodes])
    shape = (len(mesh.cells), len(mesh.nodes))
    expected = assembled(mesh.face_cells.indices, mesh.face_nodes.indices, weight.numpy(), shape, (1, 1))
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), expected)
    with one_line_from(MeshError, "no diagonal"):
        _ = matrix.diagonal


@pytest.mark.parametrize("block", [1, 2, (3, 2)])
def test_there_and_back(block: int | tuple[int, int]) -> None:
    given = sparse.random(12, 24, 0.2, format="csr", random_state=0)
    matrix = ml.Matrix.from_scipy(given, block=block)
    back = matrix.to_scipy()
    assert matrix.shape == (12, 24) and abs(back - given).max() == 0.0
    again = ml.Matrix.from_scipy(back, matrix.rows, matrix.columns, block=block)
    assert abs(again.to_scipy() - given).max() == 0.0


def test_in_a_program() -> None:
    for backend in ("numpy", "cpu", "emulated"):
        ml.use(backend)
        mesh = ml.generate.box((6, 5))
        matrix, weight = ml.Matrix(mesh.nodes, through=mesh.cell_nodes), mesh.cells.field("w", data=1.0)
        x, y = mesh.nodes.field("x", data=1.0), mesh.nodes.field("y")

        @ml.program
        def step(matrix=matrix, mesh=mesh, weight=weight, x=x, y=y) -> None:
            matrix.fill(0.0)
            couple(mesh.cells, weight, matrix[mesh.cell_nodes])
            matrix.multiply(x, y)

        step.run(2)
        np.testing.assert_allclose(y.numpy(), matrix.to_scipy() @ np.ones(len(mesh.nodes)), rtol=1e-14)


def test_what_does_not_fit_is_refused() -> None:
    mesh = ml.generate.box((3, 3))
    matrix = ml.Matrix(mesh.nodes, through=mesh.face_nodes, name="edges")
    with one_line_from(MeshError, "matrix edges has no entry for slots .* of cell_nodes at element .* of cells"):
        _ = matrix[mesh.cell_nodes]
    with one_line_from(MeshError, "must lead from one set to nodes and nodes"):
        _ = matrix[mesh.face_cells]
    with one_line_from(MeshError, "index it with a map into nodes"):
        _ = matrix[3]  # type: ignore[index]
    with one_line_from(MeshError, "map cell_nodes leads to nodes, not to cells"):
        ml.Matrix(mesh.cells, through=mesh.cell_nodes)
    with one_line_from(MeshError, "start at different sets"):
        ml.Matrix(mesh.nodes, through=mesh.cell_nodes, columns=mesh.face_nodes)
    with one_line_from(MeshError, "through must be a Map, or offsets of a grid, got int"):
        ml.Matrix(mesh.nodes, through=3)  # type: ignore[arg-type]
    for block in (0, 17, (2, 2, 2), 1.5):
        with one_line_from(MeshError, "block"):
            ml.Matrix(mesh.nodes, through=mesh.cell_nodes, block=block)  # type: ignore[arg-type]
    u, v = mesh.nodes.field("u"), mesh.cells.field("v")
    with one_line_from(MeshError, "x must be a field of 1 on nodes, got Field.v"):
        matrix.multiply(v, u)
    with one_line_from(MeshError, "the same field"):
        matrix.multiply(u, u)
    with one_line_from(MeshError, "takes a sparse matrix of scipy, got ndarray"):
        ml.Matrix.from_scipy(np.eye(3))
    with one_line_from(MeshError, "real numbers, got complex numbers, complex128"):
        ml.Matrix.from_scipy(sparse.eye(3) * 1j)
    with one_line_from(MeshError, "rows must be a Set, got int"):
        ml.Matrix(16, through=mesh.cell_nodes)  # type: ignore[arg-type]
    with one_line_from(MeshError, r"a product needs a field to go to, edges.multiply\(x, y\)"):
        _ = matrix @ u
    with one_line_from(MeshError, "cannot be cut into blocks"):
        ml.Matrix.from_scipy(sparse.eye(3), block=2)
    with one_line_from(MeshError, "but nodes and nodes have 16 and 16 elements"):
        ml.Matrix.from_scipy(sparse.eye(3), mesh.nodes, mesh.nodes)


@pytest.mark.parametrize("block", [1, 2, (2, 3)])
@pytest.mark.parametrize("periodic", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("emulated", marks=pytest.mark.slow),
                                     pytest.param("cuda", marks=pytest.mark.gpu)])  # fmt: skip
def test_on_a_grid(backend: str, periodic: tuple[bool, bool], block: int | tuple[int, int]) -> None:
    ml.use(backend)
    dice = np.random.default_rng(5)
    grid = ml.Grid((7, 6), periodic=periodic, ghosts=tuple(0 if p else 2 for p in periodic))
    around = grid.offsets((0, 0), (1, 0), (-1, 0), (0, 2), (-1, -1))
    matrix = ml.Matrix(grid, through=around, block=block)
    a, b = (block, block) if isinstance(block, int) else block
    matrix.assign(dice.integers(-4, 5, (7, 6, 5, a, b)).astype(float).reshape(matrix.values.shape))
    x, y = grid.field("x", b), grid.field("y", a)
    x.assign(dice.integers(-4, 5, x.shape).astype(float))
    matrix.multiply(x, y)
    there = matrix.to_scipy()
    assert there.shape == matrix.shape == (42 * a, 42 * b)
    np.testing.assert_array_equal(y.numpy().ravel(), there @ x.numpy().ravel())
    dense, values = there.toarray(), matrix.values.numpy().reshape(7, 6, 5, a, b)
    for i, j in ((0, 0), (6, 5), (3, 2)):  # by hand
        for k, (di, dj) in enumerate(around.offsets):
            inside = all(p or 0 <= at < n for p, at, n in zip(periodic, (i + di, j + dj), (7, 6), strict=True))
            row, column = 6 * i + j, 6 * ((i + di) % 7) + (j + dj) % 6
            if inside:
                found = dense[row * a : row * a + a, column * b : column * b + b]
                np.testing.assert_array_equal(found, values[i, j, k])


def test_a_matrix_on_a_grid_is_assembled_and_solved() -> None:
    for backend in ("numpy", "cpu"):
        ml.use(backend)
        grid = ml.Grid((16, 12), ghosts=1)
        star = grid.star(1)
        matrix = ml.Matrix(grid, through=star, name="poisson")
        assert repr(matrix) == "Matrix(poisson: grid, 5 entries a point)"

        @ml.kernel
        def fill(a: ml.Write):
            a[...] = np.array([4.0, -1.0, -1.0, -1.0, -1.0])

        fill(grid, matrix[star])
        b, x = grid.field("b", data=1.0), grid.field("x")
        report = ml.linalg.cg(matrix, x, b, tol=1e-11, preconditioner="jacobi")
        assert report.converged
        np.testing.assert_allclose(matrix.to_scipy() @ x.numpy().ravel(), 1.0, atol=1e-9)


def test_what_does_not_fit_a_grid_is_refused() -> None:
    grid, other = ml.Grid((4, 4), ghosts=1, name="one"), ml.Grid((4, 4), ghosts=1, name="other")
    matrix = ml.Matrix(grid, through=grid.offsets((1, 0)))
    for wrong in (lambda: ml.Matrix(other, through=grid.star(1)), lambda: ml.Matrix(ml.Set(3), through=grid.star(1))):
        with one_line_from(MeshError, "offsets of a grid make a matrix with that grid"):
            wrong()
    with one_line_from(MeshError, "index it with the offsets that it was made with"):
        _ = matrix[grid.star(1)]
    with one_line_from(MeshError, "no entry on the diagonal"):
        ml.linalg.cg(matrix, grid.field("x"), grid.field("b", data=1.0), preconditioner="jacobi")
    with one_line_from(MeshError, "x must be a field of 1 on one"):
        matrix.multiply(other.field("x"), grid.field("y"))
    for name in ("entries", "row_of", "column_of", "diagonal"):
        with one_line_from(MeshError, f"on grid one stores no indices, so it has no {name}; its entries are"):
            getattr(matrix, name)
    x = grid.field("x")
    with one_line_from(MeshError, "x and y are the same field, x"):
        matrix.multiply(x, x)


@pytest.mark.parametrize("back_end", ["numpy", "cpu"])
def test_a_map_without_elements_leads_to_no_entries(back_end: str) -> None:
    """A single cell has no faces in between: a loop over them adds nothing."""
    ml.use(back_end)
    mesh = ml.generate.box((1, 1))
    both, area = mesh.face_cells, mesh.faces.field("area")
    matrix = ml.Matrix(mesh.cells, through=both)

    @ml.kernel
    def assemble(area: ml.Read, m: ml.Inc):
        m[0, 1] += area
        m[1, 0] += area

    step = ml.program(lambda: assemble(mesh.faces, area, matrix[both]))
    step.run(2)
    assert len(mesh.faces) == 0 and matrix.to_scipy().nnz == 0
