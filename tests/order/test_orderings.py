"""Every ordering gives a permutation of anything, the same one every time, and is as good as it is known to be."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom import order
from meshloom.errors import MeshError, ScheduleError
from tests.order.meshes import bandwidth, profile, quads, random_maps, runs, shuffled

CHEAP = ("given", "random", "rcm", "gps", "hilbert", "rcb", "greedy", "color")
PARTITIONERS = {"kaminpar": "kaminpar", "metis": "pymetis"}
ALL = (*CHEAP, *PARTITIONERS)


def skip_unless_installed(name):
    if name in PARTITIONERS:
        pytest.importorskip(PARTITIONERS[name])


def assert_permutation(found, n):
    assert found.dtype == np.int64 and found.shape == (n,)
    np.testing.assert_array_equal(np.sort(found), np.arange(n))


def test_the_names():
    assert order.names() == ALL == tuple(order.ORDERINGS)


@pytest.mark.parametrize("name", ALL)
def test_permutations_of_random_maps(name):
    skip_unless_installed(name)

    @settings(max_examples=60 if name in CHEAP else 25, deadline=None)
    @given(random_maps(), st.integers(1, 20), st.integers(1, 3), st.integers(0, 5))
    def check(case, block, dimensions, seed):
        rows, n_targets = case
        rng = np.random.default_rng(seed)
        at_elements = rng.integers(0, 4, (len(rows), dimensions)).astype(float)  # some coincide
        at_targets = rng.random((n_targets, dimensions))
        options = {"block": block, "seed": seed}
        found = order.order_elements(name, rows, n_targets, points=at_elements, **options)
        assert_permutation(found, len(rows))
        assert_permutation(order.order_targets(name, rows, n_targets, points=at_targets, **options), n_targets)

    check()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [0, 1])
def test_nothing_and_one(name, n):
    skip_unless_installed(name)
    rows, points = np.zeros((n, 2), int), np.zeros((n, 2))
    assert_permutation(order.order_elements(name, rows, 1, points=points), n)
    assert_permutation(order.order_targets(name, rows, n, points=points), n)


@pytest.mark.parametrize("name", ALL)
def test_same_order_every_time(name):
    skip_unless_installed(name)
    faces, n, at_faces, at_cells = quads(30, 30)
    faces = shuffled(faces, n)
    twice = [order.order_elements(name, faces, n, points=at_faces, block=64, seed=5) for _ in range(2)]
    np.testing.assert_array_equal(*twice)
    twice = [order.order_targets(name, faces, n, points=at_cells, block=64, seed=5) for _ in range(2)]
    np.testing.assert_array_equal(*twice)


# Reuse of blocks of 256 faces on quadrilaterals: (at least, at most). The best square would have about 3.5.
REUSE = {
    "given": (1.9, 2.1),
    "random": (1.0, 1.1),
    "rcm": (1.9, 2.3),
    "gps": (1.9, 2.3),
    "hilbert": (3.1, 3.6),
    "rcb": (3.3, 3.6),
    "greedy": (3.3, 3.6),
    "color": (1.0, 1.01),  # but for the blocks between two colors, no two faces of a block share a cell
    "kaminpar": (3.3, 3.6),
    "metis": (3.3, 3.6),
}


@pytest.mark.parametrize("name", ALL)
def test_known_quality_of_blocks(name):
    skip_unless_installed(name)
    faces, n, at_faces, _ = quads(200, 200)
    found = order.order_elements(name, faces, n, points=at_faces)
    low, high = REUSE[name]
    assert low <= order.reuse_factor(faces, found, runs(len(faces))) <= high


@pytest.mark.parametrize("name", ["rcm", "gps", "greedy", "kaminpar", "metis"])
def test_topological_orders_do_not_depend_on_the_numbering_for_quality(name):
    skip_unless_installed(name)
    faces, n, _, _ = quads(100, 100)
    faces = shuffled(faces, n)
    found = order.order_elements(name, faces, n)
    assert order.reuse_factor(faces, found, runs(len(faces))) >= REUSE[name][0]


@pytest.mark.parametrize("name", ["rcm", "gps"])
def test_levels_bring_back_the_bandwidth_of_a_grid(name):
    faces, n, _, _ = quads(20, 90)  # natural numbering: bandwidth 20
    mixed = shuffled(faces, n)
    assert bandwidth(mixed, np.arange(n)) > 1000
    assert bandwidth(mixed, order.order_targets(name, mixed, n)) <= 21


def test_gps_is_no_worse_than_rcm_where_levels_are_uneven():
    """An O-shaped ring with one wide side: levels seen from both ends are narrower than from one."""
    faces, n, _, at = quads(40, 40)
    hole = (at[:, 0] > 10) & (at[:, 0] < 35) & (at[:, 1] > 5) & (at[:, 1] < 35)
    kept = np.cumsum(~hole) - 1
    faces = kept[faces[~hole[faces].any(axis=1)]]
    n = int((~hole).sum())
    mixed = shuffled(faces, n, seed=2)
    by_gps, by_rcm = (order.order_targets(name, mixed, n) for name in ("gps", "rcm"))
    assert profile(mixed, by_gps) <= 1.02 * profile(mixed, by_rcm)
    assert bandwidth(mixed, by_gps) <= bandwidth(mixed, by_rcm)


@pytest.mark.parametrize("name", ["rcm", "gps"])
def test_components_are_numbered_one_after_the_other(name):
    paths = np.concatenate([np.stack([np.arange(9), np.arange(1, 10)], 1) + 10 * k for k in range(5)])
    mixed = shuffled(paths, 50)
    assert bandwidth(mixed, order.order_targets(name, mixed, 50)) == 1


def test_seed_decides_the_random_order():
    first, second = (order.order_elements("random", np.zeros((50, 1), int), 1, seed=s) for s in (1, 2))
    assert (first != second).any()


def test_geometric_orderings_need_points():
    for name in ("hilbert", "rcb"):
        with pytest.raises(ScheduleError, match=f"ordering '{name}' needs the positions"):
            order.order_elements(name, [[0, 1]], 2)


@pytest.mark.parametrize("module, name", [("kaminpar", "kaminpar"), ("pymetis", "metis")])
def test_missing_partitioner_names_the_extra(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    faces, n, _, _ = quads(10, 10)
    extra = {"kaminpar": "partition", "metis": "metis"}[name]
    with pytest.raises(ScheduleError) as caught:
        order.order_elements(name, faces, n, block=16)
    assert f"pip install '.[{extra}]' in the folder" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("hilbrt", [[0]], 1), {}, "did you mean 'hilbert'"),
        (("rcm", [[0]], 1), {"block": 0}, "block must be a whole number from 1 to 1099511627776, got 0"),
        (("random", [[0]], 1), {"seed": -1}, "seed must be a whole number from 0 to 2147483647, got -1"),
        (("hilbert", [[0]], 1), {"points": [[0.0, np.nan]]}, "point 0 is"),
        (("hilbert", [[0]], 1), {"points": [[0.0, 1.0]] * 2}, "expected (1, 1 to 3)"),
        (("rcb", [[0]], 1), {"points": [[0.0] * 4]}, "expected (1, 1 to 3)"),
        (("rcm", [[7]], 7), {}, "index 7"),
    ],
)
def test_wrong_input_is_one_line(arguments, options, message):
    with pytest.raises((ScheduleError, MeshError)) as caught:
        order.order_elements(*arguments, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)
