"""What tests of runs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meshloom as ml


@pytest.fixture
def on_numpy() -> Iterator[None]:
    """On numpy, whatever a test then chooses; the back end in use is put back."""
    with ml.using("numpy"):
        yield
