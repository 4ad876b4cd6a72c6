"""Is what a back end gives what NumPy gives? Bounds through all loops of a case, and the comparison."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.bounds import Bounds, Value, exactly, floor_of, fresh, stored, unit
from tests.fuzz.build import Built, elements, rows_seen
from tests.fuzz.model import Case, LoopOf, Param, Statement
from tests.fuzz.tree import Node, load, operate

PARTS = ("v", "error", "size", "high", "low")


@dataclass
class Tally:
    """What has been compared."""

    judged: int = 0  # entries compared
    skipped: int = 0  # entries with no bound
    exact: int = 0  # of the judged, those that had to agree to the last bit
    used: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.judged += other.judged
        self.skipped += other.skipped
        self.exact += other.exact
        for name, count in other.used.items():
            self.used[name] = self.used.get(name, 0) + count


class Difference(AssertionError):
    """A result that no exception covers."""


def bounds_of(case: Case, *, times: int = 1, strict: bool = False) -> tuple[list[np.ndarray], dict[str, int]]:
    """For every field and Global the bound of each entry, (n, dim) or (dim,); inf where nothing can be said."""
    bounds = Bounds(strict)
    built = Built(case)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = [exactly(_as_rows(s.data, s.dim)) for s in case.storages]
        for _ in range(times):
            for loop in case.loops:
                _advance(case, built, loop, state, bounds)
    return [np.where(np.isnan(s.error), np.inf, s.error) for s in state], bounds.used


def _as_rows(data: np.ndarray, dim: int) -> np.ndarray:
    return np.array(data).reshape(-1, dim)


def _advance(case: Case, built: Built, loop: LoopOf, state: list[Value], bounds: Bounds) -> None:
    """What a loop does to values and bounds: everything is read before anything is written, unless it is ``ordered``:
    then statements follow each other, for all elements at once, since no element sees what another one sets."""
    size = elements(built, loop)
    known: dict[int, Value] = {}

    def loads(node: Node) -> Value:
        number, index, _ = node.value
        return _loaded(case, built, loop, loop.params[number], index, state, size)

    offers: dict[int, list[tuple[np.ndarray, int, str, Value]]] = {}
    for statement in loop.statements:
        param = loop.params[statement.param]
        value = bounds.of(_assigned(case, param, statement), loads, {} if loop.ordered else known)
        given = [(rows, comp, statement.op, part)
                 for rows, comp, part in _targets(case, built, loop, statement, value, size)]  # fmt: skip
        if loop.ordered and param.mode in ("Write", "ReadWrite"):
            state[param.which] = _merged(state[param.which], param, given, bounds)
        else:
            offers.setdefault(statement.param, []).extend(given)
    for number, given in offers.items():
        param = loop.params[number]
        state[param.which] = _merged(state[param.which], param, given, bounds)


def _assigned(case: Case, param: Param, statement: Statement) -> Node:
    """What ``=`` would assign: in-place operators read what is there."""
    if param.mode != "ReadWrite" or statement.op == "=":
        return statement.value
    storage = case.storages[param.which]
    slots = 1 if param.through is not None else 0
    whole = storage.dim > 1 and len(statement.index) == slots
    before = load(statement.param, statement.index, storage.data.dtype, (storage.dim,) if whole else (), changes=False)
    return operate({"+=": "add", "-=": "sub", "*=": "mul"}[statement.op], before, statement.value)


def _loaded(case: Case, built: Built, loop: LoopOf, param: Param, index: tuple[Any, ...], state: Sequence[Value],
            size: int) -> Value:  # fmt: skip
    """A load for all elements: (n,), or (dim, n) of a whole row."""
    storage, value = case.storages[param.which], state[param.which]
    slots = 1 if param.through is None and not param.offsets else 0
    rest = index
    if storage.on is None:
        rows: Any = np.zeros(size, np.int64)
    else:
        seen = rows_seen(built, loop, param)
        if slots:
            rows = seen[0]
        else:
            rows = seen[param.offsets.index(index[0]) if param.offsets else index[0]]
            rest = index[1:]
    pick = (rows, rest[0]) if rest else (rows, 0) if storage.dim == 1 else (rows,)
    return Value(*(np.ascontiguousarray(np.broadcast_to(getattr(value, p), value.v.shape)[pick].T) for p in PARTS))


def _targets(case: Case, built: Built, loop: LoopOf, statement: Statement, value: Value, size: int) -> list[Any]:
    """(rows, component, value (n,)) for each component that a statement sets."""
    param, index = loop.params[statement.param], statement.index
    storage = case.storages[param.which]
    seen = [np.zeros(size, np.int64)] if storage.on is None else rows_seen(built, loop, param)
    slot, rest = (index[0], index[1:]) if param.through is not None else (0, index)
    comps = [rest[0]] if rest else list(range(storage.dim))
    shape = np.shape(value.v)
    parts = []
    for comp in comps:
        whole = len(shape) == 2 and not rest
        pieces = [np.broadcast_to(getattr(value, p), shape) for p in PARTS]
        chosen = [np.broadcast_to(p[comp] if whole else p, (size,)) for p in pieces]
        parts.append((seen[slot], comp, Value(*chosen)))
    return parts


def _merged(before: Value, param: Param, given: list[Any], bounds: Bounds) -> Value:
    dtype = before.v.dtype
    arrays = [np.array(np.broadcast_to(getattr(before, p), before.v.shape)) for p in PARTS]
    v, error, size, high, low = arrays
    if param.mode in ("Inc", "Sum"):
        return _summed(before, given, bounds)
    for rows, comp, _, part in given:
        cast = stored(part, dtype)
        if param.mode in ("Min", "Max"):
            keep = np.minimum if param.mode == "Min" else np.maximum
            keep.at(v[:, comp], rows, cast.v)
            np.maximum.at(error[:, comp], rows, cast.error)
        else:
            for old, p in zip(arrays, PARTS, strict=True):
                old[rows, comp] = getattr(cast, p)
    if param.mode in ("Min", "Max"):
        made = fresh(v, error)
        return made
    return Value(v, error, size, high, low)


def _summed(before: Value, given: list[Any], bounds: Bounds) -> Value:
    """Sums of several elements: any order, so the bound has a rounding for each term."""
    dtype, shape = before.v.dtype, before.v.shape
    v = before.v.copy()
    error, size, high, low = (np.array(np.broadcast_to(getattr(before, p), shape)) for p in PARTS[1:])
    count = np.zeros(shape)
    for rows, comp, op, part in given:
        signed = np.asarray(part.v) if op == "+=" else -np.asarray(part.v)
        np.add.at(v[:, comp], rows, signed.astype(dtype))
        np.add.at(error[:, comp], rows, part.error)
        np.add.at(size[:, comp], rows, part.size)
        np.add.at(count[:, comp], rows, 1.0)
        np.maximum.at(high[:, comp], rows, part.high)
        np.minimum.at(low[:, comp], rows, part.low)
    if dtype.kind != "f":
        return fresh(v, np.where(error > 0, np.inf, 0.0))
    order = count + 2
    alone = (count <= 1) & (error == 0) if bounds.strict and len(given) == 1 else np.zeros(shape, bool)
    bounds.used["order of sums"] += int(np.count_nonzero(count > 1))
    total = error + np.where((count == 0) | alone, 0.0, order * (unit(dtype) * size + floor_of(dtype)))
    # Terms that are special, or that leave the range on the way, meet in an order of their own.
    special = (count > 0) & ~(size < 0.5 * float(np.finfo(dtype).max)) & ~alone
    total = np.where(special, np.inf, total)
    return Value(v, total, size, high + np.log2(np.maximum(count, 1)) + 1, low)


def compare(case: Case, found: Sequence[np.ndarray], expected: Sequence[np.ndarray], errors: Sequence[np.ndarray],
            what: str, *, strict: bool = False) -> Tally:  # fmt: skip
    """Raise ``Difference`` where a result is farther from NumPy's than its bound; count the rest."""
    tally = Tally()
    written = {loop.params[s.param].which for loop in case.loops for s in loop.statements}
    exact_zero = {p.which for loop in case.loops for p in loop.params if p.mode in ("Write", "ReadWrite")}
    exact_zero -= {p.which for loop in case.loops for p in loop.params if p.mode in ("Inc", "Sum", "Min", "Max")}
    for k, (one, right, error) in enumerate(zip(found, expected, errors, strict=True)):
        dim = case.storages[k].dim
        one, right = _as_rows(one, dim), _as_rows(right, dim)
        if k not in written:
            error = np.zeros(right.shape)
        known = np.isfinite(error)
        a, b = one.astype(np.float64), right.astype(np.float64)
        with np.errstate(all="ignore"):
            same = (one == right) | (np.isnan(a) & np.isnan(b))
            near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= error)
            if strict and k in exact_zero and right.dtype.kind == "f":
                same &= (error > 0) | np.isnan(a) | (np.signbit(one) == np.signbit(right))
        wrong = known & ~(same | near)
        if wrong.any():
            row, comp = (int(x) for x in np.argwhere(wrong)[0])
            raise Difference(
                f"{what}: storage f{k}, element {row}, component {comp}: {one[row, comp]!r} where kernel.python gives"
                f" {right[row, comp]!r} (within {error[row, comp]:.3g}); {int(wrong.sum())} of {wrong.size} entries"
            )
        if k in written:
            tally.judged += int(known.sum())
            tally.exact += int((known & (error == 0)).sum())
            tally.skipped += int((~known).sum())
    return tally
