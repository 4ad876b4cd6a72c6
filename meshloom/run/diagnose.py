"""Which loop, iteration and cell a solution broke down in.

The runner notices NaN or infinity in the monitors after a chunk of iterations. Here the last good state is put back
and the iterations are repeated one by one; the one that breaks is repeated loop by loop, until a field shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.mesh.core import Field, Global
from meshloom.solvers.case import Case

Snapshot = list[np.ndarray]  # values of case.state by position: the fastest to copy


def take_snapshot(case: Case) -> Snapshot:
    """A copy of the state."""
    return [field.rows() for field in case.state]


def restore(case: Case, snapshot: Snapshot) -> None:
    """Put a copied state back."""
    for field, values in zip(case.state, snapshot, strict=True):
        field.assign_rows(values)


def breakdown(case: Case, snapshot: Snapshot, before: int, last: int) -> str:
    """One line for the person: where the solution broke down between iterations ``before`` (good) and ``last``."""
    restore(case, snapshot)
    for iteration in range(before + 1, last + 1):
        good = take_snapshot(case)
        recorded = case.program.run(1, record=case.recorded)
        if np.isfinite(recorded).all() and all(np.isfinite(field.numpy()).all() for field in case.state):
            continue
        restore(case, good)
        for loop in case.program.loops:
            loop()
            for written in getattr(loop, "writes", ()):
                where = _first_bad(case, written)
                if where:
                    return f"{where} after loop {loop.name} in iteration {iteration}"
    return f"a monitor is not finite between iterations {before} and {last}, but repeating them stays finite"


def _first_bad(case: Case, written: Any) -> str:
    """``adt is NaN in cell 17 at (0.5, 0.1)``, or '' when all values are finite."""
    values = np.atleast_1d(written.numpy() if isinstance(written, Field) else written.value)
    bad = ~np.isfinite(values)
    if not bad.any():
        return ""
    what = "NaN" if np.isnan(values[bad][0]) else "infinite"
    if isinstance(written, Global):
        return f"{written.name} is {what}"
    rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
    element = int(rows[0])
    name = "cell" if written.set is case.mesh.cells else f"{written.set.name} element"
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{written.name} is {what} in {name} {element}{_position(case, written, element)}{more}"


def _position(case: Case, written: Field, cell: int) -> str:
    """The centre of a cell, in words."""
    if written.set is not case.mesh.cells:
        return ""
    centre = case.mesh.coordinates.numpy()[case.mesh.cell_nodes.indices[cell]].mean(axis=0)
    return f" at ({', '.join(f'{part:.4g}' for part in centre)})"
