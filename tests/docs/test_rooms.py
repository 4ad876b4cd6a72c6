"""Rooms import only what the table in CONTRIBUTING.md allows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "meshloom"
ROW = re.compile(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", re.MULTILINE)


def allowed_imports() -> dict[str, set[str]]:
    """Room -> rooms it may import, from the table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    text = text.partition("## Package overview")[2].partition("\n## ")[0]
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in ROW.findall(text)}


def room_of(module: str) -> str:
    """``meshloom.mesh.core`` is in the room ``mesh``; ``meshloom`` itself is the public surface."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "meshloom"


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Modules of the package imported anywhere in a file, functions included; not those for type checking only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "meshloom")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base] if base else parts)
            if base == "meshloom":
                yield from (f"meshloom.{alias.name}" if is_room(alias.name) else "meshloom" for alias in node.names)
            elif base.startswith("meshloom."):
                yield base
        else:
            yield from imported(node, module, is_package)


def is_room(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def files() -> Iterator[tuple[Path, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_every_room_stands_in_the_table() -> None:
    rooms = {room_of(module) for path, module in files() if path.read_text(encoding="utf-8").strip()}
    table = set(allowed_imports())
    assert rooms - table == set(), "rooms without a row in CONTRIBUTING.md"
    assert table - rooms == set(), "rows in CONTRIBUTING.md without a room"


def test_imports_go_one_way() -> None:
    """What the table allows has no cycle, so neither have the rooms."""
    table = allowed_imports()
    done: set[str] = set()
    while left := {room for room in table if room not in done}:
        free = {room for room in left if table[room] <= done}
        assert free, f"a cycle among {sorted(left)}"
        done |= free


def test_rooms_import_what_they_may() -> None:
    table = allowed_imports()
    wrong = []
    for path, module in files():
        room = room_of(module)
        may = table.get(room, set())
        for name in imported(parsed(path), module, path.name == "__init__.py"):
            if room_of(name) not in {room, *may}:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}: `{room}` may import {sorted(may)}")
    assert not wrong, "\n".join(wrong)


#: Inside rooms: who never imports what, not even for its types. A target prints nests and a plan is made for anybody:
#: neither knows a strategy, nor a way to fuse or to solve along lines, but for what a line loop is.
NEVER = {
    ("backend", "target", "schedule.nest", "schedule.plan", "schedule.spec"): (
        "schedule.strategies", "schedule.fused", "schedule.lines"),
    ("schedule.nest", "schedule.spec"): ("schedule.plan", "schedule.choice"),
    ("schedule.strategies",): ("schedule.fused", "schedule.lines", "backend", "operation"),
}  # fmt: skip
UNLESS = ("schedule.lines.spec",)  # which the reference evaluates as it stands


def below(module: str, rooms: tuple[str, ...]) -> bool:
    """Is a module in one of some rooms, or one of them?"""
    return f"{module}.".startswith(tuple(f"meshloom.{room}." for room in rooms))


def wrongly_imported(tree: ast.AST, module: str, is_package: bool = False) -> list[str]:
    """What a module imports that it never may, those for type checking only included."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [name for node in nodes for name in imported(ast.Module([node], []), module, is_package)]
    named = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [f"{node.module}.{alias.name}" for node in named for alias in node.names]
    return [name for rooms, never in NEVER.items() if below(module, rooms) for name in dict.fromkeys(names)
            if below(name, never) and not below(name, UNLESS)]  # fmt: skip


def test_a_target_prints_nests_and_never_knows_a_strategy() -> None:
    found = {module: wrongly_imported(parsed(path), module, path.name == "__init__.py") for path, module in files()}
    assert not {module: names for module, names in found.items() if names}
    targets = {module: parsed(path) for path, module in files() if below(module, ("backend", "target"))}
    asked = [module for module, tree in targets.items() for node in ast.walk(tree)
             if isinstance(node, ast.Attribute) and node.attr == "strategy"]  # fmt: skip
    assert asked == ["meshloom.backend.compiling"], "a part of its key, and nobody looks at it"


@pytest.mark.parametrize(
    ("module", "line"),
    [("backend.translation_unit", "from meshloom.schedule.strategies import passes_of"),
     ("backend.translation_unit", "def f():\n    from meshloom.schedule.strategies.common.visits import serial_pass"),
     ("backend.cuda.backend", "import meshloom.schedule.strategies.owner"),
     ("backend.cpu", "if TYPE_CHECKING:\n    from meshloom.schedule.strategies import Strategy"),
     ("backend.cpu", "from meshloom.schedule import strategies"),
     ("target.cuda", "from meshloom.schedule import fused"), ("schedule.nest.code", "from ..strategies import base"),
     ("schedule.plan.plan", "import meshloom.schedule.lines.base"),
     ("schedule.nest.nodes", "from meshloom.schedule.choice.cost import Cost"),
     ("schedule.strategies.owner", "from meshloom.backend import current")],
)  # fmt: skip
def test_who_knows_too_much_is_found(module: str, line: str) -> None:
    assert wrongly_imported(ast.parse(line), f"meshloom.{module}")


def test_who_may_know_is_left_alone() -> None:
    assert not wrongly_imported(ast.parse("from meshloom.schedule.lines.spec import LineSpec"), "meshloom.backend.cpu")
    assert not wrongly_imported(ast.parse("from meshloom.schedule.strategies import strategy"), "meshloom.operation.x")


def test_the_parser_sees_every_kind_of_import() -> None:
    text = """
import meshloom as ml
from meshloom import order, Field
if TYPE_CHECKING:
    from meshloom.cli import main
if x:
    from .core import Set
def f():
    from ..io import files
"""
    found = list(imported(ast.parse(text), "meshloom.mesh.mesh", False))
    assert found == ["meshloom", "meshloom.order", "meshloom", "meshloom.mesh.core", "meshloom.io"]


def test_modules_and_functions_stay_small() -> None:
    for path, _ in files():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") < 500, f"{path.name} has 500 lines or more"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length < 60, f"{path.name}: {node.name} has {length} lines"


def test_what_subclasses_have_to_bring_is_abstract() -> None:
    """A method that only raises would be found when somebody calls it. ``Matrix`` says why its own ones do."""
    raising = {path.relative_to(PACKAGE).as_posix() for path, _ in files()
               if "raise NotImplementedError" in path.read_text(encoding="utf-8")}  # fmt: skip
    assert raising == {"linalg/matrix.py"}


def bodies(path: Path) -> Iterator[tuple[str, str]]:
    """Every function of two statements or more: name, and arguments and text without the docstring."""
    text = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            if len(body) > 1 or (body and (body[0].end_lineno or 0) > body[0].lineno):
                lines = [one.strip() for one in text[body[0].lineno - 1 : node.end_lineno]]
                yield node.name, "\n".join([ast.unparse(node.args), *lines])


def test_no_function_is_written_twice() -> None:
    """The same to the letter in two modules: one of them can import the other's."""
    found: dict[str, set[str]] = {}
    benchmarks = sorted((ROOT / "bench").glob("*.py"))
    assert len(benchmarks) > 30
    for path in (*(path for path, _ in files()), *benchmarks):
        for name, body in bodies(path):
            found.setdefault(body, set()).add(f"{path.relative_to(ROOT)}: {name}")
    twice = [sorted(places) for places in found.values() if len({place.partition(":")[0] for place in places}) > 1]
    assert not twice and len(found) > 1000
