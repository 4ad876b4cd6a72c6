"""Symmetry: does an element treat its two targets alike, with the roles exchanged?

A flux does: what it gives to the second cell is what it would give to the first if cells and nodes changed places.
Then ``owner`` can evaluate every incident element from its own side: the own target's values are loaded once,
everything that depends on them alone is computed once, and no sign or slot has to be looked at.

Whether a kernel is symmetric is found by evaluating it at random points with the places exchanged. Sums, products and
quotients are evaluated as they are: two rational functions that agree at random points are the same. Every other
operation (roots, comparisons, selections, ...) is replaced by an arbitrary smooth function of its arguments, even for
``abs``, symmetric for minima and maxima: a symmetry that survives this holds whatever the operation does, on any
branch. A symmetry that rests on more than that is not found, and the general way is taken.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations

import numpy as np

from meshloom.kernel.expr import OPS, Node, topological
from meshloom.kernel.model import Output
from meshloom.schedule.spec import LoopSpec

SAMPLES = 24
RATIONAL = ("add", "sub", "mul", "div", "neg")


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


def _agree(spec: LoopSpec, pairs: list[dict[int, Output]], swapped: frozenset[int]) -> bool:
    rng = np.random.default_rng(12345)
    values: dict[tuple[int, int, int], np.ndarray] = {}

    def at(place: tuple[int, int, int]) -> np.ndarray:
        if place not in values:
            values[place] = rng.uniform(0.3, 2.0, SAMPLES) * rng.choice([-1.0, 1.0], SAMPLES)
        return values[place]

    def exchanged(place: tuple[int, int, int]) -> tuple[int, int, int]:
        param, slot, comp = place
        return (param, 1 - slot, comp) if spec.params[param].map in swapped else place

    first = _stand_in([pair[0].value for pair in pairs], at)
    second = _stand_in([pair[1].value for pair in pairs], lambda place: at(exchanged(place)))
    return all(np.allclose(a, b, rtol=1e-8, atol=1e-8) for a, b in zip(first, second, strict=True))


def _stand_in(roots: list[Node], at: Callable[[tuple[int, int, int]], np.ndarray]) -> list[np.ndarray]:
    """Values of the roots with every operation that is not rational replaced by an arbitrary smooth one."""
    values: dict[Node, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in topological(roots):
            args = [values[a] for a in node.args]
            if node.op == "const":
                values[node] = np.full(SAMPLES, float(node.value))
            elif node.op == "load":
                values[node] = at(node.value)
            elif node.op == "cast":
                values[node] = args[0]
            elif node.op in RATIONAL:
                values[node] = OPS[node.op].numpy(*args)
            else:
                values[node] = _arbitrary(node.op, args)
    return [values[r] for r in roots]


def _arbitrary(op: str, args: list[np.ndarray]) -> np.ndarray:
    """A smooth function of the operation's own: even for abs, symmetric for minima and maxima, a blend for where."""
    rng = np.random.default_rng(zlib.crc32(op.encode()))
    k = rng.uniform(0.5, 1.5, 4)
    if op == "where":
        return args[0] * args[1] + (1.0 - args[0]) * args[2]
    if op == "abs":
        return np.cos(k[0] * args[0]) + k[1] * args[0] ** 2
    if op in ("minimum", "maximum"):
        return np.sin(k[0] * (args[0] + args[1]) + k[1] * args[0] * args[1])
    return np.sin(sum(c * a for c, a in zip(k, args, strict=False)) + k[3])
