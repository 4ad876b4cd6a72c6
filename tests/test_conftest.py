"""What tests share: the back end that they begin with, and a checkout without files of theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import meshloom as ml
from meshloom.backend import Backend
from meshloom.native.compiler import host_compiler
from tests import checkout
from tests.asked_for import SLOW, unwanted
from tests.conftest import AT_FIRST, OPTIMISED, QUICKLY


@pytest.fixture(scope="module")
def careless() -> None:
    """Made before the fixtures of a test, which so cannot know what was there before."""
    ml.use("numpy", threads=3, reproducible=True)


@pytest.mark.parametrize("time", [1, 2])
def test_every_test_begins_with_the_first_back_end(careless: None, time: int) -> None:
    assert (ml.backend(), ml.threads()) == AT_FIRST and not Backend.reproducible
    ml.use("emulated", threads=1, reproducible=True)


def flags() -> str:
    found = host_compiler()
    return " ".join((*found.flags, *found.own))


def test_a_quick_run_does_not_optimise(request: pytest.FixtureRequest) -> None:
    assert flags().endswith(QUICKLY) == (SLOW in unwanted(request.config))


@pytest.mark.optimised
def test_but_for_tests_that_ask_for_it() -> None:
    assert "-O3" in flags() and QUICKLY not in flags()


def test_files_that_are_optimised_exist() -> None:
    assert [name for name in OPTIMISED if not (Path(__file__).parents[1] / name).is_file()] == []


def test_files_that_a_test_leaves_in_the_checkout_are_named(tmp_path: Path) -> None:
    assert checkout.unknown(tmp_path) == set() and checkout.left(set(), tmp_path) == "", "no repository"
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    before = checkout.unknown(tmp_path)
    (tmp_path / "kept.pyc").touch()
    assert before == {".gitignore"} and checkout.left(before, tmp_path) == ""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "graph.svg").touch()
    assert checkout.left(before, tmp_path).endswith(": docs/graph.svg")
