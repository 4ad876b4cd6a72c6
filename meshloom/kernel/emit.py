"""Emission: IR to C-family statements. The only place that spells an operation.

The statements are in single assignment form, one per node, in the order of first need (so loads stand next to
their use). Lines of the user's kernel appear as comments.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from meshloom.kernel.contract import is_rounded
from meshloom.kernel.expr import C_TYPES, FLOAT32, INT64, OPS, Node, topological

Leaf = Callable[[Node], str]


def literal(value: float | int | bool, dtype: np.dtype) -> str:
    """A constant in C, exact in its type."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "i":
        if value == np.iinfo(dtype).min:
            return f"({literal(value + 1, dtype)} - 1)"
        return f"INT64_C({value})" if dtype == INT64 else f"({value})" if value < 0 else str(value)
    suffix = "f" if dtype == FLOAT32 else ""
    if math.isnan(value):
        return f"({C_TYPES[dtype]})NAN"
    if math.isinf(value):
        return f"({C_TYPES[dtype]})({'-' if value < 0 else ''}INFINITY)"
    text = repr(float(value)) if dtype != FLOAT32 else str(np.float32(value))
    text = text if any(c in text for c in ".e") else text + ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def statements(
    roots: Sequence[Node], leaf: Leaf, prefix: str = "v", known: dict[Node, str] | None = None
) -> tuple[list[str], list[str]]:
    """C statements computing the roots, and the name or literal that holds each root.

    ``leaf`` gives the C expression of a load. ``known`` maps nodes already computed to their names and is extended.
    """
    names = {} if known is None else known
    lines: list[str] = []
    shown = None
    for node in topological(roots):
        if node in names:
            continue
        if node.op == "const":
            names[node] = literal(node.value, node.dtype)
            continue
        if node.where is not None and node.where != shown:
            shown = node.where
            lines.append(_comment(node.where))
        names[node] = f"{prefix}{len(names)}"
        lines.append(f"const {C_TYPES[node.dtype]} {names[node]} = {_expression(node, names, leaf)};")
    return lines, [names[r] for r in roots]


def _expression(node: Node, names: dict[Node, str], leaf: Leaf) -> str:
    if node.op == "load":
        return leaf(node)
    args = [names[a] for a in node.args]
    if node.op == "cast":
        ctype, truncated = C_TYPES[node.dtype], node.dtype.kind == "i" and node.args[0].dtype.kind == "f"
        return f"ml_whole<{ctype}>({args[0]})" if truncated else f"({ctype}){args[0]}"
    if is_rounded(node):
        return f"ml_times({args[0]}, {args[1]})"
    op = OPS[node.op]
    return (op.integer if op.integer and node.args[0].dtype.kind == "i" else op.c).format(*args)


def nested(node: Node, leaf: Leaf) -> str:
    """One C expression, for little formulas: what is used twice is computed twice, unless the compiler sees it."""
    if node.op == "const":
        return literal(node.value, node.dtype)
    names = {a: nested(a, leaf) for a in node.args}
    return f"(({C_TYPES[node.dtype]})({_expression(node, names, leaf)}))"


def _comment(where: tuple[str, int]) -> str:
    """The user's line, without its number: moving a kernel in its file must not change the text.

    Nothing in it may end the comment or go on behind it: no line breaks of any kind, no backslash, no trigraph for one.
    """
    line = linecache.getline(*where).strip().replace("\\", "/")
    text = re.sub(r"\?(?=\?)", "? ", "".join(c if c.isprintable() else " " for c in line))
    return f"// {text}"
