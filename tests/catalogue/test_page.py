"""docs/own_case.md shows what ``meshloom new`` writes, and messages as they come."""

from __future__ import annotations

import re
from pathlib import Path

from meshloom.catalogue.start import text_of
from tests.cli.conftest import meshloom as meshloom  # the fixture
from tests.cli.harness import Command

PAGE = (Path(__file__).parents[2] / "docs" / "own_case.md").read_text(encoding="utf-8")


def test_the_case_is_that_of_meshloom_new() -> None:
    assert f"```python\n{text_of('heat', 'mesh')}```" in PAGE


def test_the_messages_are_real(meshloom: Command, tmp_path: Path) -> None:
    shown = re.findall(r"^meshloom: .*heat\.py:\d+.*$", PAGE, flags=re.MULTILINE)
    text, file = text_of("heat", "mesh"), tmp_path / "heat.py"
    for change, message in zip(
        (("Picture(self.t.numpy()", "Picture(self.temperature.numpy()"), ('("mean", "time")', '("mean")')),
        shown,
        strict=True,
    ):
        assert change[0] in text
        file.write_text(text.replace(*change))
        result = meshloom("run", "heat.py", "--backend", "numpy")
        result.refused(2)
        assert result.err.replace(f"{tmp_path}/", "") == f"{message}\n"
