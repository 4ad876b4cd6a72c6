"""Which loop, iteration and cell (or point of a grid) a solution broke down in.

The runner notices NaN or infinity in the monitors, or a recorded global beyond its limit, after a chunk of
iterations. Here the last good state is put back and the iterations are repeated, by halves, until it is known which of
them breaks; that one is repeated loop by loop, until a field shows it. That is done with the formulas as written: a
factor that cancels hides the division by zero that a person has to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meshloom.errors import SolveError
from meshloom.io.field_rows import all_finite, clean, numbered_rows, snapshot
from meshloom.mesh.core import Field, Global
from meshloom.operation.dataflow import Dataflow
from meshloom.process.ranks import ranks
from meshloom.records import dataclass
from meshloom.run.place import is_mistake
from meshloom.run.task import Limit, RunTask, by_global
from meshloom.run.verdict import BROKEN

BROKE_DOWN = "the solution broke down"
Snapshot = list[Callable[[], None]]  # copies of task.state, as it lies, which is the fastest; each puts itself back


def take_snapshot(task: RunTask) -> Snapshot:
    """A copy of the state; of several ranks each has its own part."""
    return [snapshot(one) for one in task.state]


def restore(copied: Snapshot) -> None:
    """Put a copied state back."""
    for put_back in copied:
        put_back()


def _clean(task: RunTask) -> None:
    """Take what a broken iteration left out of fields that are no state: an iteration writes them before it reads them,
    but perhaps piece by piece, and what is found in them must be its own."""
    for field in Dataflow(task.program.loops).written:
        if isinstance(field, Field) and not field.undefined_after and field not in task.state:
            clean(field)


def healthy(task: RunTask, recorded: np.ndarray, monitors: np.ndarray) -> np.ndarray:
    """For values (n, recorded) and the monitors (n, monitors) made of them after n iterations: which of them are finite
    and within the case's limits, (n,)."""
    good = np.isfinite(monitors).all(axis=1)
    for one, values in by_global(task.recorded, recorded):
        if one.name in task.limits:
            good &= ~task.limits[one.name].broken(values).any(axis=1)
    return good


def _monitors(task: RunTask, recorded: np.ndarray) -> np.ndarray:
    """Those of the case; what they are made of where it fails to say them, which is no reason to search no further."""
    try:
        return np.asarray(task.monitor_rows(recorded), np.float64)
    except BaseException as error:
        if not is_mistake(error):
            raise
        return recorded


@dataclass(frozen=True)
class _Finding:
    """What is wrong and where, in words, and what may help, if anybody knows; false where nothing is wrong."""

    text: str = ""
    cure: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


class Breakdown(NamedTuple):
    """One line for the person: what broke down, where, when, and what may help; and in which ``iteration``, None where
    nobody can tell."""

    text: str
    iteration: int | None


def breakdown(task: RunTask, copied: Snapshot, before: int, last: int) -> Breakdown:
    """What broke down between iterations ``before`` (good) and ``last``."""
    found = _broken_iteration(task, copied, before, last)
    if found is None:
        said = f"a monitor is not finite between iterations {before} and {last}, but repeating them stays finite"
        return Breakdown(said, None)
    return Breakdown(_explained(task, *found), found[0])


def _explained(task: RunTask, iteration: int, good: Snapshot) -> str:
    """How an iteration breaks down that begins in a good state."""
    restore(good)
    when = _when(task, iteration)
    try:
        task.program.run(1, record=task.recorded)
    except SolveError:
        restore(good)
        _clean(task)
        where = _first_loop(task, strictly=False)
        return f"{where.text} in {when}{_advice(task, where.cure)}"
    recorded = [(one.name, np.atleast_1d(one.numpy())) for one in task.recorded]
    for strictly in (True, False):
        restore(good)
        _clean(task)
        where = _first_loop(task, strictly=strictly)
        if where:
            hint = "" if strictly else "; with formulas as written (strict=True) it stays finite"
            return f"{BROKE_DOWN}: {where.text} in {when}{hint}{_advice(task, where.cure)}"
    for name, values in recorded:
        if not np.isfinite(values).all():
            what = _what(None, values[~np.isfinite(values)][0])
            return f"{BROKE_DOWN}: {name} is {what} after {when}{_advice(task)}"
    return f"{BROKE_DOWN}: a monitor is not as it should be after {when}, and no loop shows why{_advice(task)}"


