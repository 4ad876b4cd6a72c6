"""The parts orderings are made of: graphs, curves, exact partitions, following, measures of quality."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import reverse_cuthill_mckee

from meshloom.order import follow, lines_per_block, order_elements, reuse_factor
from meshloom.order.curves import bisect, hilbert_keys, hilbert_order
from meshloom.order.graph import (
    HUB_WINDOW,
    Graph,
    cuthill_mckee,
    element_graph,
    gibbs_poole_stockmeyer,
    lexicographic,
    target_graph,
)
from meshloom.order.partition import block_sizes, exact, order_by_labels, write_parhip
from tests.order.meshes import bandwidth, quads, random_maps, runs, shuffled

quick = settings(max_examples=60, deadline=None)


def dense(graph, weights):
    matrix = np.zeros((graph.n, graph.n), int)
    for v in range(graph.n):
        for i in range(graph.offsets[v], graph.offsets[v + 1]):
            assert matrix[v, graph.neighbors[i]] == 0, "a neighbor twice"
            matrix[v, graph.neighbors[i]] = weights[i] if weights is not None else 1
    return matrix


@quick
@given(random_maps(), st.booleans(), st.booleans())
def test_graphs_join_what_shares_a_link(case, of_elements, weighted):
    rows, n_targets = case
    assume(np.bincount(rows.ravel()).max(initial=0) <= HUB_WINDOW)
    touches = np.zeros((len(rows), n_targets), int)
    for element, row in enumerate(rows):
        touches[element, row] = 1
    common = touches @ touches.T if of_elements else touches.T @ touches
    np.fill_diagonal(common, 0)
    graph = (element_graph if of_elements else target_graph)(rows, n_targets, weighted=weighted)
    np.testing.assert_array_equal(dense(graph, graph.weights), common if weighted else common > 0)


@pytest.mark.parametrize("arity", [1, 3])
def test_a_hub_does_not_make_a_complete_graph(arity):
    rng = np.random.default_rng(0)
    rows = np.zeros((1000, arity), int)
    rows[:, 1:] = rng.integers(0, 3, (1000, arity - 1))  # elements that touch hubs twice
    graph = element_graph(rows, 3, weighted=True)
    matrix = dense(graph, graph.weights)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.diff(graph.offsets).max() <= 2 * HUB_WINDOW * arity * arity
    assert (np.diag(matrix, 1) > 0).all()


@quick
@given(random_maps())
def test_numberings_are_permutations(case):
    rows, n_targets = case
    graph = target_graph(rows, n_targets)
    for number in (cuthill_mckee, gibbs_poole_stockmeyer):
        assert sorted(number(graph)) == list(range(n_targets))


def test_cuthill_mckee_is_as_good_as_scipy():
    faces, n, _, _ = quads(25, 40)
    rng = np.random.default_rng(1)
    faces = faces[rng.random(len(faces)) < 0.9]  # a grid with holes in it
    mixed = shuffled(faces, n)
    ones = np.ones(len(mixed))
    matrix = sp.coo_matrix((ones, (mixed[:, 0], mixed[:, 1])), (n, n)).tocsr()
    theirs = bandwidth(mixed, reverse_cuthill_mckee(matrix + matrix.T, symmetric_mode=True))
    assert bandwidth(mixed, cuthill_mckee(target_graph(mixed, n))) <= 1.1 * theirs


@quick
@given(random_maps(), st.integers(0, 100))
def test_lexicographic_sorts_rows_by_places(case, seed):
    rows, n_targets = case
    places = np.random.default_rng(seed).permutation(n_targets)
    found = lexicographic(rows, np.argsort(places))
    keys = np.sort(places[rows], axis=1).tolist()
    assert found.tolist() == sorted(range(len(rows)), key=lambda e: (keys[e], e))


@pytest.mark.parametrize("dimensions, side", [(2, 16), (3, 8)])
def test_hilbert_steps_from_cell_to_neighboring_cell(dimensions, side):
    points = np.array(list(itertools.product(range(side), repeat=dimensions)), float)
    points = np.random.default_rng(0).permutation(points)
    assert len(np.unique(hilbert_keys(points))) == len(points)
    steps = np.abs(np.diff(points[hilbert_order(points)], axis=0)).sum(axis=1)
    np.testing.assert_array_equal(steps, 1)


def test_hilbert_in_one_dimension_and_for_coinciding_points():
    assert hilbert_order(np.array([[3.0], [1.0], [2.0]])).tolist() == [1, 2, 0]
    assert hilbert_order(np.ones((4, 2))).tolist() == [0, 1, 2, 3]


def test_hilbert_cells_are_square_whatever_the_extent():
    """A strip 100 times longer than wide is walked along, not across: neighbors in order are close in space."""
    rng = np.random.default_rng(0)
    points = rng.random((4000, 2)) * [100.0, 1.0]
    steps = np.linalg.norm(np.diff(points[hilbert_order(points)], axis=0), axis=1)
    assert steps.mean() < 0.3


def test_bisection_cuts_a_square_into_squares():
    points = np.random.default_rng(0).permutation(np.array(list(itertools.product(range(64), repeat=2)), float))
    found = bisect(points, 64)
    for block in found.reshape(-1, 64):
        assert np.ptp(points[block], axis=0).tolist() == [7, 7]


@quick
@given(st.integers(1, 3), st.integers(0, 300), st.integers(1, 40), st.integers(0, 100))
def test_bisection_separates_the_halves(dimensions, n, block, seed):
    points = np.random.default_rng(seed).random((n, dimensions))
    found = bisect(points, block)
    assert sorted(found) == list(range(n))
    blocks = -(-n // block)
    if blocks >= 2:
        axis = int(np.argmax(np.ptp(points, axis=0)))
        cut = blocks // 2 * block
        assert points[found[:cut], axis].max() <= points[found[cut:], axis].min()


@quick
@given(st.integers(0, 200), st.integers(1, 30), st.integers(0, 100))
def test_exact_moves_only_the_surplus(n, block, seed):
    sizes = block_sizes(n, block)
    assert sizes.sum() == n and (sizes[:-1] == block).all()
    labels = np.random.default_rng(seed).integers(0, max(len(sizes), 1), n)
    fixed = exact(labels, sizes)
    np.testing.assert_array_equal(np.bincount(fixed, minlength=len(sizes)), sizes)
    surplus = np.maximum(np.bincount(labels, minlength=len(sizes)) - sizes, 0).sum()
    assert (fixed != labels).sum() == surplus


def test_blocks_follow_the_given_order_and_the_short_one_comes_last():
    labels = np.array([2, 2, 0, 0, 1, 2, 0])  # blocks of 3, 1, 3
    found = order_by_labels(labels, np.array([6, 5, 4, 3, 2, 1, 0]))
    assert found.tolist() == [6, 3, 2, 5, 1, 0, 4]


def test_kaminpar_reads_what_was_written(tmp_path):
    kaminpar = pytest.importorskip("kaminpar")
    faces, n, _, _ = quads(4, 3)
    for weighted in (False, True):
        graph = element_graph(faces, n, weighted=weighted)
        write_parhip(tmp_path / "graph", graph)
        loaded = kaminpar.load_graph(str(tmp_path / "graph"), kaminpar.GraphFileFormat.PARHIP)
        assert (loaded.n(), loaded.m()) == (graph.n, len(graph.neighbors))
        for v in range(graph.n):
            mine = slice(graph.offsets[v], graph.offsets[v + 1])
            weights = graph.weights[mine] if graph.weights is not None else np.ones(np.diff(graph.offsets)[v], int)
            assert sorted(loaded.neighbors(v)) == sorted(zip(graph.neighbors[mine], weights, strict=True))


@pytest.mark.parametrize("name, module", [("kaminpar", "kaminpar"), ("metis", "pymetis")])
def test_partitions_fill_blocks_exactly(name, module):
    pytest.importorskip(module)
    faces, n, _, _ = quads(40, 40)
    found = order_elements(name, faces, n, block=100)
    graph = element_graph(faces, n)
    place = np.empty(len(faces), int)
    place[found] = np.arange(len(faces))
    same = [(place[graph.neighbors[graph.offsets[e] : graph.offsets[e + 1]]] // 100 == place[e] // 100).mean()
            for e in range(len(faces))]
    assert np.mean(same) > 0.75  # runs of 100 are compact blocks; a shifted cut would break them


@quick
@given(random_maps(), st.integers(0, 100))
def test_follow_is_the_order_of_first_touch(case, seed):
    rows, n_targets = case
    elements = np.random.default_rng(seed).permutation(len(rows))
    seen = list(dict.fromkeys(rows[elements].ravel().tolist()))
    rest = sorted(set(range(n_targets)) - set(seen))
    assert follow(elements, rows, n_targets).tolist() == seen + rest


@quick
@given(random_maps(), st.integers(1, 20), st.integers(0, 100))
def test_follow_with_blocks_groups_by_the_set_of_blocks(case, block, seed):
    rows, n_targets = case
    elements = np.random.default_rng(seed).permutation(len(rows))
    blocks = [set() for _ in range(n_targets)]
    for k, element in enumerate(elements):
        for target in rows[element]:
            blocks[target].add(k // block)
    touch = {target: k for k, target in enumerate(follow(elements, rows, n_targets))}
    expected = sorted(range(n_targets), key=lambda t: (not blocks[t], sorted(blocks[t]), touch[t]))
    assert follow(elements, rows, n_targets, block).tolist() == expected


def test_grouping_saves_cache_lines():
    faces, n, at_faces, _ = quads(100, 100)
    elements = order_elements("hilbert", faces, n, points=at_faces)

    def cache_lines(cell_order):
        place = np.empty(n, int)
        place[cell_order] = np.arange(n)
        return lines_per_block(place[faces], elements, runs(len(faces)), 32)

    grouped, touched = cache_lines(follow(elements, faces, n, 256)), cache_lines(follow(elements, faces, n))
    scattered = cache_lines(np.random.default_rng(0).permutation(n))
    assert grouped < 0.95 * touched < touched < 0.7 * scattered


@quick
@given(random_maps(), st.integers(1, 20), st.integers(1, 100), st.integers(0, 100))
def test_quality_by_hand(case, block, size, seed):
    rows, _ = case
    elements = np.random.default_rng(seed).permutation(len(rows))
    offsets = runs(len(rows), block)
    parts = [rows[elements[a:b]].ravel() for a, b in itertools.pairwise(offsets)]
    distinct = sum(len(np.unique(part)) for part in parts)
    assert reuse_factor(rows, elements, offsets) == (rows.size / distinct if distinct else 1.0)
    cache_lines = [len({byte // 64 for t in part for byte in range(t * size, (t + 1) * size)}) for part in parts]
    assert lines_per_block(rows, elements, offsets, size) == pytest.approx(np.mean(cache_lines) if cache_lines else 0.0)


def test_a_graph_knows_its_size():
    assert Graph(np.array([0, 1, 2]), np.array([1, 0])).n == 2
