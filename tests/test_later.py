"""What is left for later is long, something of each test stays, and the list names rows that there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import later
from tests.cpu_times import used
from tests.faults.run import known

ROOT = Path(__file__).parents[1]
PLAIN = {**os.environ, "PYTEST_ADDOPTS": ""}


def test_long_rows_are_left_where_cheaper_ones_stay() -> None:
    times = {"a.py::t[1]": 0.9, "a.py::t[2]": 0.6, "a.py::t[3]": 0.1, "a.py::alone": 9.0, "b.py::t[x]": 2.0,
             "b.py::t[y]": 1.0, "c.py::t[numpy-1]": 0.1, "c.py::t[cpu-1]": 3.0, "c.py::t[emulated-1]": 2.0}  # fmt: skip
    assert later.too_long(times) == {"a.py::t[1]", "a.py::t[2]", "b.py::t[x]", "c.py::t[cpu-1]"}
    assert later.too_long(times, frozenset({"b.py::t[x]", "a.py::t[1]"})) == {"a.py::t[2]", "c.py::t[cpu-1]"}


def finders() -> set[str]:
    """Tests that have found a planted fault, where one alone is known."""
    return {one["found_by"] for one in known().values() if "::" in (one["found_by"] or "")}


def test_what_has_found_a_fault_is_not_left_for_later() -> None:
    assert len(finders()) > 30 and finders() & later.listed() == set()
    kept = tuple(one for one in later.NEVER if "test_docs" not in one)
    assert [one for one in later.listed() if one.startswith(kept)] == []


@pytest.mark.slow
def test_nor_is_it_slow() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *{one.partition("::")[0] for one in finders()}]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=PLAIN)
    assert finders() - set(found.stdout.splitlines()) == set()


def test_work_of_children_counts() -> None:
    """Also of those that have not ended, and have children that did."""
    work = "sum(range(3_000_000))"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{work}'], check=True)"
    before = used()
    subprocess.run([sys.executable, "-c", work], check=True)
    once = used()
    with subprocess.Popen([sys.executable, "-c", f"{inner}; print(1, flush=True); input()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        assert used() - once > 0.5 * (once - before) > 0.0
        child.communicate(b"\n")


@pytest.mark.slow
def test_the_list_names_rows_that_there_are_and_leaves_some_of_each_test() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "slow or not slow"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=PLAIN)
    there = set(found.stdout.splitlines())
    assert len(there) > 5000 and later.listed() - there == set()
    stay = {one.partition("[")[0] for one in there - later.listed()}
    assert {one for one in later.listed() if one.partition("[")[0] not in stay} == set()
