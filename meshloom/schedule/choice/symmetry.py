"""Symmetry: does an element treat its two targets alike, with the roles exchanged?

A flux does: what it gives to the second cell is what it would give to the first if cells and nodes changed places.
Then ``owner`` can evaluate every incident element from its own side: the own target's values are loaded once,
everything that depends on them alone is computed once, and no sign or slot has to be looked at.

Whether a kernel is symmetric is decided without rounding and without regard to the size of any number: the graph is
evaluated at random points of the numbers modulo a prime, with the places as they are and exchanged. Two meanings of
an operation are used there:

- *real*: sums, products and quotients are those of the finite field, so two rational functions that agree at random
  points are the same (a chance of about 2^-120 against it for each of two points). Any other operation is a random
  function that has the symmetries of the operation itself and no more: even for ``abs`` and ``cos``, odd for ``sin``,
  and minima and maxima by their absolute value of the difference.
- *exact*: what holds to the last bit in floating-point numbers. Sums and products are random functions too, which only
  know that they commute and what a change of sign does.

Decisions (comparisons, rounding to whole numbers, signs) see the exact values of their arguments: two formulas that
differ by a rounding error may decide differently. A kernel whose formulas are to be kept as written is compared by its
exact values throughout. A symmetry that rests on more than all this is not found, and the general way is taken.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from meshloom.kernel.expr import FUSED, Node, topological
from meshloom.kernel.model import Output
from meshloom.schedule.spec import LoopSpec

#: Of no special form: in it no integer of 64 bits is 0, and no power of two that a number can hold is 1 (nor is any
#: other small number's: half of it is prime, too).
PRIME = 31415926535897932384626433832795045243
HALF = (PRIME + 1) // 2
POINTS = 2
ODD = frozenset(("sin", "tan", "arcsin", "arctan", "sinh", "tanh", "cbrt", "sign", "trunc", "rint"))
EVEN = frozenset(("abs", "cos", "cosh", "isnan", "isinf", "isfinite"))
COMMUTING = frozenset(("and", "or", "xor"))
#: Operations that jump: there a rounding error decides between two results.
JUMPS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "sign", "copysign", "floor", "ceil", "trunc", "rint",
                   "floordiv", "mod", "interval", "arctan2", "signbit", "isnan", "isinf", "isfinite"))  # fmt: skip
Value = tuple[int, int]  # of a node: real, exact
Place = tuple[int, int, int]  # parameter, slot, component


@lru_cache(maxsize=256)
def swapped_maps(spec: LoopSpec, m: int) -> frozenset[int] | None:
    """Maps whose two slots must change places when the roles of map ``m``'s targets do; None without symmetry."""
    if spec.maps[m].arity != 2:
        return None
    outputs = [o for o in spec.racy_outputs if spec.params[o.param].map == m]
    pairs = {(o.param, o.comp): {} for o in outputs}  # type: dict[tuple[int, int], dict[int, Output]]
    for o in outputs:
        pairs[o.param, o.comp][o.slot] = o
    if any(len(slots) != 2 for slots in pairs.values()):
        return None
    others = [k for k, one in enumerate(spec.maps) if k != m and one.arity == 2]
    for count in range(len(others), -1, -1):
        for chosen in combinations(others, count):
            swapped = frozenset(chosen) | {m}
            if _agree(spec, list(pairs.values()), swapped):
                return swapped
    return None


@lru_cache(maxsize=256)
def rounded_by_side(spec: LoopSpec, m: int) -> bool:
    """Does what an element gives through map ``m`` have other bits where it is seen from the target's own side? So it
    is where two sides are the same by algebra alone."""
    return swapped_maps(spec, m) not in (None, swapped_maps(replace(spec, strict=True), m))


def seen_alike(spec: LoopSpec, m: int) -> bool:
    """Is what an element gives through map ``m`` the same to the last bit, seen from the target's own side? By maps
    that are stored: a formula's entries are computed."""
    swapped = swapped_maps(spec, m)
    return swapped is not None and not rounded_by_side(spec, m) and not any(spec.maps[k].formula for k in swapped)


