"""A program holds operations and nothing else: what is reached from programs when they are there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import pytest

import meshloom as ml
from meshloom.config import Setting, build
from meshloom.kernel.sameness import IdentityDict
from meshloom.operation.operation import Operation
from meshloom.solvers import cases
from tests.test_operation import World

CONTAINERS = (list, tuple, set, frozenset, deque, dict, WeakSet, WeakValueDictionary)


def contents(one: Any) -> Iterator[tuple[str, list[Any]]]:
    """What an object of ours holds: the entries of a container, keys and values apart, or each attribute by itself. A
    tuple with names for its parts is no container."""
    if isinstance(one, Mapping):
        yield from (("keys", list(one)), ("values", list(one.values())))
    elif isinstance(one, tuple) and hasattr(one, "_fields"):
        yield from ((name, [getattr(one, name)]) for name in one._fields)
    elif isinstance(one, list | tuple | set | frozenset | deque | WeakSet):
        yield "entries", list(one)
    else:
        slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(one, name)]
        held = {name: getattr(one, name) for name in slots} | getattr(one, "__dict__", {})
        yield from ((name, [value]) for name, value in held.items())


def held_with_operations(*roots: Any) -> Iterator[str]:
    """All that is reached from programs, through objects that make them up and through containers, and that holds an
    operation and something that is none."""
    seen: IdentityDict[bool] = IdentityDict()
    left = [(type(one).__name__, one) for one in roots]
    while left:
        where, one = left.pop()
        before = len(seen)
        seen.setdefault((one,), True)
        ours = type(one).__module__.startswith("meshloom.operation") or isinstance(one, CONTAINERS)
        if not ours or len(seen) == before:
            continue
        for name, values in contents(one):
            kinds = {type(value) for value in values if value is not None}
            if Operation in kinds and len(kinds) > 1:
                yield f"{where}.{name}: {sorted(kind.__name__ for kind in kinds)}"
            left += [(f"{where}.{name}", value) for value in values]


def programs_of(case: str) -> list[ml.Program]:
    kind = cases()[case]
    small = [Setting(tuple(key.split(".")), value, "small") for key, value in kind.small.items()]
    return [kind(build(kind.Config, small)).program]


#: One of each kind of physics: their programs have calls, repeats, lines, boxes and maps.
QUICK_CASES = ("airfoil", "tophat1d", "volna_lake", "bookleaf_sod", "cavity2d", "fv")


@pytest.mark.parametrize("case", [one if one in QUICK_CASES else pytest.param(one, marks=pytest.mark.slow)
                                  for one in cases()])  # fmt: skip
def test_programs_of_cases_hold_operations_and_nothing_else(case: str) -> None:
    """Recorded, and fused as a GPU would have them: neither needs a compiler."""
    ml.use("emulated")
    for program in programs_of(case):
        tape = program._tape()
        fused = [made for one in tape.segments if (made := one.fused_program()) is not None]
        steps = [*program.operations, *program.loops, *program.steps, *tape.pieces, *program.dataflow.operations,
                 *(part for made in fused for part in (*made.prologue, *made.operations)),
                 *(part for one in program.steps for part in one.composed)]  # fmt: skip
        assert {type(one) for one in steps} == {Operation}
        assert not list(held_with_operations(program, tape))


def test_what_a_program_holds_besides_operations_is_found() -> None:
    ml.use("numpy")
    world = World()
    program = ml.Program(world.step)
    tape, operation = program._tape(), program.operations[0]
    assert not list(held_with_operations(program, tape))
    for name, value in (("steps_of_mine", [operation, tape]), ("queue", deque((operation, print))),
                        ("by_name", {"a": operation, "b": 3.0}), ("mine", (1, (operation, "text")))):  # fmt: skip
        vars(tape)[name] = value  # an attribute of no type
        assert len(list(held_with_operations(program))) == 1, name
        del vars(tape)[name]
