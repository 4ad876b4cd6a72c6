"""``python -m tests.faults.run``: plants the faults of ``faults.toml`` one after the other, and sees who finds them.

Each stands in a copy of the repository, where the tests next to it run first, and the other quick ones where those
find nothing. The test that fails must pass again without the fault, or it does not count. What was found is written
to ``found.json`` after each fault, and a run that was stopped goes on there; a fault whose place or text has changed is
planted again. ``--nearest`` leaves the other tests for later, ``--table`` writes the table of ``docs/reliability.md``
and plants nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIST, FOUND, PAGE = HERE / "faults.toml", HERE / "found.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: tests/faults/found.json -->", "<!-- /faults -->"
SECONDS = 1800.0  # that tests may take: a fault may be one that never ends
_UNNEEDED = shutil.ignore_patterns(".git", ".venv", "__pycache__", "site", "runs", ".*_cache", ".hypothesis")
NO_END = f"no end within {SECONDS:.0f} seconds"


@dataclass(frozen=True)
class Fault:
    """``old`` stands in the file once; ``new`` takes its place. ``tests``: files or tests that should see it."""

    name: str
    kind: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\0".join((self.file, self.old, self.new)).encode()).hexdigest()[:16]

    def occurrences(self, root: Path = ROOT) -> int:
        return (root / self.file).read_text(encoding="utf-8").count(self.old)

    def plant(self, root: Path) -> None:
        path = root / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.old, self.new), encoding="utf-8")

    def undo(self, root: Path) -> None:
        shutil.copyfile(ROOT / self.file, root / self.file)


def faults() -> list[Fault]:
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**one, "tests": tuple(one["tests"])}) for one in listed]


def known() -> dict[str, dict[str, Any]]:
    """What earlier runs have found, by the name of the fault."""
    found: dict[str, dict[str, Any]] = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.is_file() else {}
    return found


def first_failure(root: Path, tests: Iterable[str]) -> str | None:
    """The first of these tests that fails in a copy of the repository."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return NO_END
    said = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if said:
        return said[1]
    if said := re.search(r"^ImportError while loading conftest '(.+)'", ended.stderr, re.MULTILINE):
        return str(Path(said[1]).relative_to(root))
    return None if ended.returncode in (0, 5) else f"pytest ended with {ended.returncode}"


def finder(fault: Fault, copy: Path, tests: Iterable[str]) -> str | None:
    """The test that fails with the fault, and passes without it."""
    fault.plant(copy)
    test = first_failure(copy, tests)
    fault.undo(copy)
    if test is None or test == NO_END:
        return test
    again = [test] if test.startswith("tests/") else tests
    return test if first_failure(copy, again) is None else None


def looked_for(fault: Fault, copy: Path, nearest_only: bool) -> dict[str, Any]:
    test = finder(fault, copy, fault.tests)
    where = "nearest"
    if test is None and not nearest_only:
        test, where = finder(fault, copy, ["tests", *(f"--deselect={one}" for one in fault.tests)]), "rest"
    looked = "nearest" if nearest_only else "all"
    return {"digest": fault.digest, "found_by": test, "among": where if test else looked}


def is_done(fault: Fault, before: dict[str, Any] | None, nearest_only: bool) -> bool:
    if before is None or before["digest"] != fault.digest:
        return False
    return before["found_by"] is not None or nearest_only or before["among"] == "all"


def table(found: dict[str, dict[str, Any]]) -> str:
    """The faults and who finds them, in Markdown."""
    rows = ["| fault | kind | in | found by |", "|---|---|---|---|"]
    for one in faults():
        test = found.get(one.name, {}).get("found_by")
        by = f"`{test.removeprefix('tests/')}`".replace("|", "\\|") if test else "not tried yet"
        if test is None and one.name in found:
            by = "**no test**" if found[one.name]["among"] == "all" else "none of the nearest tests"
        rows.append(f"| {one.name} | {one.kind} | `{one.file.removeprefix('meshloom/')}` | {by} |")
    caught = sum(bool(one["found_by"]) for one in found.values())
    return f"{caught} of {len(faults())} are found by the tests.\n\n" + "\n".join(rows)


def write_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(known())}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run", description=__doc__)
    parser.add_argument("--nearest", action="store_true", help="only the tests that each fault names")
    parser.add_argument("--table", action="store_true", help="write the table of docs/reliability.md, and end")
    parser.add_argument("names", nargs="*", help="faults to plant, by a part of their names; all, unless given")
    given = parser.parse_args()
    if given.table:
        write_table()
        return
    wanted = [one for one in faults() if not given.names or any(name in one.name for name in given.names)]
    with TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=_UNNEEDED)
        for one in wanted:
            if is_done(one, known().get(one.name), given.nearest):
                continue
            result = looked_for(one, copy, given.nearest)
            FOUND.write_text(json.dumps(known() | {one.name: result}, indent=1) + "\n", encoding="utf-8")
            print(f"{one.name}: {result['found_by'] or 'NOT FOUND'}", flush=True)


if __name__ == "__main__":
    main()
