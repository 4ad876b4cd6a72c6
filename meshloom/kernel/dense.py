"""Small dense matrices of symbols: solve, inverse and determinant, unrolled.

Gaussian elimination with partial pivoting, as LAPACK does it, but without a branch: for column k every row below row k
changes places with it where its entry is the larger one, and "where" is an operation, so that all elements of a loop
take the same steps. Afterwards row k has the largest entry of the rest of its column. Nothing is scaled, so nothing
depends on the size of the numbers. A singular matrix ends in a division by zero, which gives inf or NaN.

Matrices are object arrays (n, n) of symbols and NumPy numbers of one type; stacks of them (..., n, n) one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshloom.kernel.expr import FLOAT64
from meshloom.kernel.values import Value, fail, in_type, type_of, typed, widened

LARGEST = 6  # rows: what is unrolled grows with the cube of it
_EXPANDED = 3  # rows: determinants up to this size by their formula, which needs neither divisions nor choices
Exchange = tuple[int, int, Any]  # rows k and i change places where the third is true


def solve(a: Any, b: Any) -> np.ndarray:
    """``np.linalg.solve``: x with a x = b; b is a vector (n,), or else matrices (..., n, k), as in NumPy 2."""
    matrices, sides = _floats(a), _floats(b)
    n = _rows("solve", matrices)
    vector = sides.ndim == 1
    columns = sides[:, None] if vector else sides
    if columns.ndim < 2 or columns.shape[-2] != n:
        fail(f"np.linalg.solve: a is {matrices.shape} and b {sides.shape}; b must be ({n},) or ({n}, k)")
    common = np.result_type(*(type_of(m) or FLOAT64 for m in (matrices, columns)))
    outer = np.broadcast_shapes(matrices.shape[:-2], columns.shape[:-2])
    matrices = np.broadcast_to(in_type(matrices, common), (*outer, n, n))
    columns = np.broadcast_to(in_type(columns, common), (*outer, *columns.shape[-2:]))
    result = np.empty(columns.shape, object)
    for index in np.ndindex(outer):
        result[index] = _solution(matrices[index], columns[index])
    return result[..., 0] if vector else result


def inverse(a: Any) -> np.ndarray:
    """``np.linalg.inv``."""
    matrices = _floats(a)
    _rows("inv", matrices)
    return _each(matrices, _inverse, matrices.shape)


def determinant(a: Any) -> np.ndarray:
    """``np.linalg.det``: 0 where a matrix is singular to the last bit, as NumPy's."""
    matrices = _floats(a)
    n = _rows("det", matrices)
    return _each(matrices, _expansion if n <= _EXPANDED else _product_of_pivots, matrices.shape[:-2])


def _floats(values: Any) -> np.ndarray:
    return widened(typed(values), FLOAT64)


def _rows(function: str, matrices: np.ndarray) -> int:
    """How many rows a square matrix has; an error that names the function where it is not one, or too large."""
    n = matrices.shape[-1] if matrices.ndim > 1 else 0
    if not n or matrices.shape[-2] != n:
        fail(f"np.linalg.{function} wants a square matrix, got {matrices.shape}")
    if n > LARGEST:
        fail(
            f"np.linalg.{function} of a {n} x {n} matrix is not supported in a kernel, where it is unrolled: at most"
            f" {LARGEST} x {LARGEST}"
        )
    return n


def _each(matrices: np.ndarray, of_one: Callable[[np.ndarray], Any], shape: tuple[int, ...]) -> np.ndarray:
    result = np.empty(shape, object)
    for index in np.ndindex(matrices.shape[:-2]):
        result[index] = of_one(matrices[index])
    return result


