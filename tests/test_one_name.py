"""One word, one meaning: no two classes of the package have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import meshloom

PACKAGE = Path(meshloom.__file__).parent


def classes(package: Path) -> dict[str, list[str]]:
    """Name of a class at the top of a module -> the modules that have one."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(package)))
    return found


def test_no_two_classes_have_one_name() -> None:
    twice = {name: where for name, where in classes(PACKAGE).items() if len(where) > 1}
    assert not twice


def test_the_test_sees_them(tmp_path: Path) -> None:
    for name in ("one.py", "other.py"):
        (tmp_path / name).write_text("class Clock:\n    pass\n", encoding="utf-8")
    assert classes(tmp_path) == {"Clock": ["one.py", "other.py"]}
