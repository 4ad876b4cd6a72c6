"""Looking at nests: which names they use, other values for names, the value of a size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from meshloom.schedule.nest.nodes import Binary, Expr, Name, Node, Number

Any_node = TypeVar("Any_node", bound=Node)
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
        for part in node.__match_args__:  # type: ignore[attr-defined]
            waiting += _nodes_in(getattr(node, part))


def _nodes_in(part: Any) -> list[Node]:
    if isinstance(part, Node):
        return [part]
    return [one for inner in part for one in _nodes_in(inner)] if isinstance(part, tuple) else []


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
        return tuple(_changed(one, values) for one in part)
    if not isinstance(part, Node):
        return part
    parts: tuple[str, ...] = part.__match_args__  # type: ignore[attr-defined]
    changed = {name: new for name in parts if (new := _changed(old := getattr(part, name), values)) is not old}
    return replace(part, **changed) if changed else part  # type: ignore[type-var]


def number_of(size: Expr, sizes: Mapping[str, int]) -> int:
    """The value of a size made of numbers and the names of others."""
    if isinstance(size, Number):
        return int(size.value)
    if isinstance(size, Name):
        return sizes[size.name]
    assert isinstance(size, Binary), size
    return _COMPUTED[size.operator](number_of(size.left, sizes), number_of(size.right, sizes))
