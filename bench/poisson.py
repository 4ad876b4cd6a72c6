"""Poisson's equation to one residual by every solver: iterations, seconds, bytes for a cell, share of copy.

    python -m bench.poisson --device cuda|cpu [--sides 256 ... 4096] [--cubes 128 ... 512] [--only cg ...] [--json FILE]

Even cells of a square and of a cube whose sides hold the value 0, a random right-hand side, the norm of the residual
1e-8 of it. Each row: the median of a few solutions from zero, or one where that takes long; what is made once, of the
solver and by the compiler, is told apart. Bytes of a solution are those that its passes must move, each value read once
and written once: iterations times what the operations of one iteration say, and for the direct solver five passes of
16 bytes (two transforms, a line solve, two transforms). A row that would take longer than a minute is cut and marked.
Peers, on the same matrix in CSR: CuPy's CG on a GPU; SciPy's CG and PyAMG's smoothed aggregation in CG on the cores.
``stretched``: cells whose widths go from 1 to 100 along every axis, for multigrid, whose iterations must not grow.
``periodic``: even cells of a periodic box, for transforms by FFT alone. The direct solver is timed without its checks.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import numpy as np

import meshloom as ml
from bench.grid import Cpu
from bench.race_loop import Device
from bench.report import Goal, goal_table, rows_table
from bench.started import options_of, started
from meshloom.linalg.iteration import MOST_ITERATIONS
from meshloom.linalg.krylov import ConjugateGradients, Solver

SIDES, CUBES = (256, 512, 1024, 2048, 4096), (128, 256, 512)
TOL = 1e-8
LONGEST = 60.0  # seconds of a row
TRIED = (20, 60)  # iterations of two short solutions, from which follows how many a minute has
REPEATED = 0.5  # seconds: a solution that takes less is repeated
ROUNDS = 3
MOST_GENERAL = 2048**2  # cells of a matrix with indices: larger ones take long to prepare
MOST_STORED = 4096**2  # cells of a matrix with indices for CuPy, assembled by SciPy on one core
MOST_AGAIN = 256**3  # cells of multigrid beside multigrid within CG on even cells: levels take long to prepare
MOST_STRETCHED = 2_500_000  # stretched cells, whose levels smooth lines: more take long to prepare
MOST_ON_CORES = {2: 1024**2, 3: 128**3}  # cells for the peers on the cores
PASSES = 5 * 16  # bytes of the direct solver for a cell
VECTORS = 11  # numbers at a row that an iteration of CG moves, in three passes
WIDEST = 100.0  # cells over the narrowest, where they are stretched
FAST_GOAL, FEWEST_EVEN, FEWEST_STRETCHED, STENCIL_GOAL, GENERAL_GOAL = 0.6, 12, 20, 5.0, 2.5


class Problem:
    """A x = b on cells: ``shape``, even, ``stretched``, or even and ``periodic``."""

    def __init__(self, shape: tuple[int, ...], *, stretched: bool = False, periodic: bool = False):
        self.shape, self.stretched, self.periodic = shape, stretched, periodic
        edges = [_edges(n, WIDEST if stretched else 1.0) for n in shape]
        centres = [0.5 * (one[1:] + one[:-1]) for one in edges]
        self.values = np.random.default_rng(7).standard_normal(shape)
        if periodic:
            self.grid = ml.Grid(shape, extent=1.0, periodic=True)
            self.poisson = ml.linalg.Poisson(self.grid)
            self.values -= self.values.mean()
        else:
            places = centres if stretched else None
            self.grid = ml.Grid(shape, coordinates=places, extent=[(c[0], c[-1]) for c in centres])
            self.poisson = ml.linalg.Poisson(self.grid, "dirichlet", "dirichlet", edges=edges)
        self.b, self.x = self.grid.field("b", data=self.values), self.grid.field("x")

    @property
    def cells(self) -> int:
        return int(np.prod(self.shape))

    @cached_property
    def matrix(self) -> Any:
        """As SciPy has it, CSR."""
        return self.poisson.to_scipy().tocsr()

    def residual(self) -> float:
        """Of x, as a multiple of b."""
        image = self.x.like("image of x")
        self.poisson(self.x, image)
        return float(np.linalg.norm(self.values - image.numpy()) / np.linalg.norm(self.values))


def _edges(n: int, widest: float) -> np.ndarray:
    widths = widest ** (np.arange(n) / max(n - 1, 1))
    return np.concatenate([[0.0], np.cumsum(widths)]) / widths.sum()


class Method(ABC):
    """A solver of one problem, made ready. ``iterations`` and ``residual`` are those of the last solution."""

    iterations: int
    residual: float

    @abstractmethod
    def solve(self, most: int | None) -> bool:
        """From zero; has it converged?"""

    @abstractmethod
    def bytes_moved(self) -> float | None:
        """Those of the last solution; None where that is not known."""

    @property
    def iterates(self) -> bool:
        """Can a solution be cut short?"""
        return True


class Iterated(Method):
    """One of Meshloom's, on fields of the problem or of its own."""

    def __init__(self, problem: Problem, solver: Any, x: ml.Field | None = None, b: ml.Field | None = None):
        self.problem, self.solver = problem, solver
        self.x, self.b = problem.x if x is None else x, problem.b if b is None else b

    def solve(self, most: int | None) -> bool:
        self.x.fill(0.0)
        report = self.solver.solve(self.x, self.b, tol=TOL, **({} if most is None else {"at_most": most}))
        self.iterations, self.residual = report.iterations, report.residual
        return bool(report.converged)

    def bytes_moved(self) -> float:
        solver = self.solver
        if isinstance(solver, ml.linalg.PICCG):
            return float(self.iterations * solver.bytes_per_iteration)
        while not isinstance(solver, Solver):
            solver = solver._solver
        made = solver._made
        assert made is not None
        kind, iteration = made
        x, b = (ml.Field.like(self.x, name) if self.x.set is kind[0] else kind[0].field(name) for name in ("x", "b"))
        return float(self.iterations * bytes_of(iteration.iterate.bind(x, b)) / iteration.steps)


