"""What the verifiers of plans share. Each plan checks itself (``check``, next to its declaration): it computes from the
maps what must be true of it, and rejects itself where it is not.

Checks of races use stamps: every element (or block) writes its number at its targets, then looks whether it is still
there. Whoever finds another number shares a target with somebody. No sorting, so millions of elements take a fraction
of a second.
"""

from __future__ import annotations

import numpy as np

from meshloom.errors import KernelError
from meshloom.mesh.core import Map
from meshloom.native.algorithms import wrong_incidence
from meshloom.schedule.plan.plan import Plan, Topology
from meshloom.schedule.plan.schema import demand


def check_permutation(plan: Plan, name: str, array: np.ndarray, size: int) -> None:
    """Every number below ``size`` stands there once."""
    demand(array.shape == (size,), plan, f"{name} has {len(array)} entries, expected {size}")
    demand(not size or (array.min() >= 0 and array.max() < size), plan, f"{name} has an entry out of bounds")
    once = (np.bincount(array, minlength=size) == 1).all()
    demand(once, plan, f"{name} does not visit everything exactly once")


def check_offsets(plan: Plan, name: str, array: np.ndarray, end: int) -> None:
    """They rise from 0 to ``end``."""
    array = array.astype(np.int64, copy=False)
    demand(len(array) > 0 and array[0] == 0 and array[-1] == end, plan, f"{name} does not run from 0 to {end}")
    demand((np.diff(array) >= 0).all(), plan, f"{name} is not ascending")


def visited(plan: Plan, visit: np.ndarray | None, topology: Topology) -> np.ndarray:
    """The elements in the order of visit, each once."""
    if visit is None:
        return np.arange(topology.elements)
    check_permutation(plan, "visit", visit, topology.elements)
    return visit


def check_given_visit(plan: Plan, visit: np.ndarray | None, topology: Topology) -> np.ndarray:
    """The same where it must be the order that was asked for."""
    same = visit is None or np.array_equal(visit, topology.visit)
    demand(same, plan, "visit is not the order that was asked for")
    return visited(plan, visit, topology)


def distinct(numbers: np.ndarray, size: int) -> int:
    """How many different numbers there are, all below ``size``."""
    hit = np.zeros(size, bool)
    hit[numbers] = True
    return int(np.count_nonzero(hit))


def lost_stamps(owner: np.ndarray, rows: np.ndarray, targets: int) -> np.ndarray:
    """(rows.shape) True where a target carries another owner's number than that of the row."""
    stamp = np.full(targets, -1, owner.dtype)
    for slot in rows.T:  # one column after the other is several times faster than all at once
        stamp[slot] = owner
    return np.take(stamp, rows) != owner[:, None]


def check_incidence(plan: Plan, topology: Topology, number: int, offsets: np.ndarray, entries: np.ndarray) -> None:
    """Each (element, slot) of a map that gives something stands once, under the target that it leads to, in ascending
    order."""
    rows, targets = topology.written_rows(number), topology.maps[number][1]
    total = rows.size
    check_offsets(plan, f"offsets of map {number}", offsets, total)
    demand(len(offsets) == targets + 1, plan, f"offsets of map {number} does not have one row per target")
    demand(entries.shape == (total,), plan, f"map {number} has {len(entries)} incidences, expected {total}")
    wrong = wrong_incidence(rows, targets, offsets, topology.packed(number, entries))
    demand(not wrong, plan, f"an incidence of map {number} is {wrong}")


def check_one_to_one(loop: str, one: Map) -> None:
    """A map that is written through without combining must not lead two elements to one target."""
    if one.ascends:
        return
    rows = one.indices[: one.source.owned]
    lost = lost_stamps(np.arange(len(rows)), rows, one.target.total)
    if lost.any():
        element, slot = np.argwhere(lost)[0]
        raise KernelError(
            f"loop {loop} writes through map {one.name}, but element {element} shares {one.target.name} entry"
            f" {rows[element, slot]} with another one; use Inc, Min or Max, a map that leads to each target once,"
            f" or loop over those it leads to: {one.target.name}.subset(map)"
        )
