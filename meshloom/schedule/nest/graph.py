"""A kernel's graph as statements of a nest: one name for each node, in the order of first need (so loads stand next to
their use). Lines of the user's kernel appear as comments.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence

from meshloom.kernel.contract import is_rounded
from meshloom.kernel.expr import C_TYPES, OPS, Node, topological
from meshloom.schedule.nest.nodes import (
    Binary,
    Call,
    Cast,
    Comment,
    Expr,
    Grouped,
    Name,
    Number,
    Select,
    Statement,
    Unary,
    call,
    let,
)

Leaf = Callable[[Node], Expr]


def statements(
    roots: Sequence[Node], leaf: Leaf, prefix: str = "v", known: dict[Node, Expr] | None = None
) -> tuple[list[Statement], list[Expr]]:
    """Statements computing the roots, and the name or number that is the value of each root.

    ``leaf`` gives the value of a load. ``known`` maps nodes already computed to their names and is extended.
    """
    values = {} if known is None else known
    made: list[Statement] = []
    shown = None
    for node in topological(roots):
        if node in values:
            continue
        if node.op == "const":
            values[node] = Number(node.value, node.dtype)
            continue
        if node.where is not None and node.where != shown:
            shown = node.where
            made.append(users_line(node.where))
        name = f"{prefix}{len(values)}"
        made.append(let(name, _computed(node, [values[a] for a in node.args], leaf), C_TYPES[node.dtype]))
        values[node] = Name(name)
    return made, [values[r] for r in roots]


def formula(node: Node, leaf: Leaf) -> Expr:
    """One value, for little formulas: what is used twice is computed twice, unless the compiler sees it."""
    if node.op == "const":
        return Number(node.value, node.dtype)
    computed = _computed(node, [formula(a, leaf) for a in node.args], leaf)
    return Grouped(Cast(C_TYPES[node.dtype], Grouped(computed)))


def _computed(node: Node, of: list[Expr], leaf: Leaf) -> Expr:
    """What an operation makes of the values of its arguments."""
    if node.op == "load":
        return leaf(node)
    if node.op == "cast":
        ctype, truncated = C_TYPES[node.dtype], node.dtype.kind == "i" and node.args[0].dtype.kind == "f"
        return call("ml_whole", of[0], of_types=(ctype,)) if truncated else Cast(ctype, of[0])
    if is_rounded(node):
        return call("ml_times", *of)
    op = OPS[node.op]
    spelling = op.integer if op.integer and node.args[0].dtype.kind == "i" else op.c
    if spelling == "?:":
        return Select(*of)
    if spelling[-1].isalnum():
        return Call(spelling, tuple(of))
    return Unary(spelling, *of) if len(of) == 1 else Binary(spelling, *of)


def users_line(where: tuple[str, int]) -> Comment:
    """The user's line, without its number: moving a kernel in its file must not change the text."""
    return Comment(linecache.getline(*where).strip())
