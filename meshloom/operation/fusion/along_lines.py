"""A line operation with loops at the points of its grid done on its way: before, where it loads; after, where it
stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from meshloom.kernel import passes
from meshloom.kernel.access import Read, ReadWrite, Write
from meshloom.kernel.expr import Node, const, load, operate
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field, Global
from meshloom.operation.body import Body, BodyGraph, Traced
from meshloom.operation.operand import ALONG_LINES, DIRECTLY, Operand
from meshloom.operation.operation import Operation
from meshloom.schedule.lines.along import OperatorAlong, SystemsAlong

Storage = Field | Global
Values = dict[Field, list[Node]]  # of the components of fields at a point


def composed_lines(
    line: Operation, before: Mapping[Field, Operation], after: Sequence[Operation], dead: Collection[Field]
) -> Operation:
    """``line`` with the fields ``before`` evaluated by the loops that make them, and the loops ``after`` applied to its
    results; what it would write to fields that are ``dead`` is handed on and not stored.

    All of these loops visit the points of the same grid, one by one, and know nothing of others.
    """
    body = ComposedBody(line, tuple(before.items()), tuple(after), frozenset(dead))
    name = "+".join(one.name for one in body.composed)
    return Operation(name, line.domain, body.line_operands(), body, line.policy, line.backend)


@dataclass(frozen=True)
class ComposedBody(Body):
    """A line operation, loops that make what it reads, and loops that follow it, at each point one after the other."""

    line: Operation
    producers: tuple[tuple[Field, Operation], ...]
    epilogue: tuple[Operation, ...]
    dead: frozenset[Field]

    @property
    def composed(self) -> tuple[Operation, ...]:  # type: ignore[override]
        return (*dict.fromkeys(producer for _, producer in self.producers), self.line, *self.epilogue)

    @property
    def kernels(self) -> tuple[Traced, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(kernel for one in self.composed for kernel in one.kernels))

    @property
    def strict(self) -> bool:  # type: ignore[override]
        return self.line.strict

    @property
    def operators(self) -> tuple[OperatorAlong, ...]:  # type: ignore[override]
        return self.line.body.operators

    @property
    def systems(self) -> SystemsAlong | None:  # type: ignore[override]
        return self.line.body.systems

    def as_written(self) -> ComposedBody:
        if self.strict:
            return self
        strict = {one: one.as_written() for one in self.composed}
        producers = tuple((field, strict[loop]) for field, loop in self.producers)
        return ComposedBody(strict[self.line], producers, tuple(strict[one] for one in self.epilogue), self.dead)

    def loaded(self, of: Operation) -> Collection[int]:
        return range(len(of.operands))  # as of the line operation itself

    def line_operands(self) -> tuple[Operand, ...]:
        """What its parts use, but for what they hand on."""
        reads, writes = self._reads(), self._writes()
        along = {one.storage for one in self.line.operands if one.reach.along_line}
        found = []
        for one in dict.fromkeys((*reads, *writes)):
            mode = Read if one not in writes else ReadWrite if one in reads else Write
            found.append(Operand(one, mode, ALONG_LINES if one in along else DIRECTLY, one.name))
        return tuple(found)

    def _writes(self) -> dict[Storage, None]:
        written = dict.fromkeys(s for one in (self.line, *self.epilogue) for s in one.writes)
        return {s: None for s in written if s not in self.dead}

    def _reads(self) -> dict[Storage, None]:
        """What is read of what was there before, by any part."""
        found: dict[Storage, None] = {}
        made: set[Storage] = {field for field, _ in self.producers}
        for one in self.composed:
            found |= dict.fromkeys(s for s in one.storages if one.needs(s) and s not in made)
            made |= set(one.writes)
        return found

    def graph(self, of: Operation) -> BodyGraph:
        numbers = {s: k for k, s in enumerate(of.storages)}
        of_line = dict(enumerate(self.line.storages))
        made: Values = {}
        for producer in dict.fromkeys(producer for _, producer in self.producers):
            made |= _written(producer, made, numbers)
        operands = passes.rewrite(self.line.graph.operands, lambda node: _value(node, of_line, made, numbers))
        now = self._solved(made, numbers)
        for one in self.epilogue:
            now |= _written(one, now, numbers)
        stored = [(numbers[s], c, v) for s, row in now.items() if s not in self.dead for c, v in enumerate(row)]
        stored = [(p, c, v) for p, c, v in stored if not (v.op == "load" and v.value == (p, 0, c))]
        values = passes.optimise([v for *_, v in stored], strict=self.strict)
        found = tuple(Output(p, 0, c, v) for (p, c, _), v in zip(stored, values, strict=True))
        return BodyGraph(found, passes.optimise(operands, strict=self.strict), ("",) * len(found))

    def _solved(self, made: Values, numbers: Mapping[Storage, int]) -> Values:
        """What the line operation itself leaves at a point, where its last kernel may look at what was ``made``."""
        storages, graph = self.line.storages, self.line.graph
        of_line, here, there = dict(enumerate(storages)), len(storages), len(numbers)

        def moved(node: Node) -> Node:
            if node.op == "load" and node.value[0] == here:
                return load(there, 0, node.value[2], node.dtype)
            return _value(node, of_line, made, numbers)

        found: Values = {}
        values = passes.rewrite([o.value for o in graph.outputs], moved)
        for o, value, combine in zip(graph.outputs, values, graph.combines, strict=True):
            field = storages[o.param]
            assert isinstance(field, Field)
            row = found.setdefault(field, _before(field, numbers))
            row[o.comp] = operate(combine, [row[o.comp], value]) if combine else value
        return found


def _before(field: Field, numbers: Mapping[Storage, int]) -> list[Node]:
    """What is there before; of a field that is not loaded everything is replaced."""
    if field not in numbers:
        return [const(0, field.dtype)] * field.dim
    return [load(numbers[field], 0, c, field.dtype) for c in range(field.dim)]


def _value(node: Node, storages: Mapping[int, Storage], made: Values, numbers: Mapping[Storage, int]) -> Node:
    """A load of some loop in terms of the composed one: a value at hand, or a load."""
    if node.op != "load":
        return node
    param, slot, comp = node.value
    storage = storages[param]
    if isinstance(storage, Field) and storage in made:
        return made[storage][comp]
    return load(numbers[storage], slot, comp, node.dtype)


def _written(loop: Operation, made: Values, numbers: Mapping[Storage, int]) -> Values:
    """What a loop leaves at a point, where the fields ``made`` have these values."""
    storages = dict(enumerate(loop.storages))
    found: Values = {}
    values = passes.rewrite([o.value for o in loop.spec.outputs], lambda node: _value(node, storages, made, numbers))
    for o, value in zip(loop.spec.outputs, values, strict=True):
        field, mode = loop.storages[o.param], loop.spec.params[o.param].mode
        assert isinstance(field, Field)
        row = found.setdefault(field, list(made.get(field) or _before(field, numbers)))
        row[o.comp] = operate(mode.combine, [row[o.comp], value]) if mode.combine else value
    return found