def _agree(spec: LoopSpec, pairs: list[dict[int, Output]], swapped: frozenset[int]) -> bool:
    """Is what each pair's second output gives what the first would give with the places exchanged?"""

    def held(place: Place, point: int) -> int:
        return _random("load", point, *place)

    def exchanged(place: Place, point: int) -> int:
        param, slot, comp = place
        return held((param, 1 - slot, comp) if spec.params[param].map in swapped else place, point)

    which = 1 if spec.strict else 0
    for point in range(POINTS):
        first = values([pair[0].value for pair in pairs], partial(held, point=point))
        second = values([pair[1].value for pair in pairs], partial(exchanged, point=point))
        if any(a[which] != b[which] for a, b in zip(first, second, strict=True)):
            return False
    return True


def values(roots: list[Node], at: Callable[[Place], int]) -> list[Value]:
    """The roots modulo ``PRIME``, real and exact; ``at`` gives the value that a place holds."""
    found: dict[Node, Value] = {}
    for node in topological(roots):
        if node.op == "load":
            found[node] = (at(node.value),) * 2
        elif node.op == "const":
            found[node] = _constant(node.value)
        else:
            real, exact = zip(*(found[a] for a in node.args), strict=True)
            jumps = node.op in JUMPS or (node.op == "cast" and node.dtype.kind != "f")
            found[node] = _real(node, exact if jumps else real), _exact(node, exact)
    return [found[r] for r in roots]


def _constant(value: float) -> Value:
    """A number as the fraction that it is; to the last bit, zero has a sign."""
    if not math.isfinite(value):
        return (_random("const", str(value)),) * 2
    above, below = value.as_integer_ratio()
    real = above * pow(below, -1, PRIME) % PRIME
    return real, real or _random("const", str(value))


def _real(node: Node, args: tuple[int, ...]) -> int:
    """The operation in the field where it is rational, else the same as ``_exact``."""
    match node.op, args:
        case "add", (a, b):
            return (a + b) % PRIME
        case "sub", (a, b):
            return (a - b) % PRIME
        case "mul", (a, b):
            return a * b % PRIME
        case "div", (a, b) if b:
            return a * pow(b, -1, PRIME) % PRIME
        case _ if node.op in FUSED:
            return FUSED[node.op](*args) % PRIME
        case "cast", (a,) if node.dtype.kind == "f" and node.args[0].dtype.kind == "f":
            return a
    return _exact(node, args)


def _exact(node: Node, args: tuple[int, ...]) -> int:
    """A random function of the operation's own, with the symmetries that it has to the last bit."""
    op = node.op
    if all(a.dtype.kind == "i" for a in node.args) and op in ("add", "sub", "mul", *_OF_INTEGERS):
        return _of_integers(node, args)
    match op, args:
        case "neg", (a,):
            return -a % PRIME
        case "add", (a, b):
            return _sum(node, a, b)
        case "sub", (a, b):
            return _sum(node, a, -b)
        case "mul", (a, b) if a * b:  # nothing times something need not be nothing
            return _times(node, a, b)
        case _, (a, b, c) if op in FUSED:
            return _product_and_sum(node, a, b, c)
        case "div", (a, b) if a * b:
            return a * b * _random("div", node.dtype, a * a % PRIME, b * b % PRIME) % PRIME
        case (("minimum" | "maximum"), (a, b)):
            apart = _even("abs", a - b)
            return (a + b + (apart if op == "maximum" else -apart)) * HALF % PRIME
        case "where", (c, a, b):
            return (c * a + (1 - c) * b) % PRIME
        case "hypot", (a, b):
            return _random(op, *sorted((a * a % PRIME, b * b % PRIME)))
        case "copysign", (a, b) if b:  # zeros have signs
            return _even("abs", a) * _odd("sign with zeros", b) % PRIME
        case "cast", (a,):
            return _cast(node, a)
        case _, (a,) if op in ODD:
            return _odd(op, a)
        case _, (a,) if op in EVEN:
            return _even(op, a)
    return _asked(node, args)


