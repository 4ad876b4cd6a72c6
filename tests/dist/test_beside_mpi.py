"""Scripts that use MPI themselves, and runs that share a launcher and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from meshloom.dist import world
from meshloom.process.ranks import launched_rank
from tests.dist.launch import launched

SCRIPT = "tests.dist.on_ranks_beside"


def found(ranks: int | None, name: str, **more: str) -> Any:
    """Without checks, whose notes would be the first to go astray."""
    done = launched(ranks, ["-m", SCRIPT, name], MESHLOOM_CHECK_RANKS="0", **more)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_messages_of_a_script_are_not_taken_for_halos() -> None:
    assert found(3, "own_messages") == found(None, "own_messages")


@pytest.mark.slow
def test_every_process_can_be_a_run_of_its_own() -> None:
    each = found(3, "runs_of_their_own", MESHLOOM_COMM="self")
    assert [(rank, size, mine) for rank, size, mine, _ in each] == [(0, 1, 32)] * 3
    assert len({json.dumps(values) for *_, values in each}) == 3
    assert each[0] == found(None, "runs_of_their_own")[0]


def test_who_is_a_run_of_its_own() -> None:
    said = {"PMI_SIZE": "4", "PMI_RANK": "3"}
    for word, size, rank in (("self", 1, 0), (" self ", 1, 0), ("world", 4, 3), ("", 4, 3)):
        environment = said | {"MESHLOOM_COMM": word}
        assert (world.launched(environment), launched_rank(environment)) == (size, rank)


@pytest.mark.slow
def test_another_word_is_refused_once() -> None:
    done = launched(3, ["-m", SCRIPT, "runs_of_their_own"], MESHLOOM_COMM="selv")
    assert done.returncode == 2
    line = r"meshloom: unknown MESHLOOM_COMM 'selv'; did you mean 'self'\? \(\S+on_ranks_beside\.py:\d+\)\n"
    assert re.fullmatch(line, done.stderr), done.stderr
