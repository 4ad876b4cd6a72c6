"""Two trees beside each other: asked in turn, medians compared, problems told; and the steps that are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshloom as ml
from bench import compare, record, steps


class Tree:
    """Answers as a process would. ``log`` is shared: who was asked for what, in order."""

    def __init__(self, name: str, log: list[str], times: list[float]):
        self.name, self.log, self.times = name, log, times

    def begin(self, name: str) -> None:
        self.log.append(f"begin {self.name}")

    def answer(self) -> dict[str, object]:
        return {"seconds": 99.0} if self.times else {"problem": "no such case"}

    def ask(self, name: str) -> dict[str, object]:
        self.log.append(self.name)
        return {"seconds": self.times.pop(0)} if self.times else {"problem": "the process has ended"}

    def close(self) -> None:
        self.log.append("close")


def test_both_are_asked_in_turn_and_their_medians_compared() -> None:
    log: list[str] = []
    trees = {"old": Tree("old", log, [2.0, 100.0, 2.0]), "new": Tree("new", log, [1.0, 1.0, 50.0])}
    row = compare.row_of("airfoil", trees, 3)  # type: ignore[arg-type]
    assert log == ["begin old", "begin new", *["old", "new"] * 3]
    assert (row["old_ms"], row["new_ms"], row["new_by_old"]) == (2000.0, 1000.0, 0.5) and row["spread"] > 1.0


def test_a_process_that_ends_on_the_way_costs_its_row_alone() -> None:
    trees = {"old": Tree("old", [], [2.0, 2.0]), "new": Tree("new", [], [1.0])}
    row = compare.row_of("airfoil", trees, 2)  # type: ignore[arg-type]
    assert row == {"step": "airfoil", "problem": "new: the process has ended"}


@pytest.mark.parametrize(("old_ms", "word"), [(1.0, "**missed**"), (0.01, "met")])
def test_only_steps_of_a_few_microseconds_are_allowed_their_spread(old_ms: float, word: str) -> None:
    row = {"step": "one", "new_by_old": 1.2, "spread": 0.3, "old_ms": old_ms, "new_ms": 1.2 * old_ms}
    (goal,) = compare.goals([row])
    result = {"backend": "cuda", "old_commit": "abc", "rows": [row, {"step": "other", "problem": "none"}]}
    assert goal.word() == word, "what is printed and what the table says is one thing"
    assert compare.text_lines(result)[-1].endswith(f"| {word} |")


def test_a_tree_without_the_case_costs_its_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    answers = iter([[1.0] * 2, [1.2] * 2])
    made = [Tree(name, log, next(answers)) for name in ("old", "new")]
    waiting = iter(made)
    monkeypatch.setattr(compare, "Tree", lambda *_: next(waiting))
    file = tmp_path / "compare.json"
    arguments = ["--old", str(tmp_path), "--rounds", "2", "--only", "airfoil", "volna", "--json", str(file)]
    monkeypatch.delenv("MESHLOOM_COMMIT", raising=False)
    with pytest.raises(SystemExit):
        compare.main(arguments)
    assert f"{tmp_path} does not say which commit it is: give --old-commit" in capsys.readouterr().err
    assert compare.main([*arguments, "--old-commit", "abcdef0123"]) == 0
    assert record.load(file)["old_commit"] == "abcdef0123" and record.load(file)["old_code"]["sha256"]
    rows = record.load(file)["rows"]
    assert rows[0]["new_by_old"] == pytest.approx(1.2) and rows[1] == {"step": "volna", "problem": "old: no such case"}
    assert "1 of 2 slower than allowed, 1 not timed" in capsys.readouterr().out and log[-2:] == ["close", "close"]
    assert "**missed**" in compare.text_lines(record.load(file))[-1]


@pytest.mark.slow
def test_a_process_answers_for_steps_it_can_make_and_tells_of_others() -> None:
    tree = compare.Tree(compare.HERE, "numpy", Path("unused"))
    assert tree.ask("nothing of the kind") == {"problem": "KeyError: 'nothing of the kind'"}
    tree.close()
    assert tree.process.returncode == 0


def test_steps_are_timed_fused_and_loop_by_loop_and_solutions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("airfoil", (), ("mesh.i=9", "mesh.j=6"), (1, 2), True)
    monkeypatch.setattr(steps, "STEPS", {"airfoil": small})
    monkeypatch.setattr(steps, "SOLVERS", {name: (one[0], (), (8, 8), (1, 1)) for name, one in steps.SOLVERS.items()})
    assert steps.names() == ["airfoil", "airfoil loop by loop", "piccg", "multigrid", "fast_poisson"]
    made = steps.Steps("numpy")
    assert all(made.seconds(name) > 0.0 for name in steps.names())
    fused, apart = (made.program(name)[0] for name in steps.names()[:2])
    assert isinstance(fused, ml.Program) and isinstance(apart, ml.Program) and fused.fuse and not apart.fuse
