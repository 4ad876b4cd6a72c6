"""The IR evaluated by NumPy: for whole arrays at once, or for anything else that has NumPy's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from meshloom.kernel.expr import Node, function_of, topological

Leaf = Callable[[Node], Any]


class Step(NamedTuple):
    """One value: a function of earlier ones, which are named by their numbers; ``over``: those never needed again."""

    node: Node
    function: Callable[..., Any] | None  # None: of a load
    arguments: tuple[int, ...]
    over: tuple[int, ...]


class Evaluation:
    """How the roots of a graph are evaluated, found once for any number of times."""

    def __init__(self, roots: Sequence[Node]):
        order = topological(roots)
        number = {node: k for k, node in enumerate(order)}
        last_use = {argument: node for node in order for argument in node.args}
        for root in roots:
            last_use.pop(root, None)  # it is needed at the end
        self._steps = [
            Step(
                node, _function(node), tuple(number[a] for a in node.args),
                tuple(number[a] for a in dict.fromkeys(node.args) if last_use.get(a) is node),
            )
            for node in order
        ]  # fmt: skip
        self._roots = [number[root] for root in roots]

    def __call__(self, leaf: Leaf) -> list[Any]:
        """Values of the roots; ``leaf`` gives the value of a load. Other values are freed after their last use."""
        values: list[Any] = []
        for node, function, arguments, over in self._steps:
            values.append(leaf(node) if function is None else function(*[values[k] for k in arguments]))
            for k in over:
                values[k] = None
        return [values[k] for k in self._roots]


def _function(node: Node) -> Callable[..., Any] | None:
    """What gives the value of a node from those of its arguments."""
    if node.op == "const":
        value = node.dtype.type(node.value)
        return lambda: value
    return None if node.op == "load" else function_of(node)


def evaluate(roots: Sequence[Node], leaf: Leaf) -> list[Any]:
    """Values of the roots, once."""
    return Evaluation(roots)(leaf)
