"""The plan verifier: recomputes from the maps what a plan must satisfy, and rejects plans that do not.

Checks of races use stamps: every element (or block) writes its number at its targets, then looks whether it is still
there. Whoever finds another number shares a target with somebody. No sorting, so millions of elements take a fraction
of a second.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from meshloom.errors import KernelError
from meshloom.mesh.core import Map
from meshloom.native.algorithms import wrong_incidence
from meshloom.schedule.form import demand
from meshloom.schedule.gather import usual_degree
from meshloom.schedule.plan import Plan, Topology


def _check_permutation(plan: Plan, name: str, size: int) -> None:
    array = plan.arrays[name]
    demand(array.shape == (size,), plan, f"{name} has {len(array)} entries, expected {size}")
    demand(not size or (array.min() >= 0 and array.max() < size), plan, f"{name} has an entry out of bounds")
    demand(
        bool((np.bincount(array, minlength=size) == 1).all()), plan, f"{name} does not visit everything exactly once"
    )


def _distinct(numbers: np.ndarray, size: int) -> int:
    """How many different numbers there are, all below ``size``."""
    hit = np.zeros(size, bool)
    hit[numbers] = True
    return int(np.count_nonzero(hit))


def _check_offsets(plan: Plan, name: str, end: int) -> None:
    array = plan.arrays[name].astype(np.int64, copy=False)
    demand(len(array) > 0 and array[0] == 0 and array[-1] == end, plan, f"{name} does not run from 0 to {end}")
    demand(bool((np.diff(array) >= 0).all()), plan, f"{name} is not ascending")


def _visit(plan: Plan, topology: Topology) -> np.ndarray:
    if "visit" in plan.arrays:
        _check_permutation(plan, "visit", topology.elements)
        return plan.arrays["visit"]
    return np.arange(topology.elements)


def _lost_stamps(owner: np.ndarray, rows: np.ndarray, targets: int) -> np.ndarray:
    """(rows.shape) True where a target carries another owner's number than that of the row."""
    stamp = np.full(targets, -1, np.int64)
    stamp[rows] = owner[:, None]
    return stamp[rows] != owner[:, None]


def check_direct(plan: Plan, topology: Topology) -> None:
    _visit(plan, topology)


def check_color(plan: Plan, topology: Topology) -> None:
    visit = _visit(plan, topology)
    _check_offsets(plan, "color_offsets", topology.elements)
    demand(
        plan.sizes["n_colors"] == len(plan.arrays["color_offsets"]) - 1, plan, "n_colors does not fit color_offsets"
    )
    ends = plan.arrays["color_offsets"]
    for rows, targets in zip(*topology.conflicts(), strict=True):
        for color, (first, last) in enumerate(pairwise(ends)):
            members = visit[first:last].astype(np.int64)
            lost = _lost_stamps(members, rows[members], targets)
            demand(not lost.any(), plan, f"two elements of color {color} share a target")
    for m, rows in topology.rows().items():
        table = plan.arrays.get(f"by_color{m}")
        same = table is None or np.array_equal(table, rows[visit].T)
        demand(same, plan, f"by_color{m} does not hold the rows of map {m} in the order of visit")


def _check_blocks(plan: Plan, topology: Topology) -> np.ndarray:
    """Block number of each position of the visit."""
    _check_offsets(plan, "block_offsets", topology.elements)
    lengths = np.diff(plan.arrays["block_offsets"])
    demand(not len(lengths) or lengths.max() <= plan.block, plan, f"a block has more than {plan.block} elements")
    demand(plan.sizes["n_blocks"] == len(lengths), plan, "n_blocks does not fit block_offsets")
    return np.repeat(np.arange(len(lengths)), lengths)


def check_block_color(plan: Plan, topology: Topology) -> None:
    visit, block_of = _visit(plan, topology), _check_blocks(plan, topology)
    _check_inside(plan, topology, visit, block_of)
    blocks = plan.sizes["n_blocks"]
    _check_permutation(plan, "block_list", blocks)
    _check_offsets(plan, "color_offsets", blocks)
    ends = plan.arrays["color_offsets"]
    demand(plan.sizes["n_colors"] == len(ends) - 1, plan, "n_colors does not fit color_offsets")
    color_of_block = np.empty(blocks, np.int64)
    color_of_block[plan.arrays["block_list"]] = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    color = color_of_block[block_of]
    for rows, targets in zip(*topology.conflicts(), strict=True):
        for c in range(len(ends) - 1):
            members = np.flatnonzero(color == c)
            lost = _lost_stamps(block_of[members], rows[visit[members]], targets)
            demand(not lost.any(), plan, f"two blocks of color {c} share a target")


