"""What tests share: the back end that they begin with."""

from __future__ import annotations

import pytest

import meshloom as ml
from tests.conftest import AT_FIRST


@pytest.fixture(scope="module")
def careless() -> None:
    """Made before the fixtures of a test, which so cannot know what was there before."""
    ml.use("numpy", threads=3)


@pytest.mark.parametrize("time", [1, 2])
def test_every_test_begins_with_the_first_back_end(careless: None, time: int) -> None:
    assert (ml.backend(), ml.threads()) == AT_FIRST
    ml.use("emulated", threads=1)
