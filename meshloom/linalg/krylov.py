"""Krylov solvers: conjugate gradients and BiCGStab of any linear operator, each iteration a part of one program.

An operator is a ``Matrix``, or whatever can be called as ``operator(x, y)`` and makes y from x by loops: a program with
two parameters, or a function. All that is decided on the way is computed by loops over a single element, so iterations
need nothing of Python, and ``Program.repeat`` sees the end where the loops run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from meshloom.errors import MeshError, shown
from meshloom.exclusion import exclusive
from meshloom.kernel.access import Read, ReadWrite, Sum, Write
from meshloom.linalg.colored_sgs import ColoredSGS, check_served
from meshloom.linalg.in_programs import called_in_programs
from meshloom.linalg.iteration import (
    TOLERANCE,
    Iteration,
    Report,
    check_tolerance,
    counting,
    inner_product,
    most_iterations,
    numbers,
    steps_of,
)
from meshloom.linalg.krylov_kernels import (
    BROKEN,
    add_scaled,
    cg_alpha,
    cg_beta,
    cg_step,
    dot,
    left_to_do,
    multiply_block,
    multiply_entries,
    note,
    set_to,
    subtract_from,
)
from meshloom.linalg.matrix import Matrix
from meshloom.linalg.poisson import Poisson
from meshloom.mesh.core import Field, Set
from meshloom.operation.loop import kernel
from meshloom.operation.program import Program

Operator = Callable[[Field, Field], Any]
Preconditioner = str | Operator | None
ONE = Set(1, "decisions of a solver")


@runtime_checkable
class Refreshed(Protocol):
    """A preconditioner that is made of something that may change between solutions."""

    def refresh(self) -> None: ...

    def __call__(self, r: Field, z: Field) -> Any: ...


class Solver(ABC):
    """A method for one operator. It keeps memory of its own for fields like the last x, and neither x nor b.

    ``preconditioner``: "jacobi", "block_jacobi" or "lu_sgs" of a Matrix, whose entries are looked at in every
    ``solve``; "jacobi" of a Poisson operator; or whatever can be called as ``preconditioner(r, z)`` and makes z, close
    to the solution for r, by loops. One with a ``refresh`` sets all of z, and is told before each solution that what it
    was made of may have changed.
    """

    name: str

    @exclusive
    def __init__(self, operator: Operator, *, preconditioner: Preconditioner = None):
        if not callable(operator):
            raise MeshError(f"{self.name}: the operator must be a Matrix or callable as operator(x, y), got"
                            f" {type(operator).__name__}")  # fmt: skip
        self.operator, self.preconditioner = operator, preconditioner
        _check_preconditioner(self.name, operator, preconditioner)
        self._made: tuple[tuple[Any, ...], Iteration] | None = None

    @exclusive
    @partial(called_in_programs, reads_temporaries=False)  # it runs programs of its own, where they have no values
    def solve(self, x: Field, b: Field, *, tol: float = TOLERANCE, at_most: int | None = None) -> Report:
        """Improve x until the norm of b - A x is at most ``tol`` times that of b (for b = 0, that of x = 0, where
        ghosts make a right-hand side), in at most so many iterations (unless said, as many as there are unknowns, and
        at least 1000). Inside a program it is called at every replay."""
        _check_fields(self.name, x, b)
        tol = check_tolerance(self.name, tol)
        most = most_iterations(self.name, at_most, x.set.size * x.dim)
        kind = (x.set, x.components, x.dtype, x.layout)
        if self._made is None or self._made[0] != kind or not self._made[1].serves(most):
            self._made = kind, self._iteration(x, most)
        return self._made[1].solve(x, b, tol, most)

    @abstractmethod
    def _iteration(self, like_x: Field, most: int) -> Iteration:
        """The method for fields like one."""

    def _applied(self, x: Field) -> Operator:
        """The operator, which sets all of y."""
        return self.operator if isinstance(self.operator, Matrix) else self._complete("operator", self.operator, x)

    def _precondition(self, x: Field) -> Operator | None:
        if self.preconditioner is None:
            return None
        if isinstance(self.preconditioner, Refreshed):
            return self.preconditioner
        if callable(self.preconditioner):
            return self._complete("preconditioner", self.preconditioner, x)
        if isinstance(self.operator, Poisson):
            return _diagonal_of_cells(self.operator)
        assert isinstance(self.operator, Matrix)
        if self.preconditioner == "lu_sgs":
            return ColoredSGS(self.operator)
        return _Diagonal(self.operator, blocks=self.preconditioner == "block_jacobi")

    def _complete(self, which: str, apply: Operator, x: Field) -> Operator:
        """``apply``, with y made zero before where it adds to what is there or leaves some of it as it is."""
        y = x.like("image")

        def once() -> None:
            y.fill(0.0)
            apply(x, y)

        graph = Program(once).dataflow
        first = graph.changed_by(y, 1, len(graph.operations))
        if first is None:
            raise MeshError(f"{self.name}: the {which} must make y from x by loops, and writes nothing to y")
        if first.defines(y):
            return apply

        def from_zero(a: Field, b: Field) -> None:
            b.fill(0.0)
            apply(a, b)

        return from_zero

    def _refresh(self, make_close: Operator | None) -> Callable[[], None]:
        """What is done before each solution: the entries of a matrix may have changed."""
        return make_close.refresh if isinstance(make_close, Refreshed) else lambda: None


class ConjugateGradients(Solver):
    """For symmetric positive definite operators, and preconditioners that are so, too."""

    name = "cg"

    def _iteration(self, like_x: Field, most: int) -> Iteration:
        r, p, q = (like_x.like(name) for name in ("residual", "direction", "image"))
        apply, make_close = self._applied(like_x), self._precondition(like_x)
        z = r if make_close is None else like_x.like("close")
        rr, rz, rz_new, pq, size, alpha, beta, left = numbers(like_x, 8)
        count, history = counting(like_x)

        def start(x: Field, b: Field) -> None:
            apply(x, r)
            subtract_from(x.set, b, r)
            inner_product(b, b, size)
            inner_product(r, r, rr)
            if make_close is not None:
                make_close(r, z)
            set_to(x.set, z, p)
            inner_product(r, z, rz)
            set_to(ONE, rr, left)
            note(history.set, history.set.numbers, count, rr, history)

        def iterate(x: Field, b: Field) -> None:
            apply(p, q)
            inner_product(p, q, pq)
            cg_alpha(ONE, rz, pq, alpha)
            rr.value = 0.0
            cg_step(x.set, alpha, p, q, x, r, rr)
            if make_close is not None:
                make_close(r, z)
            inner_product(r, z, rz_new)
            cg_beta(ONE, rz_new, rz, beta)
            add_scaled(x.set, z, beta, p)
            left_to_do(ONE, rr, pq, left, count)
            note(history.set, history.set.numbers, count, rr, history)

        refresh = self._refresh(make_close)
        return Iteration(steps_of(start), steps_of(iterate), left, size, count, history, refresh)


class BiCGStab(Solver):
    """For operators that need not be symmetric: van der Vorst's method, preconditioned from the right."""

    name = "bicgstab"

    def _iteration(self, like_x: Field, most: int) -> Iteration:
        names = ("residual", "shadow", "direction", "image", "half", "image of the half")
        r, shadow, p, v, s, t = (like_x.like(name) for name in names)
        apply, make_close = self._applied(like_x), self._precondition(like_x)
        close_p, close_s = (p, s) if make_close is None else (like_x.like("close p"), like_x.like("close s"))
        rr, rho, rho_new, sv, ts, tt, size, alpha, beta, omega, left = numbers(like_x, 11)
        count, history = counting(like_x)

        def start(x: Field, b: Field) -> None:
            apply(x, r)
            subtract_from(x.set, b, r)
            set_to(x.set, r, shadow)
            set_to(x.set, r, p)
            for total, one in ((size, b), (rr, r), (rho, r)):
                inner_product(one, one, total)
            set_to(ONE, rr, left)
            note(history.set, history.set.numbers, count, rr, history)

        def iterate(x: Field, b: Field) -> None:
            if make_close is not None:
                make_close(p, close_p)
            apply(close_p, v)
            inner_product(shadow, v, sv)
            bicg_alpha(ONE, rho, sv, alpha)
            bicg_half(x.set, alpha, close_p, v, r, x, s)
            if make_close is not None:
                make_close(s, close_s)
            apply(close_s, t)
            ts.value = tt.value = 0.0
            dot(x.set, t, s, ts)
            dot(x.set, t, t, tt)
            bicg_omega(ONE, ts, tt, omega)
            rr.value = rho_new.value = 0.0
            bicg_whole(x.set, omega, close_s, s, t, shadow, x, r, rr, rho_new)
            bicg_beta(ONE, rho_new, rho, alpha, omega, beta)
            bicg_direction(x.set, r, beta, omega, v, p)
            bicg_left(ONE, rr, sv, tt, left, count)
            note(history.set, history.set.numbers, count, rr, history)

        refresh = self._refresh(make_close)
        return Iteration(steps_of(start), steps_of(iterate), left, size, count, history, refresh)


