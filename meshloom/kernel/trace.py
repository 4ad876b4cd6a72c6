"""Tracing: call the user's function once with symbols and keep what it computes.

Loops over slots and helper functions simply run: they unroll and inline by themselves. What comes out is checked
against the access modes.
"""

from __future__ import annotations

import itertools
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from meshloom.errors import KernelError
from meshloom.kernel import expr
from meshloom.kernel.constants import seeing_tables
from meshloom.kernel.define import place
from meshloom.kernel.expr import Node
from meshloom.kernel.listed import arrays_of_symbols
from meshloom.kernel.model import Output, Param, ParamArray, Trace
from meshloom.kernel.signature import of_all
from meshloom.kernel.stencil import Stencil
from meshloom.kernel.symbols import Symbol, SymbolArray, to_node
from meshloom.kernel.table import LookupTable
from meshloom.kernel.values import OWN_FOLDERS, enters_kernels
from meshloom.kernel.weak import symbol

NODE_WARNING = 5000
#: Compilers take minutes for so many, and longer than in proportion for more: nobody waits for that.
ENTRY_WARNING = 20_000  # numbers of tables: a compiler reads about as many in a second
MOST_NODES = 50_000
_scopes = itertools.count(1)
Place = tuple[str, int] | None  # file and line of a kernel


def trace(function: Callable[..., Any], name: str, params: Sequence[Param]) -> Trace:
    """Run ``function`` on symbols and collect its outputs, checked against the access modes."""
    scope, defined = next(_scopes), f"{place(function)}: "
    outputs = _traced(function, name, params, scope)
    _check_read_back(name, params, outputs)
    nodes = expr.topological(o.value for o in outputs)
    count, tables = len(nodes), {n.value for n in nodes if isinstance(n.value, LookupTable)}
    if count > MOST_NODES:
        raise KernelError(
            f"{defined}kernel {name} has {count} operations after unrolling, more than the {MOST_NODES} that compilers"
            " take in minutes; let elements, or repeats of a program, do what its loops do"
        )
    if count > NODE_WARNING:
        warnings.warn(
            f"{defined}kernel {name} has {count} operations after unrolling; compiling it may take minutes",
            stacklevel=2,
        )
    if (entries := sum(len(one.values) for one in tables)) > ENTRY_WARNING:
        warnings.warn(
            f"{defined}kernel {name} looks up tables of {entries} entries, which are compiled with it: that may take"
            " minutes; fewer entries do where np.interp comes between them",
            stacklevel=2,
        )
    return Trace(name, tuple(params), outputs, partial(_traced, function, name, params, scope))


@enters_kernels
def _traced(function: Callable[..., Any], name: str, params: Sequence[Param], scope: int) -> tuple[Output, ...]:
    """What one call of the function gives to its parameters; what a ``scope`` loads is the same at every call."""
    defined = f"{place(function)}: "
    arrays = [_symbols(k, p, scope) for k, p in enumerate(params)]
    try:
        with arrays_of_symbols():
            given = [_handed_over(p, a) for p, a in zip(params, arrays, strict=True)]
            returned = of_all(seeing_tables(function))(given)
    except KernelError:
        raise
    except Exception as error:
        raise KernelError(explained(error, name, {p.name: p.shape for p in params})) from error
    finally:
        for array in arrays:
            array.param = None  # a view that is left somewhere shows no parameter
    if returned is not None:
        raise KernelError(f"{defined}kernel {name} returns a value; write to a parameter instead")
    return tuple(
        o for k, p in enumerate(params) if p.mode.writes for o in _outputs(name, k, p, arrays[k], scope, defined)
    )


def _handed_over(param: Param, array: np.ndarray) -> Any:
    """What the user's function gets: a scalar where NumPy would give one and nothing is written, else an array."""
    if param.offsets:
        return Stencil(param.name, param.offsets, array.view(SymbolArray))
    return array[()] if array.ndim == 0 and not param.mode.writes else array.view(SymbolArray)


