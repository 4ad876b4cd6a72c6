"""The heat equation of docs/scripts.md is as short as promised, and its second run does nothing again."""

from __future__ import annotations

from pathlib import Path

from tests.docs.test_docs import ROOT, START, blocks, program, run

PAGE = ROOT / "docs" / "scripts.md"


def test_the_heat_equation_in_forty_lines() -> None:
    (script,) = [block.text for block in blocks(PAGE, "python") if "ml.march(" in block.text]
    written = [line for line in script.splitlines() if line.strip()]
    assert "ml.read(" in script and "restart=True" in script and "ml.plot(" in script
    assert len(written) <= 40


def test_run_twice(tmp_path: Path) -> None:
    (tmp_path / "heat.py").write_text(program(PAGE), encoding="utf-8")
    for _ in range(2):
        done = run(["-c", START, "cpu", str(tmp_path / "heat.py")], tmp_path)
        assert done.returncode == 0 and "250 steps, ended by until at time 0.1" in done.stdout, done.stderr[-3000:]
    assert (tmp_path / "heat.png").stat().st_size > 0
    files = {path.name for path in (tmp_path / "runs" / "heat").iterdir()}
    assert {"checkpoint.h5", "monitors.csv", "fields.pvd", "fields_0000250.vtu"} <= files
    rows = (tmp_path / "runs" / "heat" / "monitors.csv").read_text(encoding="ascii").splitlines()
    assert rows[0] == "iteration,change,t" and len(rows) == 251
