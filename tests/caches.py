"""What of a module remembers, for tests that read code: functions with a cache, and containers that outlive a call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

#: Of ``functools``, by whatever name a module imports them.
DECORATORS = {"cache", "lru_cache"}
#: What entries are found in by a key, and what else grows.
BY_KEY = {"dict", "Recent", "defaultdict", "OrderedDict", "Counter", "set"}
GROWING = BY_KEY | {"WeakKeyDictionary", "WeakValueDictionary", "WeakCache", "WeakSet", "IdentityDict", "list", "deque"}
#: What puts something into a container.
PUTTING = {"setdefault", "update", "add", "append", "keep", "appendleft", "extend", "__setitem__"}
WRAPPED = {"ClassVar", "Final"}


class Cache(NamedTuple):
    """``keys``: the types of what it finds its entries by, None where that is not said. ``grows``: does it begin
    empty, or is something put into it? ``of_object``: is it an attribute of each object? ``kind``: "function", or what
    container it is."""

    name: str
    kind: str
    keys: tuple[ast.expr, ...] | None
    grows: bool = True
    of_object: bool = False


def called(node: ast.AST | None) -> str:
    """The last name of ``a.b(...)`` and of ``a.b[...]``."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, ast.expr | None]]:
    """(target, value, type) of an assignment, those of tuples one by one."""
    if isinstance(node, ast.AnnAssign):
        yield node.target, node.value, node.annotation
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from ((one, value, None) for one, value in zip(target.elts, node.value.elts, strict=True))
        else:
            yield target, node.value, None


def caches(tree: ast.Module) -> Iterator[Cache]:
    """All of a module: decorated functions and those that a cache is put around, wherever they are; containers of the
    module, of its classes, of their objects, and such that are the default of a parameter."""
    names = {one.asname or one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             and node.module == "functools" for one in node.names if one.name in DECORATORS} | DECORATORS  # fmt: skip
    filled = {called(one) for one in _filled(tree)}
    left: list[tuple[ast.AST, str, str]] = [(tree, "", "")]  # node, names around it, "class" or "function" if in one
    while left:
        node, around, scope = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_function(node, around, names)
            left += [(one, f"{around}{node.name}.", "function") for one in node.body]
            continue
        for target, value, said in assignments(node):
            yield from _of_assignment(target, value, said, around, filled, scope)
        if isinstance(node, ast.Call) and called(node.func) in names and not _makes_decorator(node):
            yield Cache(f"{around}{ast.unparse(node)}", "function", None)
        if isinstance(node, ast.ClassDef):
            around, scope = f"{around}{node.name}.", "class"
        left += [(one, around, scope) for one in ast.iter_child_nodes(node)]


def _filled(tree: ast.AST) -> Iterator[ast.expr]:
    """What something is put into."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTTING:
            yield node.func.value
        elif isinstance(node, ast.AugAssign):
            yield node.target


def _makes_decorator(node: ast.Call) -> bool:
    """Is it ``lru_cache(8)`` itself, or does it go around something?"""
    return not node.args or isinstance(node.args[0], ast.Constant)


def _of_function(one: ast.FunctionDef | ast.AsyncFunctionDef, around: str, names: set[str]) -> Iterator[Cache]:
    given = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs,
             *filter(None, [one.args.vararg, one.args.kwarg])]  # fmt: skip
    if {called(word) for word in one.decorator_list} & names:
        types = [arg.annotation for arg in given]
        yield Cache(f"{around}{one.name}", "function", None if None in types else tuple(filter(None, types)))
    for default in (*one.args.defaults, *filter(None, one.args.kw_defaults)):
        if kind := _container(default):
            yield Cache(f"{around}{one.name}: {ast.unparse(default)}", kind, None)


def _of_assignment(
    target: ast.expr, value: ast.expr | None, said: ast.expr | None, around: str, filled: set[str], scope: str
) -> Iterator[Cache]:
    of_object, made = scope == "function" and isinstance(target, ast.Attribute), _container(value)
    of_class = scope == "class" and (bool(made) or called(said) in WRAPPED)  # else each object has its own
    if scope and not of_object and not of_class:
        return  # gone with the call, or with the object
    while isinstance(said, ast.Subscript) and called(said) in WRAPPED:
        said = said.slice
    kind, name = called(said) if called(said) in GROWING else made, called(target)
    grows = of_object or name in filled or _is_empty(value)
    if kind and (said is not None or grows):
        keys = said.slice if isinstance(said, ast.Subscript) else None
        first = keys.elts[0] if isinstance(keys, ast.Tuple) else keys
        yield Cache(name if of_object else f"{around}{name}", kind, first and (first,), grows, of_object)


def _container(value: ast.expr | None) -> str:
    """What container an expression makes; "" where it makes none that grows."""
    if isinstance(value, ast.Dict | ast.DictComp):
        return "dict"
    if isinstance(value, ast.Set | ast.SetComp):
        return "set"
    if isinstance(value, ast.List | ast.ListComp):
        return "list"
    return called(value) if isinstance(value, ast.Call) and called(value) in GROWING else ""


def _is_empty(value: ast.expr | None) -> bool:
    """Does a container hold nothing at the start? How many entries a Recent keeps is none of them."""
    if isinstance(value, ast.Call):
        return called(value) == "Recent" or not value.args
    parts = value.keys if isinstance(value, ast.Dict) else value.elts if isinstance(value, ast.List | ast.Set) else [0]
    return value is None or not parts
