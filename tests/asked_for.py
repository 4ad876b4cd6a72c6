"""Which tests are built: a quick run makes no rows that are slow, or that need a GPU which is not there.

A row costs pytest half a millisecond and a worker of xdist another, in every worker, and a third of all rows would be
built only to be skipped. So rows with a mark that nobody asked for are dropped before pytest makes tests of them. Who
names a test by its address (``file.py::test[row]``) gets it built, and, where it cannot run, the reason why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

import meshloom as ml

#: Marks of tests that only run when they are asked for.
SLOW, GPU, RANKS = "slow", "gpu", "ranks"


@cache
def no_device() -> str | None:
    """Why there is no CUDA device, or None where there is one."""
    return ml.backends()["cuda"]


def names(expression: str, mark: str) -> bool:
    """Whether the expression of ``-m`` asks for a mark: ``slow and not gpu`` does for ``slow``, and not for ``gpu``."""
    return re.search(rf"(?<!\bnot )\b{mark}\b", re.sub(r"\s+", " ", expression)) is not None


def unwanted(config: pytest.Config) -> frozenset[str]:
    """The marks whose tests are not built in this run."""
    by_address = any("::" in argument for argument in config.args)
    return frozenset() if by_address else _unasked(str(config.getoption("-m") or ""))


@cache
def _unasked(expression: str) -> frozenset[str]:
    everywhere = {SLOW, RANKS} if no_device() is None else {SLOW, RANKS, GPU}
    return frozenset(mark for mark in everywhere if not names(expression, mark))


def why_skipped(marks: Iterable[str], expression: str) -> str | None:
    """Why a test that was built all the same does not run."""
    if GPU in marks and (reason := no_device()):
        return reason
    if SLOW in marks and not names(expression, SLOW):
        return "slow: run with -m slow"
    if RANKS in marks and not names(expression, RANKS):
        return "the whole product of numbers of ranks: run with -m ranks"
    return None


def marks_of(row: object) -> frozenset[str]:
    """The marks that one row of ``parametrize`` carries: plain values carry none."""
    return frozenset(mark.name for mark in getattr(row, "marks", ()))


def wanted_rows(rows: Iterable[Any], ids: Any, without: frozenset[str]) -> tuple[list[Any], Any]:
    """Rows that have none of these marks, and their names. One is left in any case, for whoever drops whole tests
    to see: no row at all is an error of the person who wrote it."""
    rows = [*rows]
    kept = [k for k, row in enumerate(rows) if not marks_of(row) & without] or [0][: len(rows)]
    if ids is not None and not callable(ids):
        ids = [*ids]
        ids = [ids[k] for k in kept]
    return [rows[k] for k in kept], ids


def building(parametrize: Callable[..., None], without: frozenset[str]) -> Callable[..., None]:
    """``Metafunc.parametrize`` that builds wanted rows only."""

    def of_wanted(argnames: Any, argvalues: Any, indirect: Any = False, ids: Any = None, **more: Any) -> None:
        rows, ids = wanted_rows(argvalues, ids, without)
        parametrize(argnames, rows, indirect=indirect, ids=ids, **more)

    return of_wanted
