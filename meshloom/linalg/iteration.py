"""How the iterations of a Krylov solver are driven: started, repeated where the loops run, looked at, reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from meshloom.backend import current
from meshloom.errors import ProgramError, shown, whole_number
from meshloom.linalg.krylov_kernels import dot
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.numbering import Rows
from meshloom.operation.begun import begun
from meshloom.operation.program import Program

MOST_ITERATIONS = 10**6
TOLERANCE = 1e-8  # of the residual, as a multiple of the norm of b, unless a person asks for another
RESTARTS = 4  # as often the residual is computed anew where that which was carried along had lost touch with it
ON_RANKS = ("cg, bicgstab and gmres of a Matrix through a map do, alone or with jacobi, block_jacobi or lu_sgs, and"
            " PICCG in stencil form")  # fmt: skip
SMALLEST = 100.0  # times the least normal number: what is below has lost digits


@dataclass(frozen=True)
class Report:
    """How a solver ended. ``history`` (iterations + 1,): the norm of the residual before each iteration and after the
    last, as a multiple of that of b; ``residual``, the last of them, is that of the result, computed anew. ``reason``
    says in words why it stopped."""

    converged: bool
    iterations: int
    residual: float
    history: np.ndarray
    reason: str

    def without(self, total: float, size: float, dtype: np.dtype) -> Report:
        """The same, which says so where a right-hand side added up to more than rounding and that was taken out."""
        if not abs(total) > float(np.sqrt(np.finfo(dtype).eps)) * size:
            return self
        what = f"b added up to {total:.3g}, which no solution has, so that was taken out evenly"
        return replace(self, reason=f"{self.reason}; {what}")

    def __repr__(self) -> str:
        plural = "" if self.iterations == 1 else "s"
        many = f" after {self.iterations} iteration{plural}" if self.iterations else "; no iterations"
        outcome, separator, more = self.reason.partition(";")
        return f"Report({outcome}{many}, residual {self.residual:.2e}{separator}{more})"


def steps_of(function: Callable[..., None]) -> Program:
    """The program of a solver's steps. On a CPU loop by loop: solvers are made anew for every system, and to fuse the
    steps of a cycle and compile them takes longer there than most solutions."""
    return Program(function, fuse=current().target.is_simt)


@dataclass
class Iteration:
    """A method for fields of one kind, with memory of its own; x and b are given to each solution, and not kept.

    ``start``, a program of x and b: to the first residual; ``iterate``, of the same: so many ``steps`` at most.
    ``left``: the square of the residual that is left, negative where the method cannot go on; ``size``: that of b.
    ``history``: that after each of the last iterations, ``count`` says how many. ``most``: it does for as many
    iterations in all.
    """

    start: Program
    iterate: Program
    left: Global
    size: Global
    count: Global
    history: Field
    refresh: Callable[[], None]
    steps: int = 1
    most: int = MOST_ITERATIONS
    target: Global | None = None  # what ``left`` is to reach, where the programs look at it
    rounds: int = RESTARTS  # as often it goes on where the residual turns out larger than that carried along

    def __post_init__(self) -> None:
        made = Global(0.0, "target", dtype=self.left.dtype) if self.target is None else self.target
        self._target = made  # one for all solutions, which repeat by it
        self._has_run = False

    @property
    def programs(self) -> tuple[Program, ...]:
        """What most solutions run, in this order, at first."""
        return self.start, self.iterate

    def serves(self, most: int) -> bool:
        """Can it be used for at most so many iterations?"""
        return self.steps <= max(most, 1) and most <= self.most

    def solve(self, x: Field, b: Field, tol: float, most: int) -> Report:
        """Improve x until the residual is ``tol`` times b, or it cannot be done."""
        self.refresh()
        if self._has_run:
            return self._solved(x, b, tol, most)
        with begun(self.programs, x, b):
            self._has_run = True
            return self._solved(x, b, tol, most)

    def _solved(self, x: Field, b: Field, tol: float, most: int) -> Report:
        norms = [self._started(x, b)]
        size, done, broken = float(self.size.value), 0, False
        if size == 0.0 and self._is_zero(b):
            x.assign(0.0)
            norms = [self._started(x, b)]
            size = float(self.left.value)  # ghosts of x, or the operator by itself, make a right-hand side
            if size == 0.0:
                return Report(True, 0, 0.0, np.zeros(1), "b is zero, and so is x")
        if tol * tol * size < SMALLEST * float(np.finfo(x.dtype).tiny):
            reason = f"b is too small: in {x.dtype} the square of tol times its norm is lost; scale the equations"
            return Report(False, 0, float("nan"), np.full(1, np.nan), reason)
        self._target.value = tol * tol * size
        for _ in range(self.rounds if np.isfinite(size) else 0):
            if self._there() or done + self.steps > most or broken:
                break
            norms += self._iterated(x, b, most - done)
            done = sum(map(len, norms)) - 1
            broken = float(self.left.value) < 0.0
            norms[-1][-1:] = self._renewed(x, b)  # what was carried along is one thing, what is left another
        reason = "broke down" if broken else "not converged" if done + self.steps > most else "stalled"
        return self._report(tol, size, np.concatenate(norms), reason)

    def _started(self, x: Field, b: Field) -> np.ndarray:
        """Begin with the x that is there; the square of the residual, (1,)."""
        self.count.value = 0
        self.start(x, b)
        return self.history.numpy()[:1]

    def _is_zero(self, b: Field) -> bool:
        """Is it the right-hand side 0, and not only one whose square is lost?"""
        return not b.numpy().any()

    def _renewed(self, x: Field, b: Field) -> np.ndarray:
        """The square of the residual of x, computed anew, (1,), and left to go on from."""
        return self._started(x, b)

    def _there(self) -> bool:
        return float(self.left.value) <= float(self._target.value)

    def _iterated(self, x: Field, b: Field, most: int) -> list[np.ndarray]:
        """Iterate until the target is reached; the squares of the residuals, as many at a time as there is room for."""
        norms: list[np.ndarray] = []
        while most >= self.steps and not self._there():
            self.count.value = 0
            runs = max(1, min(most, self.history.set.size - self.steps) // self.steps)
            self.iterate.repeat(x, b, until=self.left <= self._target, at_most=runs)
            done = int(self.count.value)
            norms.append(self.history.numpy()[1 : done + 1])
            most -= done
        return norms

    def _report(self, tol: float, size: float, norms: np.ndarray, otherwise: str) -> Report:
        """``otherwise``: the reason where it has not converged, and values are finite."""
        left, done = float(self.left.value), len(norms) - 1
        with np.errstate(invalid="ignore"):
            history = np.sqrt(np.abs(norms) / size)
        residual = float(np.sqrt(left / size)) if left >= 0.0 and np.isfinite(size) else float("nan")
        history[done] = residual
        if residual <= tol:
            return Report(True, done, residual, history, "converged")
        reason = otherwise if np.isfinite(residual) else "values that are not finite"
        return Report(False, done, residual, history, reason)


# --- what iterations work on ------------------------------------------------------------------------------------------


def check_alone(solver: str) -> None:
    """UserError where there are several ranks, for a solver that does not run on them."""
    Rows.placement.check_alone(solver, ON_RANKS)


def check_tolerance(solver: str, tol: float) -> float:
    if isinstance(tol, bool) or not isinstance(tol, int | float | np.floating) or not 0.0 < tol < 1.0:
        raise ProgramError(f"{solver}: tol must be a number between 0 and 1, got {shown(tol)}")
    return float(tol)


def most_iterations(solver: str, at_most: int | None, unknowns: int) -> int:
    """How many there may be: unless said, as many as there are unknowns, and at least 1000."""
    most = min(max(unknowns, 1000), MOST_ITERATIONS) if at_most is None else at_most
    return whole_number(f"{solver}: at_most", most, 0, MOST_ITERATIONS, error=ProgramError)


def inner_product(a: Field, b: Field, total: Global) -> None:
    """total = a b, by loops."""
    total.value = 0.0
    dot(a.set, a, b, total)


def numbers(x: Field, how_many: int) -> list[Global]:
    """Globals of the type of x."""
    return [Global(0.0, "number", dtype=x.dtype) for _ in range(how_many)]


def counting(x: Field, steps: int = 1) -> tuple[Global, Field]:
    """The number of iterations, and the place for a residual after each."""
    places = Set(current().target.numbers.solvers.noted + steps, "iterations")
    return Global(0, "iterations", dtype=np.int64), places.field("history", dtype=x.dtype)
