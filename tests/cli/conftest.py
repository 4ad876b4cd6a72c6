"""The command line in this process: quick, and every call in a folder of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import meshloom as ml
from meshloom.cli.main import main


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

    def refused(self, code: int, *parts: str) -> None:
        """Assert a failure in one clear line that contains ``parts``."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.err.startswith("meshloom: ") and self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.out + self.err
        for part in parts:
            assert part in self.err, self.err


Command = Callable[..., Result]


@pytest.fixture
def meshloom(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Command]:
    """``meshloom("run", "airfoil", ...)``, in a fresh folder; the back end is put back afterwards."""
    before = ml.backend(), ml.threads()
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["meshloom", *map(str, arguments)])
        capfd.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        out, err = capfd.readouterr()
        return Result(int(code or 0), out, err)

    yield call
    ml.use(before[0], threads=before[1])


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content: to show that nothing was touched."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
