"""Maps that are a formula of the element's number: nothing is stored, and nothing is read in a loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from meshloom.errors import MeshError, shown
from meshloom.kernel import expr
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import INT64, Node, written
from meshloom.kernel.symbols import Symbol
from meshloom.kernel.trace import explained
from meshloom.kernel.values import objects
from meshloom.mesh.core import Map, Set, check_ends
from meshloom.mesh.values import index_dtype

MOST_OPERATIONS = 200  # of a formula: it is computed wherever an entry is needed
CHUNK = 1 << 16  # elements that are looked at at a time
Formula = tuple[Node, ...]  # of each slot, of the element's number


class ComputedMap(Map):
    """``formula``: the element's targets, integer expressions of its number. ``positions`` and ``indices`` are made
    when somebody asks, which plans do, and go when nobody holds them."""

    def __init__(self, source: Set, target: Set, function: Callable[[Any], Any], name: str = "map"):
        check_ends(name, source, target)
        self.source, self.target, self.name = source, target, name
        for one in (source, target):
            if one.numbering is not None:
                raise MeshError(f"map {name}: a formula needs sets that lie in memory by number, and {one.name} does"
                                " not; give the indices, ml.Map(...)")  # fmt: skip
        self.formula = traced_formula(function, name)
        self._made: ref[np.ndarray] | None = None
        for first in range(0, source.total, CHUNK):
            self._check_range(self.rows(first, min(first + CHUNK, source.total)), target, name, first)

    def rows(self, first: int, last: int) -> np.ndarray:
        """The targets of some elements, (last - first, arity)."""
        return computed_rows(self.formula, first, last)

    @property
    def positions(self) -> np.ndarray:  # type: ignore[override]
        """All of them, as a stored map has them."""
        made = self._made() if self._made is not None else None
        if made is None:
            made = np.ascontiguousarray(self.rows(0, self.source.total), dtype=self.index_type)
            made.flags.writeable = False
            self._made = ref(made)
        return made

    @property
    def indices(self) -> np.ndarray:
        return self.positions

    @property
    def arity(self) -> int:
        return len(self.formula)

    @property
    def index_type(self) -> np.dtype:
        return index_dtype(self.target.total, None, self.name)

    @property
    def digest(self) -> str:
        text = [written([one]) for one in self.formula]
        sizes = self.source.total, self.source.owned, self.target.total
        return hashlib.sha256(f"{text} {sizes}".encode()).hexdigest()


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
