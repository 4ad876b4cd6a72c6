"""A part of a product shows all values, or all pairs, and is much smaller; the list names tests that there are."""

from __future__ import annotations

import ast
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.thinned import PAIRS, THINNED, VALUES, chosen

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("strength", [VALUES, PAIRS])
def test_everything_meets_that_met(strength: int) -> None:
    rows = [row for row in product("abcd", "xyz", "+-") if row != ("a", "x", "+")]
    stay = [rows[k] for k in chosen(rows, strength)]

    def met(among: list[tuple[str, ...]]) -> set[tuple[tuple[int, str], ...]]:
        return {one for row in among for one in combinations(enumerate(row), strength)}

    assert met(stay) == met(rows)
    assert len(stay) <= (6 if strength == VALUES else 14) < len(rows) == 23
    assert chosen(rows, strength) == chosen(rows, strength)


def test_the_list_names_tests_that_there_are() -> None:
    missing = []
    for address in THINNED:
        file, name = address.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(address)
    assert missing == []
