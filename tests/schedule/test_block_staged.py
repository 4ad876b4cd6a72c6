"""Partial sums of blocks: what the plan holds, what the verifier rejects, and in which order terms are added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import meshloom as ml
from meshloom.errors import PlanError
from meshloom.schedule.plan.plan import Topology
from meshloom.schedule.strategies import strategy, verify
from meshloom.schedule.strategies.block_staged import PartialSumsPlan
from tests.schedule.spoil import spoilt

BLOCK = 48  # four rows of cells


def quads() -> Topology:
    """12 x 12 cells with four nodes each, row by row."""
    mesh = ml.generate.box((12, 12), cells="quad")
    return Topology(mesh.cells.size, {0: (mesh.cell_nodes.indices, mesh.nodes.size)}, {0: 0}, None, "quads")


def made(topology: Topology, block: int = BLOCK) -> PartialSumsPlan:
    plan = strategy("block_staged").plan(topology, block)
    verify(plan, topology)
    assert isinstance(plan, PartialSumsPlan)
    return plan


def test_only_targets_of_several_blocks_have_partial_sums() -> None:
    topology = quads()
    sums = made(topology).sums[0]
    rows, targets = topology.maps[0]
    blocks = [set(rows[first : first + BLOCK].ravel().tolist()) for first in range(0, len(rows), BLOCK)]
    met = [t for t in range(targets) if sum(t in one for one in blocks) > 1]
    assert sums.summed.tolist() == met and len(met) == 2 * 13
    assert sums.n_rows == sum(sum(t in one for one in blocks) for t in met) == 2 * len(met)
    assert sorted(sums.place[sums.place >= 0].tolist()) == sorted(set(range(targets)) - set(met))


@pytest.mark.parametrize(("block", "kind"), [(BLOCK, np.uint16), (16383, np.uint16), (16384, np.int32)])
def test_numbers_inside_a_block_have_16_bits_where_these_are_enough(block: int, kind: type) -> None:
    """Of 16384 elements with four nodes each the end of the entries is one too many."""
    sums = made(quads(), block).sums[0]
    assert sums.starts.dtype == sums.local.dtype == kind


def shift(position: int, by: int):
    def change(array: np.ndarray) -> None:
        array[position] = int(array[position]) + by

    return change


def swap(a: int, b: int):
    def change(array: np.ndarray) -> None:
        array[[a, b]] = array[[b, a]]

    return change


def shared(change):
    """A change at the first shared targets of the first block."""
    return lambda array: change(*np.flatnonzero(array < 0)[:2])(array)


@pytest.mark.parametrize(
    ("array", "change", "words"),
    [
        ("own_offsets0", shift(1, -1), "order of blocks|ascending|starts does not"),
        ("own_offsets0", shift(-1, -1), "does not run"),
        ("place0", shift(0, -1), "does not run"),
        ("place0", swap(0, 1), "once, ascending"),
        ("place0", shift(0, 1), "once, ascending"),
        ("place0", shift(1, 10**6), "out of bounds"),
        ("place0", shared(swap), "once, ascending"),
        ("place0", shared(lambda first, _: shift(first, -(10**6))), "out of bounds"),
        ("place0", shared(lambda first, other: lambda a: shift(first, a[other] - a[first])(a)), "missing or doubled"),
        ("starts0", shift(0, 1), "does not begin"),
        ("starts0", shift(1, -1), "not ascending"),
        ("starts0", shift(2, 1), "wrong target|not ascending"),
        ("starts0", shift(-1, -1), "does not end"),
        ("local0", shift(0, 4 * BLOCK), "out of bounds"),
        ("local0", shift(0, 1), "missing or doubled"),
        ("local0", swap(1, 2), "not ascending"),
        ("local0", lambda a: a[: 4 * BLOCK].sort(), "wrong target"),
        ("summed0", shift(0, -(10**6)), "out of bounds"),
        ("summed0", shift(-1, 10**6), "out of bounds"),
        ("summed0", swap(0, 1), "not ascending"),
        ("summed0", shift(0, -1), "wrong target|ascending"),
        ("row_offsets0", shift(1, -1), "wrong target|ascending|order of blocks"),
        ("row_offsets0", shift(-1, -1), "does not run"),
    ],
)
def test_the_verifier_rejects_spoilt_partial_sums(array: str, change, words: str) -> None:
    topology = quads()
    plan = made(topology)
    with pytest.raises(PlanError, match=words):
        verify(spoilt(plan, array, change), topology)


def test_the_verifier_rejects_a_target_of_two_blocks_without_partial_sums() -> None:
    topology = quads()
    plan = made(topology)
    sums = plan.sums[0]
    rows = -1 - np.arange(sums.row_offsets[-2], sums.row_offsets[-1])
    place = np.where(np.isin(sums.place, rows), sums.summed[-1], sums.place)
    fewer = replace(sums, place=place, summed=sums.summed[:-1].copy(), row_offsets=sums.row_offsets[:-1].copy())
    with pytest.raises(PlanError, match="two blocks has no partial sums"):
        verify(replace(plan, sums={0: fewer}), topology)


def test_targets_that_two_maps_lead_to_are_shared_by_both() -> None:
    """A field may be written through both, so a block must know what others write through either."""
    one, other = np.array([[0], [1], [2], [3]], np.int32), np.array([[0], [0], [1], [1]], np.int32)
    together = Topology(4, {0: (one, 4), 1: (other, 4)}, {0: 0, 1: 0}, None, "together")
    apart = replace(together, spaces={0: 0, 1: 1})
    assert made(together, 2).sums[0].summed.tolist() == [1] and made(together, 2).sums[1].summed.tolist() == [1]
    assert not any(len(one.summed) for one in made(apart, 2).sums.values())
    wrong = replace(made(apart, 2), sums=made(apart, 2).sums)
    with pytest.raises(PlanError, match="two blocks has no partial sums"):
        verify(wrong, together)


@ml.kernel
def spread(u: ml.Read, total: ml.Inc):
    total[0] += u
    total[1] += u


def summed(schedule: ml.Schedule, values: np.ndarray, threads: int) -> np.ndarray:
    """Elements k that give to targets k and k + 1 of some, in a circle of 7."""
    ml.use("cpu", threads=threads)
    elements, targets = ml.Set(len(values), "elements"), ml.Set(7, "targets")
    k = np.arange(len(values))
    ends = ml.Map(elements, targets, np.stack([k % 7, (k + 1) % 7], axis=1), "ends")
    total = targets.field("total")
    spread(elements, elements.field("u", data=values), total[ends], schedule=schedule)
    return total.numpy()


def test_sums_are_those_of_blocks_for_any_number_of_threads() -> None:
    values = np.random.default_rng(3).uniform(-1.0, 1.0, 1000) * 10.0 ** np.random.default_rng(4).integers(-9, 9, 1000)
    found = summed(ml.Schedule("block_staged", block=100), values, 1)
    expected = np.zeros(7)
    for first in range(0, 1000, 100):
        partial = np.zeros(7)
        for k in range(first, first + 100):
            for t in (k % 7, (k + 1) % 7):
                partial[t] += values[k]
        expected += partial
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found, summed(ml.Schedule("block_staged", block=100), values, 4))
    assert (found != summed(ml.Schedule("staged"), values, 1)).any()


def test_it_does_not_compete_where_sums_are_to_be_in_order() -> None:
    mesh = ml.generate.box((40, 40), cells="triangle")
    u, total = (mesh.cells.field(name, data=np.ones(len(mesh.cells))) for name in ("u", "total"))

    @ml.kernel
    def across(u: ml.Read, total: ml.Inc):
        total[0] += u[1]
        total[1] += u[0]

    ml.use("emulated")
    for reproducible in (False, True):
        with ml.using("emulated", reproducible=reproducible):
            loop = across.loop(mesh.faces, u[mesh.face_cells], total[mesh.face_cells])
            (one,) = (c for c in loop.candidates["strategy"] if c.what.strategy == "block_staged")
            assert (one.forbidden is not None) == reproducible and one.seconds > 0.0
            assert not reproducible or "order of elements (reproducible)" in str(one)
