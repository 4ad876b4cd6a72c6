"""What the tests of the command line share."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found

    def refused(self, code: int, *parts: str, warned: str = "") -> None:
        """Assert a failure in one clear line that contains ``parts``, behind a warning that begins so, if any."""
        assert self.code == code, (self.code, self.out, self.err)
        warnings, failure = self.err.splitlines(keepends=True)[:-1], self.err.splitlines(keepends=True)[-1]
        assert [one.startswith(f"meshloom: warning: {warned}") for one in warnings] == [True] * bool(warned), self.err
        assert failure.startswith("meshloom: ") and failure.endswith("\n"), self.err
        assert "Traceback" not in self.out + self.err
        for part in parts:
            assert part in failure, self.err


Command = Callable[..., Result]


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content: to show that nothing was touched."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def table(path: Path) -> dict[str, np.ndarray]:
    """The numbers of a CSV file by the names of its columns."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    return dict(zip(head, np.array(rows, float).T, strict=True))


def results_below(folder: Path) -> dict[str, bytes]:
    """The same but for the page of a run, which tells when and how fast it was."""
    pages = ("report.html", "report.json")
    return {name: text for name, text in files_below(folder).items() if not name.endswith(pages)}


def check_goes_on_bit_for_bit(meshloom: Command, folder: Path, *settings: str, after: int) -> None:
    """Assert that a run that ends ``after`` some iterations, and is restarted, leaves what one in one go leaves:
    ``settings`` are words for ``meshloom run``, in ``folder``."""
    assert meshloom("run", *settings, "--out", "whole").code == 0
    assert meshloom("run", *settings, "--iterations", str(after), "--out", "half").code == 0
    result = meshloom("run", "--restart", "half/checkpoint.h5", "--iterations", "1000000", "--quiet")
    assert result.code == 0, result.err
    assert (folder / "half" / "monitors.csv").read_bytes() == (folder / "whole" / "monitors.csv").read_bytes()
    with h5py.File(folder / "half/checkpoint.h5") as half, h5py.File(folder / "whole/checkpoint.h5") as whole:
        assert list(half["state"]) == list(whole["state"])
        for name in whole["state"]:
            np.testing.assert_array_equal(half[f"state/{name}"][()], whole[f"state/{name}"][()])
