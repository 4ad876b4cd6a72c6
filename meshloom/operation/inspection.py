"""What a loop would do at one element: what it reads, computes and writes there, by the NumPy reference.

Formulas are taken as written, so that every value belongs to a line of the kernel. Nothing is changed, nothing is
compiled, and it does not matter where the loop runs: values are brought here from wherever they are.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from meshloom.errors import MeshError, shown, whole_number
from meshloom.kernel.access import identity
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import Node, function_of, topological
from meshloom.kernel.model import Output
from meshloom.kernel.table import is_outside
from meshloom.mesh.box import Box
from meshloom.mesh.core import Field, Global, Set
from meshloom.mesh.grid import Grid
from meshloom.mesh.location import location_of
from meshloom.operation.domain import Domain
from meshloom.operation.operand import Operand
from meshloom.records import dataclass

CHUNK = 1 << 14  # elements at a time
MOST_STEPS = 60  # that are printed
_SIGNS = {"add": "+=", "minimum": "min=", "maximum": "max="}


class InspectedGraph(Protocol):
    """What a loop computes, as far as it is looked at."""

    @property
    def outputs(self) -> tuple[Output, ...]: ...


class Inspected(Protocol):
    """What an operation must tell about itself to be looked at."""

    @property
    def name(self) -> str: ...
    @property
    def domain(self) -> Domain: ...
    @property
    def operands(self) -> tuple[Operand, ...]: ...
    @property
    def graph(self) -> InspectedGraph: ...
    @property
    def set(self) -> Set: ...
    @property
    def box(self) -> Box | None: ...
    @property
    def elements(self) -> int: ...
    @property
    def composed(self) -> Sequence[object]: ...
    def as_written(self) -> Inspected: ...


@dataclass(frozen=True)
class Seen:
    """What an element reads or gives through one argument: ``values`` in the shape that the kernel sees, of
    ``elements`` of a set, which are numbers, or indices of points of a grid; none of them for a Global."""

    text: str
    elements: tuple[Any, ...]
    values: np.ndarray
    of: str = ""
    sign: str = "="

    def __str__(self) -> str:
        of = f" {self.of} {', '.join(map(str, self.elements))}" if self.elements else ""
        return f"{self.text}{of} {self.sign} {_numbers(self.values)}"


@dataclass(frozen=True)
class LineValues:
    """What one line of the kernel gives: the values that other lines, or the outputs, use."""

    file: str
    number: int
    text: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}  {self.text}  -> {_numbers(np.array(self.values))}"


@dataclass(frozen=True, repr=False)
class Inspection:
    """``inputs`` and ``outputs`` by the kernel's names, ``steps`` in the order in which they are computed. An output of
    a mode that combines is what the element adds or offers."""

    loop: str
    where: str
    inputs: Mapping[str, Seen]
    steps: tuple[LineValues, ...]
    outputs: Mapping[str, Seen]

    def __repr__(self) -> str:
        steps = [f"  {step}" for step in self.steps[:MOST_STEPS]]
        if len(self.steps) > MOST_STEPS:
            steps.append(f"  ... and {len(self.steps) - MOST_STEPS} more lines, in .steps")
        reads, writes = ([f"  {one}" for one in part.values()] for part in (self.inputs, self.outputs))
        return "\n".join([f"loop {self.loop} at {self.where}", "reads", *(reads or ["  nothing"]), "computes",
                          *(steps or ["  nothing"]), "writes", *writes])  # fmt: skip


class LoopValues:
    """The values of a loop's operands, here and by number, and the loop's formulas as written."""

    def __init__(self, loop: Inspected):
        check_has_elements(loop)
        self.loop = loop.as_written()
        self.outputs: tuple[Output, ...] = self.loop.graph.outputs
        self._of = [numbered(one.storage) for one in loop.operands]

    def rows(self, operand: Operand, slot: int, first: int, last: int) -> Any:
        """Which rows of its field the elements [first, last) see in a slot."""
        box, reach = self.loop.box, operand.pattern
        if box is not None:
            return box.rows(reach.offsets.offsets[slot] if reach.offsets is not None else None, first, last)
        return np.arange(first, last) if reach.map is None else reach.map.indices[first:last, slot]

    def loaded(self, first: int, last: int) -> Any:
        """A function that gives what a load of the graph is worth for these elements."""

        def leaf(node: Node) -> Any:
            number, slot, comp = node.value
            operand = self.loop.operands[number]
            if operand.is_global:
                return self._of[number][comp]
            return self._of[number][self.rows(operand, slot, first, last), comp]

        return leaf

    def first_not_finite(self) -> tuple[int, Output] | None:
        """The first element that gives something that is not finite, and what; None where none does."""
        for first in range(0, self.loop.elements, CHUNK):
            last = min(first + CHUNK, self.loop.elements)
            with np.errstate(all="ignore"):
                values = evaluate([o.value for o in self.outputs], self.loaded(first, last))
            found = [(int(np.argmin(good)), k) for k, value in enumerate(values)
                     if not (good := np.isfinite(np.broadcast_to(value, (last - first,)))).all()]  # fmt: skip
            if found:
                element, number = min(found)
                return first + element, self.outputs[number]
        return None

    def first_outside(self) -> tuple[int, Node, int] | None:
        """The first element that looks something up at an index that is outside, where, and the index."""
        nodes = [n for n in topological([o.value for o in self.outputs]) if n.op == "index"]
        for first in range(0, self.loop.elements if nodes else 0, CHUNK):
            last = min(first + CHUNK, self.loop.elements)
            with np.errstate(all="ignore"):
                values = evaluate([n.args[0] for n in nodes], self.loaded(first, last))
            numbers = [np.broadcast_to(one, (last - first,)) for one in values]
            bad = [is_outside(node.value, one) for node, one in zip(nodes, numbers, strict=True)]
            found = [(int(np.argmax(one)), k) for k, one in enumerate(bad) if one.any()]
            if found:
                element, k = min(found)
                return first + element, nodes[k], int(numbers[k][element])
        return None

    def at(self, element: int) -> Inspection:
        """All that happens at one element."""
        known, operands = self.computed(element), self.loop.operands
        inputs = {one.name: self._read(k, element) for k, one in enumerate(operands) if one.mode.reads}
        written = [k for k, one in enumerate(operands) if one.mode.writes]
        outputs = {operands[k].name: self._written(k, element, known) for k in written}
        return Inspection(self.loop.name, self.where(element), inputs, tuple(_steps(self.outputs, known)), outputs)

    def computed(self, element: int) -> dict[Node, Any]:
        """Every value of the graph at one element, in the order in which they are computed."""
        leaf, known = self.loaded(element, element + 1), dict[Node, Any]()
        with np.errstate(all="ignore"):
            for node in topological([o.value for o in self.outputs]):
                if node.op == "const":
                    known[node] = node.dtype.type(node.value)
                else:
                    value = leaf(node) if node.op == "load" else function_of(node)(*[known[a] for a in node.args])
                    known[node] = np.reshape(value, -1)[0]
        return known

    def where(self, element: int) -> str:
        """Which element that is, and where."""
        box = self.loop.box
        return location_of(self.loop.set, element if box is None else int(box.rows(None, element, element + 1)[0]))

    def _access(self, number: int, element: int, values: np.ndarray, sign: str = "=") -> Seen:
        one = self.loop.operands[number]
        text = f"{one.storage.name}{one.pattern}"
        if isinstance(one.storage, Global):
            return Seen(text, (), values, sign=sign)
        rows = [int(self.rows(one, slot, element, element + 1)[0]) for slot in range(max(one.pattern.arity, 1))]
        on = one.storage.set
        if isinstance(on, Grid):
            return Seen(text, tuple(on.index_at(row) for row in rows), values, "at", sign)
        return Seen(text, tuple(rows), values, f"of {on.name}", sign)

    def _read(self, number: int, element: int) -> Seen:
        one, param = self.loop.operands[number], self.loop.operands[number].param
        values = np.empty(param.shape, param.dtype)
        for index in np.ndindex(param.shape):
            slot, comp = param.address(index)
            row = () if one.is_global else (self.rows(one, slot, element, element + 1)[0],)
            values[index] = self._of[number][(*row, comp)]
        return self._access(number, element, values)

    def _written(self, number: int, element: int, known: Mapping[Node, Any]) -> Seen:
        one, param = self.loop.operands[number], self.loop.operands[number].param
        combine = one.mode.combine
        values = np.array(self._read(number, element).values)
        if combine:
            values[...] = identity(combine, param.dtype)
        given = {(o.slot, o.comp): known[o.value] for o in self.outputs if o.param == number}
        for index in np.ndindex(param.shape):
            if param.address(index) in given:
                values[index] = given[param.address(index)]
        return self._access(number, element, values, _SIGNS.get(combine or "", "="))


def inspect(loop: Inspected, element: Any) -> Inspection:
    """See ``Operation.inspect``."""
    check_has_elements(loop)
    return LoopValues(loop).at(_element(loop, element))


def check_has_elements(loop: Inspected) -> None:
    """MeshError where an operation has no kernel that is called at elements."""
    if not loop.domain.visits_elements or loop.composed:
        what = "solves along the lines of a grid" if loop.domain.along_lines else "has no kernel of its own"
        raise MeshError(f"{loop.name} {what}: only loops of a kernel over a set or a box can be looked at by element")


def numbered(storage: Field | Global) -> np.ndarray:
    """All values (elements, components) by number, or (components,) of a Global, on the host."""
    if isinstance(storage, Global):
        return np.array(storage.numpy()).reshape(-1)
    return np.asarray(storage.set.by_number(storage.unpacked())).reshape(-1, storage.dim)


def cause_of(node: Node, known: Mapping[Node, Any]) -> Node | None:
    """The operation that made something that is not finite of finite values, from which this value has it; None where
    it came in. What a selection has not taken is no cause."""
    while True:
        chosen = node.args
        if node.op == "where":
            condition, yes, no = node.args
            chosen = (yes if known[condition] else no,)
        broken = [one for one in chosen if not np.isfinite(known[one])]
        if not broken:
            return node if node.args else None
        node = broken[0]


def line_of(where: tuple[str, int]) -> str:
    return linecache.getline(*where).strip()


def _steps(outputs: Sequence[Output], known: Mapping[Node, Any]) -> Iterator[LineValues]:
    """The lines of the kernel, in the order in which they first compute something."""
    roots = {o.value for o in outputs}
    users: dict[Node, set[Any]] = {}
    for node in known:
        for arg in node.args:
            users.setdefault(arg, set()).add(node.where)
    by_line: dict[tuple[str, int], list[Node]] = {}
    for node in known:
        if node.args and node.where is not None:
            by_line.setdefault(node.where, []).append(node)
    for where, nodes in by_line.items():
        seen = [n for n in nodes if n in roots or users.get(n, set()) - {where}]
        yield LineValues(where[0], where[1], line_of(where), tuple(known[n] for n in seen))


def _element(loop: Inspected, given: Any) -> int:
    """The number of an element among those that a loop visits; MeshError for anything else."""
    what = f"loop {loop.name}: the element to look at"
    box = loop.box
    if box is None:
        if isinstance(given, tuple | list):
            raise MeshError(f"{what} is a number of {loop.set.name}, got {shown(given)}")
        return whole_number(what, given, 0, loop.elements - 1, error=MeshError)
    if not isinstance(given, tuple | list) or len(given) != len(box.shape):
        raise MeshError(f"{what} is the index of a point, {len(box.shape)} whole numbers, got {shown(given)}")
    index = [whole_number(f"{what}, along axis {a}", i, box.low[a], box.high[a] - 1, error=MeshError) - box.low[a]
             for a, i in enumerate(given)]  # fmt: skip
    return int(np.ravel_multi_index(index, box.shape))


def _numbers(values: np.ndarray) -> str:
    """In one line, with six digits; of many the first and last."""
    shortly = {"all": lambda value: f"{value:.6g}" if values.dtype.kind == "f" else str(value)}
    return " ".join(np.array2string(values, threshold=32, separator=", ", formatter=shortly).split())  # type: ignore[arg-type]
