"""Shared by all tests: GPU tests are skipped where there is no device; each begins with the same back end."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.operation.operation import Operation
from meshloom.target import EMULATED

# Tests that were started in the background, or by nohup, ignore signals, and so would the processes that they start.
_STOPPING = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, n)]
for _number in _STOPPING:
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


AT_FIRST = ml.backend(), ml.threads()


@pytest.fixture(autouse=True)
def first_back_end() -> Iterator[None]:
    """Every test begins with the back end of a fresh process, and nobody looks for what is not finite, whatever others,
    or fixtures of a module, have chosen."""
    ml.use(AT_FIRST[0], threads=AT_FIRST[1])
    yield
    ml.use(AT_FIRST[0], threads=AT_FIRST[1])
    Operation.watched = None


def pytest_collection_finish() -> None:
    """Tests that look for what is left behind collect often: modules and tests themselves need not be gone through."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", choices=tuple(EMULATED), help="the GPU that 'emulated' is in all tests")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--target"):
        _BACKENDS["emulated"] = EmulatedCuda(EMULATED[target])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = str(config.getoption("-m") or "")
    for item in items:
        if "gpu" in item.keywords and (reason := ml.backends()["cuda"]):
            item.add_marker(pytest.mark.skip(reason=reason))
        if "slow" in item.keywords and "slow" not in wanted:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))
