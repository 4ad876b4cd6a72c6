"""Looking up by values that are known only at run time: ``table[k]`` and ``np.interp``.

Both give nodes, (...); whoever calls makes symbols of them. Tables are arrays of symbols (a Global, the values of a
parameter) or of numbers, which are constants of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshloom.kernel import expr
from meshloom.kernel.expr import BOOL, FLOAT64, INT64, Node, operate
from meshloom.kernel.table import LookupTable, TableExtent
from meshloom.kernel.values import (
    Value,
    fail,
    in_type,
    kernel_line,
    known_type,
    objects,
    plain,
    to_node,
    type_of,
    typed,
)


def is_symbolic(key: Any) -> bool:
    """Has an index, or a part of one, values that are known only at run time?"""
    return any(_unknown(one) for one in (key if isinstance(key, tuple) else (key,)))


def _unknown(one: Any) -> bool:
    if isinstance(one, np.ndarray):
        return plain(one).dtype == object and any(isinstance(v, Value) for v in plain(one).flat)
    return any(map(_unknown, one)) if isinstance(one, list) else isinstance(one, Value)


def at(array: np.ndarray, key: Any, name: str) -> np.ndarray:
    """The nodes of ``array[key]``, as NumPy indexes, (...); ``name``: of the array, for messages."""
    parts = list(key) if isinstance(key, tuple) else [key]
    unknown = {k: _indices(one, name) for k, one in enumerate(parts) if _unknown(one)}
    axes = {k: _axis(parts, k, array.ndim, name) for k in unknown}
    if any(array.shape[a] == 0 for a in axes.values()):
        fail(f"{name} has no entries to look up: its shape is {array.shape}")
    if any(isinstance(one, bool | np.bool_) or getattr(one, "dtype", None) == BOOL for one in parts):
        fail(f"{name} is indexed by truth values next to an index that is known only at run time; use np.where")
    # Where entries come from is asked of NumPy: first with 0 for every unknown index, then which of several it is.
    known = tuple(np.zeros(unknown[k].shape, int) if k in unknown else one for k, one in enumerate(parts))
    first = np.asarray(np.arange(array.size).reshape(array.shape)[known])
    which = {k: _numbered(array.shape, known, k, axes[k], unknown[k].shape) for k in unknown}
    flat = array.reshape(-1) if array.dtype != object else typed(array.reshape(-1))
    where, made = kernel_line(), np.empty(first.shape, object)
    steps = [math.prod(array.shape[a + 1 :]) for a in axes.values()]
    places = np.indices([array.shape[a] for a in axes.values()]).reshape(len(axes), -1).T @ np.array(steps)
    for place in np.ndindex(first.shape):
        indices: list[Any] = [unknown[k].flat[which[k][place]] for k in unknown]
        number = _number(indices, [TableExtent(array.shape[a], name) for a in axes.values()], where)
        made[place] = _entry(flat[int(first[place]) + places], number, where)
    return made


def _indices(one: Any, name: str) -> np.ndarray:
    """The nodes of an index that is known only at run time, (...)."""
    values = typed(one)
    dtype = type_of(values) or INT64
    if dtype.kind != "i":
        what = "a truth value; use np.where" if dtype == BOOL else f"{dtype}; an index is whole: use astype(int)"
        fail(f"{name} is indexed by {what}")
    made = np.empty(values.shape, object)
    for place in np.ndindex(values.shape):
        made[place] = to_node(values[place], INT64)
    return made


def _axis(parts: list[Any], number: int, ndim: int, name: str) -> int:
    """The axis that a part of an index counts along."""

    def consumed(some: list[Any]) -> int:
        return sum(one is not None for one in some)

    ellipsis = next((k for k, one in enumerate(parts) if one is Ellipsis), len(parts))
    axis = consumed(parts[:number]) if number < ellipsis else ndim - consumed(parts[number:])
    if consumed([one for one in parts if one is not Ellipsis]) > ndim:
        fail(f"{name} has {ndim} {'axis' if ndim == 1 else 'axes'}, and is indexed with more")
    return axis


def _numbered(
    shape: tuple[int, ...], known: tuple[Any, ...], part: int, axis: int, indices: tuple[int, ...]
) -> np.ndarray:
    """For each entry of what is looked up, which of the indices of one part it belongs to."""
    count = math.prod(indices)
    labels = np.arange(count).reshape([count if a == axis else 1 for a in range(len(shape))])
    labels = np.broadcast_to(labels, [count if a == axis else n for a, n in enumerate(shape)])
    return np.asarray(labels[tuple(np.arange(count).reshape(indices) if k == part else one
                                   for k, one in enumerate(known))])  # fmt: skip


def _number(indices: Sequence[Node], extents: Sequence[TableExtent], where: Any) -> Node:
    """One number of several indices, the last one fastest."""
    number: Node | None = None
    for one, extent in zip(indices, extents, strict=True):
        inside = expr.index(one, extent, where)
        if number is not None:
            row = operate("mul", (number, expr.const(extent.size, INT64)), where)
            inside = operate("add", (row, inside), where)
        number = inside
    assert number is not None
    return number


def _entry(entries: np.ndarray, number: Node, where: Any) -> Node:
    if entries.dtype != object:
        known_type(entries.dtype)
        return expr.entry(LookupTable(entries), number, where)
    dtype = type_of(entries) or FLOAT64
    return expr.pick(number, [to_node(one, dtype) for one in entries], where)



# --- np.interp ------------------------------------------------------------------------------------------------------
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> np.ndarray:
    """The nodes of ``np.interp``, in double precision as in NumPy, (...) as x. ``xp`` is constant; ``fp`` need not be.

    An interval is found by bisection; slopes of constants are constants, too.
    """
    points, values, given = _points(xp), _ordinates(fp), objects(x)
    if len(points) != len(values):
        fail(f"np.interp: xp has {len(points)} numbers and fp {len(values)}; each point needs a value")
    if period is not None:
        points, values, given = _periodic(points, values, given, period)
        left = right = None
    if np.isnan(points).any() or (np.diff(points) < 0).any():
        fail("np.interp: xp must increase, without NaN; NumPy gives nonsense otherwise")
    where, made = kernel_line(), np.empty(given.shape, object)
    ends = [to_node(v if end is None else end, FLOAT64) for end, v in ((left, values[0]), (right, values[-1]))]
    for place in np.ndindex(given.shape):
        node = to_node(given[place], FLOAT64)
        inside = _between(node, points, values, where)
        above = operate("gt", (node, expr.const(points[-1], FLOAT64)), where)
        below = operate("lt", (node, expr.const(points[0], FLOAT64)), where)
        made[place] = operate("where", (above, ends[1], operate("where", (below, ends[0], inside), where)), where)
    return made


def _points(xp: Any) -> np.ndarray:
    if _unknown(list(xp) if isinstance(xp, tuple) else xp):
        fail("np.interp: xp must be known when the kernel is traced, an array of numbers; fp may be a Global")
    try:
        points = np.asarray(xp, np.float64).view(np.ndarray)
    except (TypeError, ValueError):
        fail("np.interp: xp must be an array of real numbers")
    if points.ndim != 1 or not len(points):
        fail(f"np.interp: xp must be (n,) numbers, one at least, got {points.shape}")
    return points


def _ordinates(fp: Any) -> np.ndarray:
    """Numbers, (n,), of double precision; an array of objects where some are symbols."""
    values = typed(fp)
    if values.ndim != 1:
        fail(f"np.interp: fp must be (n,) numbers, got {values.shape}")
    values = in_type(values, FLOAT64)
    return values if _unknown(values) else values.astype(np.float64)


def _periodic(points: np.ndarray, values: np.ndarray, x: np.ndarray, period: Any) -> tuple[Any, Any, Any]:
    """As NumPy: all points within a period, in order, with one more at each end."""
    if isinstance(period, Value) or not isinstance(period, int | float | np.number) or not period:
        fail("np.interp: period must be a number that is not 0, known when the kernel is traced")
    length = abs(float(period))
    points = points % length
    order = np.argsort(points)
    points, values = points[order], values[order]
    points = np.concatenate((points[-1:] - length, points, points[:1] + length))
    wrapped = np.empty(x.shape, object)
    for place in np.ndindex(x.shape):
        node = to_node(x[place], FLOAT64)
        wrapped[place] = Value(operate("mod", (node, expr.const(length, FLOAT64)), kernel_line()))
    return points, np.concatenate((values[-1:], values, values[:1])), wrapped


def _between(x: Node, points: np.ndarray, values: np.ndarray, where: Any) -> Node:
    """NumPy's formula in the interval of x: from its lower end, or, where that gives no number, from its upper one."""
    if len(points) == 1:
        return to_node(values[0], FLOAT64)  # NumPy compares with the one point alone, so also where x is not a number
    table = LookupTable(points)
    j = expr.interval(table, x, where)
    low, distance = _at(values, j, where), operate("sub", (x, expr.entry(table, j, where)), where)
    with np.errstate(all="ignore"):
        lengths = np.append(np.diff(points), 1.0)
        lengths[lengths == 0.0] = 1.0  # of a jump: no x is between its ends
        steps = np.append(np.diff(values), 0.0) if values.dtype != object else np.zeros(0)
        slopes = steps / lengths if len(steps) else steps
    if len(slopes):
        slope = expr.entry(LookupTable(slopes), j, where)
        tame = all(np.isfinite(one).all() for one in (points, values, lengths, steps, slopes))
    else:
        step = operate("sub", (_at(_next(values), j, where), low), where)
        slope, tame = operate("div", (step, expr.entry(LookupTable(lengths), j, where)), where), False
    inside = operate("add", (operate("mul", (slope, distance), where), low), where)
    if not tame:
        high, end = _at(_next(values), j, where), expr.entry(LookupTable(_next(points)), j, where)
        back = operate("add", (operate("mul", (slope, operate("sub", (x, end), where)), where), high), where)
        level = operate("and", (operate("isnan", (back,), where), operate("eq", (low, high), where)), where)
        other = operate("where", (level, low, back), where)
        inside = operate("where", (operate("isnan", (inside,), where), other, inside), where)
    at_point = operate("eq", (x, expr.entry(table, j, where)), where)
    nan = operate("isnan", (x,), where)
    inside = inside if tame else operate("where", (nan, x, inside), where)
    return operate("where", (at_point, low, inside), where)


def _next(values: np.ndarray) -> np.ndarray:
    return np.append(values[1:], values[-1:])


def _at(values: np.ndarray, j: Node, where: Any) -> Node:
    if values.dtype != object:
        return expr.entry(LookupTable(values), j, where)
    return expr.pick(j, [to_node(one, FLOAT64) for one in values], where)
