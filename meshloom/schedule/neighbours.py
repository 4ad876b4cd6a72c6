"""Neighbour tables: what ``owner`` reads on a GPU instead of following offsets, entries and maps one after the other.

For targets with the usual number of incident elements (``degree``) everything the maps say about them stands in arrays
of (degree, targets) shape, so that one coalesced load replaces a chain of three. Other targets are marked by -1 and
take the general way.

Where the kernel is symmetric (``symmetry.py``) the tables are written in roles: first the own target's side, then the
other's. The own target is known, so only the other one is kept, and every incident element looks the same.
"""

from __future__ import annotations

import numpy as np

from meshloom.schedule.code import ElementCode, row_name
from meshloom.schedule.plan import Topology


def neighbour_tables(
    topology: Topology, m: int, offsets: np.ndarray, entries: np.ndarray, degree: int
) -> dict[str, np.ndarray]:
    """Plan arrays of racy map ``m``: ``entry<m>`` and, for every map k of the loop, ``near<m>_<k>``.

    ``near<m>_<k>`` has a row for each (incident element, slot of k); of a symmetric map only the other target's.
    """
    if degree == 0:
        return {}
    table = entry_table(offsets, entries, degree)
    known, kind = np.maximum(table, 0), topology.index_type
    arity = topology.maps[m][0].shape[1]
    arrays = {f"entry{m}": np.ascontiguousarray(table.T, kind)}
    roles = topology.swapped.get(m, frozenset())
    for k, rows in ({k: i for k, (i, _) in topology.maps.items()} | topology.others).items():
        seen = rows[known // arity]  # (targets, degree, arity of k)
        if k in roles:
            seen = np.where((known % 2 == 1)[:, :, None], seen[:, :, ::-1], seen)
        if k == m and roles:
            seen = np.where(table[:, :, None] < 0, -1, seen[:, :, 1:])
        arrays[f"near{m}_{k}"] = np.ascontiguousarray(seen.transpose(1, 2, 0).reshape(-1, len(table)), kind)
    return arrays


def entry_table(offsets: np.ndarray, entries: np.ndarray, degree: int) -> np.ndarray:
    """(targets, degree): the entries of regular targets, -1 for the others."""
    regular = np.diff(offsets) == degree
    table = np.full((len(offsets) - 1, degree), -1, np.int64)
    table[regular] = entries[offsets[:-1][regular][:, None] + np.arange(degree)]
    return table


def neighbour_rows(code: ElementCode, m: int, addresses: set[tuple[int, int, int]], *, roles: bool) -> list[str]:
    """Statements that give the rows of the ``u``-th incident element of target ``t``.

    With ``roles`` slot 0 of map ``m`` is the target itself; else element ``e`` and slot ``s`` are given too.
    """
    spec = code.spec
    direct = any(spec.params[p].map is None and not spec.params[p].is_global for p, _, _ in addresses)
    lines = []
    if direct or not roles:
        lines += [
            f"const ml_unsigned entry = (ml_unsigned)entry{m}[u * targets{m} + t];",
            f"const ml_index e = (ml_index)(entry / {spec.maps[m].arity});",
        ]
    if not roles:
        lines.append(f"const unsigned s = (unsigned)(entry % {spec.maps[m].arity});")
    for k, slot in code.used_rows(addresses):
        if k == m and roles:
            if slot == 1:
                lines.append(f"const ml_index {row_name(m, 1)} = near{m}_{m}[u * targets{m} + t];")
        else:
            place = f"(u * {spec.maps[k].arity} + {slot}) * targets{m} + t"
            lines.append(f"const ml_index {row_name(k, slot)} = near{m}_{k}[{place}];")
    return lines
