"""Scripts that use MPI themselves, and runs that share a launcher and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import meshloom as ml
from meshloom.process.ranks import LAUNCHERS, SLURM, told_by_launchers
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
        assert told_by_launchers(environment) == (rank, size)


#: Programs that a rank starts, and what each says: its exit code, and the last lines that it prints.
PROGRAMS = {
    "-m meshloom --version": (0, f"meshloom {ml.__version__}", ""),
    "-m meshloom airfoil": (2, "", "meshloom: .*run airfoil.*"),
    "-c import meshloom as ml; ml.generate.box((0, 1))": (1, "", "meshloom.errors.MeshError: box: .*"),
    "-c import meshloom, sys; sys.exit('no such file')": (1, "", "no such file"),
    "-m tests.dist.on_ranks_wrong nothing": (0, "done", ""),
    "-c from mpi4py import MPI; print(MPI.COMM_WORLD.size)": (0, "1", ""),
}
STARTS = """
import json, os, subprocess, sys
from mpi4py import MPI  # which joins the ranks by what their launcher said
for said, name in zip(("PMI_RANK", "PMI_SIZE"), sys.argv[2:]):
    os.environ[name] = os.environ.pop(said)
import meshloom as ml
assert (ml.world.rank, ml.world.size) == (MPI.COMM_WORLD.rank, 2)
if ml.world.rank == 1:
    done = [subprocess.run([sys.executable, *one], capture_output=True, text=True) for one in json.loads(sys.argv[1])]
    print(json.dumps([[one.returncode, one.stdout, one.stderr] for one in done]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("names", [*LAUNCHERS, SLURM], ids=lambda names: names[1])
def test_programs_that_a_rank_starts_are_no_ranks(names: tuple[str, str]) -> None:
    """They say what they say elsewhere, however the launcher calls ranks: mpi4py is told by its own."""
    programs = [one.split(" ", 1 if one[:2] == "-c" else -1) for one in PROGRAMS]
    done = launched(2, ["-c", STARTS, json.dumps(programs), *names])
    assert (done.returncode, done.stderr) == (0, "")
    for found, expected in zip(json.loads(done.stdout), PROGRAMS.values(), strict=True):
        code, *said = found
        last = [one.splitlines()[-1] if one else "" for one in said]
        assert code == expected[0] and all(map(re.fullmatch, expected[1:], last)), found


@pytest.mark.slow
def test_another_word_of_one_rank_ends_all() -> None:
    """Who is given none waits for who is."""
    done = launched(3, ["-c", "import os\nif os.environ['PMI_RANK'] == '1':\n    os.environ['MESHLOOM_COMM'] = 'selv'\n"
                              "import meshloom"], seconds=60)  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"meshloom: rank 1: unknown MESHLOOM_COMM 'selv'; did you mean 'self'\?.*\n", done.stderr)


@pytest.mark.slow
def test_another_word_is_refused_once() -> None:
    done = launched(3, ["-m", SCRIPT, "runs_of_their_own"], MESHLOOM_COMM="selv")
    assert done.returncode == 2
    line = r"meshloom: unknown MESHLOOM_COMM 'selv'; did you mean 'self'\? \(\S+on_ranks_beside\.py:\d+\)\n"
    assert re.fullmatch(line, done.stderr), done.stderr