class Direct(Iterated):
    """By transforms, without looking at the residual, which is computed behind the watch."""

    iterations = 1

    def solve(self, most: int | None) -> bool:
        self.solver.solve_only(self.x, self.b)
        return True

    @property
    def residual(self) -> float:  # type: ignore[override]
        return self.problem.residual()

    def bytes_moved(self) -> float:
        return float(self.iterations * PASSES * self.problem.cells)

    @property
    def iterates(self) -> bool:
        return False


class Peer(Method):
    """CG of CuPy or SciPy, ``close``: with a preconditioner made of the matrix."""

    def __init__(self, problem: Problem, library: str, close: Callable[[Any], Any] | None = None):
        on_gpu = library == "cupy"
        self.arrays = import_module(library)
        self.solvers = import_module("cupyx.scipy.sparse.linalg" if on_gpu else "scipy.sparse.linalg")
        self.matrix = import_module("cupyx.scipy.sparse").csr_matrix(problem.matrix) if on_gpu else problem.matrix
        self.b = self.arrays.asarray(problem.values.reshape(-1))
        self.close = None if close is None else close(self.matrix)

    def solve(self, most: int | None) -> bool:
        named = "rtol" if "rtol" in signature(self.solvers.cg).parameters else "tol"
        self.iterations = 0

        def count(_: Any) -> None:
            self.iterations += 1

        x, info = self.solvers.cg(self.matrix, self.b, maxiter=most, M=self.close, callback=count, **{named: TOL})
        norm = self.arrays.linalg.norm
        self.residual = float(norm(self.b - self.matrix @ x) / norm(self.b))
        return int(info) == 0

    def bytes_moved(self) -> float | None:
        if self.close is not None:
            return None  # what a cycle of somebody else's moves is not known here
        return float(self.iterations * (12 * self.matrix.nnz + 8 * VECTORS * len(self.b)))


def bytes_of(program: ml.Program) -> float:
    """What one replay must move, each operation reading and writing every value once."""
    fused = program._fused_recording()
    return float(sum(one.compulsory for one in (fused.program.operations if fused else program.loops)))


# --- which ------------------------------------------------------------------------------------------------------------


def _aggregation(matrix: Any) -> Any:
    return import_module("pyamg").smoothed_aggregation_solver(matrix).aspreconditioner()


def _general(problem: Problem) -> Method:
    solver = ml.linalg.PICCG(problem.matrix)
    b = solver.rows.field("b", data=problem.values.reshape(-1))
    return Iterated(problem, solver, solver.rows.field("x"), b)


