"""Partitioners: shares, ties, weights, empty parts, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.dist.partition import PARTITIONERS, PartitionTask, even_runs, partition, runs
from meshloom.errors import UserError
from meshloom.order.curves import hilbert_order
from tests.one_line import one_line_from
from tests.order.meshes import quads

quick = settings(max_examples=60, deadline=None)
WITHOUT_PACKAGES = ("rcb", "hilbert")
PACKAGES = {"kaminpar": "kaminpar", "metis": "pymetis"}


def task_of(points: np.ndarray, weights: np.ndarray | None = None) -> PartitionTask:
    return PartitionTask(points, np.ones(len(points), int) if weights is None else weights, np.zeros((0, 2), int))


@st.composite
def clouds(draw: st.DrawFn) -> np.ndarray:
    """Points (n, d), many of them at one place or in line with each other."""
    n, d = draw(st.integers(0, 60)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    places = draw(st.sampled_from([1, 2, 3, 6, 500]))
    return rng.integers(0, places, (n, d)).astype(float) * rng.choice([1.0, 1e-9, 1e9, 5e-324, 3e305])


def rcb_reference(points: np.ndarray, weights: np.ndarray, ranks: int) -> list[int]:
    """As it is written in books, with Python's own sort and whole numbers."""
    found = [0] * len(points)

    def cut(cells: list[int], first: int, several: int) -> None:
        if several == 1 or not cells:
            for cell in cells:
                found[cell] = first
            return
        extents = [max(points[c][a] for c in cells) - min(points[c][a] for c in cells) for a in range(points.shape[1])]
        axis = extents.index(max(extents))
        total, half, low, up_to = sum(int(weights[c]) for c in cells), several // 2, [], 0
        for cell in sorted(cells, key=lambda c: (points[c][axis], c)):
            if (2 * up_to + int(weights[cell])) * several < 2 * total * half:  # its middle lies before the cut
                low.append(cell)
            up_to += int(weights[cell])
        cut(low, first, half)
        cut([cell for cell in cells if cell not in low], first + half, several - half)

    cut(list(range(len(points))), 0, ranks)
    return found


@quick
@given(clouds(), st.integers(1, 70), st.booleans())
def test_bisection_is_that_of_the_reference(points: np.ndarray, ranks: int, weighted: bool) -> None:
    weights = np.arange(len(points)) % 5 + 1 if weighted else np.ones(len(points), int)
    assert partition("rcb", task_of(points, weights), ranks).tolist() == rcb_reference(points, weights, ranks)


@quick
@given(clouds(), st.integers(1, 70), st.sampled_from(WITHOUT_PACKAGES))
def test_equal_cells_are_shared_out_evenly(points: np.ndarray, ranks: int, name: str) -> None:
    found = partition(name, task_of(points), ranks)
    assert found.dtype == np.int32 and found.shape == (len(points),)
    counts = np.bincount(found, minlength=ranks)
    assert len(counts) == ranks and counts.max() - counts.min() <= 1


@quick
@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 70))
def test_runs_have_equal_shares(given_weights: list[int], ranks: int) -> None:
    weights = np.array(given_weights, int)
    found = runs(weights, ranks)
    assert len(found) == len(weights) and (np.diff(found) >= 0).all()
    ends = np.cumsum(np.bincount(found, weights, minlength=ranks))
    even = weights.sum() * np.arange(1, ranks + 1) / ranks
    assert (np.abs(ends - even) <= 0.5 * weights.max(initial=0) + 1e-9).all()


@quick
@given(st.integers(0, 300), st.integers(1, 70))
def test_runs_of_what_weighs_the_same_are_counted(count: int, ranks: int) -> None:
    assert np.array_equal(even_runs(count, ranks), runs(np.ones(count), ranks))


def test_weights_count_by_every_partitioner_that_knows_them() -> None:
    _, n, _, centres = quads(20, 20)
    weights = np.where(centres[:, 0] < 10, 3, 1)
    for name in WITHOUT_PACKAGES:
        found = partition(name, task_of(centres, weights), 5)
        shares = np.bincount(found, weights, minlength=5)
        assert shares.max() <= 1.05 * shares.mean() and np.bincount(found).max() > 1.2 * n / 5, name


def test_hilbert_cuts_the_curve_into_runs() -> None:
    _, _, _, centres = quads(13, 9)
    assert (np.diff(partition("hilbert", task_of(centres), 7)[hilbert_order(centres)]) >= 0).all()


def test_more_ranks_than_cells_leave_some_empty() -> None:
    for name in WITHOUT_PACKAGES:
        assert np.bincount(partition(name, task_of(np.eye(3)), 8)).max() == 1
        assert partition(name, task_of(np.zeros((0, 2))), 8).tolist() == []


@pytest.mark.parametrize("name", PACKAGES)
def test_graph_partitioners_cut_few_faces(name: str) -> None:
    pytest.importorskip(PACKAGES[name])
    sides, n, _, centres = quads(24, 24)
    task = PartitionTask(centres, np.ones(n), sides)
    found = partition(name, task, 5)
    counts = np.bincount(found, minlength=5)
    assert counts.max() - counts.min() <= 1
    assert (found[sides[:, 0]] != found[sides[:, 1]]).sum() < 120  # of 1,104; at random 883
    assert (partition(name, task, 5) == found).all()
    assert np.bincount(partition(name, task, 1000)).max() == 1


@pytest.mark.parametrize(("name", "extra"), [("kaminpar", "partition"), ("metis", "metis")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    needed = rf"partitioner '{name}' needs the package {PACKAGES[name]}: pip install '.\[{extra}\]'"
    with one_line_from(UserError, needed):
        partition(name, task_of(np.eye(3)), 2)


def test_a_given_array_is_taken_as_it_is() -> None:
    assert partition([2, 0, 2], task_of(np.eye(3)), 3).tolist() == [2, 0, 2]


@pytest.mark.parametrize(("how", "message"), [
    ([0, 1], r"a partition of 3 cells is 3 whole numbers, got int64 of shape \(2,\)"),
    ([[0], [1], [0]], r"of shape \(3, 1\)"),
    ([0.0, 1.0, 0.0], "3 whole numbers, got float64"),
    ([0, 1, 2], "among 2 ranks has numbers from 0 to 1, got 2 for cell 2"),
    ([0, -1, 1], "got -1 for cell 1"),
    ("hilbrt", "unknown partitioner 'hilbrt'; did you mean 'hilbert'"),
])  # fmt: skip
def test_what_is_no_partition_is_refused(how: object, message: str) -> None:
    with one_line_from(UserError, message):
        partition(how, task_of(np.eye(3)), 2)  # type: ignore[arg-type]


def test_these_are_the_partitioners() -> None:
    assert list(PARTITIONERS) == ["rcb", "hilbert", "kaminpar", "metis"]
