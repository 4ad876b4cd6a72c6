"""Cases of installed packages, by their entry points: a package says in its pyproject.toml

[project.entry-points."meshloom.cases"]
heat = "their_package.module:Heat"

Nothing of it is imported before its case is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from meshloom.case import Case, keeping_registry
from meshloom.catalogue.check import check_case
from meshloom.errors import UserError, shown
from meshloom.run.place import is_mistake, mistake_text

GROUP = "meshloom.cases"


def offers() -> Mapping[str, list[EntryPoint]]:
    """Name of a case -> who offers one of that name; a package that is found twice on the path counts once. Looked up
    again where a folder of the path has changed."""
    return _offers_of(tuple([(folder, _changed_at(folder)) for folder in sys.path]))


def _changed_at(folder: str) -> int:
    with suppress(OSError, ValueError):
        return os.stat(folder or ".").st_mtime_ns
    return 0


@lru_cache(maxsize=1)
def _offers_of(path: tuple[tuple[str, int], ...]) -> Mapping[str, list[EntryPoint]]:
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, {})[_package(entry), entry.value] = entry
    return MappingProxyType({name: list(entries.values()) for name, entries in sorted(found.items())})


def load(entries: Sequence[EntryPoint], where: str = "") -> type[Case]:
    """The case that is offered under a name; UserError where there are several, or it is broken."""
    name = entries[0].name
    if len(entries) > 1:
        packages = " and ".join(_package(entry) for entry in entries)
        raise UserError(f"{where}case {shown(name)} is offered by {packages}; uninstall all but one")
    (entry,) = entries
    from_whom = f"{where}case {shown(name)} of {_package(entry)} ({entry.value})"
    try:
        with keeping_registry():
            found = entry.load()
    except BaseException as error:
        if not is_mistake(error):
            raise
        raise UserError(f"{from_whom} cannot be loaded: {mistake_text(error)}") from error
    check_case(found, f"{from_whom}: ")
    if found.name != name:
        raise UserError(f"{from_whom} calls itself {shown(found.name)}; the entry point must have the case's own name")
    return found


def clash(entry: EntryPoint) -> str:
    """What to say of a case that has the name of a ready one."""
    return f"case {shown(entry.name)} of {_package(entry)} is left out: a ready case has that name"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"
