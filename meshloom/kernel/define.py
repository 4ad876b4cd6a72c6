"""What can be checked when a kernel is defined, before it is ever run: annotations, and writes that the text shows."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from meshloom.errors import KernelError, nearest
from meshloom.kernel.access import MODES, Mode, RandomNumbers
from meshloom.kernel.signature import Signature


def place(function: Callable[..., Any]) -> str:
    """``file:line`` of a function."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def signature_of(function: Callable[..., Any]) -> Signature:
    """The parameters with their access modes, from the annotations (also written as strings)."""
    modes: dict[str, type[Mode]] = {}
    defaults: dict[str, Any] = {}
    variadic = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            raise KernelError(
                f"{place(function)}: kernel {function.__name__}: parameter {name} must not have **: name every one"
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            variadic = name
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
        modes[name] = _mode(function, name, parameter.annotation)
    return Signature(function.__name__, modes, variadic, defaults)


_ANNOTATIONS = (*MODES, "Random")


def _mode(function: Callable[..., Any], name: str, annotation: Any) -> type[Mode]:
    text = annotation.rsplit(".", 1)[-1] if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if text in MODES and (isinstance(annotation, str) or annotation is MODES[text]):
        return MODES[text]
    if text == "Random" and (isinstance(annotation, str) or getattr(annotation, "draws", False)):
        return RandomNumbers
    start = f"{place(function)}: kernel {function.__name__}: parameter {name}"
    if annotation is inspect.Parameter.empty:
        raise KernelError(f"{start} has no access mode; annotate it with one of {', '.join(_ANNOTATIONS)}")
    raise KernelError(f"{start}: '{text or annotation}' is no access mode{nearest(text, _ANNOTATIONS)}")


#: Code that was found good with these modes. A case makes its kernels anew each time, of the same code; reading that
#: takes most of the time of making a kernel.
_GOOD: WeakKeyDictionary[CodeType, set[tuple[tuple[str, type[Mode]], ...]]] = WeakKeyDictionary()


def check_text(function: Callable[..., Any], modes: dict[str, type[Mode]]) -> None:
    """Errors that the source shows by itself: a Read that is assigned, a Write or Inc that is never touched, an output
    whose name is given to something else (``b = b + a``), so that what was meant for it would be lost.

    The exact check is made when the kernel is traced; this one speaks up earlier, at the definition.
    """
    known, given = _GOOD.setdefault(function.__code__, set()), tuple(modes.items())
    if given not in known:
        _read_text(function, modes)
        known.add(given)


def _read_text(function: Callable[..., Any], modes: dict[str, type[Mode]]) -> None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return  # no source (a notebook cell gone, a lambda): tracing will tell
    defined = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function.__name__), None)
    if defined is None:
        return  # the file changed since it was imported, so these are other lines
    first = function.__code__.co_firstlineno
    mentioned: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            mentioned.add(node.id)
        for target in _assigned(node):
            mode = modes.get(target.id)
            if mode is not None and not mode.writes:
                line = f"{function.__code__.co_filename}:{first + target.lineno - 1}"
                raise KernelError(
                    f"{line}: kernel {function.__name__}: parameter {target.id} is {mode.shown} but is written"
                    " here; annotate it Write, ReadWrite or Inc"
                )
    for name, number in _rebound(defined.body):
        if name in modes and modes[name].writes:
            set_by = f"{name} += ..." if modes[name].__name__ in ("Inc", "Sum") else f"{name}[...] = ..."
            raise KernelError(
                f"{function.__code__.co_filename}:{first + number - 1}: kernel {function.__name__}: parameter {name} is"
                f" {modes[name].shown}, and '{name} = ...' sets nothing, it only gives the name another meaning;"
                f" write {set_by}, or use another name"
            )
    for name, mode in modes.items():
        if mode.writes and name not in mentioned:
            raise KernelError(
                f"{place(function)}: kernel {function.__name__}: parameter {name} is {mode.shown} but is never"
                f" {'set' if not mode.combine else 'used'}"
            )


def _assigned(node: ast.AST) -> list[ast.Name]:
    """Names whose *content* a statement changes: ``name[...] = v``, ``name[...] += v``, ``name += v``."""
    if isinstance(node, ast.Assign):
        targets = [t for target in node.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
        return [n for t in targets if isinstance(t, ast.Subscript) and (n := _root(t))]
    if isinstance(node, ast.AugAssign):
        return [n] if (n := _root(node.target)) else []
    return []


def _rebound(body: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Names, with lines, that statements bind anew; functions and comprehensions inside have names of their own."""
    for node in body:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.AugAssign):
            yield from _rebound([node.value])
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from _rebound(list(ast.iter_child_nodes(node)))


def _root(node: ast.AST) -> ast.Name | None:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None
