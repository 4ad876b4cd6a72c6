"""The benchmark of generators: figures of a small wing, its tables and its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import meshes


@pytest.mark.slow
def test_figures_and_tables_of_a_small_wing() -> None:
    found = meshes.wing(6000, 1)
    kinds = found["quality"]["cells"]
    assert sum(kinds.values()) == pytest.approx(6000, rel=0.05) and found["faces"] > 2 * 6000 * 0.95
    assert found["seconds"] > 0 and found["cpu_seconds"] > 0 and found["peak_GB"] > 0
    result = {"wings": [found], "planar": {"bump(96, 32)": meshes.measured(meshes.PLANAR["bump(96, 32)"])}}
    sizes = meshes.wing_table(result)
    assert f"{sum(kinds.values()):,} (0.46)" in sizes[2] and f"{found['faces']:,} (1,046,864)" in sizes[2]
    heads, _, wing, bump = meshes.quality_table(result)
    assert wing.startswith(f"| `onera_m6(1)` | {sum(kinds.values()):,} |") and heads.count("|") == wing.count("|")
    assert "| `bump(96, 32)` | 3,072 | 0.929, 1.00 |" in bump


@pytest.mark.slow
def test_picture(tmp_path: Path) -> None:
    meshes.draw(tmp_path / "wing.png")
    assert (tmp_path / "wing.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