def explained(error: Exception, kernel: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """One line for an error that was raised inside a kernel: the user's line, and the shapes where they may matter."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(OWN_FOLDERS)]
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    text, listed = " ".join(str(error).split()), ""
    if text == f"'{Symbol.__name__}' object is not subscriptable":
        text = "what has one value here has no entries; to see neighbours pass field[map], or field[grid.offsets(...)]"
    if text == "'Global' object is not subscriptable":
        text = "a Global is used inside a kernel, which would see its present value for ever; pass it as an argument"
    if isinstance(error, IndexError | ValueError | TypeError | AttributeError):
        listed = f"; shapes of the parameters: {', '.join(f'{n} {s}' for n, s in shapes.items())}"
    else:
        text = f"{type(error).__name__}{': ' if text else ''}{text}"
    return f"{where}kernel {kernel}: {text}{listed}"


def _symbols(number: int, param: Param, scope: int) -> ParamArray:
    """An object array of loads (for what may be read) or of bases (for what was there before)."""
    make = expr.load if param.mode.reads else expr.base
    array = ParamArray(param.shape, object)
    array.param = param
    for index in np.ndindex(param.shape):
        array[index] = symbol(make(number, *param.address(index), param.dtype, scope), param.number)
    return array


def _outputs(kernel: str, number: int, param: Param, array: np.ndarray, scope: int, defined: str) -> list[Output]:
    """What the kernel gives to one parameter; errors without a line of their own name the definition."""
    outputs = []
    for index in np.ndindex(param.shape):
        slot, comp = param.address(index)
        node = to_node(array[index], param.dtype)
        before = (expr.load if param.mode.reads else expr.base)(number, slot, comp, param.dtype, scope)
        if param.mode.combine:
            value = _offer(node, before, param.mode.combine)
            if value is None:
                continue
            if param.mode.combine == "add" and node not in _reaching(node, before):
                where = f"{node.where[0]}:{node.where[1]}: " if node.where else defined
                raise KernelError(
                    f"{where}kernel {kernel}: parameter {param.name} is {param.mode.shown} but is set with"
                    " '='; use += or -=, or annotate it Write"
                )
        elif node is before:
            if param.mode.reads:
                continue
            raise KernelError(
                f"{defined}kernel {kernel}: parameter {param.name} is Write, but"
                f" {f'entry {list(index)}' if index else 'it'} is never set; set it, or annotate it ReadWrite"
            )
        else:
            value = node
        outputs.append(Output(number, slot, comp, expr.cast(value, param.dtype)))
    if not outputs and param.mode.combine:
        raise KernelError(
            f"{defined}kernel {kernel}: parameter {param.name} is {param.mode.shown}, but nothing is ever"
            f" {'added' if param.mode.combine == 'add' else 'offered'} to it"
        )
    return outputs


def _offer(node: Node, before: Node, combine: str) -> Node | None:
    """What remains when "what was there before" is taken off ``node``; None when nothing was combined with it."""
    terms: list[tuple[str, Node, Place]] = []  # what is combined, how, and by which line
    reaching = _reaching(node, before)
    while node is not before:
        if node.op == "cast" and node in reaching:
            node = node.args[0]
        elif combine == "add" and node.op in ("add", "sub"):
            left, right = node.args
            if node.op == "add" and right in reaching and left not in reaching:
                left, right = right, left
            terms.append((node.op, right, node.where))
            node = left
        elif combine == node.op and node.args[0] in reaching:
            terms.append((combine, node.args[1], node.where))
            node = node.args[0]
        elif combine == node.op and node.args[1] in reaching:
            terms.append((combine, node.args[0], node.where))
            node = node.args[1]
        else:
            terms.append((combine, node, node.where))  # overwritten: caught by the caller where that is not allowed
            break
    if not terms:
        return None
    terms.reverse()
    first_op, total, line = terms[0]
    if first_op == "sub":
        total = expr.operate("neg", (total,), line)
    for op, term, line in terms[1:]:
        total = expr.operate(op, (total, term), line)
    return total


def _reaching(node: Node, leaf: Node) -> set[Node]:
    """The nodes that ``node`` needs, itself included, which need the leaf."""
    found: set[Node] = set()
    for n in expr.topological([node]):
        if n is leaf or any(a in found for a in n.args):
            found.add(n)
    return found


def _check_read_back(kernel: str, params: Sequence[Param], outputs: Sequence[Output]) -> None:
    """Raise where a value that only accumulates is used for something else; name the line of that use."""
    accumulated: dict[Node, Node] = {}  # what was there before, with what was combined with it so far -> its base
    for node in expr.topological(o.value for o in outputs):
        source = next((accumulated[a] for a in node.args if a in accumulated), node if node.op == "base" else None)
        if source is None:
            continue
        accumulated[node] = source
        if node.op not in ("base", "add", "sub", "minimum", "maximum", "cast"):
            _read_back(kernel, params[source.value[0]], node)
    for output in outputs:
        if output.value in accumulated:
            _read_back(kernel, params[accumulated[output.value].value[0]], output.value)


def _read_back(kernel: str, param: Param, node: Node) -> NoReturn:
    where = f"{node.where[0]}:{node.where[1]}: " if node.where else ""
    raise KernelError(
        f"{where}kernel {kernel} reads parameter {param.name}, which is {param.mode.shown};"
        " an Inc, Min, Max or Write cannot be read back: annotate it ReadWrite, or use another one"
    )
