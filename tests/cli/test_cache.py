"""meshloom cache: where it is, what it holds, and clearing it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshloom.native import cache
from tests.cli.harness import Command


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_told_and_cleared(meshloom: Command, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = meshloom("cache")
    assert empty.code == 0 and not own.exists() and "total      0 B of 2.0 GB" in empty.out
    for key in ("a" * 64, "b" * 64):
        cache.store_arrays("plans", key, {"x": np.zeros(1000)})
        assert key[0] == "b" or "plans      1 plan, 8." in meshloom("cache").out
    (own / "plans" / "notes.txt").write_text("mine")
    monkeypatch.setenv("MESHLOOM_CACHE_LIMIT", "500M")
    told = meshloom("cache")
    assert told.out.splitlines()[0] == f"cache      {own}"
    assert "plans      2 plans, 16." in told.out and "of 500.0 MB" in told.out and "code       0 libraries" in told.out
    cleared = meshloom("cache", "--clear")
    assert cleared.code == 0 and cleared.out.startswith("removed 2 entries, 16.") and str(own) in cleared.out
    assert [path.name for path in own.rglob("*")] == ["plans", "notes.txt"]
    assert meshloom("cache", "--clear").out.startswith("removed 0 entries, 0 B")
    cache.store_arrays("plans", "c" * 64, {"x": np.zeros(1000)})
    assert meshloom("cache", "--clear").out.startswith("removed 1 entry, 8.")


def test_what_others_may_write_is_neither_used_nor_cleared(meshloom: Command, own: Path) -> None:
    cache.store_arrays("plans", "a" * 64, {"x": np.zeros(1000)})
    own.chmod(0o777)
    meshloom("cache", "--clear").refused(2, "nothing is cleared", "others may write to", "chmod go-w")
    assert meshloom("cache").out.startswith("no cache: ")
    assert (own / "plans" / f"{'a' * 64}.npz").exists()


def test_a_warning_is_one_line(meshloom: Command, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE_LIMIT", "lots")
    found = meshloom("cache")
    assert found.err == "meshloom: MESHLOOM_CACHE_LIMIT is 'lots', not a size such as 500M or 2G; using 2G\n"
