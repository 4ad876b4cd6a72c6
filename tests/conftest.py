"""Shared by all tests: GPU tests are skipped where there is no device; the back end is put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meshloom as ml


@pytest.fixture(autouse=True)
def keep_back_end() -> Iterator[None]:
    """Every test leaves the back end as it found it."""
    before = ml.backend()
    yield
    ml.use(before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = str(config.getoption("-m") or "")
    for item in items:
        if "gpu" in item.keywords and (reason := ml.backends()["cuda"]):
            item.add_marker(pytest.mark.skip(reason=reason))
        if "slow" in item.keywords and "slow" not in wanted:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))
