"""Every value once: the house's own function, since NumPy's is slow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from meshloom.native.algorithms import distinct

ROOT = Path(__file__).parents[1] / "meshloom"


@given(arrays(st.sampled_from([np.int32, np.int64]), st.tuples(st.integers(0, 9), st.integers(0, 4)),
              elements=st.integers(-5, 5)))  # fmt: skip
def test_it_finds_what_numpy_finds(values: np.ndarray) -> None:
    found = distinct(values)
    assert found.dtype == values.dtype and np.array_equal(found, np.unique(values))


@pytest.mark.parametrize("file", [one for one in sorted(ROOT.rglob("*.py")) if "np.unique(" in one.read_text()],
                         ids=lambda file: file.stem)  # fmt: skip
def test_numpys_own_is_used_only_where_it_sorts(file: Path) -> None:
    """With counts or places it does; without, a million whole numbers take it seconds."""
    calls = re.findall(r"np\.unique\((?:[^()]|\([^()]*\))*\)", file.read_text())
    assert calls and all("return_" in call for call in calls)
