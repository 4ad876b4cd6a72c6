"""Conjugate gradients of a 2-D Poisson matrix as one program: how near an iteration comes to a copy.

    python -m bench.krylov --device cuda|cpu [--sides 1024 4096] [--json FILE]

Five points, closed ends, -1 0 4: as a matrix on a grid (``grid``, no index is stored), the same without any entry in
memory (``formula``), and through a map (``map``, block CSR by map). Each row: seconds of an iteration as the difference
of two solutions of different length over the iterations between them, so what a solution does once does not count; and
compulsory bytes, those that the three passes between two sums must move, as a share of what a copy moves in the same
run. Peers in the same run: CuPy's (or SciPy's) CG on the same matrix in CSR. The residual that the solver reports must
be that of its x, which the peer's matrix computes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

import meshloom as ml
from bench.grid import Cpu
from bench.race_loop import Device
from bench.report import Goal, goal_table, rows_table
from bench.started import options_of, started
from meshloom.linalg.krylov import ConjugateGradients

SIDES = (1024, 2048, 4096)
GOAL_SIDE, GOAL = 4096, 0.80
MOST_MAPPED = 2048  # points along a side of a matrix through a map: larger ones take minutes to prepare
ITERATIONS = (50, 250)  # of the two solutions; far fewer than it takes to converge
TOL = 1e-12  # never reached
ROUNDS = 3
VECTORS = 2 + 6 + 3  # numbers at a point: image of p; x, r and p, q with x, r stored; p from r
TOLERANCE = 1e-9
Apply = Callable[[ml.Field, ml.Field], Any]


@ml.kernel
def laplacian(x: ml.Read, y: ml.Write):
    y[...] = 4.0 * x[0, 0] - x[1, 0] - x[-1, 0] - x[0, 1] - x[0, -1]


class Problem:
    """A x = b on ``side`` x ``side`` points, A in the form ``kind``; b differs from point to point."""

    def __init__(self, kind: str, side: int):
        self.kind, self.side, self.points = kind, side, side * side
        b = np.random.default_rng(7).random((side, side))
        if kind == "map":
            self.matrix: ml.Matrix | None = ml.Matrix.from_scipy(poisson(side))
            on: Any = self.matrix.rows
            self.operator: Apply = self.matrix
        else:
            on = ml.Grid((side, side), ghosts=1)
            self.matrix = matrix_on(on) if kind == "grid" else None
            star = on.star(1)
            self.operator = self.matrix or (lambda x, y: laplacian(on, x[star], y))
        self.b = on.field("b", data=b.reshape(on.array_shape))
        self.x = on.field("x")
        self.solver = ConjugateGradients(self.operator)

    @property
    def entries(self) -> int:
        """Bytes of the matrix that a product must read."""
        if self.matrix is None:
            return 0
        indices = 2 * self.matrix.entries.size * 4 if self.kind == "map" else 0
        return int(self.matrix.values.storage.nbytes) + indices

    @property
    def compulsory(self) -> int:
        """Bytes of an iteration: each value read once and written once in each of the three passes."""
        return self.entries + 8 * VECTORS * self.points

    def solve(self, iterations: int) -> Any:
        self.x.fill(0.0)
        return self.solver.solve(self.x, self.b, tol=TOL, at_most=iterations)

    def residual(self, library: Any, matrix: Any) -> float:
        """That of x, as a multiple of b, by somebody else's matrix."""
        x, b = (library.asarray(one.numpy().reshape(-1)) for one in (self.x, self.b))
        return float(library.linalg.norm(b - matrix @ x) / library.linalg.norm(b))


def poisson(side: int) -> Any:
    """The matrix as SciPy has it, CSR."""
    from scipy import sparse

    one = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    return sparse.csr_matrix(sparse.kronsum(one, one))


def matrix_on(grid: ml.Grid) -> ml.Matrix:
    star, origin = grid.star(1), (0,) * grid.rank
    made = ml.Matrix(grid, through=star, name="poisson")
    row = np.array([4.0 if offset == origin else -1.0 for offset in star.offsets])
    made.assign(np.broadcast_to(row, (*grid.shape, len(row))))
    return made


def per_iteration(solve: Callable[[int], object], wait: Callable[[], None]) -> float:
    """Seconds, from the fastest of some rounds of each length."""
    best = dict.fromkeys(ITERATIONS, float("inf"))
    solve(ITERATIONS[0])
    for _ in range(ROUNDS):
        for length in ITERATIONS:
            wait()
            start = time.perf_counter()
            solve(length)
            wait()
            best[length] = min(best[length], time.perf_counter() - start)
    few, many = ITERATIONS
    return (best[many] - best[few]) / (many - few)


