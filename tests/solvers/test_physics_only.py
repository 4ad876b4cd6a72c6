"""A solver says what and never how: its modules are read as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshloom
from tests.findings import none_fails
from tests.written import texts

PACKAGE = Path(meshloom.__file__).parent
#: Words of those who make loops fast, as attributes, arguments or values.
HOW = {
    "temporary", "layout", "layouts", "relayout", "aligned", "aos", "soa", "aosoa", "storage",
    "schedule", "reschedule", "Schedule", "strategy", "strategies", "block", "threads", "passes", "fuse", "branches",
    "backend", "backends", "use of ml", "target of ml", "the back end numpy", "cpu", "cuda", "hip", "emulated",
}  # fmt: skip
ROOMS = ("backend", "schedule", "target", "operation", "native", "kernel", "mesh")
#: What all cases derive from hands on what a person says of how.
OF_THE_USER = {
    "case/base.py": {"schedule"}, "case/settings.py": {"backends"}, "catalogue/check.py": {"schedule"},
    "case/schedules.py": {"Schedule", "schedule", "strategy", "strategies", "block", "reschedule"},
    "case/on_grid.py": {"aligned"},  # "auto": where rows hardly grow by it, which the grid knows
}  # fmt: skip
#: What a case of one's own is asked for must be fields.
TYPES = {"catalogue/check.py": {"meshloom.mesh.core.Field", "meshloom.mesh.core.Global"}}


def words(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every attribute, argument and value of a module that may say how, and the rooms it imports, with lines; settings
    that are retired may be called what they were."""
    old = {id(part) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)
           and ast.unparse(node.target) == "retired" for part in ast.walk(node)}  # fmt: skip
    old |= {id(word) for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "ml.Matrix"
            for word in node.keywords if word.arg == "block"}  # fmt: skip  how many unknowns meet in an entry: physics
    for node in (one for one in ast.walk(tree) if id(one) not in old):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute):
            of_package = isinstance(node.value, ast.Name) and node.value.id == "ml"
            yield (f"{node.attr} of ml" if of_package and node.attr in ("use", "target") else node.attr), line
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value.lineno
        elif isinstance(node, ast.Import):
            yield from ((alias.name, line) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", line) for alias in node.names)
            yield from ((alias.name, line) for alias in node.names if node.module == "meshloom")
    for node, text in texts(tree):
        if id(node) not in old:
            yield ("the back end numpy" if text == "numpy" else text), getattr(node, "lineno", 0)


def how(source: str, name: str = "") -> list[str]:
    """What a module says of how, with lines. That a case has a table ``config.schedule`` is the user's word."""
    rooms, may = tuple(f"meshloom.{room}." for room in ROOMS), {*OF_THE_USER.get(name, ()), *TYPES.get(name, ())}
    return [f"line {line}: {word}" for word, line in words(ast.parse(source))
            if word not in may and (word in HOW or f"{word}.".startswith(rooms))]  # fmt: skip


MODULES = sorted(path for room in ("solvers", "case", "catalogue") for path in (PACKAGE / room).rglob("*.py"))


def test_a_solver_says_what_and_never_how() -> None:
    """Nor does what solvers derive from, but for what a person says."""

    def check(path: Path) -> None:
        found = how(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())
        assert not found, "; ".join(found)

    none_fails(MODULES, check, shown=lambda path: path.relative_to(PACKAGE))


def test_nobody_may_say_what_nobody_says() -> None:
    said = {name: {word for word, _ in words(ast.parse((PACKAGE / name).read_text(encoding="utf-8")))}
            for name in (*OF_THE_USER, *TYPES)}  # fmt: skip
    assert not [(name, may - said[name]) for table in (OF_THE_USER, TYPES) for name, may in table.items()
                if may - said[name]]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["u = cells.field('u', temporary=True)", "cells.field('u', layout='soa')", "fast = ml.backend() == 'cuda'",
     "ml.use('cpu')", "loop.reschedule(x)", "from meshloom.schedule import cost",
     "from meshloom.backend import current", "Equations(passes=STORED)", "if where == 'numpy': pass",
     "u.storage[0] = 1", "import meshloom.native.cache", "ml.program(step, fuse=False)",
     "from meshloom import Schedule", "f(**{'layout': x})", "x = 'so' + 'a'", "fast = where == f'cuda'",
     "from meshloom.linalg import x\nimport meshloom.backend as b", "x = getattr(u, 'storage')"],
)  # fmt: skip
def test_the_test_finds_what_it_is_for(line: str) -> None:
    assert how(line)


@pytest.mark.parametrize(
    "line", ["x = u.numpy()", "u = cells.field('u', 3)", "import numpy as np", "import meshloom as ml", "a.use(b)"]
)
def test_the_test_leaves_physics_alone(line: str) -> None:
    assert not how(line)
