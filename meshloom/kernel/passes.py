"""Passes over the IR: short pure functions from roots to roots.

``optimise`` is the list of them in order. Dead code needs no pass: what no root needs is never visited, so
keeping fewer roots *is* the slice (``owner`` relies on that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from meshloom.kernel.collect import collect_terms, order_products
from meshloom.kernel.contract import contract, terms_of_sums, under_edges
from meshloom.kernel.expr import BOOL, FUSED, OPS, Node, const, function_of, operate, rebuild, topological

Roots = tuple[Node, ...]
Rule = Callable[[Node], Node]


def rewrite(roots: Sequence[Node], rule: Rule) -> Roots:
    """Apply a rule to every node, arguments first."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        new[node] = rule(rebuild(node, tuple([new[a] for a in node.args])))
    return tuple([new[r] for r in roots])


def substitute(roots: Sequence[Node], value: Rule) -> Roots:
    """The same with every load replaced by a value: another load, or what somebody has computed."""
    return rewrite(roots, lambda node: value(node) if node.op == "load" else node)


def optimise(roots: Sequence[Node], *, strict: bool = False) -> Roots:
    """All passes over a kernel, in order; ``strict``: those alone that change no bit.

    Cancelling and collecting can get in each other's way: fewest operations win.
    """
    if strict:
        return as_written(roots)
    simple = fold_constants(powers_to_products(fold_constants(roots)))
    # Equal expressions are one object: where a pass has found nothing to do, nothing is done twice.
    starts = dict.fromkeys((simple, cancel_factors(simple)))
    shared = [fold_constants(share_reciprocals(start)) for start in starts]
    variants = dict.fromkeys(one for roots in shared for one in (roots, fold_constants(collect_terms(roots))))
    variants |= dict.fromkeys([fold_constants(order_products(v)) for v in variants])
    fewest = min(variants, key=_weight)
    return contract(fewest)


def composed(roots: Sequence[Node]) -> Roots:
    """What kernels compute that were put together, each to the last bit what it computes by itself: it does not matter
    what became one loop. What the others have made constant or neutral goes."""
    return rewrite(roots, _fold_exactly)


def as_written(roots: Sequence[Node]) -> Roots:
    """The formula term by term: what NumPy would compute, without what changes nothing."""
    return rewrite(rewrite(rewrite(roots, _fold_exactly), _power_of_numpy), _fold_exactly)


def _weight(roots: Roots) -> int:
    """Operations to execute; divisions and roots stay the same, so they need no weight of their own."""
    return sum(1 for n in topological(roots) if n.args and n.op != "neg")


def cancel_factors(roots: Sequence[Node]) -> Roots:
    """(a/b)*b is a: one rounding less, and exact where a/b is; but for a division by zero, which is no longer seen."""
    kept = under_edges(roots)
    new: dict[Node, Node] = {}
    for node in topological(roots):
        moved = rebuild(node, tuple(new[a] for a in node.args))
        new[node] = moved if node in kept else _cancel(moved)
    return tuple(new[r] for r in roots)


def _cancel(node: Node) -> Node:
    match node.op, node.args:
        case "mul", (a, b) if a.op == "div" and a.args[1] is b:
            return a.args[0]
        case "mul", (a, b) if b.op == "div" and b.args[1] is a:
            return b.args[0]
        case _:
            return node


def fold_constants(roots: Sequence[Node]) -> Roots:
    """Compute what is constant and drop neutral elements (x+0, x*1, x/1, --x, where of a constant).

    All of it is exact, but for the sign of a zero: -0.0 + 0.0 is 0.0, 0.0 - 0.0 is not -0.0.
    """
    return _all_folded(tuple(roots))


