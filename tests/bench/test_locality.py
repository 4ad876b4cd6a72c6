"""The locality paper's loops on meshes too small to measure anything: every contest runs, is right, and is saved."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom as ml
from bench import counted, locality, record
from bench.frozen import Frozen, reference_outcome
from bench.locality_loops import CONTESTS, PAPERS, STREAM
from tests.bench.devices import Emulated

FEW = ["--device", "cpu", "--size", "small", "--blocks", "64"]


def run(file: Path, *more: str, code: int = 0, device: Any = None) -> dict[str, Any]:
    assert locality.main([*FEW, "--json", str(file), *more], device) == code
    return record.load(file)


@pytest.mark.slow
def test_all_five_loops_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path / "five.json", "--orders", "given", "hilbert", "--layouts", "soa", "--strategies", "auto",
                 "staged")  # fmt: skip
    assert tuple(result["loops"]) == PAPERS == ("airfoil", "volna", "bookleaf", "lulesh", "miniaero")
    for name, entry in result["loops"].items():
        assert entry["check"]["largest"] < 1e-12 and not entry["check"]["wrong"] and not entry["check"]["failed"]
        assert [r["order"] for r in entry["variants"]] == ["given"] * 2 + ["hilbert"] * 2, name
        assert all(r["ms"] > 0 and r["reuse"] > 1 and r["lines_per_block"] > 0 for r in entry["variants"])
        blocks = [(r["block_colors"], r["thread_colors"]) for r in entry["variants"] if r["block"] == 64]
        assert len(blocks) == 2 and min(min(colors) for colors in blocks) > 1
    assert result["loops"]["volna"]["mesh"]["precision"] == "float32"
    assert set(result["applications"]) == {CONTESTS[name].case for name in PAPERS}
    assert all(a["device"][0]["share_of_limit"] > 0 for a in result["applications"].values())
    shown = capsys.readouterr().out
    assert "V100 atomics 0.76" in shown and shown.count("missed") + shown.count("met;") >= 5


@pytest.mark.parametrize("name", PAPERS)
def test_useful_bytes_are_those_of_the_paper(name: str) -> None:
    ml.use("numpy")
    contest = CONTESTS[name]
    case = contest.make("small")
    loop = contest.loop(case)
    size = np.dtype(locality.precision_of(case)).itemsize
    cells, nodes, n = len(case.mesh.cells), len(case.mesh.nodes), loop.set.size
    touched = len(np.unique(case.mesh.face_nodes.indices))  # boundary corners belong to no interior face
    expected = {
        "airfoil": size * (5 * cells + 2 * 4 * cells + 2 * touched) + 4 * 4 * n,
        "volna": size * (cells + 2 * 4 * cells + 7 * n) + 4 * n + 2 * 4 * n,
        "bookleaf": size * (17 * cells + 2 * 4 * nodes) + 4 * 4 * cells,
        "lulesh": size * (3 * nodes + 2 * 3 * nodes + 4 * cells) + 8 * 4 * cells,
        "miniaero": size * (28 * cells + 2 * 5 * cells + 6 * n) + 2 * 4 * n,  # the paper reads 12 direct
    }[name]
    assert loop.counts.bytes.compulsory == expected


def test_the_sizes_are_those_of_the_paper() -> None:
    """Making those meshes would take minutes: how many cells come from settings is learnt from small ones."""
    cells = {"airfoil": (lambda i, j: 3 * i * j, 2_880_000), "volna": (lambda nx, ny: 2 * nx * ny, 2_400_000),
             "bookleaf": (lambda nx, ny: nx * ny, 4_000_000), "lulesh": (lambda size: size**3, 170**3),
             "miniaero": (lambda nx, ny, nz: nx * ny * nz, 128**3)}  # fmt: skip
    assert tuple(cells) == PAPERS

    def numbers(name: str, size: str) -> list[int]:
        mesh = [one for one in CONTESTS[name].sizes[size] if one.startswith("mesh.")]
        return [int(n) for one in mesh for n in re.findall(r"\d+", one.split("=")[1])]

    ml.use("numpy")
    for name, (count, of_the_paper) in cells.items():
        assert CONTESTS[name].make("small").mesh.cells.size == count(*numbers(name, "small")), name
        assert count(*numbers(name, "paper")) == of_the_paper, name


@pytest.mark.parametrize("name", PAPERS)
def test_shares_and_bandwidths_of_the_paper_agree(name: str) -> None:
    paper = CONTESTS[name].paper
    for gpu, bandwidth in paper.GBps.items():
        stated = 0.48 if (name, gpu) == ("airfoil", "P100") else paper.share[gpu]  # there table and text differ
        assert bandwidth / STREAM[gpu.split()[0]] == pytest.approx(stated, abs=0.006)


def test_emulated_cuda(tmp_path: Path) -> None:
    result = run(tmp_path / "emulated.json", "--loops", "airfoil", "--orders", "given", "--layouts", "aos",
                 "--strategies", "tile", "--no-applications", device=Emulated())  # fmt: skip
    (row,) = result["loops"]["airfoil"]["variants"]
    assert row["error"] < 1e-13 and row["launches"] >= 1 and not result["applications"]


@pytest.mark.slow
def test_a_case_that_fails_costs_one_line_and_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(case: Any) -> ml.Loop:
        raise RuntimeError("no such\nloop")

    file, some = tmp_path / "two.json", ["--loops", "bookleaf", "airfoil", "--orders", "given", "--layouts", "aos",
                                         "--strategies", "owner", "--no-applications"]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setitem(CONTESTS, "bookleaf", replace(CONTESTS["bookleaf"], loop=broken))
        first = run(file, *some, code=1)
    assert first["loops"]["bookleaf"]["failed"] == "RuntimeError: no such loop"
    assert len(first["loops"]["airfoil"]["variants"]) == 1
    assert "bookleaf: failed: RuntimeError" in capsys.readouterr().out
    second = run(file, *some, "--resume")
    assert "failed" not in second["loops"]["bookleaf"] and len(second["loops"]["bookleaf"]["variants"]) == 1
    assert second["loops"]["airfoil"] == first["loops"]["airfoil"]


def test_time_that_is_up_keeps_what_is_there(tmp_path: Path) -> None:
    result = run(tmp_path / "short.json", "--seconds", "0")
    assert "--seconds" in result["stopped"] and not result["applications"]


def test_another_size_is_not_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "small.json"
    run(file, "--seconds", "0")
    assert locality.main(["--device", "cpu", "--json", str(file), "--resume"]) == 2
    assert "holds size small" in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_result_is_found() -> None:
    ml.use("cpu")
    contest = CONTESTS["lulesh"]
    case = contest.make("small")
    frozen = Frozen(contest.loop(case), case.mesh)
    ready = frozen.on(case.mesh.arranged("rcm"), "float64", "aosoa8")
    error = ready.checker(reference_outcome(frozen, case.mesh))
    volume, force = ready.loop().writes
    ready.outcome()
    assert error() < 1e-14
    force.storage[17] *= 1.001
    assert error() > 1e-6
    volume.storage[3] = np.nan
    assert np.isnan(error())


@pytest.mark.slow
def test_counted_rows_are_launched(tmp_path: Path) -> None:
    job, done = tmp_path / "job.json", tmp_path / "done.json"
    row = {"precision": "float32", "layout": "soa", "strategy": "owner", "variant": "plain", "block": 32, "cap": None}
    job.write_text(json.dumps({"mesh": {"contest": "volna", "size": "small"}, "order": "hilbert", "rows": [row]}))
    assert counted.main([str(job), str(done)], Emulated()) == 0
    assert json.loads(done.read_text()) == [1]
