"""Differences that decide whether a root or a logarithm exists: they are computed as they are written.

sqrt(a*a - b*b) is 0 for a = b, and not a number where the difference is -1e-17 instead: because a compiler has turned
one of the products and the difference into one operation with one rounding, because terms were added in another order,
or because a quotient became the product with a reciprocal. So sums under such operations keep their terms, and products
in them are marked: they are emitted so that no compiler contracts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshloom.kernel.expr import Node, rebuild, topological, with_value

ROUNDED = "rounded"  # the ``value`` of a marked product
#: Operations that do not exist, or are steep, where their first argument is just on the wrong side of a number
EDGED = ("sqrt", "cbrt", "pow", "log", "log2", "log10", "log1p", "arcsin", "arccos")
#: Operations through which an argument of those is followed
ARITHMETIC = ("add", "sub", "neg", "mul", "div", "abs", "minimum", "maximum", "where", "cast")


def round_products(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The same, with every product marked that is a term of a sum under a root or logarithm."""
    terms = terms_of_sums(under_edges(roots))
    return _marked(roots, {n: ROUNDED for n in terms if n.op == "mul" and n.dtype.kind == "f"})


def contractible(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The same without marks."""
    return _marked(roots, {n: None for n in topological(roots) if is_rounded(n)})


def is_rounded(node: Node) -> bool:
    """Must this product be rounded by itself?"""
    return node.op == "mul" and node.value == ROUNDED


def terms_of_sums(nodes: Iterable[Node]) -> set[Node]:
    """What is added or subtracted, without its sign, in those of some nodes that are sums."""
    terms = [a for n in nodes if n.op in ("add", "sub") for a in n.args]
    return {a.args[0] if a.op == "neg" else a for a in terms}


def under_edges(roots: Sequence[Node]) -> set[Node]:
    """Nodes that an argument of an edged operation is made of by arithmetic alone."""
    found: set[Node] = set()
    pending = [n.args[0] for n in topological(roots) if n.op in EDGED]
    while pending:
        node = pending.pop()
        if node not in found and node.op in ARITHMETIC:
            found.add(node)
            pending += node.args
    return found


def _marked(roots: Sequence[Node], marks: dict[Node, str | None]) -> tuple[Node, ...]:
    if not marks:
        return tuple(roots)
    new: dict[Node, Node] = {}
    for node in topological(roots):
        moved = rebuild(node, tuple(new[a] for a in node.args))
        new[node] = with_value(moved, marks[node]) if node in marks else moved
    return tuple(new[r] for r in roots)
