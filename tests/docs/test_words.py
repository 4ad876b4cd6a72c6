"""One word has one meaning: names in code keep to the tables of words in CONTRIBUTING.md, docs and messages to that of
``phrases.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.docs import phrases
from tests.docs.test_rooms import ROOT, parsed

FOLDERS = ("meshloom", "bench")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table with this first column."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = text[text.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in listed]


def table(heading: str) -> dict[str, str]:
    """Word -> the last column of its row, of the table with this first column."""
    return {row[0].strip("`"): row[-1] for row in rows(heading)}


def quoted(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


class Retired(NamedTuple):
    """A word for an idea that the field calls otherwise. ``places``: files and folders; none: everywhere."""

    word: str
    say: str
    as_module: bool
    places: tuple[str, ...]

    def is_in(self, where: str) -> bool:
        return not self.places or any(where == place or where.startswith(f"{place}/") for place in self.places)


def words_of_before() -> list[Retired]:
    """The table of what ideas were called."""
    found = []
    for words, say, refused in rows("instead of"):
        kind = re.fullmatch(r"a (name|module)( (in|of) .*)?", refused)
        assert kind is not None, f"'a name' or 'a module', perhaps 'in' places, is what a word is refused as: {refused}"
        found += [Retired(word, say, kind[1] == "module", tuple(quoted(refused))) for word in quoted(words)]
    return found


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


@cache
def named(tree: ast.AST) -> tuple[tuple[int, str], ...]:
    """The same, each once, in order; a file is walked through once for all tests."""
    return tuple(sorted(set(names(tree))))


def wrong(tree: ast.AST, where: str, retired: dict[str, str], places: dict[str, str]) -> list[str]:
    """What names of a file at this path in the repository go against the tables, in words."""
    said = []
    for line, name in named(tree):
        word = name.strip("_").lower()
        if word in retired:
            said.append(f"{where}:{line}: {name} has too many meanings; there is {retired[word]}")
        elif word in places:
            allowed = quoted(places[word])
            if not any(where == place or where.startswith(f"{place}/") for place in allowed):
                said.append(f"{where}:{line}: {name} means something else, in {places[word]}")
    return said


def outdated(tree: ast.AST, where: str, before: list[Retired]) -> list[str]:
    """What names of a file at this path, its own included, ideas had before, in words."""
    mine = [one for one in before if one.is_in(where)]
    stem, as_name = Path(where).stem, {one.word: one.say for one in mine if not one.as_module}
    said = [f"{where}: the name of the module; say {one.say}" for one in mine if one.as_module and one.word == stem]
    for line, name in named(tree):
        say = as_name.get(name) or as_name.get(name.strip("_"))  # the words that have underscores have them here, too
        said += [f"{where}:{line}: {name}; say {say}"] if say else []
    return said


@cache
def sources() -> tuple[tuple[str, Path], ...]:
    """(where, path) of every file of the package and the benchmarks."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple((path.relative_to(ROOT).as_posix(), path) for path in paths)


def test_names_keep_to_the_tables() -> None:
    retired, places, before = table("no name"), table("word"), words_of_before()
    assert len(retired) >= 7 and len(places) >= 2 and len(before) >= 120 and len(sources()) > 300
    said = []
    for where, path in sources():
        said += wrong(parsed(path), where, retired, places) + outdated(parsed(path), where, before)
        if path.stem in retired:
            said.append(f"{where}: the name of the module")
    assert not said, "\n".join(said)


def unknown(said: str, known: set[str]) -> list[str]:
    """What a cell recommends, in backticks, that is no name."""
    return [word for word in quoted(said) if word not in known]


def test_what_is_said_instead_is_a_name() -> None:
    """Else the tables would recommend what was renamed since."""
    known = {name for _, path in sources() for _, name in named(parsed(path))} | {path.stem for _, path in sources()}
    said = {row[0]: found for heading in ("no name", "instead of") for row in rows(heading)
            if (found := unknown(row[1], known | {"bench"}))}  # fmt: skip
    assert said == {}
    assert unknown("`no_such_name_at_all`, or `names` in prose", {"names"}) == ["no_such_name_at_all"]


def test_the_places_where_words_are_refused_are_there() -> None:
    assert [one for one in words_of_before() for place in one.places if not (ROOT / place).exists()] == []


def test_planted_words_of_before_are_found() -> None:
    """Each of the table, as it is refused, and not where it may stand."""
    before = words_of_before()
    for one in before:
        folder = one.places[0] if one.places else "meshloom/mesh"
        where = folder if folder.endswith(".py") else f"{folder}/x.py"
        if one.as_module:
            assert outdated(ast.parse(""), f"{folder}/{one.word}.py", before), one
            assert not outdated(ast.parse(""), f"{folder}/{one.word}_too.py", [one]), one
        else:
            for text in (f"{one.word} = 1", f"a.{one.word} = 1", f"f({one.word}=1)", f"def {one.word}(): pass"):
                assert any(one.say in said for said in outdated(ast.parse(text), where, before)), (one, text)
            assert not outdated(ast.parse(f"{one.word}_too = 1"), where, [one]), one
            assert not one.places or not outdated(ast.parse(f"{one.word} = 1"), "elsewhere/x.py", [one]), one
    text = "class Share:\n    def _tied(self, beside): ...\n"
    assert [said.split(";")[0] for said in outdated(ast.parse(text), "meshloom/schedule/sides.py", before)] == [
        "meshloom/schedule/sides.py: the name of the module", "meshloom/schedule/sides.py:1: Share",
        "meshloom/schedule/sides.py:2: _tied", "meshloom/schedule/sides.py:2: beside"
    ]  # fmt: skip


def test_the_places_of_words_are_there() -> None:
    for word, places in table("word").items():
        for place in quoted(places):
            path = ROOT / place
            files: list[Path] = [path] if path.is_file() else sorted(path.rglob("*.py"))
            found = {name.strip("_").lower() for file in files for _, name in named(parsed(file))}
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
    for where, path in sources():
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