def _when(task: RunTask, iteration: int) -> str:
    """``iteration 22 (time 0.0123)``, that at which it begins, where the task has one: it stands there now."""
    span = task.time_span(task.recorded_now())
    return f"iteration {iteration}{'' if span is None else f' (time {span[0]:.4g})'}"


def _advice(task: RunTask, cure: str = "") -> str:
    """What there was to say against the settings, or else what may help."""
    said = task.doubts() or (cure or task.cure(BROKEN),)
    return "".join(f"; {one}" for one in said if one)


def _broken_iteration(task: RunTask, copied: Snapshot, before: int, last: int) -> tuple[int, Snapshot] | None:
    """The first iteration that breaks something, and the state before it; None where none does. By halves: there may be
    thousands, and to look at a large state takes longer than an iteration."""
    restore(copied)
    steps = _steps_to_the_first(task, last - before)
    if steps == 0:
        return None
    good, broken, state = before, before + steps, copied
    while broken - good > 1:
        middle = (good + broken) // 2
        restore(state)
        steps = _steps_to_the_first(task, middle - good)
        if steps:
            broken = good + steps
        else:
            good, state = middle, take_snapshot(task)
    return broken, state


def _steps_to_the_first(task: RunTask, count: int) -> int:
    """Of so many iterations, how many it takes at most until something is broken; 0 where nothing is."""
    if count <= 0:
        return 0
    try:
        recorded = task.program.run(count, record=task.recorded)
    except SolveError as error:
        return error.replays + 1
    good = healthy(task, recorded, _monitors(task, recorded))
    if not good.all():
        return int(np.argmin(good)) + 1
    return 0 if all_finite(task.state) else count


def _first_loop(task: RunTask, *, strictly: bool) -> _Finding:
    """The operations of the program one by one until a field shows it: what, and after which."""
    for operation in task.program._tape().loops:
        # what draws random numbers does so as in that iteration: the program's own loops count, on a state put back
        try:
            (operation.as_written() if strictly else operation)._run_counted()
        except SolveError as error:
            return _Finding(str(error))
        for written in operation.writes if not operation.body.tells_failures else ():
            where = _first_bad(task, written)
            if where:
                return replace(where, text=f"{where.text} after loop {operation.name}")
    return _Finding()


def _first_bad(task: RunTask, written: Field | Global) -> _Finding:
    """``adt is NaN in cell 17 at (0.5, 0.1)``; nothing when all values are finite and within their limits."""
    if isinstance(written, Field) and written.undefined_after:
        return _Finding()  # a temporary field of which only a part was written so far
    limit = task.limits.get(written.name)
    cure = "" if limit is None else limit.cure
    if isinstance(written, Global):
        values = np.atleast_1d(written.numpy())
        bad = _bad(limit, values) & ~np.isinf(values)  # a minimum starts from infinity
        return _Finding(f"{written.name} is {_what(limit, values[bad][0])}", cure) if bad.any() else _Finding()
    found = _bad_elements(written, limit)
    if found is None:
        return _Finding()
    more = f" and {found.in_all - 1} more" if found.in_all > 1 else ""
    return _Finding(f"{written.name} is {_what(limit, found.value)} in"
                    f" {task.location_of(written.set, found.first)}{more}", cure)  # fmt: skip


def _bad(limit: Limit | None, values: np.ndarray) -> np.ndarray:
    return ~np.isfinite(values) if limit is None else limit.broken(values)


class _BadElements(NamedTuple):
    """Those of a field with a value that is not as it should be: the first, such a value of it, and how many."""

    first: int
    value: float
    in_all: int


def _bad_elements(field: Field, limit: Limit | None) -> _BadElements | None:
    """Those of all ranks, each of which looks at its own; None where there are none."""
    numbers, values = numbered_rows(field)
    bad = _bad(limit, values)
    rows = np.flatnonzero(bad.any(axis=1))
    own = [_BadElements(int(numbers[k]), float(values[k][bad[k]][0]), len(rows)) for k in rows[:1]]
    found = [one for part in ranks().allgathered(own, f"what is wrong with {field.name}") for one in part]
    if not found:
        return None
    in_all = min(sum(one.in_all for one in found), field.set.total)  # a single element may be on every rank
    return min(found, key=lambda one: one.first)._replace(in_all=in_all)


def _what(limit: Limit | None, value: float) -> str:
    if limit is not None and np.isfinite(value):
        return limit.text(value)
    return "NaN" if np.isnan(value) else "infinite"