METHODS: dict[str, Callable[[Problem], Method]] = {
    "fast": lambda problem: Direct(problem, ml.linalg.FastPoisson(problem.poisson)),
    "multigrid cg": lambda problem: Iterated(problem, ml.linalg.Multigrid(problem.poisson)),
    "multigrid": lambda problem: Iterated(problem, ml.linalg.Multigrid(problem.poisson, accelerated=False)),
    "piccg stencil": lambda problem: Iterated(problem, ml.linalg.PICCG(problem.poisson)),
    "piccg general": _general,
    "jacobi cg": lambda problem: Iterated(problem, ConjugateGradients(problem.poisson, preconditioner="jacobi")),
    "cg": lambda problem: Iterated(problem, ConjugateGradients(problem.poisson)),
    "CuPy cg": lambda problem: Peer(problem, "cupy"),
    "SciPy cg": lambda problem: Peer(problem, "numpy"),
    "PyAMG cg": lambda problem: Peer(problem, "numpy", _aggregation),
}
OTHERWISE = ("fast", "multigrid cg")  # what is run on stretched cells, and where axes are periodic


def why_not(name: str, problem: Problem, on_gpu: bool) -> str:
    """Why a method is not run; empty where it is."""
    if name == "CuPy cg" and not on_gpu:
        return "needs a GPU"
    if name == "CuPy cg" and problem.cells > MOST_STORED:
        return "too large to prepare a matrix with indices"
    if name in ("SciPy cg", "PyAMG cg") and problem.cells > MOST_ON_CORES[len(problem.shape)]:
        return "too large for the cores"
    if name == "PyAMG cg" and find_spec("pyamg") is None:
        return "PyAMG is not installed"
    if problem.stretched and name == "multigrid cg" and problem.cells > MOST_STRETCHED:
        return "too large to prepare in a short time"
    again = name == "multigrid" or (name == "multigrid cg" and problem.periodic)
    if again and problem.cells > MOST_AGAIN:
        return "too large to prepare in a short time"
    if name == "piccg general" and problem.cells > MOST_GENERAL:
        return "too large to prepare a matrix with indices"
    return ""


# --- one row ----------------------------------------------------------------------------------------------------------


def timed(run: Callable[[], Any], wait: Callable[[], None]) -> float:
    wait()
    start = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - start


def allowed(method: Method, wait: Callable[[], None]) -> int | None:
    """The iterations that a minute has, from the times of two short solutions, which also make everything ready; None
    where a short one is all it takes."""
    if not method.iterates:
        method.solve(None)
        return None
    method.solve(TRIED[0])
    took = []
    for most in TRIED:
        took.append(timed(lambda most=most: method.solve(most), wait))  # type: ignore[misc]
        if method.iterations < most:
            return None
    each = max((took[1] - took[0]) / (TRIED[1] - TRIED[0]), 1e-7)
    return min(int(LONGEST / each), MOST_ITERATIONS)


def measured(name: str, problem: Problem, device: Device, copied: float) -> dict[str, Any]:
    """One solver on one problem."""
    on_gpu = device.backend == "cuda"
    row: dict[str, Any] = {"method": name, "shape": list(problem.shape), "stretched": problem.stretched,
                           "periodic": problem.periodic}  # fmt: skip
    if why := why_not(name, problem, on_gpu):
        return row | {"not_run": why}
    began = time.perf_counter()
    method = METHODS[name](problem)
    most = allowed(method, device.wait)
    made = time.perf_counter() - began
    seconds = [timed(lambda: method.solve(most), device.wait)]
    converged = method.residual <= 2.0 * TOL
    if seconds[0] < REPEATED:
        seconds += [timed(lambda: method.solve(most), device.wait) for _ in range(ROUNDS - 1)]
    row |= {"iterations": method.iterations, "residual": method.residual, "s_to_make": made}
    if not converged and not method.iterates:
        return row | {"wrong": method.residual}
    if not converged:
        cut = most is not None and method.iterations >= most
        return row | {"not_run": f"more than {LONGEST:.0f} s" if cut else "does not converge"}
    if isinstance(method, Iterated) and method.x is problem.x and not problem.residual() <= 2.0 * TOL:
        return row | {"wrong": problem.residual()}
    took, moved = float(np.median(seconds)), method.bytes_moved()
    row["s"] = took
    return row if moved is None else row | {"bytes_per_cell": moved / problem.cells,
                                            "share_of_copy": moved / took / copied}  # fmt: skip


