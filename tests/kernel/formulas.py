"""Random formulas of + - * / and roots, as trees that NumPy and the tracer evaluate alike.

A tree is ("x", k), ("c", number) or (operation, tree, ...); every operation has a variable somewhere below it, so that
no number is computed by Python.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from hypothesis import strategies as st

VARIABLES = 3
Tree = tuple[Any, ...]
BINARY = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


def trees(constants: st.SearchStrategy[float], *, unary: tuple[str, ...] = (), binary: tuple[str, ...] = tuple(BINARY),
          leaves: int = 12) -> st.SearchStrategy[Tree]:  # fmt: skip
    variable = st.integers(0, VARIABLES - 1).map(lambda k: ("x", k))
    number = constants.map(lambda c: ("c", c))

    def grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        names = st.sampled_from(binary)
        kinds = [st.tuples(names, inner, inner), st.tuples(names, inner, number), st.tuples(names, number, inner)]
        if unary:
            kinds.append(st.tuples(st.sampled_from(unary), inner))
        return st.one_of(kinds)

    return st.recursive(variable, grown, max_leaves=leaves)


def grown(rng: np.random.Generator, depth: int, constants: list[float], unary: tuple[str, ...],
          binary: tuple[str, ...] = tuple(BINARY)) -> Tree:  # fmt: skip
    """A formula as deep as that, from a seed: for kernels of many formulas, which take too long to be shrunk."""
    if depth == 0:
        return "x", int(rng.integers(VARIABLES))
    if rng.random() < 0.2:
        return str(rng.choice(unary)), grown(rng, depth - 1, constants, unary, binary)
    one = grown(rng, depth - 1, constants, unary, binary)
    if rng.random() < 0.6:
        other: Tree = grown(rng, int(rng.integers(depth)), constants, unary, binary)
    else:
        other = "c", constants[rng.integers(len(constants))]
    pair = (one, other) if rng.random() < 0.5 else (other, one)
    return str(rng.choice(binary)), *pair


def value(tree: Tree, x: Any) -> Any:
    """By whatever operators and NumPy functions make of the variables."""
    kind, *rest = tree
    if kind == "x":
        return x[rest[0]]
    if kind == "c":
        return rest[0]
    args = [value(one, x) for one in rest]
    if kind in BINARY:
        return BINARY[kind](*args)
    return -args[0] if kind == "neg" else np.sqrt(args[0]) if kind == "sqrt" else args[0] ** 2


def magnitudes(tree: Tree, x: Any, seen: list[Any]) -> tuple[Any, Any]:
    """The value as written, and the sum of the magnitudes of its terms: what rounding errors are relative to.

    ``seen`` collects all of both, as far as they are no zeros, and infinity where a denominator is no larger than its
    own rounding errors: a quotient by it has no digit that is right, in whichever order its terms are added.
    """
    kind, *rest = tree
    if kind in "xc":
        found = x[rest[0]] if kind == "x" else x[0].dtype.type(rest[0])
        sizes = found, abs(found)
    else:
        (a, size_a), *others = (magnitudes(one, x, seen) for one in rest)
        if kind == "neg":
            return -a, size_a
        b, size_b = others[0]
        found = BINARY[kind](a, b)
        if kind == "div":
            sizes = found, size_a / abs(b) * (size_b / abs(b))
            seen += [np.inf] if abs(b) <= 16 * np.finfo(type(b)).eps * size_b else []
        else:
            sizes = found, size_a * size_b if kind == "mul" else size_a + size_b
    seen += [one for one in sizes if one != 0]
    return sizes
