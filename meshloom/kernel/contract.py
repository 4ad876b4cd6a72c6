"""Contraction: which products are added in one rounding, ``fma(a, b, c)`` for a*b + c.

It is decided here, once, on the graph of a kernel by itself. Compilers decide it loop by loop, otherwise in a vector
than in its remainder, in a slice of the outputs, or where loops became one; so they may not, and the last bit of what
an element gives does not hang on how it is executed. Nothing is contracted that comes behind the kernel: an increment
is rounded before it is added to its target.

A product is taken into every sum that has it, and is also there by itself where something else needs it. Of two
products in a sum the second one is taken, unless sums alone need the first and others, too, the second.

Differences that decide whether a root or a logarithm exists are computed as they are written: sqrt(a*a - b*b) is 0 for
a = b, and not a number where the difference is -1e-17 instead: because one of the products and the difference have
become one operation with one rounding, because terms were added in another order, or because a quotient became the
product with a reciprocal. So sums under such operations keep their terms, and products in them are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from meshloom.kernel.expr import Node, fused, rebuild, topological

#: Operations that do not exist, or are steep, where their first argument is just on the wrong side of a number
EDGED = ("sqrt", "cbrt", "pow", "log", "log2", "log10", "log1p", "arcsin", "arccos")
#: Operations through which an argument of those is followed
ARITHMETIC = ("add", "sub", "neg", "mul", "div", "abs", "minimum", "maximum", "where", "cast")
SUMS = ("add", "sub")


def contract(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The same with products taken into the sums that they are terms of."""
    chosen = _chooser(roots)
    new: dict[Node, Node] = {}
    for node in topological(roots):
        moved = rebuild(node, tuple(new[a] for a in node.args))
        side = chosen(node) if node.op in SUMS and node.dtype.kind == "f" else None
        new[node] = moved if side is None else _taken_in(node, moved, side)
    return tuple(new[r] for r in roots)


def _taken_in(node: Node, moved: Node, side: int) -> Node:
    """A sum with the product on a side of it taken in; ``moved``: the same of arguments that were contracted."""
    op = "fma" if node.op == "add" else ("fms", "fnma")[side]
    a, b = moved.args[side].args
    return fused(op, (a, b, moved.args[1 - side]), node.where)


def _chooser(roots: Sequence[Node]) -> Callable[[Node], int | None]:
    """Which of the two terms of a sum is a product that is taken in, if any."""
    rounded = terms_of_sums(under_edges(roots))
    elsewhere = {a for n in topological(roots) if n.op not in SUMS for a in n.args} | set(roots)

    def chosen(node: Node) -> int | None:
        sides = [k for k, term in enumerate(node.args) if term.op == "mul" and term not in rounded]
        if len(sides) < 2:
            return sides[0] if sides else None
        first, second = node.args
        return 0 if second in elsewhere and first not in elsewhere else 1

    return chosen


def terms_of_sums(nodes: Iterable[Node]) -> set[Node]:
    """What is added or subtracted, without its sign, in those of some nodes that are sums."""
    terms = [a for n in nodes if n.op in SUMS for a in n.args]
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
