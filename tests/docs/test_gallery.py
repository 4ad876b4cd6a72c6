"""docs/gallery.md has an entry for every case, whose picture is there and whose command is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from meshloom.catalogue import find
from meshloom.launch import Request, check
from meshloom.solvers import cases as ready_cases
from tests.docs.test_docs import ROOT, run
from tests.docs.test_pictures import check_same

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
ENTRY = re.compile(
    r"^## (?P<case>\w+)\n\n(?P<title>.+)\n\n!\[(?P<caption>[^\]]+)\]\((?P<picture>img/[\w/]+\.png)\)\n\n"
    r"```sh\n(?P<command>meshloom run .+)\n```\n\n\[[^\]]+\]\((?P<page>\w+)\.md(#[\w-]+)?\)$",
    re.MULTILINE,
)
ENTRIES = {entry["case"]: entry for entry in ENTRY.finditer(PAGE)}
DRAWN_HERE = [name for name, entry in ENTRIES.items() if "/gallery/" in entry["picture"]]


def request(command: str) -> Request:
    """What a command asks for, as the command line reads it."""
    import typer

    from meshloom.cli.main import _settings, app

    words = shlex.split(command)[2:]
    asked = typer.main.get_command(app).commands["run"].make_context("run", words).params  # type: ignore[attr-defined]
    changes = [*(asked["changes"] or [])]
    changes += [f"run.iterations={asked['iterations']}"] if asked["iterations"] else []
    return Request(asked["target"], tuple(_settings(changes)))


def test_every_case_has_an_entry_and_nothing_else_has() -> None:
    assert list(ENTRIES) == sorted(ready_cases())
    assert PAGE.count("\n## ") == len(ENTRIES), "an entry is written otherwise than the others"


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_picture_title_and_command_of_an_entry(name: str) -> None:
    entry = ENTRIES[name]
    assert (ROOT / "docs" / entry["picture"]).read_bytes().startswith(b"\x89PNG")
    assert Path(entry["picture"]).stem == name
    assert entry["title"] == find(name).title
    asked = request(entry["command"])
    assert asked.target == name and check(asked).case.name == name
    assert name in (ROOT / "docs" / f"{entry['page']}.md").read_text(encoding="utf-8")


def test_a_wrong_command_is_none() -> None:
    from meshloom.errors import UserError

    with pytest.raises(UserError, match="mahc"):
        check(request("meshloom run airfoil --set flow.mahc=0.3"))


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN_HERE)
def test_the_command_draws_the_picture(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = shlex.split(ENTRIES[name]["command"])
    done = run(["-m", *words, "--quiet", "--backend", "cpu", "--out", "drawn"], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    (tmp_path / "gallery").mkdir()
    (tmp_path / "drawn" / "picture.png").rename(tmp_path / "gallery" / f"{name}.png")
    check_same(f"gallery/{name}.png", tmp_path)
