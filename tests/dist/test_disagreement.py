"""Ranks that go wrong are told, once, and are gone."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.dist.launch import ROOT, SECONDS, command_of, environment_of_ranks, launched

SCRIPT, GIVEN = "tests.dist.on_ranks_wrong", "tests.dist.on_ranks_given"
HERE = r"\S+on_ranks_\w+\.py:\d+"
MOVE = "all ranks must make the same calls in the same order"
MESH = "all ranks must be given the same mesh"
ASKED = "before the first loop mine, local.. and data= as a function of points cut sets, so all ranks must ask .*"
NUMBERS = "all ranks must take the same numbers from Python"
OWN_RUNS = r"\(MESHLOOM_COMM=self makes each a run of its own\)"
SETTINGS = f"all ranks must be given the same settings {OWN_RUNS}"
START = f"an unseeded random start. {OWN_RUNS}"

#: (what goes wrong, how many ranks, the line that is printed)
LINES = [
    ("gathered_on_one", 2, f"rank 0 gathers field u .* at {HERE}, and rank 1 exchanges halos of u at {HERE}: {MOVE}"),
    ("other_fields", 3, f"rank 0 gathers field u .* at {HERE}, and rank [12] gathers field rate .* at {HERE}: {MOVE}"),
    ("left_early", 2, f"rank 0 gathers field rate .* at {HERE}, and rank 1 is at the end of its script: {MOVE}"),
    ("exit_raised", 2, f"rank 0 gathers field rate .* at {HERE}, and rank 1 is at the end of its script: {MOVE}"),
    ("refused_on_one", 2, rf"rank 1: field u on cells: data has shape \(2,\), expected \(24,\); .* \({HERE}\)"),
    ("refused_on_all", 3, rf"field u on cells: data has shape \(2,\), expected \(24,\); .* \({HERE}\)"),
    ("other_settings", 3, f"flow.cfl is 0.9 on rank 0, and 0.8 on rank 1: {SETTINGS}"),
    ("other_case", 2, f"the case is 'airfoil' on rank 0, and 'lulesh' on rank 1: {SETTINGS}"),
    ("other_folder", 2, f"the output folder is 'nowhere_0' on rank 0, and 'nowhere_1' on rank 1: {SETTINGS}"),
    ("other_folder_of_a_script", 2, f"the output folder is 'nowhere_0' on rank 0, and 'nowhere_1' .*: {SETTINGS}"),
    ("other_steps", 2, f"steps is 1 on rank 0, and 2 on rank 1: {SETTINGS}"),
    ("other_file", 2, f"the file to save to is 'nowhere_0.h5' on rank 0, and 'nowhere_1.h5' on rank 1: {SETTINGS}"),
    ("other_file_to_load", 3, f"the file to load is 'nowhere_0.h5' on rank 0, and 'nowhere_1.h5' on .*: {SETTINGS}"),
    ("partition_too_short", 2, rf"a partition of 24 cells is 24 whole numbers, got int\d+ of shape \(7,\) \({HERE}\)"),
    ("partition_too_short_on_one", 3, r"(rank 1: )?a partition of 24 cells is 24 whole numbers, got int\d+ of .*"),
    ("partition_of_no_rank", 2, rf"a partition among 2 ranks has numbers from 0 to 1, got 2 for cell 0 \({HERE}\)"),
    ("too_thin", 3, rf"3 ranks are too many for grid: .* stencils that look 3 planes far; at most 2 \({HERE}\)"),
    ("too_many_planes", 3, rf"3 ranks are too many for grid: .* has 2 planes there.*; at most 2.* \({HERE}\)"),
]  # fmt: skip
#: The same of what ranks were given.
LINES_OF_GIVEN = [
    ("random_start", 2, f"field u was given other values on rank 1 than on rank 0: {START}"),
    ("random_restart", 2, f"field u was given other values on rank 1 than on rank 0: {START}"),
    ("mesh_on_one", 2, f"rank 0 compares which mesh it is to make at {HERE}, and rank 1 is at the end of .*: {MOVE}"),
    ("refused_mesh", 3, rf"box: .* \({HERE}\)"),
    ("other_mesh", 2, f"set cells is of 24 elements on rank 0, and of 30 elements on rank 1: {MESH}"),
    ("other_mesh_by_points", 2, f"set cells is of 24 elements on rank 0, and of 30 elements on rank 1: {MESH}"),
    ("other_points", 3, f"set cells has its elements at other places on rank 1 than on rank 0: {MESH}"),
    ("other_map", 2, f"map mine leads elsewhere on rank 1 than on rank 0: {MESH}"),
    ("other_type", 2, r"field u is of 24 x 1 float64 \(aos\) on rank 0, and of 24 x 1 float32 \(aos\) on rank 1: .*"),
    ("other_shape_of_values", 3, r"field v: its function gives values of shape \(2,\) on rank 0, and \(3,\) .*"),
    ("other_one_value", 2, r"field v: its function gives one value for all points, \S+ on rank 0, and \S+ .*"),
    ("other_global", 2, f"global factor was given other values on rank 1 than on rank 0: {NUMBERS}"),
    ("other_fill", 2, f"field u was given other values on rank 1 than on rank 0: {NUMBERS}"),
    ("other_fill_to_gather", 2, f"field u was given other values on rank 1 than on rank 0: {NUMBERS}"),
    ("random_values_to_save", 2, f"field u was given other values on rank 1 than on rank 0: {START}"),
    ("random_values_to_write", 3, f"field v was given other values on rank 1 than on rank 0: {START}"),
    ("other_global_to_save", 2, r"global mass was given other values on rank 1 than on rank 0: an unseeded .* number."),
    ("partition_without_its_mesh", 2, "faces: its mesh is gone, whose cells the given partition cuts: keep it .*"),
    ("random_values_to_gather", 2, f"field u was given other values on rank 1 than on rank 0: {START}"),
    ("other_end", 2, f"loop highest has run with other numbers, or more or less often, on rank 1 than .*: {NUMBERS}"),
    ("gathered_by_points", 3, "rank 0 gathers field u .* in what it does for others, which wait until .*"),
    ("other_fill_of_a_program", 2, f"loop u = [56] computes with other numbers on rank 1 than on rank 0: {NUMBERS}"),
    ("asked_by_one", 2, f"set one has other owners on rank 1 than on rank 0: {ASKED}"),
    ("other_number", 3, f"loop further computes with other numbers on rank 1 than on rank 0: {NUMBERS}"),
    ("other_number_of_one", 2, f"loop further computes with other numbers on rank 1 than on rank 0: {NUMBERS}"),
    ("other_argument_as_before", 3, f"factor of loop scaled is 0.5 on rank 0, and 2.0 on rank 1: {NUMBERS}"),
    ("other_argument", 2, f"factor of loop scaled is 2.0 on rank 0, and 3.0 on rank 1: {NUMBERS}"),
    ("other_backend", 2, "the back end has other options on rank 1 than on rank 0: choose the same on all ranks"),
    ("other_backend_later", 2, "the back end is numpy on rank 0, and cpu on rank 1: choose the same on all ranks"),
    ("other_processor", 2, r"the processor is .+ fma on rank 0, and riscv64 with fma on rank 1: take nodes .*"),
    ("other_compiler", 3, r"the C\+\+ compiler is .+ on rank 0, and c\+\+ 1\.0 on rank 1: name the same by CXX .*"),
    ("other_numpy", 2, r"NumPy is \S+ on rank 0, and 1\.0 on rank 1: install the same on all nodes"),
]  # fmt: skip
QUICK = "gathered_on_one", "other_number_of_one"


@pytest.mark.parametrize(
    ("script", "name", "ranks", "line"),
    [pytest.param(script, *row, marks=() if row[0] in QUICK else pytest.mark.slow, id=row[0])
     for script, rows in ((SCRIPT, LINES), (GIVEN, LINES_OF_GIVEN)) for row in rows],
)  # fmt: skip
def test_what_differs_is_one_line_and_ends_all(script: str, name: str, ranks: int, line: str) -> None:
    done = launched(ranks, ["-m", script, name])
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(f"meshloom: {line}\n", done.stderr), done.stderr


#: The same where nobody asked for checks: what comes has another length. Rank 0 tells, or the rank that cannot go on.
ASK = MOVE + r" \(MESHLOOM_CHECK_RANKS=1 names them\)"
UNCHECKED = [
    ("shorter_message", rf"rank 0 exchanges halos of pair: it gets \d+ bytes from rank 1, and expects \d+ .*: {ASK}"),
    ("longer_message", rf"rank 0 exchanges halos of u: it gets more from rank 1, and expects \d+ bytes: {ASK}"),
    ("other_rows", rf"rank 0 gathers rows of a script \(float64, shape \(2,\) each\) at {HERE}, and rank 1 gathers"
                   rf" rows of a script \(float64, shape \(3,\) each\) at {HERE}: {MOVE}"),
    ("other_sums", rf"rank \d gathers sums of a script .*: {ASK}"),
    ("sums_of_another", rf"rank \d gathers sums of [ab] .*, and rank \d gathers something else: {ASK}"),
    ("fields_of_another", rf"rank \d gathers field \w+ .*, and rank \d gathers something else: {ASK}"),
    ("compared_with_another", rf"rank 0 compares a at {HERE}, and rank 1 compares b at {HERE}: {MOVE}"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), UNCHECKED, ids=[name for name, _ in UNCHECKED])
def test_messages_of_another_length_are_one_line_and_end_all(name: str, line: str) -> None:
    done = launched(2, ["-m", SCRIPT, name], MESHLOOM_CHECK_RANKS="0")
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(f"meshloom: {line}\n", done.stderr), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("script", "name"), [
    *((SCRIPT, name) for name in ("nothing", "refused_and_caught", "exit_as_it_should", "globals_are_read_by_one")),
    *((GIVEN, name) for name in ("what_changes_often_goes_along", "values_are_gathered_at_once", "asked_by_one_in_time",
                                 "parts_go")),
])  # fmt: skip
def test_what_is_the_same_passes(script: str, name: str) -> None:
    done = launched(3, ["-m", script, name])
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.slow
def test_who_does_not_come_is_named() -> None:
    done = launched(3, ["-m", SCRIPT, "late"], MESHLOOM_CHECK_RANKS="20")
    assert done.returncode == 2
    said = f"meshloom: rank [02] gathers field rate .* at {HERE}, and rank 1 is not there after 20 s: {MOVE}"
    assert re.fullmatch(rf"{said} \(MESHLOOM_CHECK_RANKS=600 waits for ten minutes\)\n", done.stderr), done.stderr


@pytest.mark.slow
def test_wrong_commands_are_refused_once() -> None:
    done = launched(3, ["-m", "meshloom", "nothing_of_the_kind"])
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "nothing_of_the_kind" in done.stderr


@pytest.mark.slow
def test_a_wrong_value_of_what_ranks_check_is_told_once() -> None:
    done = launched(3, ["-m", "meshloom", "run", "airfoil"], MESHLOOM_CHECK_RANKS="no")
    assert done.returncode == 2 and done.stderr.startswith("meshloom: MESHLOOM_CHECK_RANKS must be 0 or more, got 'no'")
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


@pytest.mark.slow
def test_mpi4py_that_is_missing_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('there is none')\n")
    done = launched(3, ["-m", SCRIPT, "nothing"], PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert re.fullmatch("meshloom: a launcher has started 3 processes, and mpi4py is not there .*there is none.*\n",
                        done.stderr), done.stderr  # fmt: skip


def ended(name: str, coming: int, number: int | None = None, ranks: int = 3) -> SimpleNamespace:
    """How a run has ended, of whose ranks so many come to where it goes wrong. A signal is given to the launcher
    then."""
    process = subprocess.Popen(command_of(ranks, ["-m", SCRIPT, name]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=environment_of_ranks(MESHLOOM_CHECK_RANKS="0"), cwd=ROOT)  # fmt: skip
    try:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(coming))
        assert said.replace("\n", "") == "now" * coming, "a launcher may mix what ranks say: a line, or its end"
        if number is not None:
            process.send_signal(number)
        launcher, said = process.communicate(timeout=SECONDS)
        return SimpleNamespace(code=process.returncode, said=said, launcher=launcher)
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "coming", "first"), [
    ("raised_on_one", 1, "meshloom: rank 1:\n"), ("raised_on_all", 0, ""),
])  # fmt: skip
def test_other_errors_show_their_traceback_once(name: str, coming: int, first: str) -> None:
    found = ended(name, coming)
    assert found.code == 1 and found.said.count("ZeroDivisionError: on purpose") == 1
    assert found.said.startswith(f"{first}Traceback (most recent call last):\n"), found.said


@pytest.mark.slow
def test_of_several_that_fail_by_themselves_one_shows_its_traceback() -> None:
    found = ended("raised_on_some", 3, ranks=6)
    assert found.code == 1 and found.said.count("Traceback") == found.said.count("meshloom: rank ") == 1, found.said
    assert re.match(r"meshloom: rank [345]:\nTraceback", found.said)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "coming", "code", "said"), [
    ("exit_with_words", 1, 1, "meshloom: rank 1: no such file\n"),
    ("exit_with_code", 1, 3, "meshloom: rank 1: ends with exit code 3\n"),
    ("exit_by_prompt", 1, 4, "meshloom: rank 1: ends with exit code 4\n"),
    ("exit_on_all", 0, 3, ""), ("exit_on_all_with_words", 0, 1, "no such file\n"),
])  # fmt: skip
def test_exit_codes_of_scripts_end_all(name: str, coming: int, code: int, said: str) -> None:
    """Told once, unless all end alike: then what Python prints is all."""
    found = ended(name, coming)
    assert (found.code, found.said) == (code, said)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_all(number: int) -> None:
    """The launcher passes it on: rank 1 fails, and the others wait for it."""
    found = ended("waiting", 3, number)
    assert found.code != 0, found.said
    assert found.said.count("Traceback") == (number == signal.SIGINT)


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_all() -> None:
    found = ended("killed", 1)
    assert found.code == 9 and "Killed (signal 9)" in found.launcher


@pytest.mark.slow
@pytest.mark.parametrize("poisoned", ["1", "0"])
def test_an_exchange_that_is_missing_shows(poisoned: str) -> None:
    done = launched(3, ["-m", SCRIPT, "no_exchange"], MESHLOOM_POISON_HALOS=poisoned)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
