"""Poisson's equation cell by cell, as one would write it down: what the tests compare with."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

import meshloom as ml

KINDS = ("dirichlet", "neumann")


def reference(edges: list[np.ndarray], centres: list[np.ndarray], low: list[Any], high: list[Any]
              ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(A, what the sides add to b) of cells with such edges and centres; an end is None (periodic), or kind and
    value."""
    shape = [len(c) for c in centres]
    number = np.arange(np.prod(shape)).reshape(shape)
    matrix, right = np.zeros((number.size, number.size)), np.zeros(number.size)
    for index in product(*map(range, shape)):
        row = number[index]
        for a, i in enumerate(index):
            area = np.prod([edges[b][index[b] + 1] - edges[b][index[b]] for b in range(len(shape)) if b != a])
            for step, given in ((-1, low[a]), (1, high[a])):
                j, at = i + step, list(index)
                inside = 0 <= j < shape[a]
                if inside or given is None:
                    at[a] = j % shape[a]
                    gap = abs(centres[a][at[a]] - centres[a][i])
                    gap = gap if inside else abs(edges[a][-1] - edges[a][0]) - gap
                    matrix[row, row] += area / gap
                    matrix[row, number[tuple(at)]] -= area / gap
                elif given[0] == "dirichlet":
                    gap = abs(edges[a][0 if step < 0 else -1] - centres[a][i])
                    matrix[row, row] += area / gap
                    right[row] += area / gap * given[1]
                else:
                    right[row] += area * given[1]
    return matrix, right


@st.composite
def problems(draw: Any, axes: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    """A small grid and what holds at its sides, for ``ml.linalg.Poisson`` and for ``reference``."""
    rank = draw(st.sampled_from(axes))
    shape = draw(st.lists(st.integers(1, (40, 9, 5)[rank - 1]), min_size=rank, max_size=rank))
    periodic = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
    dice = np.random.default_rng(draw(st.integers(0, 10**6)))
    stretched = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
    edges = [np.cumsum(dice.uniform(0.5, 1.5, n + 1) if s else np.full(n + 1, 0.3)) for n, s in
             zip(shape, stretched, strict=True)]  # fmt: skip
    sides = [[None if p else (draw(st.sampled_from(KINDS)), draw(st.sampled_from([0.0, 1.5]))) for p in periodic]
             for _ in range(2)]  # fmt: skip
    grid = ml.Grid(shape, periodic=periodic, ghosts=draw(st.integers(0, min(1, *shape))),
                   extent=[(e[0], e[-1]) for e in edges], coordinates=[0.5 * (e[1:] + e[:-1]) for e in edges],
                   aligned=draw(st.booleans()))  # fmt: skip
    return {"grid": grid, "edges": edges, "low": sides[0], "high": sides[1], "dice": dice}


def operator(problem: dict[str, Any], **options: Any) -> ml.linalg.Poisson:
    make = {"dirichlet": ml.linalg.Dirichlet, "neumann": ml.linalg.Neumann}
    low, high = ([None if g is None else make[g[0]](g[1]) for g in problem[s]] for s in ("low", "high"))
    return ml.linalg.Poisson(problem["grid"], low, high, edges=problem["edges"], **options)


def matrix_and_sides(problem: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    centres = [0.5 * (e[1:] + e[:-1]) for e in problem["edges"]]
    return reference(problem["edges"], centres, problem["low"], problem["high"])


def exact(matrix: np.ndarray, right: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """The solution; of a singular system that without a mean, for the right side without what it adds up to."""
    if np.abs(matrix.sum(axis=1)).max() > 1e-9 * np.abs(matrix).max():
        return np.linalg.solve(matrix, right)
    bordered = np.block([[matrix, volumes[:, None]], [volumes[None], np.zeros((1, 1))]])
    return np.linalg.solve(bordered, np.append(right, 0.0))[:-1]
