"""Processes that make things and drop them for a long time."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests import nursery
from tests.attacks.campaign import Broken, Campaign
from tests.attacks.soak import ROUNDS

#: Rounds that show within seconds whether anything stays, and those of a long run, in a few processes one after the
#: other, with the seconds that each of these may take.
SHORT = {"fields": 400, "programs": 60, "kernels": 60, "meshes": 120}
LONG = {"fields": (100_000, 300), "programs": (1_000, 100), "kernels": (2_000, 200), "meshes": (1_000, 100)}
PROCESSES = 4


def soaked(kind: str, rounds: int, seconds: float, dice: random.Random, collector: str = "on") -> str:
    """One soak in a process of its own."""
    command = ["-m", "tests.attacks.soak", kind, str(rounds), str(dice.randrange(10**9)), collector]
    try:
        done = nursery.run(command, nursery.ROOT, seconds=seconds)
    except subprocess.TimeoutExpired:
        raise Broken(f"{rounds:,} rounds of {kind} took more than {seconds:.0f} s") from None
    if done.returncode:
        raise Broken(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}")
    return "flat"


def short(dice: random.Random, folder: Path) -> str:
    """A short soak of every kind, one after the other, without Python's collector."""
    for kind in ROUNDS:
        soaked(kind, SHORT[kind], 120.0, dice, collector="off")
    return "flat"


def long(kind: str) -> Callable[[random.Random, Path], str]:
    """One process of a long soak of one kind."""
    rounds, seconds = LONG[kind]
    return lambda dice, folder: soaked(kind, rounds // PROCESSES, seconds, dice)


FLAT = "memory within 20 MB, mappings and the number of objects as after the warm-up"
CAMPAIGNS = (
    Campaign("memory", "a few hundred fields, programs, kernels and meshes used and dropped, collector off",
             FLAT, short, few=0, many=4),
    *(Campaign(f"memory-{kind}", f"{rounds:,} rounds of {kind} that are made, used and dropped", FLAT, long(kind),
               few=0, many=PROCESSES) for kind, (rounds, _) in LONG.items()),
)  # fmt: skip
