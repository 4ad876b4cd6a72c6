"""Random kernels as data: expressions that an interpreter runs on plain arrays and on symbols alike, and prints.

An expression is a graph of ``Node``s over loads of a kernel's parameters and literals. ``evaluate`` walks it with
Python's own operators and NumPy's functions, so a kernel made of it is an ordinary NumPy function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

TYPES = tuple(np.dtype(t) for t in ("bool", "int32", "int64", "float32", "float64"))


@dataclass(frozen=True)
class Fn:
    """One operation of kernels. ``family``: how rounding goes through it (see ``bounds``)."""

    call: Callable[..., Any]
    text: str
    family: str
    count: int = 2


def _ufuncs(names: str, family: str, count: int) -> dict[str, Fn]:
    places = ", ".join("{}" for _ in range(count))
    return {n: Fn(getattr(np, n), f"np.{n}({places})", family, count) for n in names.split()}


OPS: dict[str, Fn] = {
    "add": Fn(operator.add, "({} + {})", "sum"),
    "sub": Fn(operator.sub, "({} - {})", "sum"),
    "mul": Fn(operator.mul, "({} * {})", "product"),
    "div": Fn(operator.truediv, "({} / {})", "quotient"),
    "pow": Fn(operator.pow, "({} ** {})", "power"),
    "neg": Fn(operator.neg, "(-{})", "sum", 1),
    "abs": Fn(abs, "abs({})", "exact", 1),
    "invert": Fn(operator.invert, "(~{})", "bits", 1),
    "floordiv": Fn(operator.floordiv, "({} // {})", "exact"),
    "mod": Fn(operator.mod, "({} % {})", "rounded"),
    "and": Fn(operator.and_, "({} & {})", "bits"),
    "or": Fn(operator.or_, "({} | {})", "bits"),
    "xor": Fn(operator.xor, "({} ^ {})", "bits"),
    "lshift": Fn(operator.lshift, "({} << {})", "bits"),
    "rshift": Fn(operator.rshift, "({} >> {})", "bits"),
    "lt": Fn(operator.lt, "({} < {})", "compare"),
    "le": Fn(operator.le, "({} <= {})", "compare"),
    "gt": Fn(operator.gt, "({} > {})", "compare"),
    "ge": Fn(operator.ge, "({} >= {})", "compare"),
    "eq": Fn(operator.eq, "({} == {})", "compare"),
    "ne": Fn(operator.ne, "({} != {})", "compare"),
    "where": Fn(np.where, "np.where({}, {}, {})", "select", 3),
    "clip": Fn(np.clip, "np.clip({}, {}, {})", "exact", 3),
    "square": Fn(np.square, "np.square({})", "product", 1),
    "stack": Fn(lambda *parts: np.stack(parts), "np.stack([{}])", "stack", 0),
    "array": Fn(lambda *parts: np.array(list(parts)), "np.array([{}])", "stack", 0),
    "astype": Fn(lambda a: a, "{}.astype({})", "stored", 1),
    "part": Fn(operator.getitem, "{}[{}]", "part"),
    "sum": Fn(np.sum, "np.sum({})", "reduction", 1),
    "prod": Fn(np.prod, "np.prod({})", "reduction", 1),
    "mean": Fn(np.mean, "np.mean({})", "reduction", 1),
    "max": Fn(np.max, "np.max({})", "reduction", 1),
    "min": Fn(np.min, "np.min({})", "reduction", 1),
    "norm": Fn(np.linalg.norm, "np.linalg.norm({})", "reduction", 1),
    "dot": Fn(np.dot, "np.dot({}, {})", "reduction"),
    "matmul": Fn(operator.matmul, "({} @ {})", "reduction"),
}
OPS |= _ufuncs("minimum maximum fmin fmax copysign", "exact", 2)
OPS |= _ufuncs("fabs sign floor ceil trunc rint", "exact", 1)
OPS |= _ufuncs("sqrt", "root", 1)
OPS |= _ufuncs("isnan isinf isfinite", "compare", 1)
OPS |= _ufuncs("logical_and logical_or logical_xor", "bits", 2)
OPS |= _ufuncs("logical_not", "bits", 1)
OPS |= _ufuncs("cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh", "special", 1)
OPS |= _ufuncs("hypot arctan2 float_power", "special", 2)


class BadExpression(Exception):
    """NumPy itself refuses it, or it gives a type that fields do not have."""


@dataclass(frozen=True, eq=False)
class Node:
    """``op`` of ``args``; a load names its parameter and index, a literal has a value."""

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    sample: Any = None  # what it is for parameters that are all one: its type and shape

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.sample)

    @cached_property
    def dtype(self) -> np.dtype:
        return np.asarray(self.sample).dtype

    @property
    def weak(self) -> bool:
        """A Python number, which takes the type of what it meets; or a list, which knows no arithmetic by itself."""
        return not isinstance(self.sample, np.generic | np.ndarray)

    @property
    def kind(self) -> str:
        return {"b": "bool", "i": "int", "f": "float"}[self.dtype.kind]


def literal(value: Any) -> Node:
    return Node("lit", value=value, sample=value)


def load(param: int, index: tuple[Any, ...], dtype: np.dtype, shape: tuple[int, ...], *, changes: bool) -> Node:
    """``index``: slot or offset, then component, as far as there are any. ``changes``: the kernel writes it, too, so
    that a copy is taken of what would be a view."""
    sample = np.ones(shape, dtype)
    view = changes and (bool(shape) or not index)
    return Node("load", value=(param, index, view), sample=sample if shape else sample[()])


def operate(op: str, *args: Node, value: Any = None) -> Node:
    """An operation, refused where NumPy refuses it for these types."""
    if all(a.weak for a in args):
        raise BadExpression("Python's own arithmetic on literals")
    try:
        with np.errstate(all="ignore"):
            sample = apply(op, [a.sample for a in args], value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadExpression(str(error)) from error
    if np.asarray(sample).dtype not in TYPES or np.shape(sample) not in ((), (2,), (3,), (4,)):
        raise BadExpression(f"type {np.asarray(sample).dtype}, shape {np.shape(sample)}")
    return Node(op, args, value, sample)


def apply(op: str, operands: Sequence[Any], value: Any = None) -> Any:
    if op == "part":
        return operands[0][value]
    return operands[0].astype(value) if op == "astype" else OPS[op].call(*operands)


def nodes_of(roots: Sequence[Node]) -> Iterator[Node]:
    """Every node once, arguments first."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            for a in node.args:
                yield from visit(a)
            yield node

    for root in roots:
        yield from visit(root)


