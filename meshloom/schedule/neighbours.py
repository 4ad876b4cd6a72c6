"""Neighbour tables: what ``owner`` reads on a GPU instead of following offsets, entries and maps one after the other.

For targets with the usual number of incident elements (``degree``) everything the maps say about them stands in arrays,
so that one load replaces a chain of three. Two kinds:

- *by slot*: arrays of (degree, targets) shape; targets with another number of elements are marked by -1 and take the
  general way.
- *in roles*, where the kernel is symmetric (``symmetry.py``): first the own target's side, then the other's. The own
  target is known, so only the other one is kept, and every incident element looks the same. Arrays of (targets,
  degree) shape, so that a thread reads its share at once. Missing elements leave gaps (-1 for the other target); only
  targets with too many elements, or that are no ring where the others are, are marked (-2), listed, and take the
  general way.
"""

from __future__ import annotations

import numpy as np

from meshloom.schedule.code import ElementCode, row_name
from meshloom.schedule.plan import Topology
from meshloom.schedule.rings import find_rings

GAP, MARKED = -1, -2
MOST_LOST = 0.05  # share of the targets that a ring may send the general way; else there is no ring


def neighbour_tables(
    topology: Topology, m: int, offsets: np.ndarray, entries: np.ndarray, degree: int
) -> dict[str, np.ndarray]:
    """Plan arrays of racy map ``m``."""
    if degree == 0:
        return {}
    if m in topology.swapped:
        return _in_roles(topology, m, offsets, entries, degree)
    return _by_slot(topology, m, offsets, entries, degree)


# ----- by slot --------------------------------------------------------------------------------------------------
def _by_slot(
    topology: Topology, m: int, offsets: np.ndarray, entries: np.ndarray, degree: int
) -> dict[str, np.ndarray]:
    """``entry<m>`` (degree, targets) and, for every map k, ``near<m>_<k>``: a row for each (element, slot of k)."""
    regular = np.diff(offsets) == degree
    table = np.full((len(offsets) - 1, degree), -1, np.int64)
    table[regular] = entries[offsets[:-1][regular][:, None] + np.arange(degree)]
    known, kind = np.maximum(table, 0), topology.index_type
    arity = topology.maps[m][0].shape[1]
    arrays = {f"entry{m}": np.ascontiguousarray(table.T, kind)}
    for k, rows in topology.rows().items():
        seen = rows[known // arity]  # (targets, degree, arity of k)
        arrays[f"near{m}_{k}"] = np.ascontiguousarray(seen.transpose(1, 2, 0).reshape(-1, len(table)), kind)
    return arrays


def slot_rows(code: ElementCode, m: int, addresses: set[tuple[int, int, int]]) -> list[str]:
    """Statements that give element ``e``, slot ``s`` and the rows of the ``u``-th incident element of target ``t``."""
    spec = code.spec
    lines = [
        f"const ml_unsigned entry = (ml_unsigned)entry{m}[u * targets{m} + t];",
        f"const ml_index e = (ml_index)(entry / {spec.maps[m].arity});",
        f"const unsigned s = (unsigned)(entry % {spec.maps[m].arity});",
    ]
    for k, slot in code.used_rows(addresses):
        place = f"(u * {spec.maps[k].arity} + {slot}) * targets{m} + t"
        lines.append(f"const ml_index {row_name(k, slot)} = near{m}_{k}[{place}];")
    return lines


# ----- in roles -------------------------------------------------------------------------------------------------
def _in_roles(
    topology: Topology, m: int, offsets: np.ndarray, entries: np.ndarray, degree: int
) -> dict[str, np.ndarray]:
    """``near<m>``: the other target; ``entry<m>``: entry, -1 for gaps; for every other map k its rows ``rows<m>_<k>``
    (targets, degree, arity), or ``ring<m>_<k>`` (targets, degree) where the elements stand in a ring; ``marked<m>``:
    the targets that are not in the tables, if any."""
    table, fits = _padded(offsets, entries, degree)
    others = {k: rows for k, rows in topology.rows().items() if k != m}
    seen = {k: _seen(rows, table, k in topology.swapped[m]) for k, rows in others.items()}
    rings: dict[int, np.ndarray] = {}
    for k in sorted(topology.swapped[m] - {m}):
        found = find_rings(seen[k][:, :, 0], seen[k][:, :, 1], table >= 0)
        if not rings and (fits & ~found.closed).sum() <= MOST_LOST * len(table):
            fits &= found.closed
            table = np.where(found.place < 0, -1, np.take_along_axis(table, np.maximum(found.place, 0), axis=1))
            seen = {k: _seen(rows, table, k in topology.swapped[m]) for k, rows in others.items()}
            rings[k] = found.nodes
    table[~fits] = -1
    other = np.where(table < 0, GAP, _flat(topology.maps[m][0])[np.maximum(table, 0) ^ 1])
    other[~fits] = MARKED
    arrays = {f"near{m}": other, f"entry{m}": table} | {f"ring{m}_{k}": nodes for k, nodes in rings.items()}
    arrays |= {f"rows{m}_{k}": rows for k, rows in seen.items() if k not in rings}
    if not fits.all():
        arrays[f"marked{m}"] = np.flatnonzero(~fits)
    return {name: np.ascontiguousarray(a, topology.index_type).reshape(-1) for name, a in arrays.items()}


def _padded(offsets: np.ndarray, entries: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """(targets, degree): up to ``degree`` entries of each target, then -1; and which targets have no more than that."""
    counts = np.diff(offsets)
    fits = counts <= degree
    if not fits.all():  # of others keep as many as there is room for
        entries = entries[np.arange(len(entries)) - np.repeat(offsets[:-1], counts) < degree]
    table = np.full((len(counts), degree), -1, entries.dtype)
    table[np.arange(degree) < counts[:, None]] = entries  # both go target by target
    return table, fits


def _seen(rows: np.ndarray, table: np.ndarray, turns: bool) -> np.ndarray:
    """(targets, degree, arity): rows of a map at the elements of a table, as seen from the target's side."""
    known = np.maximum(table, 0)
    if turns and rows.shape[1] == 2:  # an entry and the one beside it
        return np.stack([_flat(rows)[known], _flat(rows)[known ^ 1]], axis=2)
    seen = rows[known // 2]
    return np.where((known % 2 == 1)[:, :, None], seen[:, :, ::-1], seen) if turns else seen


def _flat(rows: np.ndarray) -> np.ndarray:
    """The entries of a map: element * arity + slot is the place of each."""
    return np.ascontiguousarray(rows).reshape(-1)