def _check_inside(plan: Plan, topology: Topology, visit: np.ndarray, block_of: np.ndarray) -> None:
    """What threads of a block share (``shared_blocks.py``): its targets, once each, the places of its slots among them,
    and colors of elements that may be added at the same time."""
    if "color_starts" not in plan.arrays:
        return
    starts, positions = plan.arrays["color_starts"], plan.arrays["color_positions"]
    blocks, ends = plan.arrays["block_offsets"], plan.arrays["color_starts"][1:] - 1
    _check_offsets(plan, "color_starts", len(positions))
    demand(bool((np.diff(starts) > 1).all()), plan, "a block has no colors")
    fits = (positions[starts[:-1]] == blocks[:-1]).all() and (positions[ends] == blocks[1:]).all()
    rising = np.diff(positions) >= 0  # from the end of one block to the beginning of the next, too
    demand(bool(fits and rising.all()), plan, "the colors of a block are not its elements")
    lengths = np.diff(positions)
    lengths = np.delete(lengths, ends[:-1]) if len(ends) else lengths
    color_of = np.repeat(_counted(np.diff(starts) - 1), lengths)
    spaces = sorted(set(topology.spaces.values()))
    for space, rows, targets in zip(spaces, *topology.conflicts(), strict=True):
        own, place = plan.arrays[f"own{space}"], plan.arrays[f"place{space}"]
        first = plan.arrays[f"own_offsets{space}"]
        _check_offsets(plan, f"own_offsets{space}", len(own))
        sizes = np.diff(first)
        demand(plan.sizes[f"most{space}"] == sizes.max(initial=0), plan, f"most{space} is not the most targets")
        demand(not len(own) or (own.min() >= 0 and own.max() < targets), plan, "a block has a target out of bounds")
        rising = (np.diff(own) > 0) | (np.diff(np.repeat(np.arange(len(sizes)), sizes)) > 0)
        demand(bool(rising.all()), plan, "a block does not list its targets once, ascending")
        demand(bool((place >= 0).all() and (place < sizes[block_of][:, None]).all()), plan, "a place is out of bounds")
        slots = first[block_of][:, None] + place
        demand(np.array_equal(own[slots], rows[visit]), plan, f"place{space} leads to another target than the map")
        for color in range(int(color_of.max(initial=-1)) + 1):
            members = np.flatnonzero(color_of == color)
            lost = _lost_stamps(members, slots[members], len(own))
            demand(not lost.any(), plan, f"two elements of color {color} of a block share a target")


