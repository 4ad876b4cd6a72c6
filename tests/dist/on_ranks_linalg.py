"""Matrices and solvers that ``test_ranks_linalg.py`` runs on any number of ranks: as ``on_ranks.py``, which prints the
digests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse

import meshloom as ml
from meshloom.solvers.finite_volume.conditions import CONDITIONS
from meshloom.solvers.finite_volume.flow import CompressibleFlow
from meshloom.solvers.finite_volume.gas import IdealGas
from meshloom.solvers.finite_volume.implicit import ImplicitSteps, NewtonOptions
from meshloom.solvers.finite_volume.kernels import FlowScheme
from tests.dist import on_ranks

METHODS = ("cg", "bicgstab", "gmres")
PRECONDITIONERS = (None, "jacobi", "block_jacobi", "lu_sgs")


# --- random systems -----------------------------------------------------------------------------------------------


def scattered(n: int, dice: np.random.Generator) -> np.ndarray:
    """Pairs of rows at random."""
    return dice.integers(0, n, (2 * n, 2))


def ring(n: int, dice: np.random.Generator) -> np.ndarray:
    """Each row and the next two, around."""
    return np.stack([np.repeat(np.arange(n), 2), (np.repeat(np.arange(n), 2) + np.tile([1, 2], n)) % n], axis=1)


def hub(n: int, dice: np.random.Generator) -> np.ndarray:
    """One row with all others, and a few among these: rows of many lengths."""
    return np.concatenate([np.stack([np.full(n, n // 3), np.arange(n)], axis=1), dice.integers(0, n, (n // 3, 2))])


#: Rows and how they are linked: more of them than ranks, or one for each, or fewer, so that ranks are empty.
SYSTEMS: tuple[tuple[int, Callable[[int, np.random.Generator], np.ndarray]], ...] = (
    (37, scattered), (24, ring), (30, hub), (4, ring), (3, scattered), (1, scattered),
)  # fmt: skip


def random_matrix(n: int, pairs: np.ndarray, block: int, symmetric: bool, dice: np.random.Generator) -> ml.Matrix:
    """Entries at both ends of the pairs and on the diagonal, which is heavier than the rest of its row."""
    dense = np.zeros((n, block, n, block))
    for i, j in pairs[pairs[:, 0] != pairs[:, 1]]:
        dense[i, :, j] = dice.uniform(-1.0, 1.0, (block, block))
        dense[j, :, i] = dense[i, :, j].T if symmetric else dice.uniform(-1.0, 1.0, (block, block))
    own = dice.uniform(-1.0, 1.0, (n, block, block))
    dense[np.arange(n), :, np.arange(n)] = own + own.transpose(0, 2, 1) if symmetric else own
    flat = dense.reshape(n * block, n * block)
    flat[np.diag_indices(n * block)] = np.abs(flat).sum(axis=1) + dice.uniform(0.1, 1.0, n * block)
    return ml.Matrix.from_scipy(sparse.bsr_matrix(flat, blocksize=(block, block)), block=block)


def outcome(x: ml.Field, report: ml.linalg.Report) -> list[np.ndarray]:
    return [x.numpy(), report.history, np.array([report.iterations, report.residual, report.converged])]


def solved(method: str, preconditioner: str | None, blocks: Iterable[int] = (1, 2, 3, 4)) -> list[np.ndarray]:
    """With blocks of every size, each of another kind."""
    found, turn = [], METHODS.index(method) + PRECONDITIONERS.index(preconditioner)
    for block in blocks:
        dice, (n, linked) = np.random.default_rng(turn), SYSTEMS[(turn + block) % len(SYSTEMS)]
        matrix = random_matrix(n, linked(n, dice), block, method == "cg", dice)
        x, b = (matrix.rows.field(name, block) for name in "xb")
        b.assign(dice.uniform(-1.0, 1.0, b.shape))
        report = getattr(ml.linalg, method)(matrix, x, b, tol=1e-9, preconditioner=preconditioner)
        assert report.converged, report
        found += outcome(x, report)
    return found


# --- assembled by kernels -----------------------------------------------------------------------------------------


@ml.kernel
def exchange(area: ml.Read, u: ml.Read, m: ml.Inc):
    through, spread = area[0] + 0.4 * area[1], 0.1 * np.sqrt(area @ area) * (1.0 + u[0] * u[0] + u[1] * u[1])
    mixing = np.array([[1.0, 0.3], [0.2, 1.0]], dtype=area.dtype)
    m[0, 0] += (np.maximum(through, 0.0) + spread) * mixing
    m[0, 1] += (np.minimum(through, 0.0) - spread) * mixing
    m[1, 0] -= (np.maximum(through, 0.0) + spread) * mixing
    m[1, 1] -= (np.minimum(through, 0.0) - spread) * mixing


@ml.kernel
def inertia(volume: ml.Read, m: ml.Inc):
    m[0, 0] += (0.02 + 2.0 * volume) * np.eye(2, dtype=volume.dtype)


@ml.kernel
def take(x: ml.Read, u: ml.ReadWrite):
    u[...] = 0.5 * (u + x[0])


def assembled(dtype: type = np.float64) -> list[np.ndarray]:
    """On a periodic mesh, anew at every replay of a program that solves, sweeping through several cells in turn."""
    mesh = ml.generate.box((6, 5), cells="triangle").periodic({"xmin": "xmax"})
    cells, both = mesh.cells, mesh.face_cells
    matrix = ml.Matrix(cells, through=both, block=2, dtype=dtype)
    itself = ml.Map(cells, cells, np.arange(len(cells)), "itself")
    area = mesh.faces.field("area", 2, dtype=dtype, data=mesh.face_normals)
    volume = cells.field("volume", dtype=dtype, data=mesh.cell_volumes)
    u = cells.field("u", dtype=dtype, data=np.sin(5.0 * mesh.cell_centroids[:, 0]))
    x, b = (cells.field(name, 2, dtype=dtype) for name in "xb")
    b.assign(mesh.cell_centroids)

    def assemble() -> None:
        matrix.fill(0.0)
        exchange(mesh.faces, area, u[both], matrix[both])
        inertia(cells, volume, matrix[itself])

    ml.Program(assemble).run()
    entries = np.asarray(matrix.to_scipy().data)
    sweeps = ml.linalg.ColoredSGS(matrix, sweeps=2, in_turn=3)
    solver, reports = ml.linalg.GMRES(matrix, preconditioner=sweeps, restart=3), []

    def solve() -> None:
        reports.append(solver.solve(x, b, tol=1e-5))

    @ml.program
    def step() -> None:
        assemble()
        ml.call(solve, reads=(matrix.values, b), writes=(x,))
        take(cells, x, u)

    step.run(3)
    return [entries, u.numpy(), *(one for report in reports for one in outcome(x, report))]


# --- odd ones -----------------------------------------------------------------------------------------------------


@ml.kernel
def twice(x: ml.Read, y: ml.Write, total: ml.Sum, most: ml.Max):
    y[...] = 2.0 * x
    total += x
    most[...] = x


@ml.kernel
def add_all(x: ml.Read, y: ml.Inc):
    y[0] += x


def odd_sets() -> list[np.ndarray]:
    """A set of one element that loops reduce, and later add to; one without elements; a matrix of one row, and its
    product."""
    single, many, nothing = ml.Set(1, "single"), ml.Set(9, "many"), ml.Set(0, "nothing")
    found = []
    for on in (single, nothing, many.subset([]), many.subset([4])):
        x, y = on.field("x"), on.field("y")
        x.fill(3.0)
        total, most = ml.Global(0.5), ml.Global(-1.0)
        twice(on, x, y, total, most)
        found += [y.numpy(), np.array([float(total), float(most)])]
    x, y = many.field("x", data=np.arange(9) / 7.0), single.field("y")
    twice(single, y, single.field("z"), ml.Global(0.0), ml.Global(0.0))
    add_all(many, x, y[ml.Map(many, single, np.zeros(9, int), "to it")])
    found.append(y.numpy())
    row = ml.Matrix.from_scipy(sparse.csr_matrix(np.arange(1.0, 10.0)[None] / 3.0), single, many)
    row(x, y)
    found.append(y.numpy())
    column = ml.Matrix.from_scipy(sparse.csr_matrix(np.arange(1.0, 10.0)[:, None] / 3.0), many, single)
    column(y, x)
    return [*found, x.numpy()]


# --- PICCG in stencil form ----------------------------------------------------------------------------------------


#: By name: a grid, its Poisson operator, and its solver. Slabs are of one plane on four ranks, cells of two planes lie
#: on two of them, or around the end of the axis.
POISSON: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "thin slabs": ({"shape": (4, 6), "ghosts": 1}, {"low": "dirichlet"}, {}),
    "periodic": ({"shape": (10, 8), "periodic": True}, {}, {}),
    "neumann": ({"shape": (9, 7), "ghosts": (2, 0)}, {}, {}),
    "periodic and neumann": ({"shape": (6, 5), "periodic": (True, False), "ghosts": 1, "aligned": True}, {}, {}),
    "three axes": ({"shape": (7, 5, 4), "periodic": (False, False, True)},
                   {"low": ("dirichlet", "neumann", None)}, {"precision": "float32"}),
    "one axis": ({"shape": 17}, {"high": "dirichlet"}, {}),
    "stretched": ({"shape": (11, 6), "coordinates": [np.linspace(0.0, 1.0, 11) ** 2, None]}, {"low": "dirichlet"}, {}),
    "single": ({"shape": (8, 6)}, {"low": "dirichlet", "dtype": np.float32}, {}),
}  # fmt: skip


def poisson_solved(name: str) -> list[np.ndarray]:
    """From zero and again from there, in a program, too; the operator, and factors by themselves and with others."""
    of_grid, of_operator, of_solver = POISSON[name]
    grid, dice = ml.Grid(**of_grid), np.random.default_rng(len(name))
    poisson = ml.linalg.Poisson(grid, **of_operator)
    b, x, y, z = (grid.field(which, dtype=poisson.dtype) for which in "bxyz")
    b.assign(dice.standard_normal(grid.shape).astype(poisson.dtype))
    tol = 1e-4 if poisson.dtype == np.float32 else 1e-9
    piccg = ml.linalg.PICCG(poisson, **of_solver)
    report = piccg.solve(x, b, tol=tol)
    assert report.converged and report.iterations > 2, report
    found = [*outcome(x, report), np.array([piccg.bytes_per_iteration])]
    poisson(x, y)
    piccg(b, z)
    found += [y.numpy(), z.numpy()]
    with_factors = ml.linalg.cg(poisson, z, b, tol=tol, preconditioner=piccg, at_most=9)

    @ml.program
    def step() -> None:
        add_scaled(grid, x, b)
        piccg.solve(x, b, tol=tol)

    step.run(2)
    return [*found, *outcome(z, with_factors), x.numpy()]


def grid_matrix_solved() -> list[np.ndarray]:
    """With ghosts that count for the right-hand side; then with other entries."""
    grid, dice = ml.Grid((7, 6), periodic=(False, True), ghosts=(1, 0)), np.random.default_rng(7)
    matrix = ml.Matrix(grid, through=grid.star(1))
    x, b = grid.field("x", data=0.25), grid.field("b", data=dice.standard_normal(grid.shape))
    ml.fill_ghosts(x)
    entries = np.array([4.5, -1.0, -1.0, -0.75, -0.75])
    matrix.values.assign(np.broadcast_to(entries, (7, 6, 5)))
    piccg, found = ml.linalg.PICCG(matrix), []
    for _ in range(2):
        report = piccg.solve(x, b, tol=1e-10)
        assert report.converged, report
        found += outcome(x, report)
        matrix.values.assign(np.broadcast_to(entries + 1.5 * (entries > 0.0), (7, 6, 5)))
    return [*found, grid.shaped(x, ghosts=True)]


@ml.kernel
def add_scaled(x: ml.Read, b: ml.ReadWrite):
    b += 0.5 * x


def implicit_flow() -> list[np.ndarray]:
    """Three implicit steps of a compressible flow, as a script makes them."""
    gas, mesh = IdealGas(), ml.generate.box((6, 4), cells="triangle")
    at = mesh.cell_centroids
    wave = 0.1 * np.sin(3.0 * at[:, 0] + 2.0 * at[:, 1])
    state = np.stack([1.0 + wave, 0.5 + wave, 0.2 - wave, 1.0 + 0.5 * wave])
    conditions = {name: CONDITIONS["farfield"]() for name in mesh.groups}
    flow = CompressibleFlow(mesh, gas, FlowScheme(), conditions, gas.conserved(state).T, state.mean(axis=1))
    steps = ImplicitSteps(flow, NewtonOptions(cfl=20.0, directions=6))
    steps.program().run(3)
    newton = steps.newton
    told = [np.array(one.value, ndmin=1) for one in (*steps.clock, newton.iterations)]
    return [flow.u.numpy(), newton.pace.numpy(), *told]


#: Each method with each preconditioner; quick ones of them are about few rows.
RUNS: dict[str, Callable[[], list[np.ndarray]]] = {
    **{f"{method} {preconditioner}": partial(solved, method, preconditioner)
       for method, preconditioner in product(METHODS, PRECONDITIONERS)},
    "quick": lambda: [*solved("bicgstab", "lu_sgs", [1, 2]), *solved("cg", "block_jacobi", [2])],
    "assembled": assembled,
    "assembled, single": partial(assembled, np.float32),
    "odd sets": odd_sets,
    **{f"piccg, {name}": partial(poisson_solved, name) for name in POISSON},
    "piccg of a matrix on a grid": grid_matrix_solved,
    "implicit flow": implicit_flow,
}  # fmt: skip


if __name__ == "__main__":
    on_ranks.RUNS = RUNS
    on_ranks.main(*sys.argv[1:])
