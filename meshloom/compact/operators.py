"""Derivatives and filters of grid fields, one line after the other: right-hand side and solve in one pass.

``d``, ``d2`` and ``filter`` do what they say at once, or are recorded inside a program. Several fields, or a field of
several components, go through in one launch. On a stretched axis the derivative is taken in index space, where points
are even, and multiplied by the metric d xi/dx.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from meshloom.compact.scheme import Row, Scheme
from meshloom.compact.schemes import LELE6, SECOND6, filters
from meshloom.errors import SchemeError
from meshloom.exclusion import Mutex, holding, made_for, mutexes_of, unowned
from meshloom.kernel.access import Read, Write
from meshloom.linalg import LineOperator, LineStencil, Tridiagonal, line_loop
from meshloom.mesh.box import AXES
from meshloom.mesh.core import Field
from meshloom.mesh.grid import Grid
from meshloom.operation.loop import Kernel, kernel
from meshloom.recording import outside_program

Fields = Field | Sequence[Field]
Operators = LineOperator | Sequence[LineOperator]
ONE_PASS = ("auto", "segmented")  # solvers that take the right-hand side's stencil along
_NEEDS_METRIC = "grid {} is stretched along {}: give a kernel 'after' that multiplies by compact.metric(grid, axis)"


# --- what a person calls ----------------------------------------------------------------------------------


def d(
    f: Fields,
    axis: int,
    out: Fields | None = None,
    scheme: Scheme | Sequence[Scheme] = LELE6,
    *,
    before: Kernel | None = None,
    after: Kernel | None = None,
    values: int | None = None,
    method: str = "auto",
) -> Fields:
    """The first derivative of one or several fields along an axis, into ``out`` (new fields unless given).

    ``before`` computes what is derived from the fields ``f`` at a point, ``after`` what is done with the derivatives at
    a point of the fields ``out``: fluxes and sums in the same pass, see ``linalg.LineLoop``. ``values`` is the number
    of derivatives, needed where both are given; they may have a ``scheme`` each. On a stretched axis ``after`` must
    read ``metric(grid, axis)``. ``method``: a solver other than the one that does all in one pass, to compare with.
    """
    fields, grid, along = _operands(f, axis, scheme, 1)
    targets = _targets(fields, out, f"d{AXES[along]}")
    used = operator(scheme, grid, along) if isinstance(scheme, Scheme) else [operator(s, grid, along) for s in scheme]
    if grid.uniform[along] or after is not None:
        _check_metric(grid, along, targets)
        apply(grid, along, used, fields, targets, before=before, after=after, values=values, method=method)
    elif before is not None:
        raise SchemeError(_NEEDS_METRIC.format(grid.name, AXES[along]))
    else:
        for one, target in zip(fields, targets, strict=True):
            slope = metric(grid, along, one.dtype)
            apply(grid, along, used, one, [slope, target], after=times_metric, method=method)
    return _answer(f, out, targets)


def d2(f: Fields, axis: int, out: Fields | None = None, scheme: Scheme = SECOND6, *, method: str = "auto") -> Fields:
    """The second derivative along an axis, into ``out``.

    On a stretched axis it is (xi')^2 f'' + xi' (xi')_xi f', with the first derivative by LELE6 in the same pass.
    """
    fields, grid, along = _operands(f, axis, scheme, 2)
    targets = _targets(fields, out, f"d{AXES[along]}{AXES[along]}")
    second = operator(scheme, grid, along)
    if grid.uniform[along]:
        apply(grid, along, second, fields, targets, method=method)
    else:
        first = operator(LELE6, grid, along)
        for one, target in zip(fields, targets, strict=True):
            factors = [_metric_field(grid, along, one.dtype, which) for which in ("square", "bend")]
            both = [second] * one.dim + [first] * one.dim
            apply(grid, along, both, one, [*factors, target], before=both_parts, after=_chain_rule(one.dim),
                  values=2 * one.dim, method=method)  # fmt: skip
    return _answer(f, out, targets)


def filter(
    f: Fields, axis: int, out: Fields | None = None, scheme: Scheme | None = None, *, method: str = "auto"
) -> Fields:
    """The fields without their shortest waves along an axis, into ``out``: by ``filters(8, 0.45)`` unless given."""
    used = filters(8, 0.45) if scheme is None else scheme
    fields, grid, along = _operands(f, axis, used, 0)
    targets = _targets(fields, out, "filtered")
    apply(grid, along, operator(used, grid, along), fields, targets, method=method)
    return _answer(f, out, targets)


def operator(scheme: Scheme, grid: Grid, axis: int) -> LineOperator:
    """What the scheme does to a line of the grid along an axis, for ``linalg.LineLoop``: in even coordinates."""
    along = grid.axis(axis)
    _check_line(scheme, grid, along)
    return _operator(scheme, grid.periodic[along], grid.spacing[along])


def metric(grid: Grid, axis: int, dtype: np.dtype | type = np.float64) -> Field:
    """The metric d xi/dx of a stretched axis as a field on the grid."""
    return _metric_field(grid, grid.axis(axis), np.dtype(dtype), "slope")


# --- from schemes to line operators -----------------------------------------------------------------------


@lru_cache(maxsize=256)  # every spacing has its own
def _operator(scheme: Scheme, periodic: bool, spacing: float) -> LineOperator:
    low, high = ((), ()) if periodic else (scheme.low, scheme.high_rows)
    return operator_of_rows(scheme.interior, low, high, periodic=periodic, scale=spacing**-scheme.degree)


def operator_of_rows(
    interior: Row, low: Sequence[Row], high: Sequence[Row], *, periodic: bool = False, scale: float
) -> LineOperator:
    """Of rows as they are given, which need not be those of a scheme; ``high``: outermost first."""
    matrix = Tridiagonal(
        *_tridiagonal(interior),
        periodic=periodic,
        low=tuple(map(_tridiagonal, low)),
        high=tuple(map(_tridiagonal, high)),
    )
    right = LineStencil(_floats(interior), low=tuple(map(_floats, low)), high=tuple(map(_floats, high)))
    return LineOperator(matrix, right, scale=scale)


def apply(
    grid: Grid, axis: int, used: Operators, reads: Fields, writes: Fields, *,
    before: Kernel | None = None, after: Kernel | None = None, values: int | None = None, method: str = "auto",
    name: str | None = None,
) -> None:  # fmt: skip
    """A line loop (``linalg.LineLoop`` says what the arguments are), whatever solves it.

    One pass; with a method that solves A x = f alone the right-hand side first, then the solve, then ``after``.
    """
    if method in ONE_PASS:
        line_loop(grid, axis, used, reads, writes, before=before, after=after, values=values, method=method, name=name)
        return
    sources, targets = ([one] if isinstance(one, Field) else list(one) for one in (reads, writes))
    if before is not None and after is not None and values is None:
        raise SchemeError(f"{name or after.name}: with kernels before and after, give values=, what is between them")
    count = values or sum(one.dim for one in (targets if after is None else sources))
    between = targets if after is None else [_scratch(grid, count, sources[0].dtype)]
    listed = [used] * count if isinstance(used, LineOperator) else used
    unit = Tridiagonal(0.0, 1.0, 0.0, periodic=grid.periodic[axis])
    right_sides = [LineOperator(unit, one.stencil, one.scale) for one in listed]

    def passes() -> None:
        line_loop(grid, axis, right_sides, sources, between, before=before, name=name)
        line_loop(grid, axis, [LineOperator(one.matrix) for one in listed], between, between, method=method, name=name)
        if after is not None:
            after(grid, *between, *targets)

    holding(mutexes_of(between), passes)  # nobody else has the room between them


def _scratch(grid: Grid, dim: int, dtype: np.dtype) -> Field:
    """Room between the passes of ``apply``, one for all of a grid: nothing stays there."""
    key = ("between passes", dim, dtype)
    if key not in grid.kept:
        with outside_program():
            mutex = Mutex(f"grid {grid.name}: compact differences")
            grid.kept.setdefault(key, made_for(mutex, grid.field, f"between_passes_{dim}", dim, dtype=dtype))
    found: Field = grid.kept[key]
    return found


def _tridiagonal(row: Row) -> tuple[float, float, float]:
    below, own, above = (float(row.left.get(offset, 0)) for offset in (-1, 0, 1))
    return below, own, above


def _floats(row: Row) -> dict[int, float]:
    return {offset: float(value) for offset, value in row.right.items()}


# --- stretched axes ---------------------------------------------------------------------------------------


def _metric_field(grid: Grid, axis: int, dtype: np.dtype, which: str) -> Field:
    """The metric m, its square, or m dm/dxi, as a field: the same along all other axes; made once for a grid."""
    key = ("metric", which, axis, dtype)
    if key not in grid.kept:
        grid.kept.setdefault(key, _new_metric_field(grid, axis, dtype, which))
    found: Field = grid.kept[key]
    return found


@unowned
@outside_program()
def _new_metric_field(grid: Grid, axis: int, dtype: np.dtype, which: str) -> Field:
    slope = grid.metric(axis)
    values = {"slope": slope, "square": slope**2, "bend": slope * _bend(grid, axis, slope)}[which]
    shape = [-1 if a == axis else 1 for a in range(grid.rank)]
    data = np.broadcast_to(values.reshape(shape), grid.shape)
    return grid.field(f"metric_{AXES[axis]}_{which}", dtype=dtype, data=data)


def _check_metric(grid: Grid, axis: int, targets: Sequence[Field]) -> None:
    """A kernel ``after`` of its own must get the metric of a stretched axis: SchemeError where it cannot."""
    if not grid.uniform[axis] and not any(one is metric(grid, axis, one.dtype) for one in targets):
        raise SchemeError(_NEEDS_METRIC.format(grid.name, AXES[axis]))


def _bend(grid: Grid, axis: int, slope: np.ndarray) -> np.ndarray:
    """d m/d xi (n,) of the metric m (n,): a periodic or closed LELE6 derivative of one line, with its spacing."""
    from scipy.sparse import csc_matrix
    from scipy.sparse.linalg import spsolve

    from meshloom.compact.analysis import matrices

    left, right = matrices(LELE6, len(slope), periodic=grid.periodic[axis])
    return spsolve(csc_matrix(left), right @ slope) / grid.spacing[axis]


@kernel
def times_metric(df: Read, slope: Read, out: Write):
    """From even coordinates to those of the grid."""
    out[...] = np.reshape(slope * df, out.shape)


@kernel
def both_parts(f: Read, both: Write):
    """Every component two times: for the second derivative, and for the first."""
    both[...] = np.concatenate([np.ravel(f), np.ravel(f)])


@cache
def _chain_rule(dim: int) -> Kernel:
    """From even coordinates to those of the grid: m^2 f'' + m m' f'."""

    @kernel
    def chain_rule(df: Read, square: Read, bend: Read, out: Write):
        out[...] = np.reshape(square * df[:dim] + bend * df[dim:], out.shape)

    return chain_rule


# --- checks -----------------------------------------------------------------------------------------------


def _operands(f: Fields, axis: int, schemes: Scheme | Sequence[Scheme], degree: int) -> tuple[list[Field], Grid, int]:
    """The fields as a list, their grid, and the axis from 0."""
    fields = [f] if isinstance(f, Field) else list(f)
    grids = {one.set for one in fields}
    grid = fields[0].set if fields else None
    if len(grids) != 1 or not isinstance(grid, Grid):
        names = ", ".join(one.name for one in fields) or "no field"
        raise SchemeError(f"compact differences need fields on one Grid, got {names}")
    kinds = ("a filter: use compact.filter", "a first derivative: use compact.d", "a second derivative: use compact.d2")
    for scheme in [schemes] if isinstance(schemes, Scheme) else schemes:
        if scheme.degree != degree:
            raise SchemeError(f"scheme {scheme.name} is {kinds[scheme.degree]}")
    return fields, grid, grid.axis(axis)


def _check_line(scheme: Scheme, grid: Grid, axis: int) -> None:
    points, closed = grid.shape[axis], not grid.periodic[axis]
    if closed and not scheme.low:
        raise SchemeError(
            f"scheme {scheme.name} has no closures, so axis {AXES[axis]} of grid {grid.name} must be periodic"
        )
    if points < scheme.least_points:
        raise SchemeError(
            f"grid {grid.name} has {points} points along {AXES[axis]}; scheme {scheme.name} needs at least"
            f" {scheme.least_points}"
        )


def _targets(fields: Sequence[Field], out: Fields | None, suffix: str) -> list[Field]:
    """The fields to write: those given, else new ones that look like the operands."""
    if out is not None:
        return [out] if isinstance(out, Field) else list(out)
    return [
        one.set.field(f"{one.name}_{suffix}", one.components, dtype=one.dtype, layout=str(one.layout)) for one in fields
    ]


def _answer(f: Fields, out: Fields | None, targets: list[Field]) -> Fields:
    """What was given as ``out``, or new fields in the form of ``f``: one, or a list."""
    if out is not None:
        return out
    return targets[0] if isinstance(f, Field) else targets
