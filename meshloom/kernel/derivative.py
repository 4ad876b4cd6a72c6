"""Derivatives of what a kernel computes, by the chain rule through its graph: ``ml.jacobian``.

The function is called once with symbols of its own; every operation hands on the derivatives of its arguments (forward
mode), of which only those that are not zero are kept. Equal expressions are one object here, too, so that derivatives
share what they have in common with the function and with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from meshloom.kernel import expr
from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import FLOAT32, FLOAT64, Node, operate, topological
from meshloom.kernel.passes import substitute
from meshloom.kernel.symbols import Symbol, SymbolArray, to_node
from meshloom.kernel.values import fail, in_type, objects, type_of, typed, widened

Tangent = dict[int, Node]  # derivatives by the number of the variable, those that are not zero
_scopes = count(1)


def jacobian(function: Callable[[Any], Any], at: Any) -> Any:
    """The derivatives of ``function`` at the values ``at``, exact but for rounding: an array of the shape of what it
    returns followed by that of ``at``; inside a kernel, or of plain numbers.

    ``function`` takes one argument of the shape of ``at`` and does with it what a kernel may contain. Where there is a
    kink (``np.abs``, ``np.maximum``) it is the derivative of one side, ``np.sign(x)`` of ``np.abs(x)``; steps have
    none, and a root at 0 has 0.
    """
    if not callable(function):
        fail(f"jacobian: give a function of what is differentiated by, got {type(function).__name__}")
    values = widened(typed(at), FLOAT64)
    dtype = type_of(values) or FLOAT64
    if dtype not in (FLOAT32, FLOAT64):
        fail(f"jacobian: derivatives are by floating-point numbers, not by {dtype}")
    values = in_type(values, dtype)
    scope = -next(_scopes)  # those of kernels are positive: variables of each call are its own
    variables = [expr.load(-1, 0, number, dtype, scope) for number in range(values.size)]
    given = _symbols(variables, values.shape)
    images = objects(function(given.view(SymbolArray) if given.ndim else given[()]))
    kind = type_of(images) or dtype
    if kind.kind != "f":
        fail(f"jacobian: what the function returns has no derivatives, it is {kind}")
    nodes = [to_node(one, kind) for one in images.flat]
    tangents = _tangents(nodes, variables)
    zero = expr.const(0.0, kind)
    found = [expr.cast(tangents[node].get(k, zero), kind) for node in nodes for k in range(values.size)]
    own = {node: to_node(value, dtype) for node, value in zip(variables, values.flat, strict=True)}
    given_here = substitute(found, lambda load: own.get(load, load))
    result = _numbered(given_here, images.shape + values.shape, kind)
    return result.view(SymbolArray) if result.dtype == object and result.ndim else result[()]


def _numbered(nodes: Sequence[Node], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Symbols, or numbers where nothing is left that is known only at run time."""
    if any(node.op in ("load", "base") for node in topological(nodes)):
        return _symbols(nodes, shape)
    with np.errstate(all="ignore"):
        return np.array(evaluate(nodes, lambda node: node), dtype).reshape(shape)


