"""Rows that are slow, or need a GPU that is not there, are built when somebody asks for them, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.asked_for import names, no_device, wanted_rows
from tests.nursery import run

SAMPLE = """
import pytest
slow, gpu, ranks = pytest.mark.slow, pytest.mark.gpu, pytest.mark.ranks

@pytest.fixture(params=["cpu", pytest.param("cuda", marks=gpu)])
def back_end(request): return request.param

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=slow)], ids=["one", "two"])
def test_rows(n, back_end): assert n

@pytest.mark.parametrize("n", [pytest.param(3, marks=slow), pytest.param(4, marks=slow)])
def test_all_rows_are_slow(n): assert n

@pytest.mark.parametrize("n", [pytest.param(5, marks=slow), pytest.param(6, marks=ranks)])
def test_ranks(n): assert n

@slow
def test_slow(): assert True

@gpu
class TestDevice:
    def test_device(self): assert True
"""
QUICK = {"test_rows[cpu-one]"}
SLOW = {"test_rows[cpu-two]", "test_all_rows_are_slow[3]", "test_all_rows_are_slow[4]", "test_ranks[5]", "test_slow"}


def collected(folder: Path, *words: str) -> set[str]:
    (folder / "test_sample.py").write_text(SAMPLE)
    plugin = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:xdist", "--import-mode=importlib")
    said = run(["-m", "pytest", *plugin, "--collect-only", "-q", *words], folder).stdout
    return {line.split("::", 1)[1] for line in said.splitlines() if "::" in line}


@pytest.mark.skipif(no_device() is None, reason="where there is a device its tests are built")
@pytest.mark.parametrize(
    ("words", "built"),
    [
        (("test_sample.py",), QUICK),
        (("test_sample.py", "-m", "not slow"), QUICK),
        (("test_sample.py", "-m", "slow"), SLOW),
        (("test_sample.py", "-m", "slow or not slow"), QUICK | SLOW),
        (("test_sample.py", "-m", "ranks"), {"test_ranks[6]"}),
        (("test_sample.py", "-m", "gpu and not slow"), {"test_rows[cuda-one]", "TestDevice::test_device"}),
        (("test_sample.py::test_slow",), {"test_slow"}),
    ],
)
def test_what_is_built(tmp_path: Path, words: tuple[str, ...], built: set[str]) -> None:
    assert collected(tmp_path, *words) == built


def test_expressions_ask_for_marks() -> None:
    asks = ["slow", "slow and gpu", "slow and not gpu", "not gpu and slow", "slow or not slow"]
    assert [names(text, "slow") for text in asks] == [True] * len(asks)
    assert [names(text, "slow") for text in ("", "gpu", "not slow", "gpu and not  slow", "slowly")] == [False] * 5


def test_names_of_rows_stay_with_them() -> None:
    rows = [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.gpu), 4]
    assert wanted_rows(rows, ["a", "b", "c", "d"], frozenset({"slow"})) == ([rows[1], rows[2], 4], ["b", "c", "d"])
    assert wanted_rows(rows, str, frozenset({"slow", "gpu"})) == ([2, 4], str)
    assert wanted_rows(iter([]), None, frozenset({"slow"})) == ([], None)
    assert len(wanted_rows(rows[:1], None, frozenset({"slow"}))[0]) == 1
