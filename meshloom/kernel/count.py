"""Counts of the emitted program: what one element costs.

Flops are counted after the passes, by kind. ``flops`` is the sum of the arithmetic kinds; changes of sign, selections
and comparisons are listed but are no arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from meshloom.kernel.access import Mode
from meshloom.kernel.expr import FUSED, OPS, Node, topological
from meshloom.kernel.model import Output


class Combining(Protocol):
    """What is asked of a parameter here."""

    @property
    def mode(self) -> type[Mode]: ...
    @property
    def dtype(self) -> np.dtype: ...


ARITHMETIC = ("add", "mul", "div", "sqrt", "minmax", "special")
KINDS = (*ARITHMETIC, "sign", "select", "integer")
#: What it takes to cut a summand into three bins and to add these (``backend/binned.hpp``).
_DEPOSIT = {"mul": 2, "add": 7, "integer": 6}


def flops_by_kind(roots: Iterable[Node]) -> dict[str, int]:
    """Operations per element by kind, each shared expression once; integer arithmetic is kept apart. A product that
    sums have taken in counts as one by itself does, once: contraction changes no count."""
    order = topological(roots)
    found = Counter(_kind(n) for n in order if n.op in OPS)
    contracted = [n for n in order if n.op in FUSED]
    taken_in = {n.args[:2] for n in contracted} - {n.args for n in order if n.op == "mul"}
    found.update(add=len(contracted), mul=len(taken_in))
    return {k: found[k] for k in KINDS if found[k]}


def _kind(node: Node) -> str:
    kind = OPS[node.op].kind
    return "integer" if node.dtype.kind == "i" and kind != "select" else kind


#: What a unit of a processor executes an operation as (``target/limit.py``): minima and maxima go where additions go.
_INSTRUCTIONS = {"add": "multiply-add", "mul": "multiply-add", "minmax": "multiply-add", "div": "division",
                 "sqrt": "square root", "special": "special"}  # fmt: skip


def instructions(roots: Iterable[Node]) -> Counter[tuple[str, str]]:
    """What one element takes of floating-point units, by kind and type: a*b + c is one, where sums have taken it in."""
    found: Counter[tuple[str, str]] = Counter()
    for node in topological(roots):
        kind = "mul" if node.op in FUSED else _kind(node) if node.op in OPS else ""
        if node.dtype.kind == "f" and kind in _INSTRUCTIONS:
            found[_INSTRUCTIONS[kind], node.dtype.name] += 1
    return found


def repeated(times: float, each: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """So many times each."""
    return Counter({one: round(times * count) for one, count in each.items()})


def combining_instructions(params: Sequence[Combining], outputs: Iterable[Output]) -> Counter[tuple[str, str]]:
    """The same of what merges outputs into what was there before."""
    found: Counter[tuple[str, str]] = Counter()
    for output in outputs:
        described = params[output.param]
        for kind, count in combining_flops(params, [output]).items():
            if kind in _INSTRUCTIONS:
                found[_INSTRUCTIONS[kind], described.dtype.name] += count
    return found


def combining_flops(params: Sequence[Combining], outputs: Iterable[Output]) -> dict[str, int]:
    """The additions, minima and maxima that merge the outputs into what was there before."""
    found: Counter[str] = Counter()
    for output in outputs:
        mode = params[output.param].mode
        if mode.combine and params[output.param].dtype.kind == "f":
            found.update(_DEPOSIT if mode.binned else {"add" if mode.combine == "add" else "minmax": 1})
    return dict(found)


def loads(roots: Iterable[Node]) -> set[tuple[int, int, int]]:
    """(parameter, slot, component) of every value read."""
    return {n.value for n in topological(roots) if n.op == "load"}


@lru_cache(256)  # a solver by colors has hundreds of loops with one body
def live_registers(roots: tuple[Node, ...]) -> int:
    """Registers of 4 bytes for the values that are needed later on, where there are most, if expressions are evaluated
    in the order in which they are written down, and results are stored at once."""
    order = [n for n in topological(roots) if n.op != "const"]
    last_use = {n: k for k, n in enumerate(order)}
    for k, n in enumerate(order):
        last_use |= dict.fromkeys((one for one in n.args if one.op != "const"), k)
    ends = Counter[int]()
    for n, k in last_use.items():
        ends[k] += n.dtype.itemsize
    alive = most = 0
    for k, n in enumerate(order):
        alive += n.dtype.itemsize
        most = max(most, alive)
        alive -= ends[k]
    return most // 4


def arithmetic(by_kind: dict[str, int]) -> int:
    """Floating-point operations per element."""
    return sum(by_kind.get(k, 0) for k in ARITHMETIC)
