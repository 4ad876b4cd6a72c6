"""A kernel's graph as statements of a nest: one name for each node, in the order of first need (so loads stand next to
their use). Lines of the user's kernel appear as comments.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Container, Sequence

from meshloom.kernel.expr import C_TYPES, FUSED, OPS, Node, topological
from meshloom.kernel.table import LOOKUPS
from meshloom.schedule.nest.contraction import fma
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
    offset_by,
)

Leaf = Callable[[Node], Expr]
Arrays = Callable[[int], Expr | None]  # the array that holds the values of a parameter one after the other, if any


def _no_array(param: int) -> None:
    return None


def statements(
    roots: Sequence[Node], leaf: Leaf, prefix: str = "v", known: dict[Node, Expr] | None = None,
    arrays: Arrays = _no_array,
) -> tuple[list[Statement], list[Expr]]:
    """Statements computing the roots, and the name or number that is the value of each root.

    ``leaf`` gives the value of a load, ``arrays`` where to look up entries of a parameter. ``known`` maps nodes already
    computed to their names and is extended.
    """
    values = {} if known is None else known
    made: list[Statement] = []
    shown = None
    order = topological(roots)
    in_arrays = {node: place for node in order if node.op == "pick" and (place := _in_array(node, arrays)) is not None}
    unread = _read_only_by(in_arrays, order, roots) if in_arrays else set()
    for node in order:
        if node in values or node in unread:
            continue
        if node.op == "const":
            values[node] = Number(node.value, node.dtype)
            continue
        if node.where is not None and node.where != shown:
            shown = node.where
            made.append(users_line(node.where))
        name = f"{prefix}{len(values)}"
        if node in in_arrays:
            array, first, step = in_arrays[node]
            computed: Expr = array[offset_by(values[node.args[0]] * step if step > 1 else values[node.args[0]], first)]
        else:
            computed = _computed(node, [values[a] for a in node.args], leaf)
        made.append(let(name, computed, C_TYPES[node.dtype]))
        values[node] = Name(name)
    return made, [values[r] for r in roots]


def _in_array(node: Node, arrays: Arrays) -> tuple[Expr, int, int] | None:
    """Where the values that a node picks from stand in an array: (array, first, step); None where they do not."""
    entries = node.args[1:]
    if any(one.op != "load" or one.value[:2] != entries[0].value[:2] for one in entries):
        return None
    first, step = entries[0].value[2], entries[1].value[2] - entries[0].value[2] if len(entries) > 1 else 1
    array = arrays(entries[0].value[0])
    even = step > 0 and all(one.value[2] == first + k * step for k, one in enumerate(entries))
    return (array, first, step) if array is not None and even else None


def _read_only_by(in_arrays: Container[Node], order: Sequence[Node], roots: Sequence[Node]) -> set[Node]:
    """Loads that nobody needs by themselves: only those who look them up in their array."""
    needed = {one for node in order for one in (node.args[:1] if node in in_arrays else node.args)} | set(roots)
    return {node for node in order if node.op == "load" and node not in needed}


def _picked(k: Expr, entries: Sequence[Expr], first: int = 0) -> Expr:
    """One of some values, by halves."""
    if len(entries) == 1:
        return entries[0]
    half = len(entries) // 2
    return Select(k < first + half, _picked(k, entries[:half], first), _picked(k, entries[half:], first + half))


def _looked_up(node: Node, of: list[Expr]) -> Expr:
    """An operation of ``kernel/table.py``."""
    if node.op == "index":
        return call("ml_index_of", of[0], node.value.size)
    if node.op == "pick":
        return _picked(of[0], of[1:])
    table = Name(node.value.name)
    return table[of[0]] if node.op == "entry" else call("ml_interval", table, len(node.value.values), of[0])


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
    if node.op in LOOKUPS:
        return _looked_up(node, of)
    if node.op in FUSED:
        a, b, c = of
        return fma(-a if node.op == "fnma" else a, b, -c if node.op == "fms" else c)
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
