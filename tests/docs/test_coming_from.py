"""What docs/coming_from.md names on its right-hand sides is there: names of ml, of meshes and of cases."""

from __future__ import annotations

import re
from functools import reduce

import pytest

import meshloom as ml
from meshloom.catalogue import case_names
from tests.docs.test_docs import ROOT

PAGE = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
ANSWERS = [row.split("|")[2] for row in PAGE.splitlines() if row.startswith("| ") and " here |" not in row]


def named(pattern: str) -> list[str]:
    """What the answers name by a pattern, each once."""
    return sorted({name for answer in ANSWERS for name in re.findall(pattern, answer)})


@pytest.mark.parametrize("name", named(r"\bml\.([a-z.]*\w+)"))
def test_names_of_ml(name: str) -> None:
    assert reduce(getattr, name.split("."), ml) is not None


@pytest.mark.parametrize("name", named(r"\bmesh\.([\w.]+)"))
def test_names_of_a_mesh(name: str) -> None:
    mesh = ml.generate.box((2, 2))
    assert reduce(getattr, name.split("."), mesh) is not None


@pytest.mark.parametrize("name", named(r"meshloom run (\w+)"))
def test_names_of_cases(name: str) -> None:
    assert name in case_names()


def test_each_of_the_three_has_its_table() -> None:
    assert re.findall(r"^## From (\w+)$", PAGE, re.MULTILINE) == ["FEniCS", "OpenFOAM", "JAX"]
    assert PAGE.count(" | here |\n") == 3 and len(ANSWERS) > 35
