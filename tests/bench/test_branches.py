"""Steps by the size from which on operations keep their order, on emulated CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import branches, gpu_report, record
from meshloom.target import H200
from tests.bench.devices import Emulated


@pytest.mark.slow  # four programs of a whole step are compiled
def test_all_thresholds_give_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, shipped = tmp_path / "branches.json", H200.gpu.graph.large
    arguments = ["--points", "24", "--box", "--shares", "0.01", "2", "--quick", "--json", str(file)]
    assert branches.main(arguments, Emulated()) == 0
    assert shipped == H200.gpu.graph.large
    rows = record.load(file)["rows"]
    assert [(r["large"], r["shipped"]) for r in rows] == [(None, False), (0.01, False), (shipped, True), (2.0, False)]
    assert all(r["ms_per_step"] > 0 for r in rows)
    table = gpu_report.branch_rows({"rows": rows})
    assert f"**{shipped:g}** (shipped)" in table[0] and len(table) == 3
    assert "not measured" in gpu_report.branch_rows({"rows": [r for r in rows if not r["shipped"]]})[-1]
