"""Collecting terms: c*(a*x + b*y) + d*(x - y) becomes (c*a + d)*x + (c*b - d)*y when that saves operations.

Several components of a flux are often sums of the same coefficients times different values: once the terms are
collected by value, the coefficients are equal expressions and are computed once. Sums are expanded only through
intermediate values that nobody else uses, so nothing that is shared is taken apart.

Nothing here can overflow or underflow that did not before, but for a margin at the ends of the range: products of
variables keep their association, since who knows how large they are, and only moderate constants are moved, each by
itself and all of a product together between 1/MODERATE and MODERATE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from meshloom.kernel.contract import under_edges
from meshloom.kernel.expr import Node, const, operate, rebuild, topological

MOST_TERMS = 12
MODERATE = 2.0**20
Term = tuple[int, float, tuple[Node, ...]]  # sign, constant factor, at most two other factors


def moderate(constant: float) -> bool:
    """May a constant be moved to another place of a product?"""
    return 1.0 / MODERATE <= abs(constant) <= MODERATE


def collect_terms(roots: Sequence[Node]) -> tuple[Node, ...]:
    """Every sum of floating-point numbers with its terms collected."""
    inner, kept = _used_once(roots, _is_chain), under_edges(roots)
    terms: dict[Node, list[Term]] = {}  # of what can be taken apart where it is used
    new: dict[Node, Node] = {}
    for node in topological(roots):
        new[node] = rebuild(node, tuple(new[a] for a in node.args))
        if not _is_chain(node) or node in kept:
            continue
        found = _terms(node, [_parts(a, terms, new) for a in node.args], new[node])
        if len(found) > MOST_TERMS:
            continue
        if node.op in ("add", "sub"):
            new[node] = _rebuilt(node, found)
        if node in inner:
            terms[node] = found
    return tuple(new[r] for r in roots)


def _used_once(roots: Sequence[Node], kind: Callable[[Node], bool]) -> set[Node]:
    """Nodes of a kind whose only use is as an argument of another one of that kind."""
    uses = Counter(a for n in topological(roots) for a in n.args)
    uses.update(roots)
    return {a for n in topological(roots) if kind(n) for a in n.args if uses[a] == 1 and kind(a)}


def _is_chain(node: Node) -> bool:
    return node.op in ("add", "sub", "mul", "neg") and node.dtype.kind == "f"


def _parts(node: Node, terms: Mapping[Node, list[Term]], new: Mapping[Node, Node]) -> list[Term]:
    """The terms of an argument; one that others use too, or that is no sum, is one factor, as it is."""
    if node.op == "const":
        return [(1, float(node.value), ())]
    return terms.get(node) or [(1, 1.0, (new[node],))]


def _terms(node: Node, parts: Sequence[list[Term]], itself: Node) -> list[Term]:
    """The terms of a node from those of its arguments; ``itself``, as one factor, where it must stay as it is."""
    if node.op == "neg":
        return [(-s, c, f) for s, c, f in parts[0]]
    left, right = parts
    if node.op != "mul":
        sign = 1 if node.op == "add" else -1
        return left + [(sign * s, c, f) for s, c, f in right]
    if len(left) > 1 and len(right) > 1:  # a product of two sums stays one
        return [(1, 1.0, (itself,))]
    found = [_times(node, t, u) for t in left for u in right]
    return [t for t in found if t is not None] if all(found) else [(1, 1.0, (itself,))]


def _times(node: Node, one: Term, other: Term) -> Term | None:
    """The product of two terms, its factors associated as they were; None where a constant is not to be moved."""
    constant = one[1] * other[1]
    if not (moderate(one[1]) and moderate(other[1]) and moderate(constant)):
        return None
    factors = one[2] + other[2]
    if len(factors) > 2:
        factors = (_multiplied(node, one[2]), _multiplied(node, other[2]))
    return one[0] * other[0], constant, factors


def _multiplied(node: Node, factors: Sequence[Node]) -> Node:
    return reduce(lambda a, b: operate("mul", (a, b), node.where), factors)


def _rebuilt(node: Node, terms: list[Term]) -> Node:
    """The sum of the terms, grouped by the factor that most of them share; loads first, then order of appearance.

    Groups are added up from left to right, so that components of the same form can be computed side by side.
    """
    constant = terms[0][1]
    if len(terms) > 1 and constant != 1.0 and moderate(constant) and all(c == constant for _, c, _ in terms):
        rest = _rebuilt(node, [(s, 1.0, f) for s, _, f in terms])
        return operate("mul", (const(constant, node.dtype), rest), node.where)
    parts: list[tuple[int, Node]] = []
    while candidates := _shared_factors(terms):
        best = max(candidates, key=lambda f: (candidates[f], f.op == "load"))
        inside = [_without(t, best) for t in terms if best in t[2]]
        terms = [t for t in terms if best not in t[2]]
        sign = inside[0][0]  # the coefficient starts with a plus, so that equal ones up to sign are shared
        coefficient = _rebuilt(node, [(sign * s, c, f) for s, c, f in inside])
        parts.append((sign, operate("mul", (coefficient, best), node.where)))
    return _sum(node, parts + [_product(node, t) for t in terms])


def _shared_factors(terms: list[Term]) -> dict[Node, int]:
    """Factors of more than one term, with the number of those, in order of appearance."""
    count = Counter(f for _, _, factors in terms for f in set(factors))
    return {f: count[f] for _, _, factors in terms for f in factors if count[f] > 1}


def _without(term: Term, factor: Node) -> Term:
    factors = list(term[2])
    factors.remove(factor)
    return term[0], term[1], tuple(factors)


def _product(node: Node, term: Term) -> tuple[int, Node]:
    sign, constant, factors = term
    nodes = list(factors)
    if constant != 1.0 or not nodes:
        nodes.insert(0, const(constant, node.dtype))
    return sign, _multiplied(node, nodes)


def _sum(node: Node, products: list[tuple[int, Node]]) -> Node:
    """Positive ones first, so that no change of sign is needed where there is one."""
    ordered = sorted(products, key=lambda p: -p[0])
    sign, total = ordered[0]
    if sign < 0:
        total = operate("neg", (total,), node.where)
    for sign, product in ordered[1:]:
        total = operate("add" if sign > 0 else "sub", (total, product), node.where)
    return total


def order_products(roots: Sequence[Node]) -> tuple[Node, ...]:
    """Products with their constant first, then reciprocals: 0.5/d is then one expression wherever it occurs."""
    inner, kept = _used_once(roots, _is_product), under_edges(roots)
    terms: dict[Node, list[Term]] = {}
    new: dict[Node, Node] = {}
    for node in topological(roots):
        new[node] = rebuild(node, tuple(new[a] for a in node.args))
        if not _is_product(node) or node in kept:
            continue
        ((_, constant, factors),) = _terms(node, [_parts(a, terms, new) for a in node.args], new[node])
        ordered = tuple(sorted(factors, key=lambda f: f.op != "div"))
        if node in inner:
            terms[node] = [(1, constant, ordered)]
        elif constant != 1.0:
            new[node] = _product(node, (1, constant, ordered))[1]
    return tuple(new[r] for r in roots)


def _is_product(node: Node) -> bool:
    return node.op == "mul" and node.dtype.kind == "f"
