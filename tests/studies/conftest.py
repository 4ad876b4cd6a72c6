"""Cases of files lie in folders that come and go."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of cases are not looked into by other tests."""
    monkeypatch.setattr(sys, "path", sys.path[:])
