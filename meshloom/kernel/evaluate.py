"""The IR evaluated by NumPy: for whole arrays at once, or for anything else that has NumPy's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshloom.kernel.expr import Node, compute, topological


def evaluate(roots: Sequence[Node], leaf: Callable[[Node], Any]) -> list[Any]:
    """Values of the roots; ``leaf`` gives the value of a load. Intermediate values are freed after their last use."""
    order = list(topological(roots))
    uses: dict[Node, int] = {}
    for node in order:
        for arg in node.args:
            uses[arg] = uses.get(arg, 0) + 1
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    values: dict[Node, Any] = {}
    for node in order:
        if node.op == "const":
            values[node] = node.dtype.type(node.value)
        elif node.op == "load":
            values[node] = leaf(node)
        else:
            values[node] = compute(node, [values[a] for a in node.args])
            for arg in node.args:
                uses[arg] -= 1
                if not uses[arg]:
                    values.pop(arg, None)
    return [values[r] for r in roots]
