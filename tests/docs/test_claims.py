"""Words that promise: counts of things, features and packages that must exist, praise that no file carries."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import meshloom as ml
from bench import compressible
from meshloom import errors
from meshloom.errors import install
from tests.docs.test_rooms import parsed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / "meshloom").rglob("*.py"))
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
COUNTED = {"strategies": len(ml.strategies()), "layouts": 3}
PRAISE = re.compile(
    r"best of all (strategies|layouts|orders)|nearly as good|as fast as possible|fastest there is|state of the art"
    r"|blazing|unmatched|zero[- ]cost|optimal (code|performance)|in a (tenth|fraction) of the time", re.IGNORECASE
)  # fmt: skip


@cache
def texts() -> list[tuple[str, str]]:
    """Pages as they are; of modules every string: docstrings and messages."""
    found = [(page.name, page.read_text(encoding="utf-8")) for page in PAGES]
    for file in SOURCES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((str(file.relative_to(ROOT)), node.value))
    return found


def test_there_is_something_to_read() -> None:
    assert len(PAGES) > 15 and len(SOURCES) > 150 and len(texts()) > 2000


def test_counts_in_words_are_those_of_the_code() -> None:
    said = []
    for name, text in texts():
        for number, what in re.findall(rf"\b({'|'.join(NUMBERS)}|\d+) ({'|'.join(COUNTED)})\b", text, re.IGNORECASE):
            value = int(number) if number.isdigit() else NUMBERS.index(number.lower())
            if value < 5 and what == "strategies":
                continue  # some of them
            said.append((name, what))
            assert value == COUNTED[what], f"{name}: {number} {what}"
    assert len(said) >= 3, "README, index and tutorial count the strategies"


def test_nothing_is_called_tuned_without_a_tuner() -> None:
    has_tuner = find_spec("meshloom.tune") is not None or hasattr(ml, "tune")
    for name, text in texts():
        assert has_tuner or not re.search(r"\b(auto-?)?tun(ed|er|es)\b", text), name


def test_praise_needs_a_file() -> None:
    for name, text in texts():
        found = PRAISE.search(text)
        assert not found, f"{name}: {found[0] if found else ''}"


def test_what_to_type_can_be_typed() -> None:
    """Meshloom is in no index of packages: pages install extras from its folder, and they exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert install("cuda") == "pip install '.[cuda]' in the folder of Meshloom"
    asked = []
    for name, text in texts():
        # Extras of extras are named by the package, and so are those of a wheel.
        if name not in ("pyproject.toml", "meshloom/errors.py"):
            assert "meshloom[" not in text, name
        asked += [extra for one in re.findall(r"pip install ['\"]\.\[([\w,]+)\]", text) for extra in one.split(",")]
    for file in SOURCES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "install":
                asked += [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    assert set(asked) <= set(extras) and {"cuda", "plot", "io"} <= set(asked)


@pytest.mark.parametrize(("url", "typed"), [
    ('{"dir_info": {}, "url": "file:///there"}', "pip install '.[plot]' in the folder of Meshloom"),
    ('{"archive_info": {}, "url": "file:///there/meshloom.whl"}', "pip install 'meshloom[plot]'"),
    (None, "pip install 'meshloom[plot]'"),
])  # fmt: skip
def test_what_to_type_is_said_for_what_it_was_installed_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None, typed: str
) -> None:
    monkeypatch.setattr(errors, "_PACKAGE", tmp_path / "meshloom")
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: url))
    assert install("plot") == typed
    (tmp_path / "pyproject.toml").touch()
    assert install("plot") == "pip install '.[plot]' in the folder of Meshloom"


def test_modules_and_commands_in_pages_exist() -> None:
    named = {module for page in PAGES for module in re.findall(r"python -m (bench\.\w+)", page.read_text())}
    assert len(named) > 12
    for module in named:
        assert find_spec(module) is not None, module


def test_figures_of_flows_come_from_files() -> None:
    """Coefficients in words of the page on finite volumes are published ones; computed ones stand in tables made of
    result files. The wing's stand by themselves."""
    page = (ROOT / "docs" / "finite_volume.md").read_text(encoding="utf-8").partition("### The M6 wing")[0]
    found = re.findall(r"\b(?:lift|drag|friction|wake)\b[^.|;]{0,30}?(\d\.\d{3,})", page)
    assert set(found) <= {f"{one:g}" for one in (*compressible.LIFT, *compressible.DRAG, compressible.FRICTION)}
    assert found, "the plate's friction is published"