def evaluate(root: Node, params: Sequence[Any], known: dict[int, Any]) -> Any:
    """The value of an expression, of plain arrays or of symbols; shared nodes once."""
    for node in nodes_of([root]):
        if id(node) in known:
            continue
        if node.op == "lit":
            known[id(node)] = node.value
        elif node.op == "load":
            number, index, changes = node.value
            entry = _entry(params[number], index)
            known[id(node)] = (np.copy(entry) if node.shape else entry[()]) if changes else entry
        else:
            known[id(node)] = apply(node.op, [known[id(a)] for a in node.args], node.value)
    return known[id(root)]


def _entry(param: Any, index: tuple[Any, ...]) -> Any:
    """``param[slot]``, ``param[slot, component]`` or ``param[offset][component]``; itself without an index."""
    if index and isinstance(index[0], tuple):
        at = param[index[0]]
        return at[index[1]] if len(index) > 1 else at
    return param[index if len(index) > 1 else index[0]] if index else param


# --- as text ------------------------------------------------------------------------------------------------------


def text_of_index(index: tuple[Any, ...]) -> str:
    if not index:
        return ""
    if isinstance(index[0], tuple):
        rest = f"[{index[1]}]" if len(index) > 1 else ""
        return f"[{', '.join(map(str, index[0]))}]{rest}"
    return f"[{', '.join(map(str, index))}]"


def text_of_literal(value: Any) -> str:
    if isinstance(value, list):
        return repr(value)
    if isinstance(value, np.generic):
        inner = value.item()
        shown = repr(inner) if np.isfinite(inner) else f'"{inner}"'
        return f"np.{value.dtype.name}({shown})" if value.dtype.kind != "b" else f"np.bool_({value})"
    if not np.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if value < 0 or np.signbit(value) else repr(value)


def source(roots: Sequence[Node], names: Sequence[str], lifted: Mapping[int, str]) -> tuple[list[str], list[str]]:
    """Lines that name shared values, and the text of each root. ``lifted``: literals that have a name, by identity."""
    uses: dict[int, int] = {}
    for node in nodes_of(roots):
        for a in node.args:
            uses[id(a)] = uses.get(id(a), 0) + 1
    lines: list[str] = []
    texts: dict[int, str] = {}
    for node in nodes_of(roots):
        if node.op == "lit":
            text = lifted.get(id(node)) or text_of_literal(node.value)
        elif node.op == "load":
            text = names[node.value[0]] + text_of_index(node.value[1])
            text = (f"np.copy({text})" if node.shape else f"{text}[()]") if node.value[2] else text
        elif node.op in ("stack", "array"):
            text = f"np.{node.op}([{', '.join(texts[id(a)] for a in node.args)}])"
        elif node.op == "astype":
            text = f"{texts[id(node.args[0])]}.astype(np.{node.value.name})"
        elif node.op == "part":
            text = f"{texts[id(node.args[0])]}[{node.value}]"
        else:
            text = OPS[node.op].text.format(*(texts[id(a)] for a in node.args))
        if node.args and uses.get(id(node), 0) > 1:
            lines.append(f"t{len(lines)} = {text}")
            text = f"t{len(lines) - 1}"
        texts[id(node)] = text
    return lines, [texts[id(r)] for r in roots]