def _symbols(nodes: Sequence[Node], shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(len(nodes), object)
    for place, node in enumerate(nodes):  # one by one: NumPy would look inside
        made[place] = Symbol(node)
    return made.reshape(shape)


def _tangents(roots: Iterable[Node], variables: list[Node]) -> dict[Node, Tangent]:
    """Of every node that the roots need."""
    number = {node: k for k, node in enumerate(variables)}
    found: dict[Node, Tangent] = {}
    for node in topological(roots):
        if node in number:
            found[node] = {number[node]: expr.const(1.0, node.dtype)}
        elif node.op in _STEPS or node.dtype.kind != "f" or not any(found[a] for a in node.args):
            found[node] = {}
        else:
            found[node] = _handed_on(node, [found[a] for a in node.args])
    return found


def _handed_on(node: Node, tangents: list[Tangent]) -> Tangent:
    """Those of an operation from those of its arguments."""
    if node.op in _CHOICES:
        condition, zero = _CHOICES[node.op](node), expr.const(0.0, node.dtype)
        yes, no = tangents[-2:]
        return {k: operate("where", (condition, yes.get(k, zero), no.get(k, zero)), node.where) for k in {**yes, **no}}
    if node.op == "pick":
        of_entries, zero = tangents[1:], expr.const(0.0, node.dtype)
        each = {k for one in of_entries for k in one}
        return {k: expr.pick(node.args[0], [one.get(k, zero) for one in of_entries], node.where) for k in sorted(each)}
    if node.op == "cast":
        return {k: expr.cast(one, node.dtype) for k, one in tangents[0].items()}
    if node.op not in _RULES:
        fail(f"jacobian: {expr.OPS[node.op].c if node.op in expr.OPS else node.op} has no rule for its derivative")
    total: Tangent = {}
    for place, tangent in enumerate(tangents):
        if not tangent:
            continue
        partial = _RULES[node.op][place](node, *node.args)
        for k, one in tangent.items():
            term = _product(partial, one)
            total[k] = _sum(total[k], term) if k in total else term
    return total


def _product(a: Node, b: Node) -> Node:
    for one, other in ((a, b), (b, a)):
        if one.op == "const" and one.value in (1.0, -1.0):
            return other if one.value == 1.0 else operate("neg", (other,))
    return operate("mul", (a, b))


def _sum(a: Node, b: Node) -> Node:
    return operate("sub", (a, b.args[0])) if b.op == "neg" else operate("add", (a, b))


# --- rules --------------------------------------------------------------------------------------------------------


def _c(value: float, like: Node) -> Node:
    return expr.const(value, like.dtype)


def _quotient(top: float, bottom: Node) -> Node:
    return operate("div", (_c(top, bottom), bottom))


def _mul(*factors: Node) -> Node:
    result = factors[0]
    for one in factors[1:]:
        result = operate("mul", (result, one))
    return result


def _square_from_one(sign: str, a: Node) -> Node:
    """1 + a^2 or 1 - a^2."""
    return operate(sign, (_c(1.0, a), _mul(a, a)))


def _unless_zero(y: Node, partial: Callable[[Node], Node]) -> Node:
    """What ``partial`` makes of y, and 0 where y is 0; it never sees that."""
    other = operate("ne", (y, _c(0.0, y)))
    safe = operate("where", (other, y, _c(1.0, y)))
    return operate("where", (other, partial(safe), _c(0.0, y)))


def _root(y: Node) -> Node:
    """1 / (2 y) of y = sqrt(a), and 0 where y is: a root of squares that are all 0 has no direction. That of a negative
    number is not a number, and neither is its derivative."""
    return _unless_zero(y, lambda safe: _quotient(0.5, safe))


def _power_by_base(y: Node, a: Node, b: Node) -> Node:
    """b a^(b - 1); 0 where b is, and at a = 0 if b is that of a root."""

    def partial(a: Node) -> Node:
        return _mul(b, operate("pow", (a, operate("sub", (b, _c(1.0, b))))))

    if b.op != "const":
        return operate("where", (operate("eq", (b, _c(0.0, b))), _c(0.0, y), partial(a)))
    if b.value == 0.0:
        return _c(0.0, y)
    return _unless_zero(a, partial) if 0.0 < b.value < 1.0 else partial(a)


def _power_by_exponent(y: Node, a: Node, b: Node) -> Node:
    """a^b log a; 0 where a is 0, as all powers there."""
    return _unless_zero(a, lambda safe: _mul(y, operate("log", (safe,))))


def _by_hypotenuse(sign: float) -> Callable[..., Node]:
    """Of arctan2: sign * the other argument over the square of the distance."""

    def partial(y: Node, a: Node, b: Node) -> Node:
        other = b if sign > 0.0 else operate("neg", (a,))
        return operate("div", (other, operate("add", (_mul(a, a), _mul(b, b)))))

    return partial


Rule = Callable[..., Node]  # of the node and its arguments: the partial derivative by one of them
_RULES: dict[str, tuple[Rule, ...]] = {
    "add": (lambda y, a, b: _c(1.0, y), lambda y, a, b: _c(1.0, y)),
    "sub": (lambda y, a, b: _c(1.0, y), lambda y, a, b: _c(-1.0, y)),
    "mul": (lambda y, a, b: b, lambda y, a, b: a),
    "div": (lambda y, a, b: _quotient(1.0, b), lambda y, a, b: operate("neg", (operate("div", (y, b)),))),
    "mod": (lambda y, a, b: _c(1.0, y), lambda y, a, b: operate("neg", (operate("floordiv", (a, b)),))),
    "neg": (lambda y, a: _c(-1.0, y),),
    "abs": (lambda y, a: operate("sign", (a,)),),
    "copysign": (lambda y, a, b: operate("copysign", (operate("sign", (a,)), _mul(a, b))), lambda y, a, b: _c(0.0, y)),
    "sqrt": (lambda y, a: _root(y),),
    "cbrt": (lambda y, a: _unless_zero(y, lambda root: _quotient(1.0 / 3.0, _mul(root, root))),),
    "pow": (_power_by_base, _power_by_exponent),
    "hypot": (
        lambda y, a, b: _unless_zero(y, lambda safe: operate("div", (a, safe))),
        lambda y, a, b: _unless_zero(y, lambda safe: operate("div", (b, safe))),
    ),
    "arctan2": (_by_hypotenuse(1.0), _by_hypotenuse(-1.0)),
    "exp": (lambda y, a: y,),
    "exp2": (lambda y, a: _mul(_c(math.log(2.0), y), y),),
    "expm1": (lambda y, a: operate("exp", (a,)),),
    "log": (lambda y, a: _quotient(1.0, a),),
    "log2": (lambda y, a: _quotient(1.0 / math.log(2.0), a),),
    "log10": (lambda y, a: _quotient(1.0 / math.log(10.0), a),),
    "log1p": (lambda y, a: _quotient(1.0, operate("add", (_c(1.0, a), a))),),
    "sin": (lambda y, a: operate("cos", (a,)),),
    "cos": (lambda y, a: operate("neg", (operate("sin", (a,)),)),),
    "tan": (lambda y, a: _square_from_one("add", y),),
    "arcsin": (lambda y, a: _quotient(1.0, operate("sqrt", (_square_from_one("sub", a),))),),
    "arccos": (lambda y, a: _quotient(-1.0, operate("sqrt", (_square_from_one("sub", a),))),),
    "arctan": (lambda y, a: _quotient(1.0, _square_from_one("add", a)),),
    "sinh": (lambda y, a: operate("cosh", (a,)),),
    "cosh": (lambda y, a: operate("sinh", (a,)),),
    "tanh": (lambda y, a: _square_from_one("sub", y),),
}
#: Piecewise constant: no derivative, whatever the arguments are.
_STEPS = {"sign", "floor", "ceil", "trunc", "rint", "floordiv", "entry", "interval"}


def _chosen_by(comparison: str) -> Callable[[Node], Node]:
    return lambda node: operate(comparison, node.args)


#: Operations that hand on one of their last two arguments, and the condition for the first of these.
_CHOICES: dict[str, Callable[[Node], Node]] = {
    "where": lambda node: node.args[0],
    "minimum": _chosen_by("le"),
    "maximum": _chosen_by("ge"),
    "fmin": _chosen_by("le"),
    "fmax": _chosen_by("ge"),
}
