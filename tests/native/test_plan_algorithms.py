"""Incidence, colorings and block growing against slow references written from their definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.errors import MeshError
from meshloom.native.algorithms import (
    color_blocks,
    color_elements,
    grow_blocks,
    grow_target_blocks,
    incidence,
    lines_touched,
    thread_colors,
)

quick = settings(max_examples=60, deadline=None)


@st.composite
def maps(draw, count=1, max_elements=40):
    """(list of index arrays (n, arity), list of target counts): any arity from 1 to 8, either index type."""
    n = draw(st.integers(0, max_elements))
    arrays, sizes = [], []
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    for _ in range(draw(st.integers(1, count))):
        size, arity = draw(st.integers(1, 60)), draw(st.integers(1, 8))
        dtype = draw(st.sampled_from([np.int32, np.int64]))
        arrays.append(rng.integers(0, size, (n, arity)).astype(dtype))
        sizes.append(size)
    return arrays, sizes


@st.composite
def blocked_maps(draw):
    """Maps, an order of their elements and offsets of blocks of uneven size, some empty."""
    arrays, sizes = draw(maps(count=3))
    n = len(arrays[0])
    order = np.random.default_rng(draw(st.integers(0, 1000))).permutation(n)
    cuts = draw(st.lists(st.integers(0, n), max_size=8))
    return arrays, sizes, order, np.array([0, *sorted(cuts), n])


def targets_of(arrays, elements):
    return {(m, int(t)) for m, rows in enumerate(arrays) for t in rows[elements].ravel()}


def greedy(target_sets):
    """Smallest color that no earlier item with a common target has."""
    colors = []
    for k, mine in enumerate(target_sets):
        taken = {colors[j] for j in range(k) if target_sets[j] & mine}
        colors.append(next(c for c in range(k + 1) if c not in taken))
    return np.array(colors, np.int32)


@quick
@given(maps())
def test_incidence_lists_the_slots_of_each_target(case):
    [rows], [n_targets] = case
    offsets, entries = incidence(rows, n_targets)
    flat = rows.ravel()
    np.testing.assert_array_equal(entries, np.argsort(flat, kind="stable"))
    np.testing.assert_array_equal(np.diff(offsets), np.bincount(flat, minlength=n_targets))
    assert offsets[0] == 0 and offsets.dtype == np.int64 and entries.dtype == np.int32


@quick
@given(maps(count=3))
def test_element_colors_are_greedy(case):
    arrays, sizes = case
    colors = color_elements(arrays, sizes)
    np.testing.assert_array_equal(colors, greedy([targets_of(arrays, [e]) for e in range(len(arrays[0]))]))


@quick
@given(maps(count=2))
def test_elements_of_one_color_share_no_target(case):
    arrays, sizes = case
    colors = color_elements(arrays, sizes)
    for rows, size in zip(arrays, sizes, strict=True):
        users = np.zeros((colors.max(initial=0) + 1, size), int)
        for element, row in enumerate(rows):
            users[colors[element], np.unique(row)] += 1
        assert users.max(initial=0) <= 1


@quick
@given(blocked_maps())
def test_block_colors_are_greedy(case):
    arrays, sizes, order, offsets = case
    colors = color_blocks(offsets, order, arrays, sizes)
    blocks = [order[a:b] for a, b in itertools.pairwise(offsets)]
    np.testing.assert_array_equal(colors, greedy([targets_of(arrays, block) for block in blocks]))


@quick
@given(blocked_maps())
def test_thread_colors_are_greedy_within_each_block(case):
    arrays, sizes, order, offsets = case
    colors = thread_colors(offsets, order, arrays, sizes)
    for a, b in itertools.pairwise(offsets):
        block = order[a:b]
        np.testing.assert_array_equal(colors[block], greedy([targets_of(arrays, [e]) for e in block]))


def test_elements_in_no_block_keep_no_color():
    colors = thread_colors([0, 1], [2], [np.zeros((4, 1), int)], [1])
    assert colors.tolist() == [-1, -1, 0, -1]


def test_hub_needs_as_many_colors_as_elements():
    n = 10_000
    rows = np.stack([np.zeros(n, np.int32), np.arange(1, n + 1, dtype=np.int32)], axis=1)
    np.testing.assert_array_equal(color_elements([rows], [n + 1]), np.arange(n))
    offsets = np.arange(0, n + 1, 50)
    np.testing.assert_array_equal(color_blocks(offsets, np.arange(n), [rows], [n + 1]), np.arange(n // 50))
    offsets = np.arange(0, n + 1, 500)
    np.testing.assert_array_equal(thread_colors(offsets, np.arange(n), [rows], [n + 1]), np.arange(n) % 500)


def test_colors_around_the_width_of_a_mask_are_greedy():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 6, (300, 2))  # six targets: about a hundred elements each
    colors = color_elements([rows], [6])
    assert colors.max() > 64
    np.testing.assert_array_equal(colors, greedy([targets_of([rows], [e]) for e in range(300)]))


def test_an_element_does_not_conflict_with_itself():
    assert color_elements([np.array([[3, 3], [4, 4]])], [5]).tolist() == [0, 0]


@quick
@given(maps(max_elements=40), st.integers(10, 50), st.integers(0, 100))
def test_growing_takes_what_brings_the_fewest_new_targets(case, block, seed):
    [rows], [n_targets] = case
    check_growth(rows, n_targets, block, seed)


def test_growing_counts_an_element_that_touches_a_target_twice_once():
    """Only what a hub of more than 4 * block elements leaves out may be missed, and here are no more than 40."""
    for seed in range(20):
        rows = np.random.default_rng(seed).integers(0, 3, (40, 7))
        check_growth(rows, 3, 10, seed)


def check_growth(rows, n_targets, block, seed):
    """Of the elements that touch a target of their block, always one that brings the fewest new ones comes next."""
    n = len(rows)
    order = grow_blocks(rows, n_targets, block, np.random.default_rng(seed).permutation(n))
    assert sorted(order) == list(range(n))
    for start in range(0, n, block):
        held = set(rows[order[start]].tolist())
        for k in range(start + 1, min(start + block, n)):
            left = [rows[e].tolist() for e in order[k:]]
            missing = [sum(t not in held for t in row) for row in left]
            touching = [m for m, row in zip(missing, left, strict=True) if m < len(row)]
            if touching:
                assert missing[0] == min(touching)
            held.update(left[0])


def test_growing_starts_at_the_first_seed_and_goes_on_at_the_frontier():
    path = np.stack([np.arange(10), np.arange(1, 11)], axis=1)
    seeds = np.roll(np.arange(10), -4)
    order = grow_blocks(path, 11, 3, seeds)
    assert order[0] == 4
    assert set(order[:3]) in ({3, 4, 5}, {4, 5, 6}, {2, 3, 4})
    assert min(abs(int(order[3]) - int(e)) for e in order[:3]) == 1


def test_growing_of_targets_makes_compact_blocks():
    cells = np.arange(64 * 64).reshape(64, 64)
    faces = np.concatenate([
        np.stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()], 1), np.stack([cells[:-1].ravel(), cells[1:].ravel()], 1)
    ])
    order = grow_target_blocks(faces, cells.size, 64, np.arange(cells.size))
    assert sorted(order) == list(range(cells.size))
    block = np.empty(cells.size, int)
    block[order] = np.arange(cells.size) // 64
    cut = (block[faces[:, 0]] != block[faces[:, 1]]).mean()
    assert cut < 0.2  # squares of 8 x 8: 0.111; rows of 64: 0.5


def test_growing_past_a_hub_is_linear():
    n = 400_000
    order = grow_blocks(np.zeros((n, 1), np.int32), 1, 4, np.arange(n))  # 2e10 steps if each block looked at all
    np.testing.assert_array_equal(order, np.arange(n))


@quick
@given(blocked_maps(), st.integers(1, 100), st.integers(1, 64))
def test_lines_touched_counts_distinct_lines(case, row, line):
    arrays, sizes, order, offsets = case
    rows, n_targets = arrays[0], sizes[0]
    counts = lines_touched(rows, n_targets, order, offsets, row=row, line=line)
    for count, a, b in zip(counts, offsets[:-1], offsets[1:], strict=True):
        touched = {byte // line for t in rows[order[a:b]].ravel() for byte in range(t * row, (t + 1) * row)}
        assert count == len(touched)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: incidence([[0, 5]], 5), "index 5 at row 0, slot 1 is out of range: there are 5"),
        (lambda: incidence([[0.5]], 5), "integers"),
        (lambda: incidence(np.zeros((2, 2, 2), int), 5), "expected (n, arity)"),
        (lambda: color_elements([], []), "expected maps"),
        (lambda: color_elements([[[0]], [[0], [0]]], [1, 1]), "one row per element"),
        (lambda: color_blocks([0, 2], [0, -1], [[[0], [0]]], [1]), "element -1"),
        (lambda: color_blocks([0, 1], [0, 1], [[[0], [0]]], [1]), "rise from 0 to 2"),
        (lambda: thread_colors([0, 2, 1, 2], [0, 1], [[[0], [0]]], [1]), "rise from 0 to 2"),
        (lambda: grow_blocks([[0], [0]], 1, 2, [0, 0]), "every number from 0 to 1 once"),
        (lambda: grow_blocks([[0]], 1, 0, [0]), "elements of a block must be a whole number from 1"),
    ],
)
def test_wrong_input_is_one_line(call, message):
    with pytest.raises(MeshError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)
