"""The faults that are planted on purpose are still those of this source, and what is said of them is what was found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.faults.run import BEGIN, END, NO_END, PAGE, ROOT, Fault, faults, finder, is_done, known, table


def test_every_fault_has_its_place() -> None:
    """Its text stands in its file once; else write down where it is now."""
    assert {one.name: n for one in faults() if (n := one.occurrences()) != 1} == {}
    assert [one.name for one in faults() if one.old == one.new] == []
    assert len({one.name for one in faults()}) == len({one.digest for one in faults()}) == 40


def test_every_fault_names_tests_near_it() -> None:
    assert [one.name for one in faults() if not one.tests] == []
    assert [test for one in faults() for test in one.tests if not (ROOT / test.partition("::")[0]).is_file()] == []


def test_what_was_found_is_of_these_faults_and_in_the_docs() -> None:
    found, now = known(), {one.name: one.digest for one in faults()}
    assert {name: one["digest"] for name, one in found.items()}.items() <= now.items(), "plant those again"
    shown = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()
    assert shown == table(found), "python -m tests.faults.run --table"


def test_the_tests_that_found_them_are_still_there() -> None:
    """Else plant these faults again: take their entries out of found.json."""
    by = [one["found_by"] for one in known().values() if one["found_by"] not in (None, NO_END)]
    parts = [(ROOT / test.partition("::")[0], test.partition("::")[2].partition("[")[0]) for test in by]
    assert [name for path, name in parts if not path.is_file() or f"def {name}" not in path.read_text("utf-8")] == []


def test_a_fault_is_found_by_a_test_that_passes_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of one line: a test that sees the fault, one that fails anyway, and one that sees nothing."""
    (tmp_path / "errors.py").write_text("ONE = 1")
    right = {"tests/sees::it": ("ONE = 1",), "tests/fails.py": (), "blind::too": ("ONE = 1", "ONE = 2")}

    def failing(root: Path, tests: Iterable[str]) -> str | None:
        return next((test for test in tests if (root / "errors.py").read_text() not in right[test]), None)

    monkeypatch.setattr("tests.faults.run.first_failure", failing)
    one = _Local("a number", "a wrong number", "errors.py", "ONE = 1", "ONE = 2", ())
    assert [finder(one, tmp_path, [test]) for test in right] == ["tests/sees::it", None, None]


class _Local(Fault):
    """Undone by what the file was, not by the repository's."""

    def undo(self, root: Path) -> None:
        path = root / self.file
        path.write_text(path.read_text().replace(self.new, self.old))


def test_what_is_done_is_not_done_again() -> None:
    one = faults()[0]
    found = {"digest": one.digest, "found_by": NO_END, "among": "nearest"}
    assert is_done(one, found, nearest_only=False) and not is_done(one, None, nearest_only=True)
    assert not is_done(one, found | {"digest": "another"}, nearest_only=True)
    missed = found | {"found_by": None}
    assert is_done(one, missed, nearest_only=True) and not is_done(one, missed, nearest_only=False)
