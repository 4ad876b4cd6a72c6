"""Benchmarks are run here to see that they run, are right and save what they found; none of it measures anything."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.fixture(autouse=True)
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops without optimisation, which takes the compiler most of its time: how fast they are is of no interest."""
    compiling = import_module("meshloom.backend.cpu")
    monkeypatch.setattr(compiling, "LOOP_FLAGS", (*compiling.LOOP_FLAGS, "-O0"))
