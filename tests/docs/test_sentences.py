"""The sentences that must be true of the code, in CONTRIBUTING.md: each has its tests, and these are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([A-Z][^|]+\.) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
#: Marks of tests that a usual run leaves out.
LEFT_OUT = ("slow", "gpu", "skip", "skipif", "xfail")


def table() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition("## What must be true of the code")[2].partition("\n## ")[0]


def runs(path: Path, name: str) -> bool:
    """Does a file have such a test, and a usual run run it?"""
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
    marks = [ast.unparse(mark).partition("(")[0].rpartition(".")[2] for one in found for mark in one.decorator_list]
    return len(found) == 1 and not set(marks) & set(LEFT_OUT)


def without_a_test(text: str) -> Iterator[str]:
    """Sentences of a table that have no test, and tests that are not there."""
    for sentence, tests in ROW.findall(text):
        named = TEST.findall(tests)
        if not named:
            yield sentence
        yield from (f"{path}::{name}" for path, name in named if not runs(ROOT / path, name))


def test_every_sentence_has_its_tests() -> None:
    rows = ROW.findall(table())
    assert len(rows) == 11 == len({sentence for sentence, _ in rows}) and table().count("\n| ") == 12
    assert not list(without_a_test(table()))
    every = [one for _, tests in rows for one in TEST.findall(tests)]
    assert len(set(every)) == len(every), "a test is for one sentence"
    assert sum(tests.count("`") for _, tests in rows) == 2 * len(every), "and stands there as file::test"


@pytest.mark.parametrize(
    ("tests", "missing"),
    [("none yet", "A sentence."), ("`tests/docs/test_sentences.py::test_nothing`", "test_nothing"),
     ("`tests/docs/test_nowhere.py::test_every_sentence_has_its_tests`", "test_nowhere.py"),
     ("`tests/docs/test_sentences.py::test_every_sentence_has_its_tests`", None)],
)  # fmt: skip
def test_what_is_missing_is_found(tests: str, missing: str | None) -> None:
    found = list(without_a_test(f"| A sentence. | {tests} |"))
    assert found == [] if missing is None else len(found) == 1 and missing in found[0]