def _counted(lengths: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... for each of some lengths, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def check_block_atomic(plan: Plan, topology: Topology) -> None:
    visit, block_of = _visit(plan, topology), _check_blocks(plan, topology)
    _check_inside(plan, topology, visit, block_of)
    spaces = sorted(set(topology.spaces.values()))
    for space, rows, targets in zip(spaces, *topology.conflicts(), strict=True):
        flags = plan.arrays[f"shared{space}"]
        demand(flags.shape == (targets,), plan, f"shared{space} has {len(flags)} entries, expected {targets}")
        visited = rows[visit]
        lost = _lost_stamps(block_of, visited, targets)
        demand(bool(flags[visited[lost]].all()), plan, "a target shared by two blocks is not marked")


def _check_incidence(plan: Plan, topology: Topology, number: int, entries: np.ndarray) -> None:
    """Each (element, slot) stands once, under the target that it leads to, in ascending order."""
    indices, targets = topology.maps[number]
    total = topology.elements * indices.shape[1]
    _check_offsets(plan, f"offsets{number}", total)
    demand(
        len(plan.arrays[f"offsets{number}"]) == targets + 1, plan, f"offsets{number} does not have one row per target"
    )
    demand(entries.shape == (total,), plan, f"map {number} has {len(entries)} incidences, expected {total}")
    wrong = wrong_incidence(indices[: topology.elements], targets, plan.arrays[f"offsets{number}"], entries)
    demand(not wrong, plan, f"an incidence of map {number} is {wrong}")


def check_pairs(plan: Plan, topology: Topology) -> None:
    """Slots that are paired exist, and none is in two pairs: nobody takes what has been given away."""
    check_direct(plan, topology)
    used: set[tuple[int, int]] = set()
    for name, giver in plan.sizes.items():
        m, taker = (int(part) for part in name.removeprefix("takes").split("_"))
        for slot in (taker, giver):
            known = m in topology.maps and 0 <= slot < topology.maps[m][0].shape[1]
            demand(known and (m, slot) not in used, plan, f"slot {slot} of map {m} is in two pairs, or does not exist")
            used.add((m, slot))


def check_strips(plan: Plan, topology: Topology) -> None:
    """Every element is in one strip, and no thread takes what another one has kept or given away."""
    if "strips" not in plan.arrays:
        return check_direct(plan, topology)
    _check_permutation(plan, "strips", topology.elements)
    _check_offsets(plan, "steps", topology.elements)
    counts = np.diff(plan.arrays["steps"])
    demand(bool((np.diff(counts) <= 0).all()), plan, "a strip goes on after its end")
    strips = counts[0] if len(counts) else 0
    demand(plan.sizes["n_strips"] == strips and plan.sizes["n_steps"] == len(counts), plan, "sizes do not fit")
    roles: dict[str, list[tuple[int, int]]] = {}
    for name, other in plan.sizes.items():
        if name.startswith("n_"):
            continue
        kind, m, slot = re.split(r"(?<=[a-z])(?=\d)|_", name)
        for role, one in ((f"{kind} first", int(slot)), (f"{kind} second", other)):
            known = int(m) in topology.maps and 0 <= one < topology.maps[int(m)][0].shape[1]
            demand(known, plan, f"slot {one} of map {m} does not exist")
            roles.setdefault(role, []).append((int(m), one))
    kept = roles.get("kept first", [])
    beside = [x for kind in ("lower", "upper") for part in ("first", "second") for x in roles.get(f"{kind} {part}", [])]
    ends = [x for part in ("first", "second") for x in roles.get(f"ends {part}", [])]
    for group in (kept, roles.get("kept second", []), beside, ends):
        demand(len(set(group)) == len(group), plan, "a slot is in two pairs")
    given = {x for kind in ("lower", "upper") for x in roles.get(f"{kind} second", [])}
    demand(not given & set(kept), plan, "what is kept is given away")


def _check_degree(plan: Plan, number: int) -> None:
    """The number of incidences for which code is unrolled is the usual one."""
    usual = usual_degree(plan.arrays[f"offsets{number}"])
    demand(plan.sizes[f"degree{number}"] == usual, plan, f"degree{number} is not the usual number of incidences")


def check_gather(plan: Plan, topology: Topology) -> None:
    _visit(plan, topology)
    for number in topology.maps:
        _check_incidence(plan, topology, number, plan.arrays[f"entries{number}"])
        _check_degree(plan, number)


def check_owner(plan: Plan, topology: Topology) -> None:
    check_gather(plan, topology)
    for m in topology.maps:
        if f"near{m}" in plan.arrays:
            _check_roles(plan, topology, m)
        elif f"entry{m}" in plan.arrays:
            _check_slots(plan, topology, m)


def _check_slots(plan: Plan, topology: Topology, m: int) -> None:
    """Neighbour tables by slot say what offsets, entries and maps say."""
    offsets, entries, table = plan.arrays[f"offsets{m}"], plan.arrays[f"entries{m}"], plan.arrays[f"entry{m}"]
    usual, arity = np.diff(offsets) == plan.sizes[f"degree{m}"], topology.maps[m][0].shape[1]
    demand(bool((table[:, ~usual] == -1).all()), plan, "an irregular target is not marked in the neighbour table")
    starts = offsets[:-1][usual]
    for u, row in enumerate(table):
        expected = entries[starts + u]
        demand(bool((row[usual] == expected).all()), plan, "a neighbour table holds another entry than the incidence")
        for k, rows in topology.rows().items():
            part = plan.arrays[f"near{m}_{k}"].reshape(len(table), -1, len(usual))[u]
            same = (rows[expected // arity] == part[:, usual].T).all()
            demand(bool(same), plan, f"a neighbour table has wrong rows of map {k}")


def _check_roles(plan: Plan, topology: Topology, m: int) -> None:
    """Tables in roles hold all entries of every target that is not marked, each once, seen from the target's side."""
    offsets, targets = plan.arrays[f"offsets{m}"], topology.maps[m][1]
    degree = plan.sizes[f"degree{m}"]
    table = plan.arrays[f"entry{m}"].reshape(targets, degree)
    near = plan.arrays[f"near{m}"].reshape(targets, degree)
    there, marked = table >= 0, near[:, 0] == -2
    listed = plan.arrays.get(f"marked{m}", np.empty(0, np.int32))
    same = np.array_equal(listed, np.flatnonzero(marked)) and plan.sizes.get(f"n_marked{m}", 0) == len(listed)
    demand(same, plan, "the list of marked targets does not fit the marks")
    demand(not there[marked].any() and bool((near[marked] == -2).all()), plan, "a marked target is in the tables too")
    demand(bool(((near >= 0) == there).all()), plan, "a gap of the neighbour table is none, or the other way round")
    filled, leads_to = table[there], np.ascontiguousarray(topology.maps[m][0][: topology.elements]).reshape(-1)
    counts = np.einsum("tu->t", there.view(np.uint8))  # at most 8 each; much faster than a sum over short rows
    full = (counts == np.diff(offsets)) | marked
    sound = full.all() and (not len(filled) or filled.max() < len(leads_to))
    sound = sound and _distinct(filled, len(leads_to)) == len(filled)
    sound = sound and (leads_to[filled] == np.repeat(np.arange(targets, dtype=leads_to.dtype), counts)).all()
    demand(bool(sound), plan, "a neighbour table holds another entry than the incidence")
    demand(bool((near[there] == leads_to[filled ^ 1]).all()), plan, f"a neighbour table has wrong rows of map {m}")
    element, side = filled // 2, filled % 2
    for k, rows in topology.rows().items():
        if k == m:
            continue
        turned = side if k in topology.swapped[m] else np.zeros_like(side)
        expected = np.where(turned[:, None] == 1, rows[element, ::-1], rows[element])
        if f"ring{m}_{k}" in plan.arrays:
            ring = plan.arrays[f"ring{m}_{k}"].reshape(targets, degree)
            found = np.stack([ring, np.roll(ring, -1, axis=1)], axis=2)
        else:
            found = plan.arrays[f"rows{m}_{k}"].reshape(targets, degree, -1)
        demand(bool((found[there] == expected).all()), plan, f"a neighbour table has wrong rows of map {k}")
        inside = found.min(initial=0) >= 0 and found.max(initial=0) <= rows.max(initial=0)
        demand(bool(inside), plan, f"a gap has no row of map {k} to load")


def check_tile(plan: Plan, topology: Topology) -> None:
    _visit(plan, topology)
    for number, (indices, targets) in topology.maps.items():
        arity, elements = indices.shape[1], plan.arrays[f"tile_elements{number}"]
        starts, local = plan.arrays[f"tile_offsets{number}"], plan.arrays[f"local{number}"].astype(np.int64)
        _check_offsets(plan, f"tile_offsets{number}", len(elements))
        tiles = -(-targets // plan.block)
        sizes = (plan.sizes[f"tiles{number}"], plan.sizes[f"tile{number}"], len(starts) - 1)
        demand(sizes == (tiles, plan.block, tiles), plan, "the number or size of tiles does not fit the targets")
        lengths = np.diff(starts)
        demand(
            plan.sizes[f"largest{number}"] == lengths.max(initial=0), plan, "the largest tile is not the scratch memory"
        )
        demand(
            not len(elements) or (elements.min() >= 0 and elements.max() < topology.elements),
            plan,
            "a tile holds an element out of bounds",
        )
        tile_of_element = np.repeat(np.arange(tiles), lengths)
        rising = (np.diff(elements.astype(np.int64)) > 0) | (np.diff(tile_of_element) > 0)
        demand(bool(rising.all()), plan, "a tile does not list its elements once, ascending")
        _check_offsets(plan, f"offsets{number}", len(local))
        _check_degree(plan, number)
        tile_of_entry = np.repeat(np.arange(targets) // plan.block, np.diff(plan.arrays[f"offsets{number}"]))
        demand(
            bool(((local >= 0) & (local // arity < lengths[tile_of_entry])).all()),
            plan,
            "a local number is out of bounds",
        )
        entries = elements[starts[tile_of_entry] + local // arity].astype(np.int64) * arity + local % arity
        _check_incidence(plan, topology, number, entries)


def check_one_to_one(loop: str, one: Map) -> None:
    """A map that is written through without combining must not lead two elements to one target."""
    rows = one.indices[: one.source.owned]
    lost = _lost_stamps(np.arange(len(rows)), rows, one.target.total)
    if lost.any():
        element, slot = np.argwhere(lost)[0]
        raise KernelError(
            f"loop {loop} writes through map {one.name}, but element {element} shares {one.target.name} entry"
            f" {rows[element, slot]} with another one; use Inc, Min or Max, or a map that leads to each target once"
        )