def cg(operator: Operator, x: Field, b: Field, *, tol: float = TOLERANCE, at_most: int | None = None,
       preconditioner: Preconditioner = None) -> Report:  # fmt: skip
    """Solve A x = b for a symmetric positive definite operator, from the x that is there: see ``Solver``."""
    return ConjugateGradients(operator, preconditioner=preconditioner).solve(x, b, tol=tol, at_most=at_most)


def bicgstab(operator: Operator, x: Field, b: Field, *, tol: float = TOLERANCE, at_most: int | None = None,
             preconditioner: Preconditioner = None) -> Report:  # fmt: skip
    """Solve A x = b for any operator, from the x that is there: see ``Solver``."""
    return BiCGStab(operator, preconditioner=preconditioner).solve(x, b, tol=tol, at_most=at_most)


# --- parts ------------------------------------------------------------------------------------------------------------


class _Diagonal:
    """z = D^-1 r of a matrix, whose inverse is made again where the entries may have changed."""

    def __init__(self, matrix: Matrix, *, blocks: bool):
        self.matrix, self.blocks = matrix, blocks
        self.inverse = matrix.inverse_diagonal(blocks=blocks)

    def refresh(self) -> None:
        self.matrix.inverse_diagonal(blocks=self.blocks, into=self.inverse)

    def __call__(self, r: Field, z: Field) -> None:
        multiply = multiply_block if len(self.inverse.components) > 1 else multiply_entries
        multiply(r.set, self.inverse, r, z)