@lru_cache(maxsize=8)  # other passes often find nothing to do: what comes back from them has been folded already
def _all_folded(roots: Roots) -> Roots:
    """Passes change a few nodes; the others were seen before, and nothing is done twice to what stayed as it was."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        if node.folded:
            new[node] = node
            continue
        moved = rebuild(node, tuple([new[a] for a in node.args]))
        new[node] = found = _fold(moved)
        found.folded = found.folded or (found is moved and all(a.folded for a in found.args))
    return tuple([new[r] for r in roots])


def _fold(node: Node) -> Node:
    return _folded(node, _of_zero)


def _fold_exactly(node: Node) -> Node:
    """Library functions, and what NumPy rounds twice, are left to the back end: theirs may differ from NumPy's in the
    last bit."""
    special = node.op in FUSED or (node.op in OPS and OPS[node.op].kind == "special")
    return node if special else _folded(node, _neutral)


#: The operations that rules below know something about: others need not be asked after.
_SIMPLIFIED = frozenset({"add", "sub", "mul", "div", "neg", "where", "minimum", "maximum", "pick"})


def _folded(node: Node, simplified: Rule) -> Node:
    if not node.args:
        return node
    if all(a.op == "const" for a in node.args):
        with np.errstate(all="ignore"):
            value = function_of(node)(*[a.dtype.type(a.value) for a in node.args])
        return const(value, node.dtype)
    while node.op in _SIMPLIFIED and (simpler := simplified(node)) is not node:
        node = simpler
    return node


def _of_zero(node: Node) -> Node:
    """What is exact but for the sign of a zero, and what is exact."""
    match node.op, node.args:
        case "add", (a, b) if _is(b, 0):
            return a
        case "add", (a, b) if _is(a, 0):
            return b
        case "sub", (a, b) if _is(b, 0):
            return a
        case "sub", (a, b) if _is(a, 0):
            return operate("neg", (b,), node.where)
        case _:
            return _neutral(node)


def _neutral(node: Node) -> Node:
    """What is exact, whatever the values are."""
    match node.op, node.args:
        case "add", (a, b) if _is_zero(b, negative=True):
            return a
        case "add", (a, b) if _is_zero(a, negative=True):
            return b
        case "sub", (a, b) if _is_zero(b, negative=False):
            return a
        case "sub", (a, b) if _is_zero(a, negative=True):
            return operate("neg", (b,), node.where)
        case "mul", (a, b) if _is(b, 1):
            return a
        case "mul", (a, b) if _is(a, 1):
            return b
        case "mul", (a, b) if _is(b, -1):
            return operate("neg", (a,), node.where)
        case "mul", (a, b) if _is(a, -1):
            return operate("neg", (b,), node.where)
        case "div", (a, b) if _is(b, 1):
            return a
        case "div", (a, b) if b.op == "const" and _exact_reciprocal(b):
            return operate("mul", (a, const(1.0 / b.value, b.dtype)), node.where)
        case "where", (c, a, b) if c.op == "const" or a is b:
            return a if (a is b or c.value) else b
        case (("minimum" | "maximum"), (a, b)) if a is b:
            return a
        case "pick", (k, *entries) if k.op == "const":
            return entries[k.value]
        case _:
            return _signs_outwards(node)


def _signs_outwards(node: Node) -> Node:
    """Changes of sign go outwards, where a sum absorbs them."""
    match node.op, node.args:
        case "neg", (a,) if a.op == "neg":
            return a.args[0]
        case (("mul" | "div"), (a, b)) if a.op == "neg":
            return operate("neg", (operate(node.op, (a.args[0], b), node.where),), node.where)
        case (("mul" | "div"), (a, b)) if b.op == "neg":
            return operate("neg", (operate(node.op, (a, b.args[0]), node.where),), node.where)
        case "add", (a, b) if a.op == "neg":
            return operate("sub", (b, a.args[0]), node.where)
        case "add", (a, b) if b.op == "neg":
            return operate("sub", (a, b.args[0]), node.where)
        case "sub", (a, b) if b.op == "neg":
            return operate("add", (a, b.args[0]), node.where)
        case _:
            return node


def _is(node: Node, value: float) -> bool:
    return node.op == "const" and node.dtype != BOOL and node.value == value


def _is_zero(node: Node, *, negative: bool) -> bool:
    """Is it the zero of that sign? That of integers has both."""
    return _is(node, 0) and (node.dtype.kind != "f" or bool(np.signbit(node.value)) == negative)


def _exact_reciprocal(node: Node) -> bool:
    """Dividing by a power of two is multiplying by its reciprocal, bit for bit, where the type has that."""
    limits = np.finfo(node.dtype)
    mantissa, _ = np.frexp(abs(node.value))
    return bool(mantissa == 0.5) and float(limits.tiny) <= abs(1.0 / node.value) <= float(limits.max)


def powers_to_products(roots: Sequence[Node]) -> Roots:
    """x**n for whole n up to 16 as products (by squaring), x**0.5 as sqrt, x**-n as 1 over the product."""
    return rewrite(roots, _power)


def _power(node: Node) -> Node:
    if node.op != "pow" or node.args[1].op != "const":
        return node
    x, exponent = node.args[0], node.args[1].value
    if exponent == 0.5 and x.dtype.kind == "f":
        return operate("sqrt", (x,), node.where)
    if (
        not np.isfinite(exponent)
        or exponent != int(exponent)
        or abs(exponent) > 16
        or (exponent < 0 and x.dtype.kind != "f")
    ):
        return node
    product = _product(x, int(abs(exponent)), node.where)
    if exponent < 0:
        return operate("div", (const(1, x.dtype), product), node.where)
    return product


def _power_of_numpy(node: Node) -> Node:
    """The powers for which NumPy does not call the library: those of arrays to 0, 1, 2, -1 and 0.5."""
    if node.op != "pow" or node.args[1].op != "const" or node.args[1].value not in (0, 1, 2, -1, 0.5):
        return node
    return _power(node)


def _product(x: Node, n: int, where: tuple[str, int] | None) -> Node:
    if n == 0:
        return const(1, x.dtype)
    if n == 1:
        return x
    half = _product(x, n // 2, where)
    square = operate("mul", (half, half), where)
    return operate("mul", (square, x), where) if n % 2 else square


def share_reciprocals(roots: Sequence[Node]) -> Roots:
    """a/d and b/d become a*r and b*r with one r = 1/d: a division costs many multiplications.

    Right to rounding for every d in the normal range; that of a denormal d may be infinite.
    """
    kept = terms_of_sums(under_edges(roots))
    divisions = [n for n in topological(roots) if n.op == "div" and n.args[1].op != "const" and n not in kept]
    shared = {d for d, count in Counter(n.args[1] for n in divisions).items() if count > 1}
    # Decided on the original graph, so the rule looks the denominators up by where they went.
    moved: dict[Node, Node] = {}
    for node in topological(roots):
        new = rebuild(node, tuple(moved[a] for a in node.args))
        if node.op == "div" and node not in kept and node.args[1] in shared and not _is(node.args[0], 1):
            one = const(1, new.dtype)
            new = operate("mul", (new.args[0], operate("div", (one, new.args[1]), node.where)), node.where)
        moved[node] = new
    return tuple(moved[r] for r in roots)
