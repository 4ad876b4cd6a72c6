"""A line operation with loops at the points of its grid done on its way: before, where it loads; after, where it
stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from meshloom.kernel import passes
from meshloom.kernel.access import Mode, Read, Write
from meshloom.kernel.expr import Node, const, load
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field
from meshloom.operation.body import Body, BodyGraph, Traced
from meshloom.operation.dataflow import Dataflow, Storage
from meshloom.operation.fusion.substitution import Values, evaluated, loading, valued, written
from meshloom.operation.operand import ALONG_LINES, DIRECTLY, Operand, merged_operands
from meshloom.operation.operation import Operation
from meshloom.records import dataclass
from meshloom.schedule.lines.along import OperatorAlong, SystemsAlong


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
        along = {one.storage for one in self.line.operands if one.pattern.along_line}
        read = dict.fromkeys(one for _, one in Dataflow(self.composed).exposed_uses())
        stored = (one for one in Dataflow((self.line, *self.epilogue)).written if one not in self.dead)
        uses: list[tuple[Storage, type[Mode]]] = [*[(one, Read) for one in read], *[(one, Write) for one in stored]]
        return merged_operands(Operand(s, mode, ALONG_LINES if s in along else DIRECTLY, s.name) for s, mode in uses)

    def graph(self, of: Operation) -> BodyGraph:
        numbers = {s: k for k, s in enumerate(of.storages)}
        now: Values = {}

        def of_part(one: Operation) -> passes.Rule:
            """A load of a part: a value at hand, a load of the whole, or what the solve gives."""
            storages = (*one.storages, None)
            of_whole = loading(storages, numbers)

            def value(node: Node) -> Node:
                param, _, comp = node.value
                storage = storages[param]
                if isinstance(storage, Field) and storage in now:
                    return now[storage][comp]
                return of_whole(node)

            return value

        def before(field: Field) -> list[Node]:
            """What is there before; of a field that is not loaded everything is replaced."""
            if field in now or field not in numbers:
                return now.get(field, [const(0, field.dtype)] * field.dim)
            return [load(numbers[field], 0, c, field.dtype) for c in range(field.dim)]

        operands: passes.Roots = ()
        for one in self.composed:
            operands = passes.substitute(one.graph.operands, of_part(one)) if one is self.line else operands
            now |= written(one, evaluated(one, of_part(one)), before)
        left = {s: row for s, row in now.items() if s in numbers and s not in self.dead}
        stored = [Output(numbers[s], 0, c, v) for s, row in left.items() for c, v in enumerate(row)]
        stored = [o for o in stored if not (o.value.op == "load" and o.value.value == (o.param, 0, o.comp))]
        return BodyGraph(valued(stored, passes.composed), passes.composed(operands), ("",) * len(stored))