def _asked(node: Node, args: tuple[int, ...]) -> int:
    """The same of questions, whose answers are yes or no."""
    op = node.op
    match op, args:
        case (("lt" | "gt" | "le" | "ge"), (a, b)):  # a < b, b > a and -b < -a are one question
            a, b = (a, b) if op[0] == "l" else (b, a)
            return _random(op[1:], *min((a, b), (-b % PRIME, -a % PRIME)))
        case "eq", (a, b):
            return _equal(a, b)
        case "ne", (a, b):
            return (1 - _equal(a, b)) % PRIME
        case "not", (a,) if node.dtype.kind == "b":
            return (1 - a) % PRIME
        case _ if op in COMMUTING:
            return _random(op, *sorted(args))
        case (("index" | "entry" | "interval"), _):  # each extent and each table is a function of its own
            return _random(op, str(node.value), *args)
    return _random(op, *args)


_OF_INTEGERS = ("minimum", "maximum", "lt", "gt", "le", "ge", "sign")


def _of_integers(node: Node, args: tuple[int, ...]) -> int:
    """Integers do not round, but go on at the other end: there sums are exact, and order and sign are not kept."""
    op = node.op
    if op in ("minimum", "maximum"):
        return _random(op, *sorted(args))
    if op in ("gt", "ge"):
        return _random("l" + op[1:], *reversed(args))
    return _random(op, *args) if op in _OF_INTEGERS else _real(node, args)


def _equal(a: int, b: int) -> int:
    """Is a == b, or b == a, or -a == -b? Something that is no number does not even equal itself."""
    return _random("eq", *min(sorted((a, b)), sorted((-a % PRIME, -b % PRIME))))


def _sum(node: Node, a: int, b: int) -> int:
    """Commutes, and turns around when both do."""
    total = (a + b) % PRIME
    if total == 0:  # infinity less infinity is no zero
        return _random("less itself", a * a % PRIME)
    return total * _random("add", node.dtype, total * total % PRIME, a * b % PRIME) % PRIME


def _times(node: Node, a: int, b: int) -> int:
    """Commutes, and is odd in both."""
    return a * b * _random("mul", node.dtype, a * a * b * b % PRIME, (a * a + b * b) % PRIME) % PRIME


def _product_and_sum(node: Node, a: int, b: int, c: int) -> int:
    """In one rounding: its factors commute, and it turns around when the product and what is added to it do."""
    product = _times(node, a, b) if a * b else _random("mul", a, b)
    product, added = -product if node.op == "fnma" else product, -c if node.op == "fms" else c
    total = (product + added) % PRIME
    if total == 0:
        return _random("less a product", added * added % PRIME)
    return total * _random("fma", node.dtype, total * total % PRIME, product * product % PRIME) % PRIME


def _cast(node: Node, a: int) -> int:
    """Widening changes nothing, but where integers are computed: before and after it they end at different places."""
    inner = node.args[0]
    if np.can_cast(inner.dtype, node.dtype, "safe") and (inner.dtype.kind != "i" or inner.op == "load"):
        return a
    if node.dtype.kind == "b":
        return (1 - _even("is nothing", a)) % PRIME
    if inner.dtype.kind == "i" and node.dtype.itemsize >= inner.dtype.itemsize:
        return _random(f"cast {inner.dtype} to {node.dtype}", a)
    return _odd(f"cast {inner.dtype} to {node.dtype}", a)


def _odd(op: str, a: int) -> int:
    return a * _random(op, a * a % PRIME) % PRIME


def _even(op: str, a: int) -> int:
    return _random(op, a * a % PRIME)


def _random(*what: object) -> int:
    """A number that depends on nothing but these words and numbers, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=16).digest(), "little") % PRIME
