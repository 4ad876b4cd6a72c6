"""The advection cases on the command line: what a run leaves, restart, and settings that are refused."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.cli.harness import Command

QUICK = ("--quiet", "--backend", "numpy")
SMALL = {
    "advection1d": ("--set", "mesh.points=32", "--set", "pulse.power=5", "--set", "time.dt=0.01"),
    "tophat1d": ("--set", "mesh.points=64", "--set", "time.dt=0.01"),
    "rotating_cone": ("--set", "mesh.points=16", "--set", "time.dt=0.01", "--set", "time.end=0.2"),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_run_leaves_monitors_fields_pictures_and_a_checkpoint(meshloom: Command, tmp_path: Path, name: str):
    pytest.importorskip("matplotlib")
    result = meshloom("run", name, *SMALL[name], *QUICK, "--json", "--out", "a")
    assert result.code == 0, result.err
    steps, monitors = result.json["iterations"], result.json["monitors"]
    assert monitors["time"] == pytest.approx(0.01 * steps) and 0.0 < monitors["error_l2"] < 0.3
    files = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"monitors.csv", "checkpoint.h5", "picture.png", "fields.pvd", f"fields_{steps:07d}.vti"} <= files
    assert ({"map_error.png"} if name == "rotating_cone" else {"chart_profile.csv", "chart_errors.png"}) <= files


def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path):
    common = ("rotating_cone", *SMALL["rotating_cone"], *QUICK, "--set", "output.plot=false")
    assert meshloom("run", *common, "--out", "whole").code == 0
    assert meshloom("run", *common, "--iterations", "7", "--out", "half").code == 0
    result = meshloom("run", "--restart", "half/checkpoint.h5", "--iterations", "1000000", "--quiet")
    assert result.code == 0, result.err
    assert (tmp_path / "half/monitors.csv").read_bytes() == (tmp_path / "whole/monitors.csv").read_bytes()
    with h5py.File(tmp_path / "half/checkpoint.h5") as half, h5py.File(tmp_path / "whole/checkpoint.h5") as whole:
        np.testing.assert_array_equal(half["state/phi"][()], whole["state/phi"][()])


@pytest.mark.parametrize("end", ["0.45", "0.4275", "0.8", "2.5"])
def test_a_restart_with_another_end_keeps_its_time(meshloom: Command, tmp_path: Path, end: str):
    """Another end makes other steps; the time that the solution has is what it was, and the new end is met."""
    common = ("advection1d", *SMALL["advection1d"], "--set", "mesh.periodic=true", *QUICK, "--set", "output.plot=false")
    assert meshloom("run", *common, "--set", "time.end=0.4", "--out", "a").code == 0
    more = ("--set", f"time.end={end}", "--iterations")
    assert meshloom("run", "--restart", "a/checkpoint.h5", *more, "42", "--json", "--quiet").code == 0
    result = meshloom("run", "--restart", "a/checkpoint.h5", *more, "1000000", "--json", "--quiet")
    assert result.code == 0 and result.json["finished"], result.err
    assert result.json["monitors"]["time"] == pytest.approx(float(end), rel=1e-14)
    times = np.loadtxt(tmp_path / "a/monitors.csv", delimiter=",", skiprows=1)[:, 1]
    lengths = np.diff(times)
    assert lengths.max() < 0.01 * (1.0 + 1e-9) and lengths.min() > 0.002, "no step is longer than asked for, none back"
    np.testing.assert_allclose(lengths[42:], lengths[42:].mean() if len(lengths) > 42 else 0.0, rtol=1e-9)
    straight = meshloom("run", *common, "--set", f"time.end={end}", "--out", "b", "--json").json["monitors"]
    assert result.json["monitors"]["error_l2"] == pytest.approx(straight["error_l2"], rel=0.05)


def test_what_cannot_work_is_refused(meshloom: Command):
    meshloom("run", "advection1d", "--set", "time.dt=0.01", *QUICK).refused(
        2, "time.dt = 0.01: longer than the scheme is stable for, LELE6", "; at most 0.00557")  # fmt: skip
    meshloom("run", "rotating_cone", "--set", "time.cfl=1.5", *QUICK).refused(2, "time.cfl = 1.5: longer than")
    meshloom("run", "tophat1d", "--set", "mesh.points=4", *QUICK).refused(2, "mesh.points", "from 5")
    meshloom("run", "rotating_cone", "--set", "mesh.points=8", *QUICK).refused(
        2, "has 8 points along x; scheme filters(8, 0.45) needs at least 9")  # fmt: skip
    meshloom("run", "rotating_cone", "--set", "filter.order=5", *QUICK).refused(2, "filter.order", "even")
    meshloom("run", "advection1d", "--set", "flow.speed=0.0", *QUICK).refused(2, "flow.speed", "other than 0")


@pytest.mark.parametrize("changes", [
    ("time.dt=5e-324",), ("time.cfl=5e-324",), ("time.dt=1e-300", "time.end=1e300"), ("flow.speed=1e307",),
    ("flow.speed=5e-324",), ("mesh.length=5e-324",), ("mesh.length=1e307",), ("time.end=1e307",),
])  # fmt: skip
def test_numbers_that_nothing_can_be_computed_with(meshloom: Command, changes: tuple[str, ...]):
    settings = [word for change in changes for word in ("--set", change)]
    meshloom("run", "advection1d", *settings, *QUICK).refused(2)
