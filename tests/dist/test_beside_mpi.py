"""Scripts that use MPI themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dist.launch import launched

SCRIPT = "tests.dist.on_ranks_beside"


def found(ranks: int | None, name: str) -> Any:
    """Without checks, whose notes would be the first to go astray."""
    done = launched(ranks, ["-m", SCRIPT, name], MESHLOOM_CHECK_RANKS="0")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_messages_of_a_script_are_not_taken_for_halos() -> None:
    assert found(3, "own_messages") == found(None, "own_messages")
