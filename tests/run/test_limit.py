"""What a healthy value keeps to: both bounds at once, NaN and infinities outside, one component alone."""

from __future__ import annotations

import numpy as np

from meshloom.run.task import Limit


def test_values_outside_of_either_bound_are_broken() -> None:
    values = np.array([-1.0, 0.0, 1.0, 2.0, 3.0, np.nan, np.inf, -np.inf])
    assert Limit(above=0.0, below=2.0).broken(values).tolist() == [True, True, False, True, True, True, True, True]
    assert Limit(above=0.0).broken(values).tolist() == [True, True, False, False, False, True, True, True]
    assert Limit().broken(values).tolist() == [False] * 5 + [True] * 3


def test_a_limit_of_one_component_leaves_the_others_finite() -> None:
    values = np.array([[-1.0, 1.0], [1.0, -1.0], [np.nan, 1.0]])
    expected = [[False, False], [False, True], [True, False]]
    assert Limit(above=0.0, component=1).broken(values).tolist() == expected
