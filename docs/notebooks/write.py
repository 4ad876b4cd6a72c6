"""Make the notebooks from the scripts next to this one: ``python docs/notebooks/write.py [name ...]``.

A script's parts begin with ``# %%`` (code) or ``# %% [markdown]`` (text, each line behind ``# ``). All notebooks are
executed in one kernel, cleared in between, in a folder that goes away. Needs the extra ``notebooks``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = sorted(path for path in HERE.glob("*.py") if path.name != Path(__file__).name)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MOST_SECONDS = 120  # of one cell


def parts(script: Path) -> list[tuple[str, str]]:
    """("markdown" or "code", text) of every part of a script."""
    found = []
    for mark, text in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", script.read_text("utf-8"), re.M | re.S):
        lines = text.strip("\n").split("\n")
        plain = [re.sub(r"^# ?", "", line) for line in lines] if mark else lines
        found.append(("markdown" if mark else "code", "\n".join(plain)))
    return found


def notebook(script: Path) -> dict[str, Any]:
    """The notebook of a script, not yet executed."""
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(parts(script)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"{script.stem}-{number}", "metadata": {}, "source": text}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def executed(scripts: list[Path]) -> dict[str, dict[str, Any]]:
    """The notebooks of scripts by name, with what their cells give."""
    import nbformat
    from nbclient import NotebookClient

    made = {script.stem: nbformat.from_dict(notebook(script)) for script in scripts}
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        clear = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%reset -f")])
        client = NotebookClient(
            clear,
            timeout=MOST_SECONDS,
            kernel_name="python3",
            resources=where,
            record_timing=False,
            coalesce_streams=True,
        )
        with client.setup_kernel(env=_environment()):
            for one in made.values():
                client.nb = clear
                client.execute_cell(clear.cells[0], 0)
                client.nb, count = one, 0
                for number, cell in enumerate(one.cells):
                    if cell.cell_type == "code":
                        count += 1
                        client.execute_cell(cell, number, execution_count=count)
    return made


def _environment() -> dict[str, str]:
    """Of the kernel: Meshloom is the one of this checkout."""
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def main(names: list[str]) -> None:
    """Write those of these names, all where there are none."""
    chosen = [script for script in SCRIPTS if script.stem in names or not names]
    for name, made in executed(chosen).items():
        for cell in made["cells"]:
            cell["metadata"] = {}
            for output in cell.get("outputs", ()):
                if "execution_count" in output:
                    output["execution_count"] = cell["execution_count"]
        text = json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        (HERE / f"{name}.ipynb").write_text(text, encoding="utf-8")
        print(f"{name}.ipynb: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
