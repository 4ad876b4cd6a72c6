"""The BookLeaf cases on the command line: runs that end at a time, meshes that move, and how runs go wrong."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import meshloom as ml
from tests.cli.harness import Command, check_goes_on_bit_for_bit

SMALL = ("--set", "mesh.cells=[12,4]", "--set", "output.plot=false", "--quiet", "--backend", "numpy")


def test_a_run_ends_at_its_time_and_writes_the_mesh_that_moved(meshloom: Command, tmp_path: Path):
    result = meshloom("run", "bookleaf_sod", *SMALL, "--set", "time.end=0.5", "--json", "--out", "a")
    assert result.code == 0, result.err
    found = result.json["monitors"]
    assert 0.5 <= found["time"] < 0.52 and found["steps"] == result.json["iterations"]
    assert len((tmp_path / "a" / "monitors.csv").read_text().splitlines()) == found["steps"] + 1
    with h5py.File(tmp_path / "a" / "checkpoint.h5") as file:
        moved = file["state/x"][...]
    pytest.importorskip("meshio")
    mesh = ml.read(tmp_path / "a" / f"fields_{int(found['steps']):07d}.vtu")
    np.testing.assert_array_equal(mesh.coordinates.numpy(), moved)


def test_a_restarted_run_equals_an_uninterrupted_one(meshloom: Command, tmp_path: Path):
    common = ("bookleaf_sedov", *SMALL, "--set", "time.end=0.02", "--set", "mesh.order=rcm")
    check_goes_on_bit_for_bit(meshloom, tmp_path, *common, after=30)


def test_a_tangled_mesh_stops_the_run(meshloom: Command):
    """Time steps without bounds push a cell through itself."""
    reckless = [f"--set=time.{key}" for key in ("cfl=10", "divergence=10", "growth=10", "longest=10")]
    result = meshloom("run", "bookleaf_sedov", *SMALL, *reckless, "--set", "output.checkpoint_every=1")
    result.refused(1, "volume is -", "must be above 0: the mesh is tangled", " in cell ", "iteration ",
                   "the last good checkpoint is", warned="time.cfl = 10 is longer")  # fmt: skip


def test_a_collapsing_time_step_stops_the_run(meshloom: Command):
    result = meshloom("run", "bookleaf_noh", *SMALL, "--set", "time.initial=0.02", "--set", "time.shortest=0.01")
    result.refused(1, "cell_dt is 0.00", "must be above 0.01: time.shortest; the time step has collapsed",
                   " in cell ", "after loop time_step in iteration ")  # fmt: skip
