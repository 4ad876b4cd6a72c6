"""Shared by all tests: GPU tests are skipped where there is no device; generated CUDA can run emulated."""

from __future__ import annotations

import pytest

import meshloom as ml
from meshloom.backend import register
from meshloom.backend.cuda.backend import EmulatedCuda

register(EmulatedCuda())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = str(config.getoption("-m") or "")
    for item in items:
        if "gpu" in item.keywords and (reason := ml.backends()["cuda"]):
            item.add_marker(pytest.mark.skip(reason=reason))
        if "slow" in item.keywords and "slow" not in wanted:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))
