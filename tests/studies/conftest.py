"""Cases of files lie in folders that come and go, and other processes find Meshloom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.catalogue.conftest import own_path as own_path  # the fixture

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The test is in a folder of its own; puts a text there as ``pot.py``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def put(text: str) -> None:
        (tmp_path / "pot.py").write_text(text)

    return put
