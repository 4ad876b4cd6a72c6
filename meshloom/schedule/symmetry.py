"""Symmetry: does an element treat its two targets alike, with the roles exchanged?

A flux does: what it gives to the second cell is what it would give to the first if cells and nodes changed places.
Then ``owner`` can evaluate every incident element from its own side: the own target's values are loaded once,
everything that depends on them alone is computed once, and no sign or slot has to be looked at.

Whether a kernel is symmetric is found by evaluating it at random points with the places exchanged: two different
expressions agree everywhere at random with probability zero.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np

from meshloom.kernel.evaluate import evaluate
from meshloom.kernel.expr import Node
from meshloom.kernel.model import Output
from meshloom.schedule.spec import LoopSpec

SAMPLES = 24


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

    def leaf(node: Node) -> np.ndarray:
        if node.value not in values:
            sample = rng.integers(0, 4, SAMPLES) if node.dtype.kind == "i" else rng.random(SAMPLES) + 0.5
            values[node.value] = sample.astype(np.float64 if node.dtype.kind == "f" else node.dtype)
        return values[node.value]

    def exchanged(node: Node) -> np.ndarray:
        param, slot, comp = node.value
        place = (param, 1 - slot, comp) if spec.params[param].map in swapped else node.value
        if place not in values:
            leaf(Node("load", (), node.dtype, place, None))
        return values[place]

    with np.errstate(all="ignore"):
        first = evaluate([pair[0].value for pair in pairs], leaf)
        second = evaluate([pair[1].value for pair in pairs], exchanged)
    tolerance = 1e-4 if any(p.dtype == np.float32 for p in spec.params) else 1e-10
    return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(first, second, strict=True))
