"""What the original programs gave comes out on four ranks, within the bounds of one process."""

from __future__ import annotations

import json

import pytest

from bench.truth import units
from bench.truth_cases import NOT_HERE, Row
from tests.dist.launch import launched
from tests.dist.on_ranks_truth import AIRFOIL

SECONDS = 1800  # of a unit with hundreds of steps, on cores that it may share


@pytest.mark.parametrize("unit", [pytest.param(AIRFOIL, marks=pytest.mark.slow),
                                  *(pytest.param(unit, marks=pytest.mark.ranks) for unit in units())])  # fmt: skip
def test_truth_is_reproduced_on_four_ranks(unit: str) -> None:
    done = launched(4, ["-m", "tests.dist.on_ranks_truth", "cpu", unit], SECONDS, MESHLOOM_POISON_HALOS="0")
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])[unit]]
    assert [row for row in rows if row.verdict not in ("met", NOT_HERE)] == []
    assert any(row.verdict == "met" for row in rows)
