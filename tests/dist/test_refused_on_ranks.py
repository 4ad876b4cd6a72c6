"""What does not run on several ranks is refused on all of them before anything runs, in one line that names what does,
and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from meshloom.catalogue import case_names
from tests.dist.launch import launched
from tests.dist.on_ranks_refused import CASES, TRIED

COPIES = "numpy() of all values and local() of a rank's own do, which are copies"
#: What is said to serve instead.
SERVES = {
    "memory": COPIES, "view": COPIES, "dlpack": COPIES,
    "wrap": "data= does, which takes a copy",
    "pickle": "ml.save and ml.load do",
    "study": "cases do, and scripts with loops over sets and grids",
    "along the cut axis": "stencils",
    "in a part of a grid": "at offsets, in boxes and through maps",
    **dict.fromkeys(("fast_poisson", "solid cells", "multigrid", "piccg by rows"), "cg, bicgstab and gmres"),
    "piccg by rows of a grid": "PICCG in stencil form",
}  # fmt: skip
#: Of cases: some solve Poisson's equation, others go along lines of a grid.
IN_CASES = SERVES["fast_poisson"], SERVES["along the cut axis"]


@cache
def refused() -> tuple[Mapping[str, tuple[int, str]], list[str]]:
    """What each was told on two ranks, and the files that were left."""
    with TemporaryDirectory() as folder:
        done = launched(2, ["-m", "tests.dist.on_ranks_refused", folder])
        assert done.returncode == 0, done.stderr[-3000:]
        left = [str(one.relative_to(folder)) for one in Path(folder).rglob("*")]
    return json.loads(done.stdout.splitlines()[-1]), left


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_it_is_one_line_that_names_what_serves(name: str) -> None:
    code, line = refused()[0][name]
    assert code == 2 and "\n" not in line and "2 ranks" in line, line
    assert any(one in line for one in ([SERVES[name]] if name in SERVES else IN_CASES)), line


@pytest.mark.slow
def test_nothing_is_left() -> None:
    assert refused()[1] == []


def test_cases_are_refused_or_run() -> None:
    """The others are those that ``on_ranks_cases`` runs."""
    from tests.dist.on_ranks_cases import CASES as RUN

    assert {*CASES, *RUN} >= {*case_names()} and not {*CASES} & {*RUN}
