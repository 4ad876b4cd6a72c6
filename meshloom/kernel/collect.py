"""Collecting terms: c*(a*x + b*y) + d*(x - y) becomes (c*a + d)*x + (c*b - d)*y when that saves operations.

Several components of a flux are often sums of the same coefficients times different values: once the terms are
collected by value, the coefficients are equal expressions and are computed once. Sums are expanded only through
intermediate values that nobody else uses, so nothing that is shared is taken apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce

from meshloom.kernel.expr import Node, const, operate, rebuild, topological

MOST_TERMS = 12
Term = tuple[int, float, tuple[Node, ...]]  # sign, constant factor, other factors


def collect_terms(roots: Sequence[Node]) -> tuple[Node, ...]:
    """Every maximal sum of floating-point numbers with its terms collected."""
    uses = Counter(a for n in topological(roots) for a in n.args)
    uses.update(roots)
    inner = {a for n in topological(roots) if _is_chain(n) for a in n.args if uses[a] == 1 and _is_chain(a)}
    new: dict[Node, Node] = {}
    for node in topological(roots):
        if _is_sum(node) and node not in inner:
            new[node] = _collected(node, uses, new)
        else:
            new[node] = rebuild(node, tuple(new[a] for a in node.args))
    return tuple(new[r] for r in roots)


def _is_sum(node: Node) -> bool:
    return node.op in ("add", "sub") and node.dtype.kind == "f"


def _is_chain(node: Node) -> bool:
    return node.op in ("add", "sub", "mul", "neg") and node.dtype.kind == "f"


def _collected(node: Node, uses: Counter[Node], new: dict[Node, Node]) -> Node:
    terms = _expand(node, uses, new)
    return rebuild(node, tuple(new[a] for a in node.args)) if terms is None else _rebuilt(node, terms)


def _expand(top: Node, uses: Counter[Node], new: dict[Node, Node]) -> list[Term] | None:
    """The terms of a sum, None for more than ``MOST_TERMS``; a node that others use too is one factor, as it is."""
    chain = _chain(top, lambda n: _is_chain(n) and (uses[n] == 1 or n is top))
    found: dict[Node, list[Term] | None] = {}
    for node in chain:
        for a in node.args:
            if a not in found:
                found[a] = [(1, float(a.value), ()) if a.op == "const" else (1, 1.0, (new[a],))]
        found[node] = _expanded(node, [found[a] for a in node.args], new)
    return found[top]


def _chain(top: Node, inside: Callable[[Node], bool]) -> list[Node]:
    """``top`` and the nodes below it that are reached through nodes ``inside`` alone, arguments before users.

    Without recursion: sums may have thousands of terms.
    """
    before, stack = [], [top]
    while stack:
        node = stack.pop()
        before.append(node)
        stack += [a for a in node.args if inside(a)]
    return list(dict.fromkeys(reversed(before)))


def _expanded(node: Node, args: list[list[Term] | None], new: dict[Node, Node]) -> list[Term] | None:
    """The terms of an operation from those of its arguments."""
    several = [terms is None or len(terms) > 1 for terms in args]
    if node.op == "mul" and all(several):  # a product of two sums stays one
        return [(1, 1.0, (rebuild(node, tuple(new[a] for a in node.args)),))]
    if any(terms is None for terms in args):
        return None
    left, right = (args[0] or [], args[-1] or [])
    if node.op == "neg":
        return [(-s, c, f) for s, c, f in left]
    if node.op == "mul":
        return [(s * t, c * d, f + g) for s, c, f in left for t, d, g in right]
    sign = 1 if node.op == "add" else -1
    terms = left + [(sign * s, c, f) for s, c, f in right]
    return terms if len(terms) <= MOST_TERMS else None


def _rebuilt(node: Node, terms: list[Term]) -> Node:
    """The sum of the terms, grouped by the factor that most of them share; loads first, then order of appearance.

    Groups are added up from left to right, so that components of the same form can be computed side by side.
    """
    constant = terms[0][1]
    if len(terms) > 1 and constant != 1.0 and all(c == constant for _, c, _ in terms):
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
    return sign, reduce(lambda a, b: operate("mul", (a, b), node.where), nodes)


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
    uses = Counter(a for n in topological(roots) for a in n.args)
    uses.update(roots)
    inner = {a for n in topological(roots) if _is_product(n) for a in n.args if uses[a] == 1 and _is_product(a)}
    new: dict[Node, Node] = {}
    for node in topological(roots):
        new[node] = rebuild(node, tuple(new[a] for a in node.args))
        if _is_product(node) and node not in inner:
            factors = _factors(node, uses, new)
            if len(factors) > 2:
                new[node] = _ordered_product(node, factors)
    return tuple(new[r] for r in roots)


def _is_product(node: Node) -> bool:
    return node.op == "mul" and node.dtype.kind == "f"


def _factors(top: Node, uses: Counter[Node], new: dict[Node, Node]) -> list[Node]:
    factors, stack = [], [top]
    while stack:
        node = stack.pop()
        if _is_product(node) and (uses[node] == 1 or node is top):
            stack += reversed(node.args)
        else:
            factors.append(new[node])
    return factors


def _ordered_product(node: Node, factors: list[Node]) -> Node:
    ordered = sorted(factors, key=lambda f: {"const": 0, "div": 1}.get(f.op, 2))
    return reduce(lambda a, b: operate("mul", (a, b), node.where), ordered)
