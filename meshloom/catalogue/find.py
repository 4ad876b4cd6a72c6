"""From a name to a case: ``airfoil``, the name of a case in an installed package, or ``mine.py:Heat``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from meshloom.case import Case, is_ready
from meshloom.catalogue import installed, own_file
from meshloom.errors import UserError, nearest, shown
from meshloom.solvers import case_named
from meshloom.solvers import cases as ready_cases


def names_a_file(target: str) -> bool:
    """Whether a case is named by the Python file that it is in."""
    return own_file.parts_of(target) is not None


def case_names() -> list[str]:
    """All names of cases, ready and installed; what is installed is not imported."""
    return sorted({*ready_cases(), *installed.offers()})


def names_a_case(target: str) -> bool:
    """Whether there is a case of that name, ready or installed."""
    return case_named(target) is not None or target in installed.offers()


def find(target: str, where: str = "", base: Path = Path()) -> type[Case]:
    """The case of that name, or in that file, whose path begins at ``base``. UserError, which begins with ``where``,
    for what is none."""
    if names_a_file(target):
        return own_file.load(target, where, base)
    ready, offers = case_named(target), installed.offers()
    if ready is not None:
        for entry in offers.get(target, ()):
            warnings.warn(installed.clash(entry), stacklevel=2)
        return ready
    if target not in offers:
        raise UserError(f"{where}unknown case {shown(target)}{nearest(target, case_names())}")
    return installed.load(offers[target], where)


def is_found_again(case: type[Case]) -> bool:
    """Whether another process finds a case by what its settings say, and not only the one that has defined it."""
    return case.source is not None or is_ready(case) or case.name in installed.offers()


def listed() -> Iterator[type[Case]]:
    """Every ready and installed case, by name. A broken one costs a warning, and nothing else."""
    ready, offers = ready_cases(), installed.offers()
    found = dict(ready)
    for name, entries in offers.items():
        if name in ready:
            for entry in entries:
                warnings.warn(installed.clash(entry), stacklevel=2)
            continue
        try:
            found[name] = installed.load(entries)
        except UserError as problem:
            warnings.warn(f"left out: {problem}", stacklevel=2)
    yield from (found[name] for name in sorted(found))
