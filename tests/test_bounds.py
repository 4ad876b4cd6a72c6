"""Whole numbers that become integers of C are checked where they are read; so is what the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meshloom as ml
from meshloom.backend import MOST_THREADS, cpu_count
from meshloom.errors import MeshError, ScheduleError, UserError, whole_number
from tests.one_line import one_line_from

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("group", ["data", "order", "cpu", "emulated", pytest.param("lines", marks=pytest.mark.slow)])
def test_every_number_is_right_or_refused_in_one_line(group: str) -> None:
    """In a process of its own: what is not refused used to end it, or to skip the loop without a word."""
    command = [sys.executable, "-m", "tests.integers", group]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "all done", (done.returncode, lines[-1:], done.stderr[-2000:])
    assert not [line for line in lines if "BAD" in line]
    assert sum(line.endswith(": ok") for line in lines) > len(lines) / 20
    assert sum(line.endswith(": refused") for line in lines) > len(lines) / 2


@pytest.mark.parametrize("value", [0, 3, np.int32(2), np.uint8(3), np.array(1)])
def test_whole_numbers_pass(value: object) -> None:
    number = whole_number("it", value, 0, 3)
    assert type(number) is int and number == value


def test_others_are_refused() -> None:
    for value in (4, -1, True, np.True_, 1.0, "1", None, 10**5000, np.array([1, 2]), np.float64(1), 1j):
        with one_line_from(UserError, "^it must be a whole number from 0 to 3, got "):
            whole_number("it", value, 0, 3)


def test_a_wrong_option_of_use_changes_nothing() -> None:
    ml.use("cpu")
    before = ml.threads()
    for wrong in ({"strict": 1}, {"contract": "no"}):
        with one_line_from(ScheduleError, f"{next(iter(wrong))} must be True or False, got"):
            ml.use("numpy", threads=before + 1, **wrong)
        assert ml.backend() == "cpu" and ml.threads() == before


def test_messages_name_the_bounds() -> None:
    with one_line_from(ScheduleError, f"schedule: block must be a whole number from 1 to {2**24}, got {2**63 - 1}"):
        ml.Schedule(block=2**63 - 1)
    with one_line_from(ScheduleError, f"threads must be a whole number from 1 to {MOST_THREADS}, got 100000"):
        ml.use("cpu", threads=100_000)
    with one_line_from(MeshError, "int32 cannot name all 4294967296 elements of its target; use int64"):
        ml.Map(ml.Set(1), ml.Set(2**32, "far"), [[2**32 - 1]], dtype="int32")
    assert ml.Map(ml.Set(1), ml.Set(2**31), [[2**31 - 1]], dtype="int32").indices[0, 0] == 2**31 - 1
    assert ml.Map(ml.Set(1), ml.Set(2**32), [[2**32 - 1]]).indices.dtype == np.int64
    with one_line_from(MeshError, r"field u on far: 8,796,093,022,208 values need 70,368.7 GB, more memory"):
        ml.Set(2**40, "far").field("u", 8)
    for wrong in (5, ["atomic"], {3: 4}, {"strategy": 3}, {"order": None}):
        with one_line_from(ScheduleError):
            ml.kernel(nothing).loop(ml.Set(1), ml.Set(1).field("u"), schedule=wrong)  # type: ignore[arg-type]


def nothing(u: ml.Write):
    u[...] = 0.0


@pytest.mark.parametrize(("said", "threads"), [
    ("3", 3), ("3,2", 3), (" 2 ", 2), ("", cpu_count()), ("garbage", cpu_count()), ("-4", cpu_count()),
    ("0", cpu_count()), ("1.5", cpu_count()), ("99999999999999999999", cpu_count()), ("100000", cpu_count()),
    ("\u00b2", cpu_count()), ("9" * 5000, cpu_count()),
])  # fmt: skip
def test_what_the_environment_says_about_threads(said: str, threads: int, recwarn: pytest.WarningsRecorder) -> None:
    from meshloom.backend import _asked_of_openmp

    assert (_asked_of_openmp(said) or cpu_count()) == threads
    fine = said.split(",")[0].strip() in ("3", "2", "")
    assert len(recwarn) == (0 if fine else 1)
    assert all(str(w.message).isprintable() for w in recwarn)


def test_garbage_in_the_environment_does_not_stop_the_import() -> None:
    code = "import meshloom as ml; assert 1 <= ml.threads() <= 1024"
    environment = os.environ | {"OMP_NUM_THREADS": "no\nnumber", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
