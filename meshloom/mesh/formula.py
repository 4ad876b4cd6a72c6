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

MOST_OPERATIONS = 200  # of a formula: it is computed wherever an entry is needed
Formula = tuple[Node, ...]  # of each slot, of the element's number


def computed_rows(formula: Formula, first: int, last: int) -> np.ndarray:
    """What a formula gives for the elements [first, last), (last - first, arity)."""
    numbers = np.arange(first, last, dtype=np.int64)
    with np.errstate(all="ignore"):
        columns = evaluate(list(formula), lambda _: numbers)
    return np.stack([np.broadcast_to(column, numbers.shape) for column in columns], axis=1)


def traced_formula(function: Callable[[Any], Any], name: str) -> Formula:
    """What a function makes of an element's number, slot by slot."""
    number = expr.load(-1, 0, 0, INT64)
    try:
        given = function(Symbol(number))
    except MeshError:
        raise
    except Exception as error:
        raise MeshError(f"map {name}: {explained(error, 'formula', {'e': ()})}") from error
    slots = np.atleast_1d(objects(given)).ravel().tolist()
    nodes = tuple(one.node if isinstance(one, Symbol) else _constant(one, name) for one in slots)
    for node in nodes:
        if node.dtype.kind != "i":
            raise MeshError(f"map {name}: a formula gives whole numbers, got {node.dtype}")
    if not nodes or sum(1 for _ in expr.topological(nodes)) > MOST_OPERATIONS:
        raise MeshError(f"map {name}: a formula gives one number or more by at most {MOST_OPERATIONS} operations")
    return tuple(expr.cast(node, INT64) for node in nodes)


def _constant(value: Any, name: str) -> Node:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise MeshError(f"map {name}: a formula gives whole numbers, got {value!r}")
    if not -(2**63) <= value < 2**63:
        raise MeshError(f"map {name}: a formula gives {shown(value)}, which 64 bits do not hold")
    return expr.const(int(value), INT64)
