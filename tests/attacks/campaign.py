"""A campaign: one kind of attack, tried as often as you like, every attempt from a number that repeats it.

Each module of this folder with a tuple ``CAMPAIGNS`` takes part: a few attempts of each in CI, many by
``pytest -m slow``, any number by ``python -m tests.attacks.run``, which also makes the table of docs/reliability.md.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


class Broken(AssertionError):
    """A promise that did not hold, in one line."""


@dataclass(frozen=True)
class Campaign:
    """One kind of attack.

    ``attempt(random, folder)`` does one in an empty folder: it raises Broken where a promise does not hold, and else
    says in a word or two how it ended ("refused", "same answer"), which is counted. Whatever it does depends on
    ``random`` alone. Any other exception counts as broken too.
    """

    name: str
    attacks: str  # what is done, for the table
    promise: str  # what must hold, for the table
    attempt: Callable[[random.Random, Path], str]
    few: int  # attempts in CI
    many: int  # attempts of a whole one, at least
    seconds: float = 0.0  # which goes on for at least so long
    least: int = 1  # attempts in a slow test, however many are made elsewhere
    met: str = ""  # how some attempts end: without any the campaign would show nothing


@dataclass
class Score:
    """How attempts ended."""

    attempts: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)  # "settings 7:123: ..."
    seconds: float = 0.0

    def add(self, other: Score) -> None:
        self.attempts += other.attempts
        self.endings += other.endings
        self.broken += other.broken
        self.seconds += other.seconds


@cache
def campaigns() -> dict[str, Campaign]:
    """All of them by name: every module of this folder is asked."""
    import tests.attacks as folder

    modules = [importlib.import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)
               if not m.name.startswith("test_") and m.name != "run"]  # fmt: skip
    found = [one for module in modules for one in getattr(module, "CAMPAIGNS", ())]
    assert len({one.name for one in found}) == len(found), "two campaigns of one name"
    return {one.name: one for one in found}


def once(campaign: Campaign, seed: int, number: int) -> Score:
    """One attempt."""
    begin, score = time.monotonic(), Score(attempts=1)
    folder = Path(tempfile.mkdtemp(prefix=f"{campaign.name}-"))
    try:
        score.endings[campaign.attempt(random.Random(f"{campaign.name} {seed} {number}"), folder)] += 1
    except Exception as problem:
        kind = "" if isinstance(problem, Broken) else f"{type(problem).__name__}: "
        score.broken.append(f"{campaign.name} {seed}:{number}: {kind}{' '.join(str(problem).split())}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    score.seconds = time.monotonic() - begin
    return score


def many(campaign: Campaign, attempts: int, *, seed: int = 0, seconds: float = 0.0) -> Score:
    """At least so many attempts, for at least so long."""
    total, begin = Score(), time.monotonic()
    while total.attempts < attempts or time.monotonic() - begin < seconds:
        total.add(once(campaign, seed, total.attempts))
    return total
