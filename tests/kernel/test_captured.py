"""What is looked at, at every call, of what a kernel reads besides its parameters."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.captured import captured
from meshloom.kernel.state import States, compared_once


def test_numpy_and_the_standard_library_are_not_followed() -> None:
    import math

    found = captured(lambda x: np.linalg.norm(x) * np.pi + math.pi + max(1, 2))
    assert found.comparable and len(found.reads) == 1  # the code itself
    assert found.unchanged()


def test_large_arrays_are_compared_with_a_word() -> None:
    ml.use("numpy")
    table = np.arange(200_000.0)

    @ml.kernel
    def first(u: ml.Write):
        u[...] = table[3]

    cells = ml.Set(4)
    u = cells.field("u")
    with pytest.warns(UserWarning, match="kernel first reads arrays of 2 MB besides its parameters"):
        first(cells, u)
    table[3] = 7.0
    first(cells, u)
    assert u.numpy().tolist() == [7.0] * 4


def test_in_a_block_values_are_compared_once_and_after_it_again() -> None:
    values = [2.0]
    states = States(lambda u: values[0] * u, "scaled")
    first = states.now()
    with compared_once():
        assert states.now() is first
        values[0] = 3.0  # what nobody does in such a block
        with compared_once():
            assert states.now() is first
    other = states.now()
    assert other is not first
    values[0] = 2.0
    with compared_once():
        assert states.now() is first
    values[0] = 3.0
    with compared_once():
        assert states.now() is other
