"""The benchmark of compact derivatives, on grids too small to measure anything."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import meshloom as ml
from bench import compact as bench
from bench import compact_report as paper
from bench import counted
from bench.compact_rows import Host, Problem, Setup, empty_loop, numpy_flux, row
from bench.compiling import compile_one
from bench.peers import compact_gpu as peers
from tests.bench import cupy_stand_in
from tests.bench.devices import Emulated


class Quick(Host):
    """One run is enough to try the program, and nothing needs compiling."""

    backend = "numpy"

    def seconds(self, run):
        run()
        return 1e-3

    def copy_bandwidth(self) -> float:
        return 1e10


def test_rows_are_checked_timed_and_written(tmp_path, capsys):
    file = tmp_path / "compact.json"
    arguments = ["--tiny", "--quick", "--parts", "derivative", "fused", "--json", str(file)]
    assert bench.main(arguments, Quick()) == 0
    result = json.loads(file.read_text())
    timed = [r for r in result["rows"] if "ms" in r]
    assert len(timed) == len(result["rows"]) >= 10 and {r["what"] for r in timed} == {"derivative", "fused"}
    assert all(r["error"] < 1e-12 for r in timed if r["precision"] == "float64")
    assert {r["bytes_per_point"] for r in timed if r["precision"] == "float64"} == {16.0, 24.0}
    assert [r["axis"] for r in timed if r["method"] == "segmented, aligned rows"] == [0, 1, 2]
    assert result["goals"] == [] and result["copy_GBps"] == 10.0
    assert "of limit" in capsys.readouterr().out


def test_counters_join_the_rows_of_the_goals(tmp_path, monkeypatch, capsys):
    """A stand-in for Nsight Compute that launches every row of the job, and counts 32 bytes for each launch."""

    def count(ncu, job, seconds):
        assert ncu == "ncu" and seconds > 0
        asked, done = tmp_path / "job.json", tmp_path / "done.json"
        asked.write_text(json.dumps(job))
        monkeypatch.setattr(counted, "_launched", lambda loop: loop() or 1)
        counted.main([str(asked), str(done)], Quick())
        sectors = dict.fromkeys(bench.counters.SECTORS.values(), 1.0)
        return ((k, [sectors] * launches) for k, launches in enumerate(json.loads(done.read_text())))

    arguments = ["--tiny", "--quick", "--parts", "fused", "--counters", "--json", str(tmp_path / "compact.json")]
    monkeypatch.setattr(bench.counters, "find_ncu", lambda: None)
    assert bench.main(arguments, Quick()) == 0 and "no counters: Nsight Compute" in capsys.readouterr().err
    monkeypatch.setattr(bench.counters, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(bench.counters, "count", count)
    assert bench.main(arguments, Quick()) == 0
    rows = json.loads((tmp_path / "compact-2.json").read_text())["rows"]
    assert [r["counters"]["dram_read_bytes"] for r in rows] == [32] * 3
    assert [r["counters"]["dram_over_useful"] for r in rows] == [64 / (21 * 40 * 37 * 5 * 24)] * 3


def test_a_wrong_result_is_never_timed(monkeypatch):
    assert "needs" in row(Problem((12, 3), 1), Quick(), 1e10)["declined"]
    assert "guess" in row(Problem((12, 14), 1, method="guess"), Quick(), 1e10)["declined"]
    honest = Setup.error
    monkeypatch.setattr(Setup, "error", lambda self: 1e-3 + honest(self))
    found = row(Problem((12, 14), 1), Quick(), 1e10)
    assert found["wrong"] >= 1e-3 and "ms" not in found


def test_all_parts_name_problems_and_the_goals_find_them():
    for part in ("derivative", "fused", "methods", "seed", "forms"):
        assert bench.problems(part, quick=True) and set(bench.problems(part, quick=True)) <= set(
            bench.problems(part, quick=False)
        )
    own = [p.entries() | {"part": "derivative", "ms": 1.0, "share_of_limit": 0.95}
           for p in bench.problems("derivative", quick=True)]  # fmt: skip
    methods = [{**Problem((2048, 2048), 0, periodic=False, method=m).entries(), "part": "methods", "ms": t}
               for m, t in (("segmented", 1.0), ("thomas", 4.0))]  # fmt: skip
    rivals = [{"peer": "cuSPARSE gtsv2StridedBatch", "shape": [2048, 2048], "axis": 0, "ms": 4.0}]
    fused = [p.entries() | {"part": "fused", "ms": 1.0, "share_of_limit": 0.81}
             for p in bench.problems("fused", quick=True)]  # fmt: skip
    found = bench.goals({"device": "cuda", "rows": own + methods + fused, "peers": rivals})
    assert [g.met for g in found] == [True] * (len(found) - 1) + [False] and len(found) == 9
    assert bench.goals({"device": "cpu", "rows": own, "peers": []}) == []


def test_what_peers_are_checked_against():
    """The Fourier derivative and the closed matrix, on the host."""
    x = np.arange(32)
    wave = np.sin(2 * np.pi * x / 32)[:, None] * np.ones(4)
    np.testing.assert_allclose(peers.spectral(wave, 0, np), 2 * np.pi / 32 * np.cos(2 * np.pi * x / 32)[:, None]
                               * np.ones(4), atol=1e-14)  # fmt: skip
    lower, main, upper = peers.bands(9)
    dense = np.diag(main) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
    right = peers.numbers((9, 3), np)
    np.testing.assert_allclose(dense @ peers.solved(right), right, atol=1e-13)
    field = peers.numbers((4, 9, 5), np)
    assert peers.some_lines(field, 1).shape == (9, 5)


def test_the_flux_keeps_its_mass_and_pressure():
    still = np.array([[[2.0, 0.0, 0.0, 0.0, 5.0]]])
    np.testing.assert_allclose(numpy_flux(still, 1), [[[0.0, 0.0, 2.0, 0.0, 0.0]]])


@pytest.mark.gpu
def test_on_a_device(tmp_path):
    assert bench.main(["--tiny", "--quick", "--json", str(tmp_path / "gpu.json")]) == 0


def test_generated_code(monkeypatch):
    device = Emulated()
    monkeypatch.setattr(device, "seconds", lambda run: (run(), 1e-3)[1])
    found = row(Problem((12, 14), 1), device, 1e10)
    assert found["error"] < 1e-14 and found["share_of_limit"] == pytest.approx(12 * 14 * 16 / 1e-3 / 1e10)


def test_compiling_ahead_needs_no_device(monkeypatch, tmp_path):
    nvrtc = pytest.importorskip("meshloom.backend.cuda.nvrtc")
    try:
        nvrtc.library()
    except ml.errors.CompilerError as missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    known = sys.modules["meshloom.backend"]
    monkeypatch.setattr(known, "_BACKENDS", dict(known._BACKENDS))  # it registers one of its own
    before = ml.backend()
    try:
        assert compile_one("sm_90", empty_loop, (Problem((20, 30), 1, what="solve"),)) == ""
        assert "needs" in compile_one("sm_90", empty_loop, (Problem((20, 3), 1),))
    finally:
        ml.use(before)
    assert list(tmp_path.rglob("*.cubin"))


def test_tables_of_a_result():
    problems = [Problem((8, 9), axis, precision=p) for p in ("float64", "float32") for axis in (0, 1)]
    timed = {"part": "derivative", "ms": 0.5, "share_of_limit": 0.9, "Gpoints_per_s": 12.0, "registers": {"a": 40},
             "shared_bytes": 4096, "occupancy": 0.5}  # fmt: skip
    result = {"device": "cuda", "rows": [p.entries() | timed for p in problems],
              "peers": [{"peer": "JAX", "shape": [8, 8], "axis": 0, "missing": "no jax"}]}  # fmt: skip
    stalls = {"long_scoreboard": 0.75}
    result["rows"][0]["counters"] = {"dram_over_useful": 1.25, "achieved_occupancy": 0.5, "stalls": stalls}
    text = "\n".join(paper.text_lines(result))
    assert ("| 8 x 9 | single | periodic | segmented | 0.5000 / 0.5000 | 12.0 / 12.0 | 0.90 / 0.90 | 40 / 40 |"
            " 4,096 / 4,096 | 0.50 / 0.50 |") in text
    assert "| 8 x 9 | d/dx | derivative, double, periodic | 1.25 | 0.50 | - | - | long scoreboard 0.75 |" in text
    assert "Not measured: JAX: no jax." in "\n".join(paper.solver_lines(result))
    assert "derivative 8 x 9 double periodic segmented: 0.5000 / 0.5000 ms" in next(paper.short_lines(result))


def test_the_worst_axis_is_known_when_all_were_measured():
    cube = {"part": "derivative", "what": "derivative", "shape": [512, 512, 512], "values": 1, "ends": "closed",
            "precision": "float64", "method": "segmented", "ms": 1.0}  # fmt: skip
    rows = [cube | {"axis": axis, "share_of_limit": share} for axis, share in ((0, 0.9), (1, 0.8), (2, 0.95))]
    (goal,) = paper.goals({"device": "cuda", "rows": rows, "peers": []})
    assert (goal.value, goal.met) == (0.8, False)
    assert paper.goals({"device": "cuda", "rows": rows[::2], "peers": []}) == []


def test_peers_run_and_are_right(monkeypatch):
    """cuSPARSE and cuFFT, played by scipy and NumPy."""
    monkeypatch.setitem(sys.modules, "cupy", cupy_stand_in.module())
    monkeypatch.setattr(peers, "_library", cupy_stand_in.Library)
    monkeypatch.setitem(sys.modules, "jax", None)
    for shape, axes in (((6, 9), 2), ((7, 8, 9), 3)):
        for axis in range(axes):
            found = list(bench.peer_rows(shape, axis, Quick()))
            assert [r.get("failed") for r in found] == [None] * len(found)
            timed = [r["error"] for r in found if "ms" in r]
            assert len(timed) == len(found) - 1 >= 2 and max(timed) < 1e-13
            names = [r["peer"] for r in found]
            assert names[0].startswith("cuSPARSE gtsv2StridedBatch") and names[-2].startswith("CuPy")
            assert names[-1] == "JAX" and "missing" in found[-1]
            assert ("cuSPARSE gtsvInterleavedBatch" in names) == (axis == 0)
            assert ("transposes" in names[0]) == (axis < axes - 1)
