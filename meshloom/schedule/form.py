"""The form of plans: which arrays and sizes a strategy has, of which type and shape.

Checked before anything else about a plan: names become names in generated code, and code follows what arrays say. The
arrays of a group are there together or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from meshloom.errors import PlanError
from meshloom.schedule.plan import Plan, Topology

OFFSETS, NUMBERS, FLAGS = (("int64",), ("int32", "int64"), ("uint8",))
Shape = tuple[int | None, ...]  # None: any length
Arrays = dict[str, tuple[tuple[str, ...], Shape]]  # name -> (types, shape)

_COUNT = 2**40  # more than any size
_PAIRS = re.compile(r"(takes|kept|lower|upper|ends)(\d{1,6})_(\d{1,6})")


@dataclass
class Form:
    """Arrays that must be there, that may be, and in groups; names of sizes."""

    must: Arrays = field(default_factory=dict)
    may: Arrays = field(default_factory=dict)
    groups: list[tuple[bool, Arrays]] = field(default_factory=list)  # (must it be there?, its arrays)
    sizes: set[str] = field(default_factory=set)
    more_sizes: set[str] = field(default_factory=set)  # that may be there
    pairs: bool = False  # of slots, among the sizes
    given: bool = False  # elements are visited in the order that was asked for


def check_form(plan: Plan, topology: Topology, *, simt: bool | None = None, variant: str = "plain") -> None:
    """Raise PlanError unless the plan has just the arrays and sizes that its strategy knows.

    ``simt``: made for threads that run together, None where nobody knows.
    """
    _check_sizes_are_counts(plan)
    demand(plan.strategy in _FORMS, plan, "nobody has said what arrays it has (schedule/form.py)")
    form = _FORMS[plan.strategy](plan, topology, bool(simt), variant)
    known = dict(form.must)
    for wanted, arrays in form.groups:
        if wanted or not arrays.keys().isdisjoint(plan.arrays):
            known |= arrays
    for name in known:
        demand(name in plan.arrays, plan, f"array {name} is missing")
    known = form.may | known
    for name, array in plan.arrays.items():
        demand(name in known, plan, f"array {name!r} is none of this strategy")
        _check_array(plan, name, array, *known[name])
    if form.given and topology.order is not None:
        same = np.array_equal(plan.arrays["visit"], topology.order)
        demand(same, plan, "visit is not the order that was asked for")
    for name in form.sizes:
        demand(name in plan.sizes, plan, f"size {name} is missing")
    for name in plan.sizes:
        pair = form.pairs and _PAIRS.fullmatch(name)
        demand(bool(pair) or name in form.sizes | form.more_sizes, plan, f"size {name!r} is none of this strategy")


def demand(condition: bool, plan: Plan, what: str) -> None:
    """PlanError unless the condition holds."""
    if not condition:
        raise PlanError(f"plan of '{plan.strategy}' (block {plan.block}) is wrong: {what}")


def _check_sizes_are_counts(plan: Plan) -> None:
    for name, value in plan.sizes.items():
        demand(isinstance(value, int | np.integer) and 0 <= value < _COUNT, plan, f"size {name!r} is {value}")


def _check_array(plan: Plan, name: str, array: np.ndarray, types: tuple[str, ...], shape: Shape) -> None:
    plain = array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative
    demand(plain and array.dtype.name in types, plan, f"{name} is of {array.dtype}, expected {' or '.join(types)}")
    fits = array.ndim == len(shape) and all(s is None or s == n for s, n in zip(shape, array.shape, strict=False))
    demand(fits, plan, f"{name} has {' x '.join(map(str, array.shape))} entries, expected {shape}")


def _line(n: int | None) -> tuple[tuple[str, ...], Shape]:
    return NUMBERS, (n,)


def _offsets(n: int | None) -> tuple[tuple[str, ...], Shape]:
    return OFFSETS, (n,)


def _own_visit(topology: Topology) -> Arrays:
    """The order of visit where the strategy finds one of its own."""
    return {"visit": _line(topology.elements)}


def _given_visit(topology: Topology) -> Arrays:
    """The order of visit where it is the one that was asked for, if any was."""
    return {} if topology.order is None else _own_visit(topology)


def _plain(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    return Form(_given_visit(topology), given=True)


def _pairs(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    return Form(_given_visit(topology), given=True, pairs=True)


def _strip(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    strips = {"strips": _line(topology.elements), "steps": _offsets(None)}
    there = simt or "strips" in plan.arrays
    if not there:
        return _plain(plan, topology, simt, variant)
    return Form(strips, sizes={"n_strips", "n_steps"}, pairs=True)


def _color(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    rows, n = topology.rows(), topology.elements
    tables: Arrays = {f"by_color{m}": (NUMBERS, (one.shape[1], n)) for m, one in rows.items()}
    return Form({"color_offsets": _offsets(None)}, _own_visit(topology), [(variant == "indices", tables)], {"n_colors"})


def _blocks(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    blocks, spaces = plan.sizes.get("n_blocks", 0), sorted(set(topology.spaces.values()))
    rows, targets = topology.conflicts()
    inside = {"color_starts": _offsets(blocks + 1), "color_positions": _offsets(None)}
    for space, one in zip(spaces, rows, strict=True):
        inside |= {f"own_offsets{space}": _offsets(blocks + 1), f"own{space}": _line(None)}
        inside |= {f"place{space}": (NUMBERS, (topology.elements, one.shape[1]))}
    there = simt or not inside.keys().isdisjoint(plan.arrays)
    sizes = {"n_blocks", *(f"most{space}" for space in spaces if there)}
    must: Arrays = {"block_offsets": _offsets(blocks + 1)}
    if plan.strategy == "block_color":
        must |= {"block_list": _line(blocks), "color_offsets": _offsets(None)}
        sizes |= {"n_colors"}
    else:
        must |= {f"shared{s}": (FLAGS, (n,)) for s, n in zip(spaces, targets, strict=True)}
    must |= inside | _own_visit(topology) if there else _given_visit(topology)
    return Form(must, sizes=sizes, given=not there)


def _incidence(topology: Topology, entries: str) -> Arrays:
    found: Arrays = {}
    for m, (indices, targets) in topology.maps.items():
        found |= {f"offsets{m}": _offsets(targets + 1), f"{entries}{m}": _line(topology.elements * indices.shape[1])}
    return found


def _staged(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    sizes = {f"degree{m}" for m in topology.maps}
    return Form(_incidence(topology, "entries") | _given_visit(topology), sizes=sizes, given=True)


def _owner(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    form = _staged(plan, topology, simt, variant)
    rows = topology.rows()
    for m, (_, targets) in topology.maps.items():
        degree = plan.sizes.get(f"degree{m}", 0)
        tables: Arrays
        if degree and m not in topology.swapped:
            tables = {f"near{m}_{k}": (NUMBERS, (degree * r.shape[1], targets)) for k, r in rows.items()}
            form.groups.append((simt, {f"entry{m}": (NUMBERS, (degree, targets))} | tables))
        elif degree:
            each = _line(targets * degree)
            rings = {k for k in rows if f"ring{m}_{k}" in plan.arrays}
            tables = {f"ring{m}_{k}" if k in rings else f"rows{m}_{k}": _line(targets * degree * (
                1 if k in rings else r.shape[1])) for k, r in rows.items() if k != m}  # fmt: skip
            form.groups.append((simt, {f"near{m}": each, f"entry{m}": each} | tables))
            form.may[f"marked{m}"] = _line(None)
            form.more_sizes.add(f"n_marked{m}")
    return form


def _tile(plan: Plan, topology: Topology, simt: bool, variant: str) -> Form:
    must = _incidence(topology, "local") | _given_visit(topology)
    for m in topology.maps:
        must |= {f"tile_offsets{m}": _offsets(plan.sizes.get(f"tiles{m}", 0) + 1), f"tile_elements{m}": _line(None)}
    sizes = {f"{name}{m}" for m in topology.maps for name in ("tiles", "largest", "tile", "degree")}
    return Form(must, sizes=sizes, given=True)


_FORMS = {
    "direct": _plain, "atomic": _plain, "warp_atomic": _pairs, "strip": _strip, "color": _color, "block_color": _blocks,
    "block_atomic": _blocks, "staged": _staged, "owner": _owner, "tile": _tile,
}  # fmt: skip
