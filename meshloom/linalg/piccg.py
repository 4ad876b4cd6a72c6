"""PICCG: conjugate gradients with a parallel incomplete Cholesky factorisation, as one program for each iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from meshloom.errors import MeshError, known_name, shown, whole_number, yes_or_no
from meshloom.exclusion import exclusive
from meshloom.linalg.grid_matrix import GridMatrix
from meshloom.linalg.in_programs import called_in_programs
from meshloom.linalg.iteration import TOLERANCE, Report, check_tolerance, most_iterations
from meshloom.linalg.krylov_kernels import subtract_from
from meshloom.linalg.matrix import Matrix
from meshloom.linalg.ordered import OnGrid, Ordered
from meshloom.linalg.poisson import Poisson, floating
from meshloom.linalg.red_black import RedBlack, of_matrix, of_poisson
from meshloom.linalg.row_storage import MOST_CHUNK
from meshloom.linalg.stored_rows import Settings, StoredRows
from meshloom.linalg.symmetric import of_cells, symmetric
from meshloom.mesh.copies import NoCopy
from meshloom.mesh.core import Field, Set
from meshloom.recording import MAKE_BEFORE, refuse_in_program

MOST_COLORS = 4096
MOST_BLOCK = 4096
MOST_FILL = 16
MOST_WINDOW = 2**31


class PICCG(NoCopy):
    """``report = PICCG(A).solve(x, b, tol=1e-8)`` for a symmetric positive definite A: a ``Matrix``, a ``Poisson``
    operator, a matrix of ``scipy.sparse``, or the path of a Matrix Market file. x and b are fields of ``piccg.rows``,
    or NumPy arrays of as many numbers, of which x is improved in place. ``piccg(r, z)`` makes z, close to the solution
    for r: a preconditioner for ``ml.linalg.cg``.

    A is about L D L^T. ``colors``: rows of one color are solved for at the same time; "auto", as few as there can be,
    or a number, which are given in turn: more of them take fewer iterations of more steps. ``block``: so many
    neighbouring rows, one after the other, are colored as one. ``fill``: the level up to which L has entries where A
    has none, or ``drop``: those smaller than this, scaled by the diagonal, are left out. ``shift``: the diagonal is
    raised by so much of itself before; by more, twice again and again, where a pivot breaks down (``piccg.shift`` is
    what it took). ``storage``: "sell", chunks of ``chunk`` rows as long as the longest, which are sorted by length
    within ``sigma`` rows of a color; or "csr". ``precision`` of the factors: "float32" or "float64". ``eisenstat``: no
    product with A, which needs factors with the entries of A; unless said where that changes nothing, with two colors
    and neither fill nor blocks.

    A Poisson operator, or a matrix on a grid that links neighbours along the axes alone, is solved as it is, with two
    colors and no stored indices, where axes go around after an even number of points or not at all; asked for anything
    else, by rows.
    """

    name = "piccg"

    @exclusive
    def __init__(self, A: Any, *, colors: int | str = "auto", block: int = 1, fill: int | None = None,
                 drop: float | None = None, shift: float = 0.0, storage: str | None = None, chunk: int | None = None,
                 sigma: int | None = None, precision: DTypeLike | None = None,
                 eisenstat: bool | None = None):  # fmt: skip
        refuse_in_program("making a piccg solver", MAKE_BEFORE)
        fewest = isinstance(colors, str) and colors == "auto"
        level, tolerance = _fill(fill, drop)
        self.settings = Settings(
            None if fewest else _count("colors", colors, MOST_COLORS, " or 'auto'"),
            _count("block", block, MOST_BLOCK),
            level,
            tolerance,
            _number("shift", shift, lambda value: 0.0 <= value <= 1.0, "from 0 to 1"),
            *_storage(storage, chunk, sigma),
            None if precision is None else floating("piccg: precision", precision),
            None if eisenstat is None else yes_or_no("piccg: eisenstat", eisenstat, error=MeshError),
        )
        _check_trick(self.settings)
        self.operator = A
        self._method, self._version = self._made(), self._entries()

    @property
    def rows(self) -> Set:
        """The set that x and b are fields of."""
        return self._method.rows

    @property
    def colors(self) -> int:
        """How many there are."""
        return self._method.colors

    @property
    def shift(self) -> float:
        """What the diagonal was raised by, as a part of itself."""
        return self._method.shift

    @property
    def bytes_per_iteration(self) -> int:
        """What the loops of an iteration have to load and store, before some of them become one."""
        return self._method.bytes_per_iteration()

    @exclusive
    def __call__(self, r: Field, z: Field) -> None:
        """z close to A^-1 r; inside a program this is recorded, with the factors that are there then."""
        self._check(r, "r")
        self._check(z, "z")
        if r is z:
            raise MeshError(f"piccg: r and z are the same field, {r.name}; z must be another one")
        self._method.make_close(r, z)

    @exclusive
    @called_in_programs
    def solve(self, x: Any, b: Any, *, tol: float = TOLERANCE, at_most: int | None = None) -> Report:
        """Improve x until the norm of b - A x is at most ``tol`` times that of b, in at most so many iterations (unless
        said, as many as there are unknowns, and at least 1000). Where A is a singular Poisson operator b counts without
        what it adds up to, and x has no mean. Where A is a Matrix whose entries have changed it is factored anew.
        Inside a program, where x and b are fields, it is called at every replay."""
        tol = check_tolerance(self.name, tol)
        most = most_iterations(self.name, at_most, self.rows.size)
        if isinstance(x, np.ndarray) or isinstance(b, np.ndarray):
            return self._solve_arrays(x, b, tol, most)
        self._check(x, "x")
        self._check(b, "b")
        if x is b:
            raise MeshError(f"piccg: x and b are the same field, {x.name}")
        return self._solved(x, b, tol, most)

    def _solved(self, x: Field, b: Field, tol: float, most: int) -> Report:
        if self._entries() != self._version:
            self._method, self._version = self._made(), self._entries()
        if isinstance(self.operator, GridMatrix) and not self.operator.grid.shows_all:
            b = _without_ghosts(self.operator, x, b)
        report = self._method.solve(x, b, tol, most)
        if self.shift == self.settings.shift:
            return report
        more = f"a pivot broke down, so the diagonal was raised by {self.shift:.3g} of itself for the factors"
        return replace(report, reason=f"{report.reason}; {more}")

    def _solve_arrays(self, x: Any, b: Any, tol: float, most: int) -> Report:
        shape = self.rows.array_shape
        for one, name in ((x, "x"), (b, "b")):
            if not isinstance(one, np.ndarray) or one.shape != shape or one.dtype.kind != "f":
                got = f"{one.dtype} {one.shape}" if isinstance(one, np.ndarray) else type(one).__name__
                raise MeshError(f"piccg: with an array for x or b both are arrays of floating-point numbers of shape"
                                f" {shape}, and {name} is {got}")  # fmt: skip
        if not x.flags.writeable:
            raise MeshError("piccg: x is an array that cannot be written to")
        fields = [self.rows.field(name, dtype=self._method.dtype, data=one) for one, name in ((x, "x"), (b, "b"))]
        report = self._solved(fields[0], fields[1], tol, most)
        x[...] = fields[0].numpy()
        return report

    def _check(self, field: Any, what: str) -> None:
        """MeshError unless a field is one of numbers on the rows, of their type."""
        rows, dtype = self.rows, self._method.dtype
        if not isinstance(field, Field) or field.set is not rows or field.components or field.dtype != dtype:
            raise MeshError(f"piccg: {what} must be a field of single numbers of type {dtype} on {rows.name}, got"
                            f" {shown(field)}")  # fmt: skip

    def _entries(self) -> int:
        """Which values the entries of a matrix have now."""
        return self.operator.values.version if isinstance(self.operator, Matrix) else 0

    def _made(self) -> Ordered | OnGrid:
        known, settings = self.operator, self.settings
        if isinstance(known, Poisson):
            links = of_poisson(known) if settings.plain else None
            inner = (StoredRows(of_cells(known), settings, singular=known.singular) if links is None
                     else RedBlack(links, settings.precision))  # fmt: skip
            return OnGrid(inner, known.grid, known)
        given = symmetric(known)
        links = of_matrix(known) if isinstance(known, GridMatrix) and settings.plain else None
        return StoredRows(given, settings) if links is None else OnGrid(RedBlack(links, settings.precision), known.grid)

    def __repr__(self) -> str:
        return f"PICCG({self._method})"


def _without_ghosts(matrix: GridMatrix, x: Field, b: Field) -> Field:
    """b minus what values of x at ghosts make, which are no unknowns."""
    ghosts, image = x.like("ghosts of x"), b.like("b without ghosts")
    ghosts.restore(x.saved())
    ghosts.assign(np.zeros(matrix.grid.shape))
    matrix(ghosts, image)
    subtract_from(matrix.grid, b, image)
    return image


def _count(what: str, value: Any, most: int, other: str = "") -> int:
    if isinstance(value, str):
        raise MeshError(f"piccg: {what} must be a whole number from 1 to {most}{other}, got {shown(value)}")
    return whole_number(f"piccg: {what}", value, 1, most, error=MeshError)


def _fill(level: int | None, drop: float | None) -> tuple[int | None, float]:
    """(the level, None where it is not what decides; the tolerance)."""
    if level is not None and drop is not None:
        raise MeshError("piccg: give fill, a level, or drop, a tolerance, and not both")
    if drop is None:
        return 0 if level is None else whole_number("piccg: fill", level, 0, MOST_FILL, error=MeshError), 0.0
    return None, _number("drop", drop, lambda value: 0.0 < value < 1.0, "between 0 and 1")


def _number(what: str, value: Any, fits: Callable[[float], bool], which: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not fits(float(value)):
        raise MeshError(f"piccg: {what} must be a number {which}, got {shown(value)}")
    return float(value)


def _storage(storage: str | None, chunk: int | None, sigma: int | None) -> tuple[str | None, int | None, int | None]:
    if storage is not None:
        known_name("storage of piccg", storage, ("csr", "sell"), error=MeshError)
    if storage == "csr" and (chunk is not None or sigma is not None):
        raise MeshError("piccg: chunk and sigma are of storage='sell', and this is 'csr'")
    return (
        storage,
        None if chunk is None else _count("chunk", chunk, MOST_CHUNK),
        None if sigma is None else _count("sigma", sigma, MOST_WINDOW),
    )


def _check_trick(settings: Settings) -> None:
    """Eisenstat's trick needs factors with the entries of A."""
    if settings.eisenstat:
        for wrong, what in ((settings.block > 1, f"block={settings.block}"), (settings.fill != 0, "fill or drop"),
                            (settings.precision == np.float32, "precision=float32")):  # fmt: skip
            if wrong:
                raise MeshError(f"piccg: eisenstat needs factors with the very entries of A, and {what} makes others;"
                                " leave one of them out")  # fmt: skip
