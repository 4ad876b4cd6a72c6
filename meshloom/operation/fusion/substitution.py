"""The one substitution that makes one loop of several: a load of what another one has made becomes that value.

At the same element that is the value at hand; at other points of a grid the formula that makes it, its own loads as far
away (``recompute``); what nobody has made stays a load, by whatever number the whole gives it. So the parts of a group,
and loops before and after the solve of a line, are put together alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from meshloom.kernel import passes
from meshloom.kernel.expr import Node, operate
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field
from meshloom.operation.operation import Operation

Values = dict[Field, list[Node]]  # of the components of fields at an element


def evaluated(one: Operation, value: passes.Rule) -> list[tuple[Output, str]]:
    """What an operation computes where its loads have such values, and how each output is merged with what is there."""
    graph = one.graph
    found = passes.substitute([o.value for o in graph.outputs], value)
    combines = graph.combines or [one.operands[o.param].mode.combine for o in graph.outputs]
    return [(replace(o, value=v), combine) for o, v, combine in zip(graph.outputs, found, combines, strict=True)]


def written(one: Operation, outputs: Iterable[tuple[Output, str]], before: Callable[[Field], list[Node]]) -> Values:
    """What the fields are that an operation writes: its outputs, merged with what was there ``before``."""
    found: Values = {}
    for o, combine in outputs:
        field = one.storages[o.param]
        if isinstance(field, Field):
            row = found.setdefault(field, list(before(field)))
            row[o.comp] = operate(combine, [row[o.comp], o.value]) if combine else o.value
    return found
