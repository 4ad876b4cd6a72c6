"""What is looked at, at every call, of what a kernel reads besides its parameters."""

from __future__ import annotations

import numpy as np
import pytest

import meshloom as ml
from meshloom.kernel.captured import captured
from meshloom.kernel.state import States, compared_once


def test_numpy_and_the_standard_library_are_not_followed() -> None:
    """But for the code itself, only the names are compared: which module they mean, and that none means another max."""
    import math

    found = captured(lambda x: np.linalg.norm(x) * np.pi + math.pi + max(1, 2))
    of_code, of_default, of_np, of_math, of_python = found.reads
    assert [one[2] for one in (of_code, of_default, of_np)] == ["__code__", "__defaults__", "np"]
    assert of_np[3] is np and of_math[3] is math and of_python[2:] == (frozenset({"max"}), True)
    assert found.comparable and found.unchanged()


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
