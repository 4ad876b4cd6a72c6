"""Ranks are gone when one of them is killed, or what has started them. At random moments of runs that go on afterwards:
``tests/attacks/ranks.py``."""

from __future__ import annotations

import subprocess

import pytest

from tests.attacks.ranks import RANKS, VICTIMS, kill, victims
from tests.dist.launch import ROOT, command_of, environment_of_ranks

QUICK = "daemon", "launcher"


@pytest.mark.parametrize("victim", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow)
                                    for one in VICTIMS])  # fmt: skip
def test_ranks_that_wait_for_each_other_are_gone(victim: str) -> None:
    process = subprocess.Popen(
        command_of(RANKS, ["-m", "tests.dist.on_ranks_wrong", "waiting"]), stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, start_new_session=True, env=environment_of_ranks(MESHLOOM_CHECK_RANKS="0"), cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(RANKS))
    assert said.replace("\n", "") == "now" * RANKS
    assert kill(process, victims(process.pid)[victim]).code != 0
