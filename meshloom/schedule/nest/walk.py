"""Looking at nests: which names they use, other values for names, the value of a size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from meshloom.schedule.nest.nodes import Binary, Expr, Name, Node, Number

Any_node = TypeVar("Any_node", bound=Node)
_PLAIN = {"str", "int", "bool", "int | None", "np.dtype", "np.dtype | None", "Type"}  # types of fields without nodes
_MAY_HOLD_NODES: dict[type, tuple[str, ...]] = {}
_COMPUTED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def everything(nodes: Iterable[Node]) -> Iterator[Node]:
    """Some nodes and all that is in them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for name in _parts(node):
            part = getattr(node, name)
            if isinstance(part, Node):
                waiting.append(part)
            elif isinstance(part, tuple):
                waiting += _nodes_in(part)


def _nodes_in(part: tuple[Any, ...]) -> Iterator[Node]:
    for one in part:
        if isinstance(one, Node):
            yield one
        elif isinstance(one, tuple):
            yield from _nodes_in(one)


def _parts(node: Any) -> tuple[str, ...]:
    """The fields of a node that may hold others; the same for all of its kind, and looked up once."""
    kind = type(node)
    if kind not in _MAY_HOLD_NODES:
        _MAY_HOLD_NODES[kind] = tuple(one.name for one in fields(kind) if str(one.type) not in _PLAIN)
    return _MAY_HOLD_NODES[kind]


def names(nodes: Iterable[Node]) -> set[str]:
    """What some nodes speak of by name: variables, arrays and sizes, wherever they come from."""
    return {node.name for node in everything(nodes) if isinstance(node, Name)}


def substituted(node: Any_node, values: Mapping[str, Expr]) -> Any_node:
    """The same node with values in place of names."""
    made: Any = _changed(node, values)
    return made


def _changed(part: Any, values: Mapping[str, Expr]) -> Any:
    if isinstance(part, Name):
        return values.get(part.name, part)
    if isinstance(part, tuple):
        parts = tuple(_changed(one, values) for one in part)
        return parts if any(new is not old for new, old in zip(parts, part, strict=True)) else part
    if not isinstance(part, Node):
        return part
    found = {name: (old := getattr(part, name), _changed(old, values)) for name in _parts(part)}
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
