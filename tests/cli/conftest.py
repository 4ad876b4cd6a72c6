"""The command line in this process: quick, and every call in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import meshloom as ml
from meshloom.cli.main import main
from tests.cli.harness import Command, Result


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
