"""The driven cavity on the command line: runs that end when the flow is steady, and how they go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import Command, check_goes_on_bit_for_bit

SMALL = ("cavity2d", "--set", "mesh.cells=[16,16]", "--set", "run.threads=1", "--quiet")


@pytest.mark.slow
def test_a_run_ends_when_the_flow_is_steady_with_pictures_and_tables(meshloom: Command, tmp_path: Path) -> None:
    result = meshloom("run", *SMALL, "--set", "flow.reynolds=100", "--json", "--out", "a")
    assert result.code == 0, result.err
    told = result.json
    assert told["finished"] and not told["failures"] and told["iterations"] % 100 == 0
    assert told["monitors"]["change"] < 1e-6 and told["monitors"]["divergence"] < 1e-10
    assert abs(told["monitors"]["u_centre"] + 0.209) < 0.03 and abs(told["monitors"]["v_min"] + 0.254) < 0.03
    assert {"picture.png", "chart_u_on_vertical_line.png", "fields.pvd"} <= set(told["files"])
    first, *rows = (tmp_path / "a" / "chart_v_on_horizontal_line.csv").read_text().splitlines()
    assert first == 'x,this run,"Ghia, Ghia and Shin 1982"'
    assert sum("nan" not in row for row in rows) == 17


@pytest.mark.slow
def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path) -> None:
    common = (*SMALL, "--set", "time.end=1.0", "--set", "output.plot=false")
    check_goes_on_bit_for_bit(meshloom, tmp_path, *common, after=17)


@pytest.mark.slow
def test_a_steady_run_says_how_it_goes_on(meshloom: Command) -> None:
    result = meshloom("run", *SMALL, "--set", "time.steady=0.01", "--set", "output.plot=false", "--out", "a")
    assert result.code == 0, result.err
    refused = meshloom("run", "--restart", "a/checkpoint.h5", "--out", "b", "--quiet")
    refused.refused(2, "has reached its end", "--set time.steady=0.001")
    result = meshloom("run", "--restart", "a/checkpoint.h5", "--out", "b", "--quiet", "--set", "time.steady=0.001")
    assert result.code == 0, result.err


@pytest.mark.slow
def test_a_pressure_that_is_not_solved_ends_the_run_in_one_line(meshloom: Command) -> None:
    """Rounding leaves no residual of 1e-17."""
    result = meshloom(
        "run", *SMALL, "--set", "pressure.tolerance=1e-17", "--set", "pressure.solver=multigrid", "--out", "a"
    )
    result.refused(1, "the pressure was not solved: ", "residual", "in iteration 1 (time 0); shorter steps")


@pytest.mark.slow
def test_what_breaks_down_is_named_with_loop_and_cell(meshloom: Command) -> None:
    loud = SMALL[:-1]
    result = meshloom("run", *loud, "--set", "time.cfl=8", "--set", "flow.reynolds=1000", "--out", "a")
    assert "\nwarning: time.cfl = 8 is longer than what is known to be stable, which is 1\n" in result.out
    result.refused(1, "the solution broke down: ", "after loop ", "point (", "in iteration ", " (time ",
                   "; time.cfl = 8 is longer than what is known to be stable, which is 1; ")  # fmt: skip