def _solution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x (n, k) with a x = b (n, k)."""
    n = len(a)
    rows = np.concatenate([a, b], axis=1)
    for k in range(n):
        for i in range(k + 1, n):
            _exchange(rows[:, k:], k, i, abs(rows[i, k]) > abs(rows[k, k]))
        for i in range(k + 1, n):
            _subtract(rows[:, k + 1 :], i, rows[i, k] / rows[k, k], k)
    return _back_substituted(rows[:, :n], rows[:, n:])


def _back_substituted(upper: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """x (n, k) with u x = sides (n, k); what is below the diagonal of ``upper`` is not looked at."""
    x = sides.copy()
    for i in reversed(range(len(x))):
        for m in reversed(range(i + 1, len(x))):
            _subtract(x, i, upper[i, m], m)
        for j in range(x.shape[1]):
            x[i, j] = x[i, j] / upper[i, i]
    return x


def _inverse(a: np.ndarray) -> np.ndarray:
    """From P a = L U: U^-1 L^-1 P, where the triangles are known to be some, so that no zeros are computed with."""
    n, (lu, exchanges) = len(a), _factors(a)
    lower = np.zeros((n, n), object)  # of L^-1
    for j in range(n):
        lower[j, j] = _like(a, 1)
        for i in range(j + 1, n):
            lower[i, j] = -sum((lu[i, m] * lower[m, j] for m in range(j + 1, i)), lu[i, j])
    x = np.empty((n, n), object)
    for i in reversed(range(n)):
        for j in range(n):
            terms = ([lower[i, j]] if j <= i else []) + [-(lu[i, m] * x[m, j]) for m in range(i + 1, n)]
            x[i, j] = sum(terms[1:], terms[0]) / lu[i, i]
    for k, i, swap in reversed(exchanges):
        _exchange(x.T, k, i, swap)
    return x


def _factors(a: np.ndarray) -> tuple[np.ndarray, list[Exchange]]:
    """U with L (whose diagonal is 1) below it, and the exchanges of rows that lead there."""
    lu, exchanges = a.copy(), []
    for k in range(len(a)):
        for i in range(k + 1, len(a)):
            exchanges.append((k, i, abs(lu[i, k]) > abs(lu[k, k])))
            _exchange(lu, *exchanges[-1])
        for i in range(k + 1, len(a)):
            lu[i, k] = lu[i, k] / lu[k, k]
            _subtract(lu[:, k + 1 :], i, lu[i, k], k)
    return lu, exchanges


def _product_of_pivots(a: np.ndarray) -> Any:
    """A column of zeros leaves nothing to eliminate, and a factor of 0."""
    rows, result = a.copy(), _like(a, 1)
    for k in range(len(a)):
        for i in range(k + 1, len(a)):
            swap = abs(rows[i, k]) > abs(rows[k, k])
            _exchange(rows[:, k:], k, i, swap)
            result = _choice(swap, -result, result)
        pivot = _choice(rows[k, k] == 0, _like(a, 1), rows[k, k])
        for i in range(k + 1, len(a)):
            _subtract(rows[:, k + 1 :], i, rows[i, k] / pivot, k)
    for k in range(len(a)):
        result = result * rows[k, k]
    return result


def _expansion(a: np.ndarray) -> Any:
    """Along the first row."""
    if len(a) == 1:
        return a[0, 0]
    return sum((-1) ** k * a[0, k] * _expansion(np.delete(a[1:], k, axis=1)) for k in range(len(a)))


def _subtract(rows: np.ndarray, i: int, factor: Any, k: int) -> None:
    """Row i of (n, m) less ``factor`` times row k, in place; entry by entry, since entries may be plain numbers."""
    for j in range(rows.shape[1]):
        rows[i, j] = rows[i, j] - factor * rows[k, j]


def _exchange(rows: np.ndarray, k: int, i: int, swap: Any) -> None:
    """Rows k and i of (n, m) change places, in place, where ``swap`` is true."""
    for j in range(rows.shape[1]):
        upper, lower = rows[k, j], rows[i, j]
        rows[k, j], rows[i, j] = _choice(swap, lower, upper), _choice(swap, upper, lower)


def _choice(condition: Any, yes: Any, no: Any) -> Any:
    """``np.where`` of scalars; plain numbers are chosen at once."""
    symbolic = isinstance(condition, Value)
    return np.where(condition, yes, no) if symbolic else yes if condition else no


def _like(a: np.ndarray, number: int) -> Any:
    """A number in the type of a matrix."""
    return (type_of(a) or FLOAT64).type(number)
