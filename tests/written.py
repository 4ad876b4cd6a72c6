"""What a module of the package says in strings, for tests that read code."""

from __future__ import annotations

import ast
from functools import cache

HOLE = "x"  # what stands where a value is put in: text around it is judged as if it were a name
#: Expressions that may make one, and nodes in which there is none.
MAKES_TEXT = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)
WITHOUT_TEXT = (ast.Name, ast.expr_context, ast.operator, ast.alias)


def text_of(node: ast.AST) -> str | None:
    """The text that an expression makes, however it is put together, with holes; None where it makes none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    parts = _parts(node)
    if isinstance(node, ast.JoinedStr) or (parts and any(text_of(one) is not None for one in parts)):
        texts = [text_of(one) for one in parts]
        around = text_of(node.func.value) or "" if isinstance(node, ast.Call) else ""  # type: ignore[attr-defined]
        return around.join(HOLE if one is None else one for one in texts)
    filled = _filled(node)
    return None if filled is None or (text := text_of(filled)) is None else text.replace("{}", HOLE)


def _parts(node: ast.AST) -> list[ast.expr]:
    """What stands side by side in a text that is put together."""
    if isinstance(node, ast.JoinedStr):
        return [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
        joined = node.args[0]
        if text_of(node.func.value) is not None and isinstance(joined, ast.List | ast.Tuple):
            return joined.elts
    return []


def _filled(node: ast.AST) -> ast.expr | None:
    """The text that ``text % values`` or ``text.format(values)`` fills."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return node.left
    is_format = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"
    return node.func.value if is_format else None  # type: ignore[attr-defined]


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All that there are, which takes as long to find as to look at."""
    return tuple(ast.walk(tree))


@cache
def texts(tree: ast.AST) -> tuple[tuple[ast.AST, str], ...]:
    """Every text that is no documentation, with where it stands; one that is put together is one."""
    found: list[tuple[ast.AST, str]] = []
    _collect(tree, found)
    return tuple(found)


def _collect(node: ast.AST, found: list[tuple[ast.AST, str]]) -> None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    text = text_of(node) if isinstance(node, MAKES_TEXT) else None
    if text is not None:
        found.append((node, text))
        for one in _parts(node):
            if text_of(one) is None:
                _collect(one, found)
    else:
        for one in ast.iter_child_nodes(node):
            if not isinstance(one, WITHOUT_TEXT):
                _collect(one, found)