def peer(device: Device, side: int) -> tuple[str, Any, Any, Callable[[int], object]]:
    """Name, array library, matrix and a solution of so many iterations by CuPy or SciPy."""
    on_gpu = device.backend == "cuda"
    library = import_module("cupy" if on_gpu else "numpy")
    sparse = import_module("cupyx.scipy.sparse" if on_gpu else "scipy.sparse")
    solvers = import_module("cupyx.scipy.sparse.linalg" if on_gpu else "scipy.sparse.linalg")
    matrix = sparse.csr_matrix(poisson(side))
    b = library.asarray(np.random.default_rng(7).random(side * side))
    named = "rtol" if "rtol" in signature(solvers.cg).parameters else "tol"  # older ones
    return ("CuPy's cg, CSR" if on_gpu else "SciPy's cg, CSR", library, matrix,
            lambda n: solvers.cg(matrix, b, maxiter=n, **{named: TOL}))  # fmt: skip


def rows_of(device: Device, side: int, copied: float) -> Iterator[dict[str, Any]]:
    """Every form of the matrix, checked and timed, then the peer."""
    name, library, matrix, solve = peer(device, side)
    for kind in ("grid", "formula", *(["map"] if side <= MOST_MAPPED else [])):
        problem = Problem(kind, side)
        report = problem.solve(ITERATIONS[0])
        row: dict[str, Any] = {"kind": kind, "side": side}
        found = problem.residual(library, matrix)
        if not abs(report.residual - found) <= TOLERANCE * found:
            yield row | {"wrong": abs(report.residual - found) / found}
            continue
        seconds = per_iteration(problem.solve, device.wait)
        iterate = problem.solver._made[1].iterate.bind(problem.x, problem.b)  # type: ignore[index]
        yield row | {
            "ms": seconds * 1e3, "bytes": problem.compulsory, "bytes_per_point": problem.compulsory / problem.points,
            "share_of_copy": problem.compulsory / seconds / copied, "explained": iterate.explain().splitlines(),
        }  # fmt: skip
        del problem, iterate
        device.clear()
    seconds = per_iteration(solve, device.wait)
    moved = 12 * matrix.nnz + 8 * VECTORS * side * side
    yield {"kind": name, "side": side, "ms": seconds * 1e3, "bytes": moved, "bytes_per_point": moved / side**2,
           "share_of_copy": moved / seconds / copied}  # fmt: skip


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    text = f"CG, Poisson {GOAL_SIDE} x {GOAL_SIDE}, matrix on a grid: share of copy by compulsory bytes"
    found = [row["share_of_copy"] for row in rows
             if row["kind"] == "grid" and row["side"] == GOAL_SIDE and "ms" in row]  # fmt: skip
    return [Goal(text, one, "at least", GOAL) for one in found]


def text_lines(result: dict[str, Any]) -> list[str]:
    """Every form of the matrix at every size, and the peer, on paper."""
    words = {"grid": "matrix on a grid", "formula": "no matrix: a kernel", "map": "matrix through a map"}
    rows = [[f"{row['side']} x {row['side']}", words.get(row["kind"], row["kind"]), f"{row['bytes_per_point']:.0f}",
             f"{row['ms']:.4f}", f"{row['share_of_copy']:.2f}"] for row in result["rows"] if "ms" in row]  # fmt: skip
    head = ("points", "operator", "bytes for a point", "ms of an iteration", "of copy")
    return [*rows_table(head, rows), "", *goal_table(goals(result["rows"]))]


def line(row: dict[str, Any]) -> str:
    what = f"{row['kind']:<16}{row['side']:>5} x {row['side']:<5}"
    if "wrong" in row:
        return f"{what} WRONG by {row['wrong']:.1e}"
    return f"{what}{row['ms']:9.4f} ms{row['bytes_per_point']:7.1f} bytes a point {row['share_of_copy']:6.3f} of copy"


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = options_of("krylov", __doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES, help="points along each side")
    options = parser.parse_args(arguments)
    run = started("krylov", options, device, Cpu)
    if run is None:
        return 2
    for side in options.sides:
        for row in rows_of(run.device, side, run.copy):
            run.result["rows"].append(row)
            print(line(row), flush=True)
        run.save()
    return run.finished(goals(run.result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
