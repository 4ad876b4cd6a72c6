"""The backward-facing step on the command line: what a run writes, restarts, and wrong settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import Command, check_goes_on_bit_for_bit

SMALL = ("backward_step", "--set", "mesh.cells=4", "--set", "mesh.growth=1.2", "--set", "mesh.widest=1", "--set",
         "mesh.upstream=2", "--set", "mesh.downstream=8", "--set", "run.threads=1", "--quiet")  # fmt: skip


@pytest.mark.slow
def test_a_run_ends_when_the_flow_is_steady_with_picture_and_chart(meshloom: Command, tmp_path: Path) -> None:
    result = meshloom("run", *SMALL, "--set", "time.steady=1e-3", "--json", "--out", "a")
    assert result.code == 0, result.err
    told = result.json
    assert told["finished"] and not told["failures"]
    assert abs(told["monitors"]["reattachment"] - 2.922) < 0.15 and abs(told["monitors"]["mass_balance"]) < 1e-12
    assert {"picture.png", "chart_wall_shear.png", "fields.pvd"} <= set(told["files"])
    first, *rows = (tmp_path / "a" / "chart_wall_shear.csv").read_text().splitlines()
    assert first == "x / height of the step,lower wall,upper wall,reattachment"
    assert sum("nan" not in row for row in rows) == 1
    (fields,) = (tmp_path / "a").glob("*.vtr")
    assert b'Name="solid"' in fields.read_bytes()


@pytest.mark.slow
def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path) -> None:
    common = (*SMALL, "--set", "time.end=3.0", "--set", "output.plot=false")
    check_goes_on_bit_for_bit(meshloom, tmp_path, *common, after=7)


def test_wrong_settings_end_in_one_line(meshloom: Command) -> None:
    iterated = ("--set", "pressure.solver=multigrid")
    meshloom("run", *SMALL, *iterated, "--out", "a").refused(2, "pressure.solver", "auto, fast")
    meshloom("run", *SMALL, "--set", "mesh.cells=1", "--out", "a").refused(2, "mesh.cells")
    many = ("--set", "mesh.cells=20", "--set", "mesh.growth=1", "--set", "mesh.upstream=220")
    meshloom("run", *SMALL, *many, "--out", "a").refused(2, "faces between fluid and solid cells, at most 4096")
