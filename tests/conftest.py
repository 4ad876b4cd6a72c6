"""Shared by all tests: only those asked for are built, each begins with the same back end, none leaves files."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import meshloom as ml
from meshloom.backend import _BACKENDS
from meshloom.backend.cuda.backend import EmulatedCuda
from meshloom.operation.operation import Operation
from meshloom.target import EMULATED
from tests import checkout
from tests.asked_for import RANKS, SLOW, building, unwanted, why_skipped
from tests.later import leave_for_later
from tests.thinned import thin_out

# Tests that were started in the background, or by nohup, ignore signals, and so would the processes that they start.
_STOPPING = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, n)]
for _number in _STOPPING:
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


# Examples are counted, never timed: on a busy machine each may take long.
hypothesis.settings.register_profile(
    "counted", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("counted")

#: Tests have Meshloom's own numbers of devices, whatever those of the person are who runs them.
os.environ["MESHLOOM_DEVICES"] = str(Path(ml.__file__).with_name("target") / "devices")
AT_FIRST = ml.backend(), ml.threads()
#: Optimising takes the C++ compiler most of its time, and compiling takes tests most of theirs: in a quick run only
#: those marked ``optimised`` do it, in one with those that are ``slow``, or of ``ranks``, all. What these
#: flags say wins over the package's -O3.
QUICKLY = "-O0"
OWN_FLAGS = "MESHLOOM_CXXFLAGS"
#: Files whose tests are all ``optimised``: what vectors, contraction, aliasing and the order of operations could break.
OPTIMISED = {
    f"tests/{name}.py"
    for name in (
        "schedule/test_matrix", "schedule/test_vectors", "schedule/test_integer_sums", "schedule/test_random_meshes",
        "backend/test_vectorised", "backend/test_lanes", "backend/test_large_kernels", "backend/test_races",
        "kernel/test_algebra", "kernel/test_operations", "kernel/test_dense", "fuzz/test_fuzz", "test_algebra",
        "test_fusion_cpu", "native/test_compiler", "native/test_plan_algorithms",
    )
}  # fmt: skip


@pytest.fixture(autouse=True)
def first_back_end() -> Iterator[None]:
    """Every test begins with the back end of a fresh process, and nobody looks for what is not finite, whatever others,
    or fixtures of a module, have chosen."""
    ml.use(AT_FIRST[0], threads=AT_FIRST[1], reproducible=False)
    yield
    ml.use(AT_FIRST[0], threads=AT_FIRST[1], reproducible=False)
    Operation.watched = None


def pytest_collection_finish() -> None:
    """Tests that look for what is left behind collect often: modules and tests themselves need not be gone through."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # nor looked through for every 700 objects


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", choices=tuple(EMULATED), help="the GPU that 'emulated' is in all tests")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    """The flags of the compiler, for the test, its fixtures and the processes that they start. What the tests of a file
    have left need not be gone through by those of the next one, of which some collect often."""
    before = os.environ.get(OWN_FLAGS)
    optimised = item.get_closest_marker("optimised") or item.nodeid.partition("::")[0] in OPTIMISED
    if before is None and {SLOW, RANKS} <= unwanted(item.config) and not optimised:
        os.environ[OWN_FLAGS] = QUICKLY
    try:
        return (yield)
    finally:
        if before is None:
            os.environ.pop(OWN_FLAGS, None)
        if nextitem is not None and nextitem.path != item.path:
            pytest_collection_finish()


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("PYTEST_ADDOPTS", None)  # of these tests, not of those that they start themselves and read
    if target := config.getoption("--target"):
        _BACKENDS["emulated"] = EmulatedCuda(EMULATED[target])


FILES_BEFORE = pytest.StashKey[set[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, not in every worker of a parallel run
        session.config.stash[FILES_BEFORE] = checkout.unknown()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run after which the checkout holds new files has failed."""
    before = session.config.stash.get(FILES_BEFORE, None)
    if before is not None and (said := checkout.left(before)):
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.write_line(f"\n{said}", red=True)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Rows that nobody asked for are not built (``tests/asked_for.py``)."""
    if without := unwanted(metafunc.config):
        metafunc.parametrize = building(metafunc.parametrize, without)  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Iterator[Any]:
    """Nor are whole tests: the marks of functions, classes and modules count here, and of products a part is slow."""
    made = yield
    if not isinstance(made, list):
        return made
    thin_out(made)
    leave_for_later(made)
    without = unwanted(collector.config)
    return [item for item in made if not any(mark.name in without for mark in item.iter_markers())]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if reason := why_skipped(item.keywords, str(config.getoption("-m") or "")):
            item.add_marker(pytest.mark.skip(reason=reason))
