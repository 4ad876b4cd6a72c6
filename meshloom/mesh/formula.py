"""What maps by a formula compute: the numbers of an element's targets, by integer arithmetic from its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshloom.errors import MeshError, shown
from meshloom.kernel import expr
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import INT64, Node
from meshloom.kernel.symbols import Symbol
from meshloom.kernel.trace import explained
from meshloom.kernel.values import objects
from meshloom.mesh.assigned import CHUNK, check_range
from meshloom.mesh.numbering import Rows

MOST_OPERATIONS = 200  # of a formula: it is computed wherever an entry is needed
Formula = tuple[Node, ...]  # of each slot, of the element's number


def computed_rows(formula: Formula, first: int, last: int) -> np.ndarray:
    """What a formula gives for the elements [first, last), (last - first, arity)."""
    numbers = np.arange(first, last, dtype=np.int64)
    with np.errstate(all="ignore"):
        columns = evaluate(list(formula), lambda _: numbers)
    return np.stack([np.broadcast_to(column, numbers.shape) for column in columns], axis=1)


def check_targets(formula: Formula, source: Rows, target: Rows, name: str) -> None:
    """MeshError that names the entry where a formula leads from an element of ``source`` to none of ``target``."""
    span = least_and_most(formula, 0, source.total) if source.total else (0, -1)
    if span is not None and span[0] >= 0 and span[1] < target.total:
        return
    for first in range(0, source.total, CHUNK):
        check_range(computed_rows(formula, first, min(first + CHUNK, source.total)), target, name, first)


def least_and_most(formula: Formula, first: int, last: int) -> tuple[int, int] | None:
    """Numbers between which all that a formula gives for the elements [first, last) lies, without computing it for each
    of them: by intervals, so they may be wider than need be. None where an operation has no rule, or might overflow."""
    known: dict[Node, tuple[int, int]] = {}
    for node in expr.topological(formula):
        if node.op == "load":
            known[node] = (first, last - 1)
        elif node.op == "const":
            known[node] = (int(node.value), int(node.value))
        else:
            rule = _INTERVALS.get(node.op)
            found = None if rule is None or node.dtype != INT64 else rule(*(known[one] for one in node.args))
            if found is None or not (found[0] >= -(2**63) and found[1] < 2**63):
                return None
            known[node] = found
    spans = [known[one] for one in formula]
    return min(low for low, _ in spans), max(high for _, high in spans)


Interval = tuple[int, int]


def _products(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotients(a: Interval, b: Interval) -> Interval | None:
    return (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] > 0 else None


def _remainders(a: Interval, b: Interval) -> Interval | None:
    if not b[0] == b[1] > 0:
        return None
    return (a[0] % b[0], a[1] % b[0]) if a[0] // b[0] == a[1] // b[0] else (0, b[0] - 1)


_INTERVALS: dict[str, Callable[..., Interval | None]] = {
    "cast": lambda a: a,
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "floordiv": _quotients,
    "mod": _remainders,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def traced_formula(function: Callable[[Any], Any], name: str) -> Formula:
    """What a function makes of an element's number, slot by slot."""
    number = expr.load(-1, 0, 0, INT64)
    try:
        slots = np.atleast_1d(objects(function(Symbol(number)))).ravel().tolist()
    except MeshError:
        raise
    except Exception as error:
        raise MeshError(f"map {name}: {explained(error, 'formula', {'e': ()})}") from error
    nodes = tuple(one.node if isinstance(one, Symbol) else _constant(one, name) for one in slots)
    for node in nodes:
        if node.dtype.kind != "i":
            raise MeshError(f"map {name}: a formula gives whole numbers, got {node.dtype}")
    if not nodes or len(expr.topological(nodes)) > MOST_OPERATIONS:
        raise MeshError(f"map {name}: a formula gives one number or more by at most {MOST_OPERATIONS} operations")
    return tuple(expr.cast(node, INT64) for node in nodes)


def _constant(value: Any, name: str) -> Node:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise MeshError(f"map {name}: a formula gives whole numbers, got {value!r}")
    if not -(2**63) <= value < 2**63:
        raise MeshError(f"map {name}: a formula gives {shown(value)}, which 64 bits do not hold")
    return expr.const(int(value), INT64)
