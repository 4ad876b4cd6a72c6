"""What does not run on several ranks is refused on all of them before anything runs, in one line that names what does,
and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import meshloom as ml
from meshloom.case import Case
from meshloom.catalogue import find
from meshloom.config import Setting, build
from meshloom.dist.slabs import refusal
from meshloom.mesh.numbering import OneRank, Rows
from tests.dist.launch import launched
from tests.dist.on_ranks_refused import CASES, RUN, TRIED

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
#: Of cases that say nothing of it: some solve Poisson's equation, others go along lines of a grid.
IN_CASES = SERVES["fast_poisson"], SERVES["along the cut axis"]
REFUSED = tuple(name for name in TRIED if name.removeprefix("case ") not in RUN)


@cache
def refused() -> tuple[Mapping[str, tuple[int, str]], list[str]]:
    """What each was told on two ranks, and the files that were left."""
    with TemporaryDirectory() as folder:
        done = launched(2, ["-m", "tests.dist.on_ranks_refused", folder])
        assert done.returncode == 0, done.stderr[-3000:]
        left = [str(one.relative_to(folder)) for one in Path(folder).rglob("*")]
    return json.loads(done.stdout.splitlines()[-1]), left


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_one_line_that_names_what_serves(name: str) -> None:
    code, line = refused()[0][name]
    assert code == 2 and "\n" not in line and "2 ranks" in line, line
    if name.removeprefix("case ") in CASES:
        case = find(name.removeprefix("case "))
        assert line.startswith(f"case '{case.name}', {case.not_on_ranks}, does not run on 2 ranks yet: cases on meshes")
    else:
        assert any(one in line for one in ([SERVES[name]] if name in SERVES else IN_CASES)), line


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_cases_that_do_not_say_otherwise_run(name: str) -> None:
    assert refused()[0][f"case {name}"] == [0, "ran"]


@pytest.mark.slow
def test_nothing_is_left_of_what_is_refused() -> None:
    assert {one.partition("/")[0] for one in refused()[1]} == {*RUN}


def test_what_solves_along_the_cut_axis_or_on_the_whole_grid_says_so() -> None:
    """Of each family one case, on one process: what its loops and solvers are asked for agrees with what it says."""
    for name in ("advection1d", "taylor_green", "taylor_green_inc", "lulesh"):
        case = find(name)
        assert bool(case.not_on_ranks) == bool(hindrances(case)), name


class Asked(OneRank):
    """One process, which takes note of what would be refused on several."""

    def __init__(self) -> None:
        self.hindered: list[str] = []

    def check_alone(self, what: str, others: str = "") -> None:
        self.hindered.append(what)


def hindrances(case: type[Case]) -> list[str]:
    """What of a case does not run on ranks, by its solvers and loops."""
    small = [Setting(tuple(key.split(".")), value, "small") for key, value in case.small.items()]
    before, Rows.placement = Rows.placement, (asked := Asked())
    try:
        with ml.using("numpy"):
            made = case(build(case.Config, small))
            return asked.hindered + [said for one in made.program.loops if (said := refusal(one))]
    finally:
        Rows.placement = before


@pytest.mark.slow
def test_a_notebook_is_refused() -> None:
    """Whose kernel a launcher has started; a terminal of IPython has none, and runs."""
    cell = ("import sys, types; shell = types.SimpleNamespace(custom_exceptions=(int,), {});"
            " sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: shell);"
            " import meshloom as ml; print(ml.world.rank)")  # fmt: skip
    done = launched(2, ["-c", cell.format("kernel=1")])
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.splitlines() == [
        "meshloom: a notebook, which nobody asks on all of them, does not run on 2 ranks yet: its cells as a script do;"
        " start it without a launcher (<string>:1)"
    ]
    assert sorted(launched(2, ["-c", cell.format("")]).stdout.split()) == ["0", "1"]
