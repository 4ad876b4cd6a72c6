"""Which loop, iteration and cell a solution broke down in.

The runner notices NaN or infinity in the monitors, or a recorded global beyond its limit, after a chunk of
iterations. Here the last good state is put back and the iterations are repeated one by one; the one that breaks is
repeated loop by loop, until a field shows it.
"""

from __future__ import annotations

import numpy as np

from meshloom.mesh.core import Field, Fill, Global
from meshloom.solvers.case import Case, Limit

Snapshot = list[np.ndarray]  # values of case.state


def take_snapshot(case: Case) -> Snapshot:
    """A copy of the state."""
    return [stored.numpy() for stored in case.state]


def restore(case: Case, snapshot: Snapshot) -> None:
    """Put a copied state back."""
    for stored, values in zip(case.state, snapshot, strict=True):
        stored.assign(values)


def healthy(case: Case, recorded: np.ndarray) -> np.ndarray:
    """For values (n, recorded) after n iterations: which of them are finite and within the case's limits, (n,)."""
    good = np.isfinite(case.monitor_rows(recorded)).all(axis=1)
    start = 0
    for one in case.recorded:
        if one.name in case.limits:
            good &= ~case.limits[one.name].broken(recorded[:, start : start + one.dim]).any(axis=1)
        start += one.dim
    return good


def breakdown(case: Case, snapshot: Snapshot, before: int, last: int) -> str:
    """One line for the person: where the solution broke down between iterations ``before`` (good) and ``last``."""
    restore(case, snapshot)
    for iteration in range(before + 1, last + 1):
        good = take_snapshot(case)
        recorded = case.program.run(1, record=case.recorded)
        if healthy(case, recorded).all() and all(np.isfinite(stored.numpy()).all() for stored in case.state):
            continue
        restore(case, good)
        for loop in case.program.loops:
            loop()
            if isinstance(loop, Fill):  # a minimum starts from infinity
                continue
            for written in loop.writes:
                where = _first_bad(case, written)
                if where:
                    return f"{where} after loop {loop.name} in iteration {iteration}"
    return f"a monitor is not finite between iterations {before} and {last}, but repeating them stays finite"


def _first_bad(case: Case, written: Field | Global) -> str:
    """``adt is NaN in cell 17 at (0.5, 0.1)``, or '' when all values are finite and within their limits."""
    values = np.atleast_1d(written.numpy())
    limit = case.limits.get(written.name)
    bad = ~np.isfinite(values) if limit is None else limit.broken(values)
    if not bad.any():
        return ""
    if isinstance(written, Global):
        return f"{written.name} is {_what(limit, values[bad][0])}"
    rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
    numbers = case.given_number(written.set, rows)
    element, row = int(numbers.min()), rows[np.argmin(numbers)]
    name = "cell" if written.set is case.mesh.cells else f"{written.set.name} element"
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    what = _what(limit, values[row][bad[row]].flat[0])
    return f"{written.name} is {what} in {name} {element}{_position(case, written, element)}{more}"


def _what(limit: Limit | None, value: float) -> str:
    if limit is not None and np.isfinite(value):
        return limit.text(value)
    return "NaN" if np.isnan(value) else "infinite"


def _position(case: Case, written: Field, cell: int) -> str:
    """The centre of a cell of the user's mesh, in words."""
    if written.set is not case.mesh.cells:
        return ""
    centre = case.node_positions()[case.given.cell_nodes.indices[cell]].mean(axis=0)
    return f" at ({', '.join(f'{part:.4g}' for part in centre)})"
