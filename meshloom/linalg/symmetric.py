"""Symmetric positive definite matrices as people give them: checked, with their entries by rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshloom.errors import MeshError, file_path, one_line, other_than_file, shown
from meshloom.linalg.matrix import Matrix, library
from meshloom.linalg.poisson import Poisson
from meshloom.mesh.core import Set
from meshloom.native.cholesky import Sparse

ROUNDED = 1000.0  # times the rounding of a number, scaled by the diagonal: what (i, j) and (j, i) may differ by


@dataclass(frozen=True, eq=False)
class Symmetric:
    """Entries by rows, the diagonal among them and positive; ``rows``: the set whose elements they are, by number."""

    entries: Sparse
    rows: Set
    dtype: np.dtype
    name: str


def symmetric(given: Any) -> Symmetric:
    """What was given, a ``Matrix``, a matrix of ``scipy.sparse``, or the path of a Matrix Market file; MeshError where
    it cannot be symmetric positive definite."""
    if isinstance(given, Matrix):
        name = f"matrix {given.name}"
        if given.block != (1, 1):
            size = f"{given.block[0]} x {given.block[1]}"
            raise MeshError(f"piccg: {name} has blocks of {size}, and the factorisation takes single numbers")
        check_square(name, given.shape)
        if given.rows is not given.columns:
            raise MeshError(f"piccg: {name} leads from {given.columns.name} to {given.rows.name}; both must be one set")
        if given.rows.halo:
            raise MeshError(f"piccg: {name} has rows that another rank owns, and is factored in one piece")
        sparse, rows = given.to_scipy(), given.rows
    elif isinstance(given, str | os.PathLike):
        sparse, name, rows = read_matrix_market(given), Path(given).name, None
    elif library().issparse(given):
        sparse, name, rows = given, "the matrix", None
    else:
        raise MeshError("piccg: the operator must be a Matrix, a Poisson operator, a matrix of scipy.sparse or the path"
                        f" of a Matrix Market file, got {type(given).__name__}")  # fmt: skip
    entries = Sparse.of(checked(sparse, name))
    own = Set(len(entries), f"rows of {name}") if rows is None else rows
    return Symmetric(entries, own, np.dtype(np.float32 if sparse.dtype == np.float32 else np.float64), name)


def of_cells(poisson: Poisson) -> Symmetric:
    """The matrix of a Poisson operator, whose rows are its cells."""
    entries = Sparse.of(checked(poisson.to_scipy(), poisson.name))
    return Symmetric(entries, poisson.level.grid, poisson.dtype, poisson.name)


def read_matrix_market(path: str | os.PathLike[str]) -> Any:
    """The matrix in a file, by ``scipy.io.mmread``: of symmetric storage both halves."""
    from scipy.io import mmread

    where = file_path("piccg: the path of a Matrix Market file", path, error=MeshError)
    if what := other_than_file(where):
        raise MeshError(f"piccg: cannot read {shown(str(where))}: it is {what}, not a file")
    try:
        found = mmread(where)
    except OSError as error:
        raise MeshError(f"piccg: cannot read {shown(str(where))}: {error.strerror or error}") from None
    except Exception as error:  # whatever the reader says of a file that is none
        message = one_line(str(error).strip() or type(error).__name__)
        raise MeshError(f"piccg: {shown(str(where))} is no Matrix Market file: {message}") from None
    return found if library().issparse(found) else library().csr_matrix(found)


def check_square(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise MeshError(f"piccg: {name} is {' x '.join(map(str, shape))}, and must be square")
    if shape[0] == 0:
        raise MeshError(f"piccg: {name} is empty: it has no rows")


def checked(sparse: Any, name: str) -> Any:
    """As CSR in double, columns ascending, symmetric entry by entry, without stored zeros."""
    check_square(name, sparse.shape)
    if sparse.dtype.kind not in "biuf":
        kind = "complex numbers" if sparse.dtype.kind == "c" else f"values of type {sparse.dtype}"
        raise MeshError(f"piccg: {name} has {kind}; it must be of real numbers")
    if sparse.nnz < sparse.shape[0]:
        entries = "1 entry" if sparse.nnz == 1 else f"{sparse.nnz} entries"
        raise MeshError(f"piccg: {name} is singular: {entries} in {sparse.shape[0]} rows")
    _check_indices(sparse, name)
    matrix = library().csr_matrix(sparse, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    if not np.isfinite(matrix.data).all():
        at = int(np.argmin(np.isfinite(matrix.data)))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise MeshError(f"piccg: {name} has {matrix.data[at]} at row {row}, column {matrix.indices[at]}")
    matrix.eliminate_zeros()
    return _alike(matrix, name, np.float32 if sparse.dtype == np.float32 else np.float64)


def _check_indices(sparse: Any, name: str) -> None:
    """MeshError where somebody has changed the arrays of a matrix by rows or columns so that they fit no more."""
    if sparse.format in ("csr", "csc", "bsr"):
        try:
            sparse.check_format(full_check=True)
        except (ValueError, IndexError) as error:
            raise MeshError(f"piccg: {name} has indices that do not fit: {one_line(str(error))}") from None


def _alike(matrix: Any, name: str, dtype: Any) -> Any:
    """The matrix, where it equals its transpose but for rounding, and has a positive diagonal."""
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if empty.size:
        raise MeshError(f"piccg: {name} is singular: row {empty[0]} has no entry other than zero")
    diagonal = matrix.diagonal()
    if not (diagonal > 0.0).all():
        row = int(np.argmin(diagonal > 0.0))
        raise MeshError(f"piccg: {name} is not positive definite: its entry on the diagonal at row {row} is"
                        f" {diagonal[row]:.6g}")  # fmt: skip
    turned = matrix.T.tocsr()
    turned.sort_indices()
    same = np.array_equal(matrix.indptr, turned.indptr) and np.array_equal(matrix.indices, turned.indices)
    if same and np.array_equal(matrix.data, turned.data):
        return matrix
    apart = abs(matrix - turned).tocoo()
    allowed = ROUNDED * float(np.finfo(dtype).eps) * np.sqrt(diagonal[apart.row]) * np.sqrt(diagonal[apart.col])
    wrong = np.flatnonzero(apart.data > allowed)
    if wrong.size:
        i, j = int(apart.row[wrong[0]]), int(apart.col[wrong[0]])
        raise MeshError(f"piccg: {name} is not symmetric: {matrix[i, j]:.6g} at row {i}, column {j}, but"
                        f" {matrix[j, i]:.6g} at row {j}, column {i}")  # fmt: skip
    mean = (0.5 * (matrix + turned)).tocsr()
    mean.sort_indices()
    return mean
