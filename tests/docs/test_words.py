"""One word has one meaning: names in code keep to the tables of words in CONTRIBUTING.md, docs and messages to that of
``phrases.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs import phrases
from tests.docs.test_rooms import ROOT, parsed

FOLDERS = ("meshloom", "bench")


def table(heading: str) -> dict[str, str]:
    """Word -> the last column of its row, of the table with this first column."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text[text.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {row[0].strip("`"): row[-1] for row in cells}


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of all that a file gives a name to, or calls by one; not what it imports from others by theirs."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.MatchAs(name=name):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.ExceptHandler(name=name) | ast.MatchStar(name=name) | ast.keyword(arg=name):
                pass
            case ast.alias(name=imported, asname=given):
                name = given or imported.rpartition(".")[2]
            case _:
                continue
        if name is not None:
            yield getattr(node, "lineno", 0), name


def wrong(tree: ast.AST, where: str, retired: dict[str, str], places: dict[str, str]) -> list[str]:
    """What names of a file at this path in the repository go against the tables, in words."""
    said = []
    for line, name in sorted(set(names(tree))):
        word = name.strip("_").lower()
        if word in retired:
            said.append(f"{where}:{line}: {name} has too many meanings; there is {retired[word]}")
        elif word in places:
            allowed = re.findall(r"`([^`]+)`", places[word])
            if not any(where == place or where.startswith(f"{place}/") for place in allowed):
                said.append(f"{where}:{line}: {name} means something else, in {places[word]}")
    return said


def test_names_keep_to_the_tables() -> None:
    retired, places = table("no name"), table("word")
    assert len(retired) >= 7 and len(places) >= 2
    said = []
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 300
    for path in paths:
        where = path.relative_to(ROOT).as_posix()
        said += wrong(parsed(path), where, retired, places)
        if path.stem in retired:
            said.append(f"{where}: the name of the module")
    assert not said, "\n".join(said)


def test_the_places_of_words_are_there() -> None:
    for word, places in table("word").items():
        for place in re.findall(r"`([^`]+)`", places):
            path = ROOT / place
            files: list[Path] = [path] if path.is_file() else sorted(path.rglob("*.py"))
            found = {name.strip("_").lower() for file in files for _, name in names(parsed(file))}
            assert word in found, f"{place} has no name '{word}' any more: take it out of CONTRIBUTING.md"


def test_planted_names_are_found() -> None:
    text = "def f(ahead=1, *, fresh=2):\n    x.wide = _sunk = 3\n    return g(whole=LINES)\n"
    text += "from a import turns as b, roles"
    said = wrong(ast.parse(text), "bench/x.py", table("no name"), table("word"))
    found = [one.split(": ")[1].split(" ")[0] for one in said]
    assert found == ["ahead", "fresh", "_sunk", "wide", "LINES", "whole", "roles"]
    assert wrong(ast.parse("lines = whole = 1"), "meshloom/mesh/core.py", {}, table("word")) == [
        f"meshloom/mesh/core.py:1: lines means something else, in {table('word')['lines']}"
    ]


def spoken() -> Iterator[tuple[str, str]]:
    """(where, text) of what people read: pages, and every docstring and message of the package and the benchmarks."""
    pages = ["*.md", "docs/*.md", "docs/notebooks/*.py", "examples/*.py", "meshloom/catalogue/starts/*.txt"]
    for path in sorted(path for one in pages for path in ROOT.glob(one) if path.name != "CHANGELOG.md"):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield f"{where}:{node.lineno}", node.value


def test_docs_and_messages_say_what_the_literature_says() -> None:
    texts = list(spoken())
    assert len(texts) > 3000
    said = [f"{where}: {phrase}: say {word}" for where, text in texts for phrase, word in phrases.found(text)]
    assert not said, "\n".join(said)


def test_planted_phrases_are_found() -> None:
    """Also over the end of a line, and in capitals; words that only look alike are none."""
    text = "Many faces add, and none\nis lost. The gas sticks to it. Beside the wall, inflow(u). It goes round the end."
    assert [phrase for phrase, _ in phrases.found(text)] == [
        "none is lost", "gas sticks", "inflow(u)", "Beside", "goes round", "round the"
    ]  # fmt: skip
    assert not phrases.found("round-off; round after round; the friction velocity; `beside`; round the constants above")
