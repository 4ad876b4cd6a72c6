"""A few attempts of every campaign, and many as slow tests; that a broken promise is seen at all."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import meshloom as ml
from tests.attacks import meshes
from tests.attacks.campaign import Broken, Campaign, campaigns, many


@pytest.mark.parametrize("name", [one.name for one in campaigns().values() if one.few])
def test_few(name: str) -> None:
    one = campaigns()[name]
    score = many(one, one.few, seed=1)
    assert not score.broken, "\n".join(score.broken)
    assert not one.met or score.endings[one.met], score.endings


@pytest.mark.slow
@pytest.mark.parametrize("name", campaigns())
def test_many(name: str) -> None:
    """A twelfth of what a campaign tries, the same on every machine, however quick; whole ones, which go on for some
    time, run by themselves, and docs/reliability.md has their figures."""
    one = campaigns()[name]
    score = many(one, max(one.least, -(-one.many // 12)), seed=2)
    assert not score.broken, "\n".join(score.broken)
    assert not one.met or score.endings[one.met], score.endings


def test_attempts_are_counted_repeated_and_cleaned_up() -> None:
    folders, drawn = [], []

    def attempt(dice: random.Random, folder: Path) -> str:
        assert not [*folder.iterdir()]
        folders.append(folder)
        drawn.append(dice.random())
        if len(drawn) % 5 == 2:
            raise Broken("lost\na file")
        if len(drawn) % 5 == 3:
            raise ValueError("odd")
        return "held"

    one = Campaign("tried", "", "", attempt, few=1, many=1)
    score = many(one, 5, seed=7)
    assert (score.attempts, score.endings) == (5, {"held": 3})
    assert score.broken == ["tried 7:1: lost a file", "tried 7:2: ValueError: odd"]
    assert not any(folder.exists() for folder in folders) and len({*folders}) == 5
    many(one, 5, seed=7)
    assert drawn[5:] == drawn[:5] and len({*drawn}) == 5


def test_a_reader_may_be_kept_waiting_by_the_machine_but_not_work_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it may take is CPU time of its own."""
    monkeypatch.setattr(meshes, "_CPU_SECONDS", 0.05)
    monkeypatch.setattr(ml, "read", lambda path: time.sleep(0.2))
    assert meshes.read_quietly(Path("any")) is None

    def busy(path: Path) -> None:
        begin = time.process_time()
        while time.process_time() < begin + 0.1:
            pass

    monkeypatch.setattr(ml, "read", busy)
    with pytest.raises(Broken, match="CPU time"):
        meshes.read_quietly(Path("any"))