def _diagonal_of_cells(poisson: Poisson) -> Operator:
    """z = D^-1 r of a Poisson operator; a cell alone, without links, has nothing on the diagonal and stays as it is."""
    diagonal = poisson.diagonal.numpy()
    inverse = poisson.diagonal.like("inverse of the diagonal")
    inverse.assign(1.0 / np.where(diagonal > 0.0, diagonal, 1.0))

    def scale(r: Field, z: Field) -> None:
        multiply_entries(r.set, inverse, r, z)

    return scale


def _check_fields(solver: str, x: Field, b: Field) -> None:
    for one, name in ((x, "x"), (b, "b")):
        if not isinstance(one, Field):
            raise MeshError(f"{solver}: {name} must be a Field, got {type(one).__name__}")
    if x is b:
        raise MeshError(f"{solver}: x and b are the same field, {x.name}")
    if x.set is not b.set or x.components != b.components or x.dtype != b.dtype:
        raise MeshError(f"{solver}: x and b must have the same set, components and type, got {x!r} and {b!r}")
    if x.dtype.kind != "f":
        raise MeshError(f"{solver}: x must be of floating-point numbers, got {x.dtype}")


def _check_preconditioner(solver: str, operator: Operator, given: Preconditioner) -> None:
    named = ("jacobi", "block_jacobi", "lu_sgs")
    if given is None or callable(given):
        return
    if not isinstance(given, str) or given not in named:
        raise MeshError(f"{solver}: preconditioner must be {', '.join(map(repr, named))}, or callable as"
                        f" preconditioner(r, z), got {shown(given)}")  # fmt: skip
    if not isinstance(operator, Matrix) and not (isinstance(operator, Poisson) and given == "jacobi"):
        raise MeshError(f"{solver}: {given} needs the diagonal of a Matrix, which an operator that is only applied does"
                        " not show; give preconditioner=function(r, z)")  # fmt: skip
    if given == "lu_sgs" and isinstance(operator, Matrix):
        check_served(solver, operator)


# --- BiCGStab: kernels ------------------------------------------------------------------------------------------------


@kernel
def bicg_alpha(rho: Read, sv: Read, alpha: Write):
    alpha[...] = np.where(sv != 0.0, rho / sv, 0.0)


@kernel
def bicg_half(alpha: Read, p: Read, v: Read, r: Read, x: ReadWrite, s: Write):
    x += alpha * p
    s[...] = r - alpha * v


@kernel
def bicg_omega(ts: Read, tt: Read, omega: Write):
    omega[...] = np.where(tt > 0.0, ts / tt, 0.0)


@kernel
def bicg_whole(omega: Read, close: Read, s: Read, t: Read, shadow: Read, x: ReadWrite, r: Write, rr: Sum, rho: Sum):
    x += omega * close
    left = s - omega * t
    r[...] = left
    rr += np.sum(left * left)
    rho += np.sum(shadow * left)


@kernel
def bicg_beta(rho_new: Read, rho: ReadWrite, alpha: Read, omega: Read, beta: Write):
    beta[...] = np.where((rho != 0.0) & (omega != 0.0), rho_new / rho * (alpha / omega), 0.0)
    rho[...] = rho_new


@kernel
def bicg_direction(r: Read, beta: Read, omega: Read, v: Read, p: ReadWrite):
    p[...] = r + beta * (p - omega * v)


@kernel
def bicg_left(rr: Read, sv: Read, tt: Read, left: Write, count: ReadWrite):
    going = (sv != 0.0) & (tt > 0.0) & np.isfinite(rr)
    left[...] = np.where(going | (rr == 0.0), rr, BROKEN)
    count += 1
