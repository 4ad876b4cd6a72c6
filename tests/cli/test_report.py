"""The page of a run and the time by loop, from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.harness import Command, files_below

SMALL = ("run", "airfoil", "--set", "mesh.i=6", "--set", "mesh.j=4", "--set", "output.plot=false")


@pytest.mark.parametrize("backend", ["numpy", "cpu", "emulated"])
def test_profile_prints_a_table_that_adds_up(meshloom: Command, tmp_path: Path, backend: str):
    result = meshloom(*SMALL, "--iterations", "6", "--backend", backend, "--profile", "--out", "a")
    assert result.code == 0, result.err
    printed = result.out[result.out.index("time by loop, ") :].splitlines()
    assert printed[1].split()[:4] == ["loop", "seconds", "share", "calls"]
    body = [row for row in printed[2:] if " %" in row]
    shares = [float(row.split(" %")[0].split()[-1]) for row in body]
    assert sum(shares) == pytest.approx(100.0, abs=0.5) and any("res_calc" in row for row in body)
    assert '"of limit": the time' in printed[-1] or "was not measured" in printed[-1]
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert "All that the loops say of themselves" in page and "Time by loop" in page


def test_profile_as_json(meshloom: Command, tmp_path: Path):
    result = meshloom(*SMALL, "--iterations", "4", "--backend", "numpy", "--profile", "--json", "--quiet")
    rows = {row["name"]: row for row in result.json["profile"]["rows"]}
    assert rows["res_calc"]["calls"] == 6 and rows["res_calc"]["bytes"] > 0 and rows["everything else"]["bytes"] is None
    assert result.err == "", result.err
    plain = meshloom(*SMALL, "--iterations", "4", "--backend", "numpy", "--json", "--quiet")
    assert "profile" not in plain.json


def test_profile_of_a_run_that_is_at_its_end(meshloom: Command):
    assert meshloom(*SMALL, "--iterations", "4", "--backend", "numpy", "--out", "a", "--quiet").code == 0
    again = meshloom("run", "--restart", "a", "--profile")
    assert again.code == 0 and "time by loop: there was no iteration" in again.out


def test_report_makes_the_page_again(meshloom: Command, tmp_path: Path):
    assert meshloom(*SMALL, "--iterations", "4", "--backend", "numpy", "--out", "a", "--quiet").code == 0
    before = files_below(tmp_path)
    (tmp_path / "a" / "report.html").unlink()
    result = meshloom("report", "a")
    assert (result.code, result.out, result.err) == (0, "a/report.html\n", "") and files_below(tmp_path) == before


def test_what_there_is_no_page_of(meshloom: Command, tmp_path: Path):
    assert meshloom(*SMALL, "--iterations", "4", "--backend", "numpy", "--out", "a", "--quiet").code == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("mine")
    for name, text in {
        "list": "[1]",
        "text": "no",
        "old": '{"format": 0}',
        "half": '{"format": 1, "name": "x"}',
    }.items():
        shutil.copytree(tmp_path / "a", tmp_path / name)
        (tmp_path / name / "report.json").write_text(text)
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "monitors.csv").write_text("iteration,rms\n1,x\n")
    before = files_below(tmp_path)
    for run, part in {
        "none": "none: no such folder; give the folder of a run",
        "a/run.toml": "a/run.toml: no such folder; give the folder of a run",
        "empty": "empty: this folder holds no run",
        "list": "list/report.json: not the account of a run",
        "text": "text/report.json: not the account of a run",
        "old": "this Meshloom reads 1",
        "half": "half/report.json: not the account of a run",
        "csv": "csv/monitors.csv: not the monitors of a run",
        "x" * 5000: "no such folder",
    }.items():
        meshloom("report", run).refused(2, part)
        assert files_below(tmp_path) == before
