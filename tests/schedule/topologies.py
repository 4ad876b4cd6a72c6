"""Topologies to make plans for."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import meshloom as ml
from meshloom.schedule.plan.plan import Topology


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """One or two racy maps of any arity, into one set or two, from few or many elements; sometimes in another order."""
    elements = draw(st.integers(0, 70))
    targets = draw(st.integers(1, 40))
    arities = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    same = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    hub = draw(st.booleans())  # everybody meets at one target
    maps, spaces = {}, {}
    for k, arity in enumerate(arities):
        indices = rng.integers(0, targets, (elements, arity)).astype(draw(st.sampled_from([np.int32, np.int64])))
        if hub and elements:
            indices[:, 0] = 0
        maps[k], spaces[k] = (indices, targets), 0 if same else k
    order = rng.permutation(elements) if draw(st.booleans()) else None
    others = {9: rng.integers(0, 30, (elements, 3))} if draw(st.booleans()) else {}
    return Topology(elements, maps, spaces, order, "test", others)


def grid(n: int = 12) -> Topology:
    """Faces of an n x n grid of quads, each with two cells."""
    cell = np.arange(n * n).reshape(n, n)
    pairs = np.concatenate(
        [np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], 1), np.stack([cell[:-1].ravel(), cell[1:].ravel()], 1)]
    )
    return Topology(len(pairs), {0: (pairs.astype(np.int32), n * n)}, {0: 0}, None, "grid")


def neighbourly(by: str) -> Topology:
    """A grid of cells and the faces between them, with their nodes (map 9), as owner sees them on a GPU."""
    mesh = ml.generate.box((20, 20))
    faces, cells, nodes = mesh.faces.size, mesh.face_cells.indices, mesh.face_nodes.indices
    if by == "rows":  # nodes that no two faces of a cell share
        nodes = np.arange(2 * faces).reshape(-1, 2)
    swapped = {} if by == "slots" else {0: frozenset({0, 9})}
    return Topology(faces, {0: (cells, mesh.cells.size)}, {0: 0}, others={9: nodes}, swapped=swapped)
