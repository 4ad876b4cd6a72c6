"""The one substitution that makes one loop of several: a load of what another one has made becomes that value.

At the same element that is the value at hand; at other points of a grid the formula that makes it, its own loads as far
away (``recompute``); what nobody has made stays a load, by whatever number the whole gives it. So the parts of a group,
and loops before and after the solve of a line, are put together alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from meshloom.kernel import passes
from meshloom.kernel.expr import Node, load, operate
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field, Global
from meshloom.operation.operation import Operation

Values = dict[Field, list[Node]]  # of the components of fields at an element


def valued(outputs: Sequence[Output], change: Callable[[list[Node]], Sequence[Node]]) -> tuple[Output, ...]:
    """The same outputs with values that were changed all at once."""
    values = change([o.value for o in outputs])
    return tuple([replace(o, value=v) for o, v in zip(outputs, values, strict=True)])


def substituted(outputs: Sequence[Output], value: passes.Rule) -> tuple[Output, ...]:
    """The same where loads have such values."""
    return valued(outputs, lambda roots: passes.substitute(roots, value))


def loading(storages: Sequence[Field | Global | None], numbers: Mapping[Field | Global, int]) -> passes.Rule:
    """Loads of a part, whose parameters these are, by their ``numbers`` in the whole. None: what a solve along a line
    gives, which is behind all of them."""

    def value(node: Node) -> Node:
        param, slot, comp = node.value
        one = storages[param]
        return load(len(numbers) if one is None else numbers[one], slot, comp, node.dtype)

    return value


def evaluated(one: Operation, value: passes.Rule, only: Field | None = None) -> list[tuple[Output, str]]:
    """What an operation computes where its loads have such values, and how each output is merged with what is there;
    ``only``: of one field."""
    graph = one.graph
    combines = graph.combines or [one.operands[o.param].mode.combine for o in graph.outputs]
    chosen = [k for k, o in enumerate(graph.outputs) if only is None or one.storages[o.param] is only]
    found = substituted([graph.outputs[k] for k in chosen], value)
    return [(o, combines[k]) for k, o in zip(chosen, found, strict=True)]


def written(one: Operation, outputs: Iterable[tuple[Output, str]], before: Callable[[Field], list[Node]]) -> Values:
    """What the fields are that an operation writes: its outputs, merged with what was there ``before``."""
    found: Values = {}
    for o, combine in outputs:
        field = one.storages[o.param]
        if isinstance(field, Field):
            row = found.setdefault(field, list(before(field)))
            row[o.comp] = operate(combine, [row[o.comp], o.value]) if combine else o.value
    return found
