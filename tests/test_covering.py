"""Covering designs cover what they say, with few combinations."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.covering import covering, every_pair, every_value


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (4, 4, 4), (10, 4, 10, 2), (5, 1, 2)])
def test_all_pairs_meet(sizes: tuple[int, ...]) -> None:
    found = covering(sizes, frozenset())
    for a, b in combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in found} == {*product(range(sizes[a]), range(sizes[b]))}
    assert {row[0] for row in found} == {*range(sizes[0])}
    two = sorted(sizes)[-2:]
    assert len(found) <= 1.5 * two[0] * two[-1]  # no design can do with less than the product of the two longest


def test_what_stands_together_meets() -> None:
    found = covering((5, 4, 7, 2), frozenset({(0, 1, 3)}))
    assert {(row[0], row[1], row[3]) for row in found} == {*product(range(5), range(4), range(2))}
    assert {(row[1], row[2]) for row in found} == {*product(range(4), range(7))}


def test_every_value_comes_once_at_least() -> None:
    _, rows = every_value(letter="abcde", number=[1, 2, 3], sign=[True, False]).args
    quick = [row.values for row in rows if not row.marks]
    assert len(rows) == 30 and 5 <= len(quick) <= 6
    assert [{*column} for column in zip(*quick, strict=True)] == [{*"abcde"}, {1, 2, 3}, {True, False}]


def test_the_rest_of_the_product_is_slow() -> None:
    mark = every_pair(letter="abc", number=[1, 2, 3], sign=[True, False])
    names, rows = mark.args
    assert names == ["letter", "number", "sign"]
    everything = [f"{a}-{n}-{s}" for a in "abc" for n in "123" for s in ("True", "False")]
    assert [row.id for row in rows] == everything
    quick = [row for row in rows if not row.marks]
    assert 9 <= len(quick) <= 12
    assert all(row.marks[0].name == "slow" for row in rows if row.marks)
    assert {row.values[:2] for row in quick} == {*product("abc", (1, 2, 3))}
