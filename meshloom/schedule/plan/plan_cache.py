"""Plans on disk, found by content and believed by nobody; and those in memory, which were verified once.

An entry is an outline and the arrays that it numbers. The outline (JSON) follows the declaration: the schema, the name
of the plan's type, then its fields, of parts the names of their types too. An entry of another schema or type, with
anything missing or left over, is built again; so is one that the verifier rejects.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from meshloom.native import cache
from meshloom.schedule.plan.declare import Array, Holding, Listed, Pair, Pairs, Part, PlanNumber, Table, declared
from meshloom.schedule.plan.plan import Plan, Topology, arrays
from meshloom.target import CPU

SCHEMA = 10  # of what is stored and of its meaning: a new one makes old entries unreachable
OUTLINE = "outline"

Builder = Callable[[Topology, int], Plan]
Verifier = Callable[[Plan, Topology], None]
Stored = dict[str, np.ndarray]

#: Those that somebody still has, by their keys: maps of the same content have the same plans.
_living: WeakValueDictionary[str, Plan] = WeakValueDictionary()
_held: ContextVar[list[Plan] | None] = ContextVar("_held", default=None)


@contextmanager
def plans_held() -> Iterator[None]:
    """A block in which no plan is forgotten. Who weighs candidates asks for the plans of many loops that are then given
    up, and most of them for the same few: reading and verifying one takes seconds on millions of cells."""
    token = _held.set([])
    try:
        yield
    finally:
        _held.reset(token)


def smallest_stored() -> int:
    """Elements of a loop whose plan is kept on disk; plans are made on the CPU, whatever they are for."""
    return CPU.cpu.plans.smallest_stored


def cached_plan(
    build: Builder, kind: type[Plan], name: str, topo: Topology, block: int, verify: Verifier, variant: str = "",
    by_block: bool = True
) -> Plan:  # fmt: skip
    """The plan of type ``kind``: the one that somebody has, or from the disk or built, and verified in either case:
    what is read may be anything.

    An entry that is damaged, or not right for these maps, is built again and replaced. ``by_block``: the arrays depend
    on the block size; else one entry serves all.
    """
    if topo.elements < smallest_stored() or topo.box is not None:
        return fresh_plan(build, topo, block, verify)
    described = f"{SCHEMA}|{kind.__name__}|{name}|{variant}|{block if by_block else 0}|{topo.digest}"
    key = hashlib.sha256(described.encode()).hexdigest()
    plan = _living.get(key)
    if plan is None:
        plan = _living[key] = _shared(_read_or_built(build, kind, name, topo, block, verify, key))
    held = _held.get()
    if held is not None and not any(plan is one for one in held):
        held.append(plan)
    return plan if plan.block == block else replace(plan, block=block)


def _read_or_built(
    build: Builder, kind: type[Plan], name: str, topo: Topology, block: int, verify: Verifier, key: str
) -> Plan:
    found = restored(kind, name, block, cache.load_arrays("plans", key))
    if found is not None and _right(found, topo, verify):
        return found
    plan = fresh_plan(build, topo, block, verify)
    cache.store_arrays("plans", key, stored(plan))
    return plan


def _shared(plan: Plan) -> Plan:
    """The same, read-only, as maps are: nobody verifies again what other loops get of it."""
    for one in arrays(plan).values():
        one.flags.writeable = False
    return plan


def fresh_plan(build: Builder, topo: Topology, block: int, verify: Verifier) -> Plan:
    """A plan that is built now, verified, and kept by nobody."""
    plan = build(topo, block)
    verify(plan, topo)
    return plan


def _right(plan: Plan, topo: Topology, verify: Verifier) -> bool:
    """Whether a plan that was read is right for these maps."""
    try:
        verify(plan, topo)
    except Exception:  # PlanError, or whatever else wrong arrays lead to
        return False
    return True


# ----- plan -> entry ------------------------------------------------------------------------------------------------
def stored(plan: Plan) -> Stored:
    """The arrays of a cache entry."""
    found: list[np.ndarray] = []
    outline = {"schema": SCHEMA, "plan": _outline(plan, found)}
    text = np.frombuffer(json.dumps(outline).encode(), np.uint8)
    return {OUTLINE: text} | {_place(number): one for number, one in enumerate(found)}


def _place(number: int) -> str:
    return f"array{number}"


def _outline(value: Any, found: list[np.ndarray]) -> Any:
    """Arrays by their number, tables as pairs of number and value, objects with the name of their type."""
    if isinstance(value, np.ndarray):
        found.append(value)
        return len(found) - 1
    if isinstance(value, dict):
        return [[key, _outline(one, found)] for key, one in value.items()]
    if isinstance(value, tuple):
        return [list(one) if isinstance(one, Pair) else _outline(one, found) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        parts = {one.name: _outline(getattr(value, one.name), found) for one in declared(type(value))}
        return {"type": type(value).__name__, "fields": parts}
    return value


# ----- entry -> plan ------------------------------------------------------------------------------------------------
def restored(kind: type[Plan], name: str, block: int, entry: Stored | None) -> Plan | None:
    """The plan of an entry; None where there is none, or it is not one that we wrote for this type."""
    if entry is None or OUTLINE not in entry or entry[OUTLINE].dtype != np.uint8:
        return None
    try:
        outline = json.loads(bytes(entry[OUTLINE]))
        reader = _Reader({key: one for key, one in entry.items() if key != OUTLINE})
        _expect(outline.keys() == {"schema", "plan"} and outline["schema"] == SCHEMA)
        fields = reader.fields((kind,), outline["plan"])[1]
        _expect(not reader.left)
    except Exception:  # it may be anything, and fail anyhow
        return None
    return kind(name, block, **fields)


def _expect(condition: bool) -> None:
    if not condition:
        raise ValueError("not what was declared")


class _Reader:
    """Values from an outline, as the declarations say; ``left``: the arrays that nobody has asked for yet."""

    def __init__(self, left: Stored):
        self.left = left

    def fields(self, kinds: tuple[type, ...], outline: Any) -> tuple[type, dict[str, Any]]:
        """The type and the fields of an object of one of some types."""
        _expect(outline.keys() == {"type", "fields"})
        (kind,) = [one for one in kinds if one.__name__ == outline["type"]]
        known = {one.name: one.holding for one in declared(kind)}
        _expect(outline["fields"].keys() == known.keys())
        found = outline["fields"].items()
        return kind, {name: None if one is None else self.value(known[name], one) for name, one in found}

    def value(self, holding: Holding, outline: Any) -> Any:
        match holding:
            case Array():
                _expect(type(outline) is int)
                return self.left.pop(_place(outline))
            case PlanNumber():
                _expect(type(outline) is int)
                return outline
            case Part(kinds=kinds):
                kind, fields = self.fields(kinds, outline)
                return kind(**fields)
            case Table(of=of):
                _expect(all(type(key) is int for key, _ in outline))
                _expect(len({key for key, _ in outline}) == len(outline))
                return {key: self.value(of, one) for key, one in outline}
            case Listed(of):
                _expect(type(outline) is list)
                return tuple(self.value(of, one) for one in outline)
            case Pairs():
                _expect(all(type(slot) is int for pair in outline for slot in pair))
                return tuple(Pair(*pair) for pair in outline)
