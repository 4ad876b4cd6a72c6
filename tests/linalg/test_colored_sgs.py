"""Symmetric Gauss-Seidel by colors against dense matrices of NumPy, and what it is worth inside a Krylov solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import meshloom as ml
from meshloom.errors import MeshloomError, SolveError
from tests.one_line import one_line_from

SLOW, GPU = pytest.mark.slow, pytest.mark.gpu
SIZES = ((1, 2), (4, 1), (5, 1), (6, 3))  # of blocks, and sweeps
QUICK = {("cpu", 1, 2), ("cpu", 5, 1), ("emulated", 4, 1)}
ON_BACKENDS = [
    *(("numpy", *size) for size in SIZES),
    *(pytest.param(name, *size, marks=() if (name, *size) in QUICK else SLOW)
      for name in ("cpu", "emulated") for size in SIZES),
    *(pytest.param("cuda", *size, marks=GPU) for size in SIZES),
]  # fmt: skip


def random_blocks(mesh: ml.Mesh, block: int, seed: int = 0) -> ml.Matrix:
    """A matrix through faces with random blocks, heavy on the diagonal, and not symmetric."""
    matrix = ml.Matrix(mesh.cells, through=mesh.face_cells, block=(block, block))
    dice = np.random.default_rng(seed)
    values = dice.uniform(-1.0, 1.0, matrix.values.shape).reshape(-1, block, block)
    at = matrix.diagonal.members.indices[:, 0]
    values[at] += 4.0 * block * np.eye(block)[dice.permutation(block)]  # rows that have to change places
    matrix.assign(values.reshape(matrix.values.shape))
    return matrix


def by_hand(matrix: ml.Matrix, color: np.ndarray, r: np.ndarray, sweeps: int = 1) -> np.ndarray:
    """(D + U)^-1 D (D + L)^-1 r, as often, with dense matrices; r is (rows, block)."""
    b, dense = matrix.block[0], matrix.to_scipy().toarray()
    of = np.repeat(color, b)
    lower = np.where(of[:, None] > of[None, :], dense, 0.0)
    upper = np.where(of[:, None] < of[None, :], dense, 0.0)
    middle, z = dense - lower - upper, np.zeros(r.size)
    for _ in range(sweeps):
        z += np.linalg.solve(middle + upper, middle @ np.linalg.solve(middle + lower, r.ravel() - dense @ z))
    return z.reshape(r.shape)


def colors_of(sgs: ml.linalg.ColoredSGS) -> np.ndarray:
    """The color of each row, as its loops have it."""
    found = np.full(len(sgs.matrix.rows), -1)
    for number, part in enumerate(sgs._parts):
        found[part.members.indices[:, 0] if part is not sgs.matrix.rows else slice(None)] = number
    return found


@pytest.mark.parametrize(("backend", "block", "sweeps"), ON_BACKENDS)
def test_as_dense_matrices_have_it(backend: str, block: int, sweeps: int) -> None:
    ml.use(backend)
    mesh = ml.generate.box((5, 4), cells="triangle")
    matrix = random_blocks(mesh, block)
    sgs = ml.linalg.ColoredSGS(matrix, sweeps=sweeps)
    r, z = mesh.cells.field("r", block), mesh.cells.field("z", block)
    r.assign(np.random.default_rng(1).uniform(-1.0, 1.0, r.shape))
    color = colors_of(sgs)
    pairs = mesh.face_cells.indices
    assert (color[pairs[:, 0]] != color[pairs[:, 1]]).all() and color.min() == 0 and color.max() == sgs.colors - 1
    ml.Program(lambda: sgs(r, z)).run()
    np.testing.assert_allclose(z.numpy(), by_hand(matrix, color, r.numpy(), sweeps), rtol=1e-11, atol=1e-13)
    matrix.assign(2.0 * matrix.values.numpy())
    before = z.numpy().copy()
    sgs.refresh()
    sgs(r, z)
    np.testing.assert_allclose(z.numpy(), 0.5 * before, rtol=1e-11, atol=1e-14)


def test_programs_of_arguments_follow_the_number_of_sweeps() -> None:
    """What was recorded with another number of them is not what belongs to these."""
    ml.use("numpy")
    mesh = ml.generate.box((5, 4), cells="triangle")
    sgs = ml.linalg.ColoredSGS(random_blocks(mesh, 2))
    r, z = mesh.cells.field("r", 2), mesh.cells.field("z", 2)
    r.assign(np.random.default_rng(1).uniform(-1.0, 1.0, r.shape))
    precondition, color = ml.program(lambda r, z: sgs(r, z)), colors_of(sgs)
    for sgs.sweeps in (1, 2, 1, 3):
        precondition(r, z)
        expected = by_hand(sgs.matrix, color, r.numpy(), sgs.sweeps)
        np.testing.assert_allclose(z.numpy(), expected, rtol=1e-11, atol=1e-13)


def test_factors_in_single_precision_serve_as_well() -> None:
    ml.use("numpy")
    mesh = ml.generate.box((6, 5), cells="triangle")
    matrix = random_blocks(mesh, 5)
    sgs = ml.linalg.ColoredSGS(matrix, dtype=np.float32)
    r, z = mesh.cells.field("r", 5, data=np.random.default_rng(1).uniform(size=(60, 5))), mesh.cells.field("z", 5)
    sgs(r, z)
    exact = by_hand(matrix, colors_of(sgs), r.numpy())
    error = np.abs(z.numpy() - exact).max() / np.abs(exact).max()
    assert 1e-10 < error < 1e-6 and "float32" in repr(sgs)
    x = mesh.cells.field("x", 5)
    assert ml.linalg.gmres(matrix, x, r, tol=1e-12, preconditioner=sgs, restart=6).converged


def convection(mesh: ml.Mesh, block: int) -> ml.Matrix:
    """Convection one way and diffusion, coupled by components, first order upwind."""
    matrix = ml.Matrix(mesh.cells, through=mesh.face_cells, block=block)
    mixing = 0.3 * np.random.default_rng(3).uniform(-1.0, 1.0, (block, block)) + np.eye(block)
    flow = np.array([1.0, 0.4])

    @ml.kernel
    def assemble(area: ml.Read, m: ml.Inc):
        through = area @ flow
        spread = 0.02 * np.sqrt(area @ area)
        out, into = (np.maximum(through, 0.0) + spread) * mixing, (np.minimum(through, 0.0) - spread) * mixing
        m[0, 0] += out
        m[0, 1] += into
        m[1, 0] -= out
        m[1, 1] -= into

    @ml.kernel
    def add(volume: ml.Read, m: ml.Inc):
        m[0, 0] += (0.02 + 0.5 * volume) * np.eye(block)

    area = mesh.faces.field("area", 2, data=mesh.face_normals)
    volume = mesh.cells.field("volume", data=mesh.cell_volumes)
    itself = ml.Map(mesh.cells, mesh.cells, np.arange(len(mesh.cells)), "itself")
    assemble(mesh.faces, area, matrix[mesh.face_cells])
    add(mesh.cells, volume, matrix[itself])
    return matrix


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
def test_fewer_iterations_than_block_jacobi(solver: str) -> None:
    ml.use("cpu" if solver == "bicgstab" else "numpy")
    mesh = ml.generate.box((24, 24), cells="triangle")
    matrix = convection(mesh, 4)
    b = mesh.cells.field("b", 4, data=np.random.default_rng(0).uniform(-1.0, 1.0, (len(mesh.cells), 4)))
    counts = {}
    for name in ("block_jacobi", "lu_sgs"):
        x = mesh.cells.field("x", 4)
        options = {"restart": 8} if solver == "gmres" else {}
        report = getattr(ml.linalg, solver)(matrix, x, b, tol=1e-8, preconditioner=name, **options)
        assert report.converged
        counts[name] = report.iterations
        left = b.numpy().ravel() - matrix.to_scipy() @ x.numpy().ravel()
        assert np.linalg.norm(left) <= 2e-8 * np.linalg.norm(b.numpy())
    assert counts["lu_sgs"] < 0.7 * counts["block_jacobi"]


@pytest.mark.parametrize("block", [4, 7])
def test_blocks_of_neighbours_take_fewer_iterations(block: int) -> None:
    """Rows in the order of their stages, blocks of one color side by side."""
    ml.use("numpy")
    mesh = ml.generate.box((12, 12), cells="triangle")
    matrix = convection(mesh, 2)
    plain, blocks = ml.linalg.ColoredSGS(matrix), ml.linalg.ColoredSGS(matrix, in_turn=block)
    assert blocks.stages > plain.stages == plain.colors and f"{blocks.stages} stages" in repr(blocks)
    r, z = mesh.cells.field("r", 2, data=np.random.default_rng(1).random((288, 2))), mesh.cells.field("z", 2)
    blocks(r, z)
    np.testing.assert_allclose(z.numpy(), by_hand(matrix, colors_of(blocks), r.numpy()), rtol=1e-11, atol=1e-13)
    counts = [ml.linalg.bicgstab(matrix, mesh.cells.field("x", 2), r, tol=1e-8, preconditioner=one).iterations
              for one in (plain, blocks)]  # fmt: skip
    assert counts[1] < counts[0]


def test_a_solver_sees_that_the_matrix_has_changed() -> None:
    ml.use("numpy")
    mesh = ml.generate.box((6, 5), cells="triangle")
    matrix = random_blocks(mesh, 3)
    solver = ml.linalg.GMRES(matrix, preconditioner="lu_sgs", restart=6)
    x, b = mesh.cells.field("x", 3), mesh.cells.field("b", 3, data=np.ones((60, 3)))
    first = solver.solve(x, b, tol=1e-10)
    matrix.assign(random_blocks(mesh, 3, seed=7).values.numpy())
    x.assign(0.0)
    second = solver.solve(x, b, tol=1e-10)
    exact = np.linalg.solve(matrix.to_scipy().toarray(), np.ones(180))
    np.testing.assert_allclose(x.numpy().ravel(), exact, rtol=1e-8, atol=1e-10)
    assert first.converged and second.converged and second.iterations <= 24


@pytest.mark.parametrize("block", [1, 2, 5])
def test_a_singular_block_is_refused_by_its_row(block: int) -> None:
    """Whatever the units: rows and columns of very different size are none of its business."""
    ml.use("numpy")
    mesh = ml.generate.box((4, 3), cells="triangle")
    matrix = random_blocks(mesh, block)
    units = 10.0 ** np.linspace(-6.0, 6.0, block)
    values = matrix.values.numpy().reshape(-1, block, block) * units[:, None] / units[None, :] ** 0.5
    matrix.assign(values.reshape(matrix.values.shape))
    sgs = ml.linalg.ColoredSGS(matrix)
    at = matrix.diagonal.members.indices[17, 0]
    values[at] = np.outer(values[at][:, 0], np.arange(1.0, block + 1.0)) / 3.0 if block > 1 else 0.0
    matrix.assign(values.reshape(matrix.values.shape))
    with one_line_from(SolveError, "the diagonal of matrix matrix cannot be inverted at row 17$"):
        sgs.refresh()
    with one_line_from(SolveError, "row 17"):
        ml.linalg.GMRES(matrix, preconditioner="lu_sgs").solve(
            mesh.cells.field("x", block), mesh.cells.field("b", block, data=1.0)
        )


def test_a_pattern_that_is_not_symmetric() -> None:
    ml.use("numpy")
    dice = np.random.default_rng(2)
    given = sparse.random(40, 40, 0.08, random_state=2, format="csr") + sparse.diags(3.0 + dice.random(40))
    matrix = ml.Matrix.from_scipy(given)
    sgs = ml.linalg.ColoredSGS(matrix)
    r, z = matrix.rows.field("r", data=dice.random(40)), matrix.rows.field("z")
    sgs(r, z)
    np.testing.assert_allclose(z.numpy(), by_hand(matrix, colors_of(sgs), r.numpy()), rtol=1e-11)


def test_on_a_mesh_in_another_order() -> None:
    """Rows are those of the numbers, wherever they lie in memory."""
    ml.use("numpy")
    plain = ml.generate.box((6, 5), cells="triangle")
    mesh = plain.reordered("rcm")
    matrix = random_blocks(mesh, 4)
    sgs = ml.linalg.ColoredSGS(matrix)
    r, z = mesh.cells.field("r", 4, data=np.random.default_rng(5).random((60, 4))), mesh.cells.field("z", 4)
    sgs(r, z)
    np.testing.assert_allclose(z.numpy(), by_hand(matrix, colors_of(sgs), r.numpy()), rtol=1e-11, atol=1e-13)


def test_wrong_use_is_one_line() -> None:
    ml.use("numpy")
    grid = ml.Grid((4, 4), ghosts=1)
    on_grid = ml.Matrix(grid, through=grid.star(1))
    with one_line_from(MeshloomError, "stored by the offsets of a grid; give one through a map"):
        ml.linalg.ColoredSGS(on_grid)
    with one_line_from(MeshloomError, "gmres: matrix matrix is stored by the offsets"):
        ml.linalg.GMRES(on_grid, preconditioner="lu_sgs")
    matrix = ml.Matrix.from_scipy(sparse.eye(16) * 2.0, block=8)
    with one_line_from(MeshloomError, "at most 6 x 6"):
        ml.linalg.ColoredSGS(matrix)
    fits = ml.Matrix.from_scipy(sparse.eye(4) * 2.0, block=2)
    for wrong, words in (
        ({"sweeps": 0}, "sweeps"),
        ({"in_turn": 0}, "in_turn"),
        ({"dtype": np.int32}, "float32 or float64"),
    ):
        with one_line_from(MeshloomError, words):
            ml.linalg.ColoredSGS(fits, **wrong)
    with one_line_from(MeshloomError, "Matrix"):
        ml.linalg.ColoredSGS(3)  # type: ignore[arg-type]
    full = sparse.csr_matrix(np.ones((80, 80)) + 100.0 * np.eye(80))
    with one_line_from(MeshloomError, "entries on one side of the diagonal, 64 at most"):
        ml.linalg.ColoredSGS(ml.Matrix.from_scipy(full))
