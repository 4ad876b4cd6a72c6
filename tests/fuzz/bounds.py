"""How far a right answer may be from NumPy's: bounds of rounding that go through an expression with its values.

Back ends may round otherwise than NumPy (see ``EXCEPTIONS``), and what a small difference becomes depends on the
values: nothing at a minimum, everything behind ``floor`` at a whole number. So every value carries a bound of its
error. A result is judged where the bound is finite, and must agree within it. With ``strict`` sums, products, quotients
and roots have no error of their own: then most bounds are zero, and results must agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tests.fuzz.tree import OPS, Node, nodes_of

#: What may differ from NumPy on purpose, and how the fuzzer allows for it. docs/kernels.md tells the user the same.
EXCEPTIONS = {
    "rounding": "Sums and products may be collected, reordered and contracted: the last digits, relative to the largest"
    " term, and every decision (comparison, `floor`, `where`) that hangs on them.",
    "special functions": "`exp`, `log`, `sin`, powers and the like agree to a few units in the last place.",
    "range": "Where products of the same values in another order leave the range of normal numbers, so may a result.",
    "special values": "An infinity, a NaN or a division by zero inside sums, products and quotients may give another"
    " special value, or none where factors cancel.",
    "reciprocals": "`a / d` may be `a * (1 / d)`, which is infinite or 0 where `d` is denormal or beyond 1 / denormal.",
    "order of sums": "Terms of several elements are added in the order of the schedule.",
    "square roots": "`x**0.5` is `sqrt(x)`, as for NumPy's arrays: NaN for `-inf`, and `-0.0` for `-0.0`.",
    "signed zero": "The sign of a zero that comes out of sums, products, minima and maxima, and the sign of a NaN.",
}
FAST, STRICT = 8.0, 1.0  # roundings that one operation may stand for
ULPS = 16.0  # of special functions: single precision on a GPU, and NumPy's own
Array = np.ndarray


@dataclass
class Value:
    """``v``: NumPy's value for every element, (n,) or (components, n). ``error``: the bound. ``size``: sum of absolute
    terms when everything is multiplied out. ``high``, ``low``: exponents that products in any order stay within."""

    v: Any
    error: Array
    size: Array
    high: Array
    low: Array


def exactly(v: Any) -> Value:
    """A value as it is given: no error, the size of itself."""
    return fresh(v, np.zeros(np.shape(v)))


def fresh(v: Any, error: Array) -> Value:
    """A value that algebra does not look into."""
    size = np.abs(np.asarray(v, np.float64)) + error
    exponent = np.where((size > 0) & np.isfinite(size), np.log2(np.where(size > 0, size, 1.0)), 0.0)
    return Value(v, np.asarray(error, np.float64), size, np.maximum(exponent, 0.0), np.minimum(exponent, 0.0))


def unit(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def floor_of(dtype: np.dtype) -> float:
    """Rounding of results that are no normal numbers."""
    return float(np.finfo(dtype).smallest_subnormal) if dtype.kind == "f" else 0.0


class Bounds:
    """Values and bounds of expressions for all elements at once."""

    def __init__(self, strict: bool):
        self.strict = strict
        self.used: dict[str, int] = dict.fromkeys(EXCEPTIONS, 0)

    def of(self, root: Node, loads: Callable[[Node], Value], known: dict[int, Value]) -> Value:
        for node in nodes_of([root]):
            if id(node) in known:
                continue
            if node.op == "lit":
                known[id(node)] = exactly(np.array(node.value)[:, None] if isinstance(node.value, list) else node.value)
            elif node.op == "load":
                known[id(node)] = loads(node)
            else:
                known[id(node)] = self._operation(node, [known[id(a)] for a in node.args])
        return known[id(root)]

    def _operation(self, node: Node, args: list[Value]) -> Value:
        family = OPS[node.op].family
        if family == "stack":
            return _stacked(args)
        if family == "part":
            a = args[0]
            return Value(a.v[node.value], *(np.broadcast_to(x, np.shape(a.v))[node.value]
                                            for x in (a.error, a.size, a.high, a.low)))  # fmt: skip
        if family == "stored":
            return stored(args[0], node.value)
        if family == "reduction":
            return self._reduction(node, args)
        v = OPS[node.op].call(*(a.v for a in args))
        dtype = np.asarray(v).dtype
        if dtype.kind != "f" and family not in ("select", "compare"):
            lost = sum(a.error for a in args) > 0
            return fresh(v, np.where(lost, np.inf, 0.0) + np.zeros(np.shape(v)))
        made: Value = getattr(self, f"_{family}")(node.op, v, dtype, args)
        return self._signs(node, made, args) if node.op in SIGNED else made

    def _signs(self, node: Node, made: Value, args: list[Value]) -> Value:
        """What hangs on the sign of a zero or a NaN is judged where that is given, not where it is computed."""
        places = {"copysign": (1,), "arctan2": (0, 1)}[node.op]
        for k in places:
            if node.args[k].op not in ("load", "lit"):
                given = np.asarray(args[k].v, np.float64)
                unknown = np.broadcast_to(np.isnan(given) | (given == 0), made.error.shape)
                self._count("signed zero", unknown)
                made.error = np.where(unknown, np.inf, made.error)
        return made

    # ----- rules by family ------------------------------------------------------------------------------------------
    def _roundings(self, error: Array) -> Array:
        """How many roundings an operation may differ by; none in strict mode, unless its arguments differ already."""
        return np.where(np.asarray(error) > 0, STRICT, 0.0) if self.strict else np.full(np.shape(error), FAST)

    def _algebra(self, v: Any, dtype: np.dtype, error: Array, size: Array, high: Array, low: Array) -> Value:
        """A result of sums, products and quotients with a rounding of its own; judged where nothing special is met."""
        shape = np.shape(v)
        steps = self._roundings(np.broadcast_to(error, shape))
        total = error + np.where(steps > 0, steps * (unit(dtype) * size + floor_of(dtype)), 0.0)
        total = np.broadcast_to(total, shape).copy()
        if not self.strict:
            info = np.finfo(dtype)
            special = ~np.isfinite(size) | ~np.isfinite(np.asarray(v, np.float64))
            far = (high > info.maxexp - 2) | (low < info.minexp + 2)
            self._count("special values", special)
            self._count("range", far)
            total[np.broadcast_to(special | far, shape)] = np.inf
        else:
            total[np.broadcast_to(np.isnan(total), shape)] = np.inf
        return Value(v, total, np.broadcast_to(size, shape), np.broadcast_to(high, shape), np.broadcast_to(low, shape))

    def _sum(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        if op == "neg":
            (a,) = args
            return Value(v, a.error, a.size, a.high, a.low)
        a, b = args
        high, low = np.maximum(a.high, b.high) + 1, np.minimum(a.low, b.low)
        return self._algebra(v, dtype, a.error + b.error, a.size + b.size, high, low)

    def _product(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        a, b = args if op == "mul" else (args[0], args[0])
        error = _times(a.error, b.size) + _times(b.error, a.size)
        return self._algebra(v, dtype, error, _times(a.size, b.size), a.high + b.high, a.low + b.low)

    def _quotient(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        a, b = args
        divisor = np.abs(np.asarray(b.v, np.float64))
        if not self.strict:
            info = np.finfo(dtype)
            odd = (divisor < info.tiny) | (divisor > 0.25 / info.tiny) & np.isfinite(divisor)
            self._count("reciprocals", odd)
        known = divisor > 2 * b.error
        error = np.where(known, 2 * (a.error + _times(b.error, np.abs(np.asarray(v, np.float64)))) / divisor, np.inf)
        error = np.where((a.error == 0) & (b.error == 0), 0.0, error)
        size = _times(a.size, b.size) / divisor / divisor
        made = self._algebra(v, dtype, error, size, a.high - b.low, a.low - b.high)
        if not self.strict:
            made.error[np.broadcast_to(odd, made.error.shape)] = np.inf
        return made

    def _power(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        """Whole powers are products; others special functions, or a root. Both are known by their values only."""
        made = self._special(op, v, dtype, args)
        base, exponent = args[0], np.abs(np.asarray(args[1].v, np.float64))
        odd = (np.asarray(args[1].v) == 0.5) & (np.isneginf(base.v) | ((np.asarray(base.v) == 0) & np.signbit(base.v)))
        self._count("square roots", odd)
        made.error = np.where(odd, np.inf, made.error)
        if self.strict:
            return made
        high, low = exponent * (base.high - base.low), -exponent * (base.high - base.low)
        relative = np.where(base.error > 0, base.error, 0) / np.abs(np.asarray(base.v, np.float64))
        size = base.size / np.abs(np.asarray(base.v, np.float64))
        error = np.where(relative > 0.1, np.inf, made.error)
        error = np.where(size > 2.0, np.inf, error)  # multiplied out, terms may be larger than the result: not judged
        zero = np.asarray(base.v) == 0
        error = np.where(zero, np.where((base.error > 0) | (np.asarray(args[1].v) != np.floor(args[1].v)), np.inf, 0.0),
                         error)  # fmt: skip
        return self._algebra(v, dtype, error, made.size, np.maximum(high, made.high), np.minimum(low, made.low))

    def _root(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        made = self._corners(op, v, args)
        return self._rounded_value(v, dtype, made, self._roundings(made))

    def _special(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        made = self._corners(op, v, args)
        self._count("special functions", np.isfinite(made))
        return self._rounded_value(v, dtype, made, np.full(np.shape(made), ULPS))

    def _rounded(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        made = self._corners(op, v, args)
        return self._rounded_value(v, dtype, made, self._roundings(made))

    def _exact(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        error = self._corners(op, v, args)
        if self.strict and op in ("minimum", "maximum", "clip"):  # which of two zeros is smaller, nobody knows
            error = np.where(np.asarray(v) == 0, np.maximum(error, floor_of(dtype)), error)
        return fresh(v, error)

    def _compare(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        """Sure, or anything."""
        errors = sum(a.error for a in args)
        if len(args) == 1:
            unsure = (errors > 0) & ~(np.isfinite(errors) & np.isfinite(np.asarray(args[0].v, np.float64)))
        else:
            a, b = (np.asarray(x.v, np.float64) for x in args)
            unsure = (errors > 0) & ~(np.abs(a - b) > errors)
        return fresh(v, np.where(unsure, 1.0, 0.0) + np.zeros(np.shape(v)))

    def _select(self, op: str, v: Any, dtype: np.dtype, args: list[Value]) -> Value:
        c, a, b = args
        chosen = np.asarray(c.v) != 0
        sizes = [np.broadcast_to(x, np.shape(v)) for x in (a.error, b.error)]
        error = np.where(chosen, *sizes)
        first, second = np.asarray(a.v, np.float64), np.asarray(b.v, np.float64)
        gap = np.where((first == second) | (np.isnan(first) & np.isnan(second)), 0.0, np.abs(first - second))
        gap = np.where(np.isnan(gap), np.inf, gap)
        error = np.where(c.error > 0, gap + np.maximum(*sizes), error)
        if dtype.kind != "f":
            error = np.where(error > 0, np.inf, 0.0)
        return fresh(v, error)

    def _rounded_value(self, v: Any, dtype: np.dtype, error: Array, steps: Array) -> Value:
        size = np.abs(np.asarray(v, np.float64))
        own = np.where(np.isfinite(size), steps * (unit(dtype) * size + floor_of(dtype)), 0.0)
        return fresh(v, error + own)

    def _corners(self, op: str, v: Any, args: list[Value]) -> Array:
        """The largest change of the result when arguments move within their bounds."""
        errors = [np.broadcast_to(a.error, np.shape(v)) for a in args]
        moved = [k for k, e in enumerate(errors) if np.any(e > 0)]
        worst = np.zeros(np.shape(v))
        here = np.asarray(v, np.float64)
        for signs in product((-1.0, 1.0), repeat=len(moved)):
            given = [a.v for a in args]
            for k, s in zip(moved, signs, strict=True):
                given[k] = np.asarray(np.asarray(args[k].v, np.float64) + s * errors[k])
            there = np.asarray(OPS[op].call(*given), np.float64)
            change = np.where((there == here) | (np.isnan(there) & np.isnan(here)), 0.0, np.abs(there - here))
            worst = np.fmax(worst, np.where(np.isnan(change), np.inf, change))
        for k in moved:  # too far for corners to tell: the function may do anything in between
            period = np.abs(np.asarray(args[-1].v, np.float64)) if op in ("mod", "floordiv") else 1.0
            far = (op in WAVES) & (errors[k] > 0.01 * period) | ~np.isfinite(errors[k])
            worst = np.where(far, np.inf, worst)
        return worst

    # ----- reductions -------------------------------------------------------------------------------------------------
    def _reduction(self, node: Node, args: list[Value]) -> Value:
        parts = [_components(a) for a in args]
        if node.op in ("max", "min"):
            fold = "maximum" if node.op == "max" else "minimum"
            return self._folded(fold, parts[0])
        if node.op == "prod":
            return self._folded("mul", _wide(parts[0]))
        if node.op in ("sum", "mean"):
            total = self._folded("add", _wide(parts[0]) if node.op == "sum" else _wide(parts[0], mean=True))
            return total if node.op == "sum" else self._binary("div", total, exactly(len(parts[0])))
        right = parts[1] if len(parts) > 1 else parts[0]
        if node.op == "norm":
            parts = [_wide(p, mean=True) for p in parts]
            right = parts[0]
        total = self._folded("add", [self._binary("mul", a, b) for a, b in zip(parts[0], right, strict=True)])
        if np.asarray(total.v).dtype.kind == "f" and self.strict:  # a library's dot adds in an order of its own
            total.error = total.error + 4 * unit(np.asarray(total.v).dtype) * total.size
            total.error = np.where(np.isnan(total.error), np.inf, total.error)
        return self._operation(Node("sqrt"), [total]) if node.op == "norm" else total

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        return self._operation(Node(op), [a, b])

    def _folded(self, op: str, parts: Sequence[Value]) -> Value:
        total = parts[0]
        for part in parts[1:]:
            total = self._binary(op, total, part)
        return total

    def _count(self, name: str, where: Any) -> None:
        self.used[name] += int(np.count_nonzero(where))


SIGNED = ("copysign", "arctan2")
WAVES = ("sin", "cos", "tan", "mod", "floordiv", "arctan2")


def stored(part: Value, dtype: np.dtype) -> Value:
    """In another type: rounded once more, truncated, or wrapped."""
    given = np.asarray(part.v)
    v = given.astype(dtype)
    if given.dtype == dtype:
        return part
    if dtype.kind != "f":
        moved = [np.trunc(given + s * part.error) for s in (-1, 1)] if given.dtype.kind == "f" else []
        sure = np.logical_and.reduce([m == np.trunc(given) for m in moved]) if moved else False
        return fresh(v, np.where((part.error > 0) & ~np.asarray(sure), np.inf, 0.0))
    wide = np.asarray(part.v, np.float64)
    ends = [(wide + s * part.error).astype(dtype).astype(np.float64) for s in (-1, 1)]
    here = v.astype(np.float64)
    moved = [np.where((e == here) | np.isnan(e) & np.isnan(here), 0.0, np.abs(e - here)) for e in ends]
    worst = np.where(part.error > 0, np.maximum(*moved) + unit(dtype) * np.abs(here), 0.0)
    return Value(v, np.where(np.isnan(worst), np.inf, worst), np.maximum(part.size, np.abs(here)), part.high, part.low)


def _times(a: Array, b: Array) -> Array:
    """Products in which nothing times anything is nothing."""
    return np.where((a == 0) | (b == 0), 0.0, np.asarray(a) * b)


def _stacked(args: list[Value]) -> Value:
    sizes = [np.shape(a.v)[0] for a in args if np.ndim(a.v)]
    n = next((size for size in sizes if size != 1), 1)  # a row of literals has one column
    row = np.stack([np.broadcast_to(np.asarray(a.v), (n,)) for a in args])
    return Value(row, *(np.stack([np.broadcast_to(getattr(a, name), (n,)) for a in args])
                        for name in ("error", "size", "high", "low")))  # fmt: skip


def _components(a: Value) -> list[Value]:
    rows = [np.broadcast_to(x, np.shape(a.v)) for x in (a.error, a.size, a.high, a.low)]
    return [Value(a.v[k], *(r[k] for r in rows)) for k in range(len(a.v))]


def _wide(parts: list[Value], *, mean: bool = False) -> list[Value]:
    """Components in the type in which NumPy adds them: 64 bits for integers, double for their mean."""
    dtype = np.asarray(parts[0].v).dtype
    if dtype.kind == "f":
        return parts
    wide = np.float64 if mean else np.int64
    return [Value(np.asarray(p.v).astype(wide), p.error, p.size, p.high, p.low) for p in parts]
