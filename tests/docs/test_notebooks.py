"""The notebooks of docs/notebooks are those of the scripts beside them, run, and tell nothing of where that was."""

from __future__ import annotations

import json
import re
import runpy
import socket
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"
TOOL = runpy.run_path(str(FOLDER / "write.py"))
SCRIPTS: list[Path] = TOOL["SCRIPTS"]
MOST_BYTES = 300_000


def committed(script: Path) -> dict[str, Any]:
    book: dict[str, Any] = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    return book


def kinds(cell: dict[str, Any]) -> list[tuple[str, ...]]:
    """What a cell gives, without what differs from run to run."""
    return [(one["output_type"], *sorted(one.get("data", {}))) for one in cell.get("outputs", ())]


def test_there_are_five_and_no_others() -> None:
    expected = {"first_loop", "finite_elements", "finite_volume_case", "tuning", "gpu_torch"}
    assert {script.stem for script in SCRIPTS} == expected == {path.stem for path in FOLDER.glob("*.ipynb")}
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert all(f"(notebooks/{name}.ipynb)" in page for name in expected)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_in_step_with_its_script(script: Path) -> None:
    book, made = committed(script), TOOL["notebook"](script)
    assert [(cell["cell_type"], cell["source"]) for cell in book["cells"]] == TOOL["parts"](script), "run write.py"
    assert book["metadata"] == made["metadata"] and len(book["cells"]) > 5
    counts = [cell["execution_count"] for cell in book["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not [one for cell in book["cells"] for one in cell.get("outputs", ()) if one["output_type"] == "error"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_names_no_machine(script: Path) -> None:
    path = script.with_suffix(".ipynb")
    assert path.stat().st_size < MOST_BYTES
    text = re.sub(r"[A-Za-z0-9+/=\\n]{200,}", "", path.read_text(encoding="utf-8"))  # pictures
    places = re.findall(r"(?:/tmp|/home|/root|/Users|/usr|/opt|ipykernel_\d+|site-packages)[^ \"]*", text)
    assert not places and socket.gethostname() not in text and not re.search(r" at 0x[0-9a-f]+", text)


@pytest.mark.slow
def test_they_run_in_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same kinds of outputs as the committed ones: CellExecutionError where a cell fails."""
    pytest.importorskip("nbclient", reason="the extra notebooks is not installed")
    pytest.importorskip("ipykernel", reason="the extra notebooks is not installed")
    pytest.importorskip("matplotlib")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    made = TOOL["executed"](SCRIPTS)
    for script in SCRIPTS:
        now, then = made[script.stem]["cells"], committed(script)["cells"]
        assert [kinds(cell) for cell in now] == [kinds(cell) for cell in then], f"{script.stem}: run write.py"