def rows_of(device: Device, shape: tuple[int, ...], names: list[str], copied: float) -> Iterator[dict[str, Any]]:
    for stretched, periodic in ((False, False), (False, True), (True, False)):
        problem = Problem(shape, stretched=stretched, periodic=periodic)
        for name in names:
            if not (stretched or periodic) or name in OTHERWISE:
                yield measured(name, problem, device, copied)
                device.clear()


# --- on paper ---------------------------------------------------------------------------------------------------------


def _found(rows: list[dict[str, Any]], method: str, shape: list[int], key: str, *, periodic: bool = False) -> Any:
    return next((row[key] for row in rows if row["method"] == method and row["shape"] == shape and not row["stretched"]
                 and row.get("periodic", False) == periodic and key in row and "s" in row), None)  # fmt: skip


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    found = []
    if (share := _found(rows, "fast", [512] * 3, "share_of_copy", periodic=True)) is not None:
        text = "direct solver, 512 x 512 x 512, periodic: share of copy, five passes of 16 bytes"
        found.append(Goal(text, share, "at least", FAST_GOAL))
    for stretched, most in ((False, FEWEST_EVEN), (True, FEWEST_STRETCHED)):
        counts = [row["iterations"] for row in rows
                  if row["method"] == "multigrid cg" and row["stretched"] == stretched and "s" in row]  # fmt: skip
        what = "stretched 1 : 100" if stretched else "even"
        if counts:
            found.append(Goal(f"multigrid within CG, {what}: most iterations", max(counts), "at most", most))
    peer = _found(rows, "CuPy cg", [2048] * 2, "s")
    for method, least in (("piccg stencil", STENCIL_GOAL), ("piccg general", GENERAL_GOAL)):
        took = _found(rows, method, [2048] * 2, "s")
        if peer is not None and took is not None:
            found.append(Goal(f"2048 x 2048, CuPy's CG / {method}", peer / took, "at least", least))
    return found


def _kind(row: dict[str, Any]) -> str:
    return ", stretched" if row["stretched"] else ", periodic" if row.get("periodic") else ""


def text_lines(result: dict[str, Any]) -> list[str]:
    """Every solver at every size, and the peers, on paper."""
    rows = []
    for row in result["rows"]:
        cells = " x ".join(map(str, row["shape"])) + _kind(row)
        if "s" not in row:
            why = row.get("not_run", "wrong")
            rows.append([cells, row["method"], str(row.get("iterations", "")), f"not run: {why}", "", "", ""])
            continue
        known = "share_of_copy" in row
        rows.append([cells, row["method"], str(row["iterations"]), f"{row['s'] * 1e3:.3g}",
                     f"{row['bytes_per_cell']:.0f}" if known else "", f"{row['share_of_copy']:.2f}" if known else "",
                     f"{row['s_to_make']:.2g}"])  # fmt: skip
    head = ("cells", "solver", "iterations", "ms", "bytes for a cell", "of copy", "s to make ready")
    return [*rows_table(head, rows), "", *goal_table(goals(result["rows"]))]


def line(row: dict[str, Any]) -> str:
    cells = "x".join(map(str, row["shape"])) + _kind(row)[:3]
    what = f"{cells:<14}{row['method']:<15}"
    if "s" not in row:
        return what + (row.get("not_run") or f"WRONG: residual {row['wrong']:.1e}")
    known = "share_of_copy" in row
    moved = f"{row['bytes_per_cell']:9.0f} bytes a cell{row['share_of_copy']:7.3f} of copy" if known else ""
    ready = f"; ready after {row['s_to_make']:.1f} s"
    return f"{what}{row['iterations']:>6} iterations{row['s'] * 1e3:11.3f} ms{moved}{ready}"


def main(arguments: list[str] | None = None, device: Device | None = None) -> int:
    parser = options_of("poisson", __doc__)
    parser.add_argument("--sides", type=int, nargs="*", default=SIDES, help="cells along each side of squares")
    parser.add_argument("--cubes", type=int, nargs="*", default=CUBES, help="cells along each side of cubes")
    parser.add_argument("--only", nargs="+", choices=tuple(METHODS), default=list(METHODS), help="some of the solvers")
    options = parser.parse_args(arguments)
    run = started("poisson", options, device, Cpu)
    if run is None:
        return 2
    for shape in [*((n,) * 2 for n in options.sides), *((n,) * 3 for n in options.cubes)]:
        for row in rows_of(run.device, shape, options.only, run.copy):
            run.result["rows"].append(row)
            print(line(row), flush=True)
            run.save()
    return run.finished(goals(run.result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
