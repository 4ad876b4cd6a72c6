"""A line loop with loops at the points of its grid done on its way: before, where it loads; after, where it stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from meshloom.kernel import passes
from meshloom.kernel.expr import Node, const, load, operate
from meshloom.kernel.model import Output
from meshloom.linalg.lines import Body, LineLoop, Storage
from meshloom.mesh.core import Field
from meshloom.operation.loop import Loop

Values = dict[Field, list[Node]]  # of the components of fields at a point


class ComposedLines(LineLoop):
    """``line`` with the fields ``before`` evaluated by the loops that make them, and the loops ``after`` applied to its
    results; what it would write to fields that are ``idle`` is handed on and not stored.

    All of these loops visit the points of the same grid, one by one, and know nothing of others.
    """

    def __init__(
        self, line: LineLoop, before: Mapping[Field, Loop], after: Sequence[Loop], idle: Collection[Field]
    ):
        self.line, self.makers, self.followers, self.idle = line, dict(before), tuple(after), frozenset(idle)
        self.set = self.grid = line.grid
        self.axis, self.backend, self.tuning, self._method = line.axis, line.backend, line.tuning, line._method
        self.values, self.operators = line.values, line.operators
        self.composed = (*dict.fromkeys(self.makers.values()), line, *self.followers)
        self.name = "+".join(one.name for one in self.composed)
        self.kernels = tuple(dict.fromkeys(kernel for one in self.composed for kernel in one.kernels))
        self.strict = line.strict
        for storage in self.storages:
            storage.watch(self)

    def as_written(self) -> ComposedLines:
        if self.strict:
            return self
        strict = {one: one.as_written() for one in (*self.makers.values(), *self.followers)}
        makers = {field: strict[loop] for field, loop in self.makers.items()}
        return ComposedLines(self.line.as_written(), makers, [strict[one] for one in self.followers], self.idle)

    @cached_property
    def storages(self) -> tuple[Storage, ...]:
        """What its parts use, but for what they hand on."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))

    @property
    def writes(self) -> tuple[Storage, ...]:
        written = dict.fromkeys(s for one in (self.line, *self.followers) for s in one.writes)
        return tuple(s for s in written if s not in self.idle)

    @property
    def reads(self) -> tuple[Storage, ...]:
        """What is read of what was there before, by any part."""
        found: dict[Storage, None] = {}
        made: set[Storage] = set(self.makers)
        for one in self.composed:
            found |= dict.fromkeys(s for s in one.storages if one.needs(s) and s not in made)
            made |= set(one.writes)
        return tuple(found)

    def _body(self) -> Body:
        numbers = {s: k for k, s in enumerate(self.storages)}
        operands, results, combines = self.line._body()
        made: Values = {}
        for maker in dict.fromkeys(self.makers.values()):
            made |= _written(maker, made, numbers)
        of_line = dict(enumerate(self.line.storages))
        operands = passes.rewrite(operands, lambda node: _value(node, of_line, made, numbers))
        now = self._solved(results, combines, made, numbers)
        for one in self.followers:
            now |= _written(one, now, numbers)
        stored = [(numbers[s], c, v) for s, row in now.items() if s not in self.idle for c, v in enumerate(row)]
        stored = [(p, c, v) for p, c, v in stored if not (v.op == "load" and v.value == (p, 0, c))]
        values = passes.optimise([v for *_, v in stored], strict=self.strict)
        found = tuple(Output(p, 0, c, v) for (p, c, _), v in zip(stored, values, strict=True))
        return passes.optimise(operands, strict=self.strict), found, ("",) * len(found)

    def _solved(
        self, results: Sequence[Output], combines: Sequence[str], made: Values, numbers: Mapping[Storage, int]
    ) -> Values:
        """What the line loop itself leaves at a point, where its last kernel may look at what was ``made``."""
        of_line = dict(enumerate(self.line.storages))
        here, there = len(self.line.storages), len(self.storages)

        def moved(node: Node) -> Node:
            if node.op == "load" and node.value[0] == here:
                return load(there, 0, node.value[2], node.dtype)
            return _value(node, of_line, made, numbers)

        found: Values = {}
        values = passes.rewrite([o.value for o in results], moved)
        for o, value, combine in zip(results, values, combines, strict=True):
            field = self.line.storages[o.param]
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


def _written(loop: Loop, made: Values, numbers: Mapping[Storage, int]) -> Values:
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
