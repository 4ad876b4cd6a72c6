"""Looking at nests: which names they use, other values for names, the value of a size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args, get_type_hints

from meshloom.schedule.nest.nodes import Binary, Expr, Name, NestNode, Number

Any_node = TypeVar("Any_node", bound=NestNode)
_MAY_HOLD_NODES: dict[type, tuple[str, ...]] = {}
_COMPUTED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def everything(nodes: Iterable[NestNode]) -> Iterator[NestNode]:
    """Some nodes and all that is in them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for name in _parts(node):
            part = getattr(node, name)
            if isinstance(part, NestNode):
                waiting.append(part)
            elif isinstance(part, tuple):
                waiting += _nodes_in(part)


def _nodes_in(part: tuple[Any, ...]) -> Iterator[NestNode]:
    for one in part:
        if isinstance(one, NestNode):
            yield one
        elif isinstance(one, tuple):
            yield from _nodes_in(one)


def _parts(node: Any) -> tuple[str, ...]:
    """The fields of a node that may hold others; the same for all of its kind, and looked up once."""
    kind = type(node)
    if kind not in _MAY_HOLD_NODES:
        types = get_type_hints(kind)
        _MAY_HOLD_NODES[kind] = tuple(one.name for one in fields(kind) if _may_be_node(types[one.name]))
    return _MAY_HOLD_NODES[kind]


def _may_be_node(kind: Any) -> bool:
    """Can a value of a type be a node, or hold one?"""
    return (isinstance(kind, type) and issubclass(kind, NestNode)) or any(map(_may_be_node, get_args(kind)))


def names(nodes: Iterable[NestNode]) -> set[str]:
    """What some nodes speak of by name: variables, arrays and sizes, wherever they come from."""
    return {node.name for node in everything(nodes) if isinstance(node, Name)}


def substituted(node: Any_node, values: Mapping[str, Expr]) -> Any_node:
    """The same node with values in place of names."""
    made: Any = rewritten(node, lambda one: values.get(one.name, one) if isinstance(one, Name) else None)
    return made


def rewritten(part: Any, rule: Callable[[NestNode], NestNode | None]) -> Any:
    """A node, or several, with what a rule gives in place of each; None: what is in it is looked at."""
    if isinstance(part, tuple):
        parts = tuple(rewritten(one, rule) for one in part)
        return parts if any(new is not old for new, old in zip(parts, part, strict=True)) else part
    if not isinstance(part, NestNode):
        return part
    if (new := rule(part)) is not None:
        return new
    found = {name: (old := getattr(part, name), rewritten(old, rule)) for name in _parts(part)}
    changed = {name: new for name, (old, new) in found.items() if new is not old}
    return replace(part, **changed) if changed else part  # type: ignore[type-var]


def number_of(size: Expr, sizes: Mapping[str, int]) -> int:
    """The value of a size made of numbers and the names of others."""
    if isinstance(size, Number):
        return int(size.value)
    if isinstance(size, Name):
        return sizes[size.name]
    assert isinstance(size, Binary), size
    return _COMPUTED[size.operator](number_of(size.left, sizes), number_of(size.right, sizes))
