"""Tridiagonal systems along the lines of a grid: one constant matrix, many right-hand sides."""

from __future__ import annotations

from meshloom.errors import MeshError, nearest
from meshloom.linalg.lines import line_loop
from meshloom.linalg.operator import LineOperator, Tridiagonal
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.schedule.lines.methods import names


def methods() -> tuple[str, ...]:
    """The ways to solve, by name."""
    return names()


def solve(matrix: Tridiagonal, f: Field, out: Field, axis: int, method: str = "auto") -> None:
    """Solve A out = f along every line of an axis, for all components; inside a program this is recorded.

    ``out`` may be ``f``. ``method``: one of ``methods()``, or "auto", which takes "segmented".
    """
    if not isinstance(matrix, Tridiagonal):
        raise MeshError(f"tridiagonal.solve: the matrix is an ml.linalg.Tridiagonal, got {type(matrix).__name__}")
    if not isinstance(f, Field) or not isinstance(f.set, Grid):
        raise MeshError("tridiagonal.solve: f and out are fields on a grid, made by grid.field(...)")
    if method not in ("auto", *methods()):
        raise MeshError(f"tridiagonal.solve: unknown method '{method}'{nearest(method, ('auto', *methods()))}")
    line_loop(f.set, axis, LineOperator(matrix), f, out, method=method, name="tridiagonal")
