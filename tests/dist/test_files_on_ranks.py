"""Files on several ranks: the same bytes as on one, and no field is gathered; what goes wrong leaves the last good
one."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

import meshloom as ml
from meshloom.io import checkpoint, collective
from tests.dist import on_ranks_files
from tests.dist.launch import launched, over_ranks

RUNS = "on_mesh", "on_grid", "failing", "pieces"


def ran(ranks: int | None, backend: str, folder: Path, *runs: str) -> dict[str, Any]:
    """What ``on_ranks_files`` prints."""
    done = launched(ranks, ["-m", "tests.dist.on_ranks_files", backend, str(folder), *runs],
                    MESHLOOM_POISON_HALOS=str(int(backend == "numpy")))  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("ranks") == (ranks or 1)
    return found


@cache
def alone(backend: str, *runs: str) -> dict[str, Any]:
    return ran(None, backend, Path(mkdtemp()), *runs)


def test_files_of_scripts_are_the_same_on_ranks(tmp_path: Path) -> None:
    with ml.using("numpy", reproducible=True):
        expected = on_ranks_files.ran(tmp_path / "alone", "on_mesh", "failing")
    names = expected["on_mesh"].keys()
    assert {"saved.h5", "mesh.vtu", "run/checkpoint.h5", "run/probes.csv", "run/integrals.csv", "run/chart_up.csv",
            "run/fields_0000007.vtu", "run/surface_0000007.vtu"} <= names  # fmt: skip
    assert ran(2, "numpy", tmp_path / "ranks", "on_mesh", "failing") == expected


@over_ranks(["numpy", "cpu", "emulated"], [3, 4, 2, 1])
def test_any_number_of_ranks_writes_the_same_bytes(tmp_path: Path, backend: str, ranks: int) -> None:
    assert ran(ranks, backend, tmp_path, *RUNS) == alone(backend, *RUNS)


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_writes_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    words = ["-m", "tests.dist.on_ranks_files", "numpy", str(tmp_path), "killed"]
    assert launched(3, words).returncode != 0
    left = {one.name.partition(".h5")[0] for one in (tmp_path / "killed" / "run").iterdir()}
    assert left >= {"checkpoint", ".checkpoint"}, "the last one, and one that is not finished"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(collective, "BLOCK", on_ranks_files.BLOCK)
        saved = checkpoint.load(tmp_path / "killed" / "run" / "checkpoint.h5")
    assert saved.iteration == 4, "that of the sixth step was on its way"
    found, expected = ran(2, "numpy", tmp_path, "killed"), alone("numpy", "killed")
    assert found == expected, "gone on with by others, and nothing is left over"


BREAKS = ("run", "airfoil", "--set", "mesh.i=16", "--set", "mesh.j=24", "--set", "flow.cfl=40", "--set",
          "output.plot=false", "--backend", "numpy", "--set", "run.reproducible=true", "--quiet", "--out")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_search_for_what_broke_down_ends_in_the_line_of_one_rank(tmp_path: Path, ranks: int) -> None:
    said = {}
    for number in (None, ranks):
        done = launched(number, ["-m", "meshloom", *BREAKS, str(tmp_path / f"{number}")], MESHLOOM_POISON_HALOS="0")
        said[number] = done.returncode, done.stderr.replace(str(tmp_path / f"{number}"), "FOLDER")
    assert said[ranks] == said[None]
    assert re.search(r"broke down: adt is NaN in cell \d+ at .* after loop adt_calc in iteration", said[None][1])


SAYS = """
import warnings
import meshloom as ml
warnings.warn("careful")
print("usual", ml.threads(), flush=True)
ml.use("cpu", threads=3)
print("asked", ml.threads(), flush=True)
"""


@pytest.mark.slow
def test_warnings_come_once_and_threads_are_those_asked_for(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS)
    done = launched(2, [str(tmp_path / "says.py")], OMP_NUM_THREADS="")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("careful") == 2, "the warning, and its line"
    assert done.stdout.count("asked 3") == 2
    assert done.stdout.count("usual") == 2
