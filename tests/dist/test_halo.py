"""Halos and exchange lists are what a slow and obvious reference says, and enough to compute with."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.dist.halo import DistributedSet, distributed
from meshloom.dist.ownership import EVERY, Link
from meshloom.dist.verify import verify
from tests.dist.samples import Sample, executed_by, held_by, imported_by, messages, rim_of, samples

quick = settings(max_examples=40, deadline=None)


@quick
@given(samples())
def test_layers_are_those_of_the_reference(sample: Sample) -> None:
    owner, links = sample.owner, sample.links
    found = distributed(owner, links, sample.ranks)
    assert found.keys() == owner.keys()
    for copies, layer in ((executed_by, "exec_halo"), (imported_by, "import_halo")):
        expected: dict[object, dict[tuple[int, int], list[int]]] = {key: {} for key in owner}
        for rank in range(sample.ranks):
            for key, elements in copies(rank, owner, links).items():
                for element in sorted(elements):
                    expected[key].setdefault((rank, int(owner[key][element])), []).append(element)
        for key, one in found.items():
            received, sent = messages(getattr(one, layer).receives), messages(getattr(one, layer).sends)
            assert received == expected[key] and list(received) == sorted(received)
            assert sent == {(there, here): numbers for (here, there), numbers in received.items()}
            assert list(sent) == sorted(sent)
    for key, one in found.items():
        reference = [rim_of(rank, key, owner, links) for rank in range(sample.ranks)]
        assert set(np.flatnonzero(one.rim)) == set().union(*reference)
    verify(found, links, sample.ranks)


def result_of(link: Link, x: np.ndarray, y: np.ndarray, size: int, executed: np.ndarray) -> np.ndarray:
    """A loop that reads the targets of an element and itself, and adds to the targets, elements in ascending order."""
    found = np.zeros(size)
    for element in np.flatnonzero(executed):
        value = y[element] + np.sin(x[link.rows[element]]).sum()
        for target in link.rows[element]:
            found[target] += value
    return found


@quick
@given(samples(), st.integers(0, 1000))
def test_ranks_that_know_nothing_else_compute_the_same_bits(sample: Sample, seed: int) -> None:
    """Whatever a rank does not hold is NaN there."""
    rng = np.random.default_rng(seed)
    found = distributed(sample.owner, sample.links, sample.ranks)
    for link in sample.links:
        if not link.updated or sample.owner[link.target].min(initial=0) == EVERY:
            continue
        source, target = found[link.source], found[link.target]
        x, y = rng.normal(size=len(target.owner)), rng.normal(size=len(source.owner))
        at_once = result_of(link, x, y, len(x), np.ones(len(y), bool))
        for rank in range(sample.ranks):
            own_x = np.where(held_by(rank, target), x, np.nan)
            executed = on_rank(rank, source)
            mine = result_of(link, own_x, np.where(held_by(rank, source), y, np.nan), len(x), executed)
            owned = target.owner == rank
            np.testing.assert_array_equal(mine[owned], at_once[owned])


def on_rank(rank: int, one: DistributedSet) -> np.ndarray:
    """(n,) bool: what a rank executes of a set."""
    runs = (one.owner == rank) | (one.owner == EVERY)
    for (receiver, _), numbers in messages(one.exec_halo.receives).items():
        if receiver == rank:
            runs[numbers] = True
    return runs


def test_a_row_of_cells() -> None:
    """Six cells in a row on three ranks, faces between them that add to both sides, nodes that faces read."""
    cells, faces = np.repeat(np.arange(3, dtype=np.int32), 2), np.array([0, 0, 1, 1, 2], np.int32)
    sides = np.array([(k, k + 1) for k in range(5)])
    links = [Link("faces", "cells", sides, updated=True), Link("faces", "nodes", np.arange(5)[:, None])]
    found = distributed({"cells": cells, "faces": faces, "nodes": faces}, links, 3)
    assert messages(found["faces"].exec_halo.receives) == {(1, 0): [1], (2, 1): [3]}
    assert messages(found["cells"].import_halo.receives) == {(0, 1): [2], (1, 0): [1], (1, 2): [4], (2, 1): [3]}
    assert messages(found["nodes"].import_halo.receives) == {(1, 0): [1], (2, 1): [3]}
    assert messages(found["nodes"].import_halo.sends) == {(0, 1): [1], (1, 2): [3]}
    assert np.flatnonzero(found["faces"].rim).tolist() == [1, 3]
    assert not messages(found["cells"].exec_halo.receives) and not found["cells"].rim.any()


def test_what_is_only_read_is_not_executed() -> None:
    sides = np.array([(0, 1), (1, 2)])
    owner = {"cells": np.array([0, 1, 1], np.int32), "faces": np.array([0, 1], np.int32)}
    found = distributed(owner, [Link("faces", "cells", sides)], 2)
    assert not messages(found["faces"].exec_halo.receives)
    assert messages(found["cells"].import_halo.receives) == {(0, 1): [1]}
