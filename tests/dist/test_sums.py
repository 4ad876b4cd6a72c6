"""Sums of all ranks, put together at once: the bits of one part after the other."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import meshloom as ml
from meshloom.backend.numpy_binned import PLUS_ZERO, SPECIAL, Bins
from meshloom.dist.sums import RankReduction
from meshloom.kernel.access import OpenSum, Sum
from tests.counted import python_calls

NUMBERS = st.one_of(
    st.floats(width=64),  # NaN, infinities, zeros and denormals among them
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7e308, -1.7e308, 1e-30, 1e30, 2.0**-1022]),
)
PARTS = st.lists(st.lists(NUMBERS, max_size=4), min_size=1, max_size=12)


def of_words(words: np.ndarray) -> Bins:
    found = Bins(np.zeros(0))
    found.top, marks = (int(one) for one in words[:1].view(np.int32))
    found.units = [int(one) for one in words[1:]]
    found.beyond = sum(value for mark, value in SPECIAL.items() if marks & mark)
    found.minus_zeros = found.top == 0 and not marks & PLUS_ZERO
    return found


def one_by_one(bins: list[Bins]) -> Bins:
    """With Python's whole numbers."""

    def merged(one: Bins, other: Bins) -> Bins:
        top = max(one.top, other.top)
        pairs = [([0] * (top - each.top) + each.units)[:3] for each in (one, other)]
        one.top, one.units = top, [a + b for a, b in zip(*pairs, strict=True)]
        one.beyond += other.beyond
        one.minus_zeros &= other.minus_zeros
        return one

    return reduce(merged, bins)


def bits(one: Bins) -> list[bytes]:
    return [np.asarray(one.rounded(np.dtype(kind))).tobytes() for kind in (np.float64, np.float32)]


@settings(max_examples=300, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=3))
@example([[[]]])
@example([[[-0.0], []]])
@example([[[np.inf], [-np.inf], [1.0]]])
@example([[[5e-324]] * 3])
def test_many_parts_are_merged_as_one_after_the_other(components: list[list[list[float]]]) -> None:
    """Each component has parts of its own; those that have fewer get empty ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        most = max(map(len, components))
        words = np.stack([[Bins(np.array(part, np.float64)).words() for part in [*one, *[[]] * (most - len(one))]]
                          for one in components], axis=1)  # fmt: skip
        found = Bins.merged(words)
        expected = [one_by_one([of_words(part) for part in words[:, c]]) for c in range(len(components))]
    assert list(map(bits, found)) == list(map(bits, expected))
    assert [(one.top, one.units, one.minus_zeros) for one in found] == [
        (one.top, one.units, one.minus_zeros) for one in expected
    ]


def test_units_of_many_parts_do_not_overflow() -> None:
    """Each has nearly as many as a word holds."""
    words = Bins(np.array([1.0])).words()
    words[1:] = 2**62 + 12345
    found = Bins.merged(np.tile(words, (1000, 1, 1)))
    assert found[0].units == [1000 * (2**62 + 12345)] * 3


def combined(parts: np.ndarray, mode: type, before: np.ndarray) -> np.ndarray:
    total = ml.Global(before, "total")
    RankReduction.of(total, mode).combine(parts)
    return total.numpy()


@pytest.mark.parametrize("ranks", [1, 2, 7, 300])
def test_what_was_there_is_one_more_summand(ranks: int) -> None:
    dice = np.random.default_rng(ranks)
    each = dice.standard_normal((ranks, 2, 5)) * 10.0 ** dice.integers(-30, 30, (ranks, 2, 5))
    words = np.stack([np.concatenate([Bins(component).words() for component in one]) for one in each])
    before = np.array([0.25, -1e20])
    mode = RankReduction.of(ml.Global(before), Sum)._replace(mode=OpenSum)
    mode.combine(words.view(np.uint8))
    expected = [Bins(np.append(each[:, c], before[c])).rounded(np.dtype(float)) for c in range(2)]
    assert mode.total.numpy().tobytes() == np.array(expected).tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int64])
def test_other_sums_add_up_rank_by_rank(dtype: type) -> None:
    each = (np.random.default_rng(5).standard_normal((200, 3)) * 1000).astype(dtype)
    before = np.array([1, 2, 3], dtype)
    found = combined(each.view(np.uint8), Sum, before)
    expected = reduce(np.add, each, before)
    assert found.dtype == dtype and found.tobytes() == expected.tobytes()


def test_many_ranks_take_no_more_calls_than_few() -> None:
    words = Bins(np.array([1.5])).words()

    def calls(ranks: int) -> int:
        mode = RankReduction.of(ml.Global(0.0), Sum)._replace(mode=OpenSum)
        parts = np.tile(words, (ranks, 1)).view(np.uint8)
        return python_calls(lambda: mode.combine(parts))

    assert calls(1024) <= calls(2) + 5
