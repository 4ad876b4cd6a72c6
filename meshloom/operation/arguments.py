"""The arguments of a loop, checked against the kernel's parameters and against what the loop runs over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from meshloom.errors import KernelError, MeshError, UserError, shown
from meshloom.kernel.access import Mode, Read, reproducible
from meshloom.mesh.box import AXES, Box
from meshloom.mesh.buffer import sharing_memory
from meshloom.mesh.core import Arg, Field, Global, Map, Set, Subset
from meshloom.mesh.grid import Grid
from meshloom.mesh.number import PlainNumber, kind_of_number
from meshloom.mesh.offsets import Index, index_text
from meshloom.operation.domain import BoxPoints, Domain, SetElements
from meshloom.operation.operand import DIRECTLY, AccessPattern, Operand
from meshloom.schedule.choice.schedule import Schedule
from meshloom.schedule.spec import SpecBox
from meshloom.schedule.strategies import AUTOMATIC, POINTS, serving
from meshloom.target import Target

Argument = Field | Arg | Global | float | np.generic  # bool and int count as float for a type checker
Modes = Mapping[str, type[Mode]]


def domain_of(kernel: str, on: Set | Box, given: Sequence[Argument]) -> Domain:
    """What a loop runs over: points of a grid as such where it looks around or visits a part of them."""
    around = any(isinstance(a, Arg) and a.offsets is not None for a in given)
    if isinstance(on, Box):
        return BoxPoints(on) if around or on.size < on.grid.total else SetElements(on.grid)
    if not isinstance(on, Set):
        raise MeshError(
            f"kernel {kernel}: the first argument is the set (or box of a grid) to loop over, got {type(on).__name__}"
        )
    as_points = isinstance(on, Grid) and (around or on.total > on.inside.size)
    return BoxPoints(on.inside) if as_points and isinstance(on, Grid) else SetElements(on)


def as_operands(
    kernel: str, modes: Modes, domain: Domain, given: Sequence[Argument], numbers: Sequence[PlainNumber] = (),
    any_order: bool = False,
) -> tuple[Operand, ...]:  # fmt: skip
    """The arguments, one for each mode, checked against the kernel's parameters and what the loop runs over.

    ``numbers``: what holds the plain numbers among them, one after the other, where that is there already.
    ``any_order``: sums to Globals have the same bits in any order.
    """
    result: list[Operand] = []
    known = iter(numbers)
    assert domain.set is not None
    for (name, mode), argument in zip(modes.items(), given, strict=True):
        where = f"kernel {kernel}, parameter {name}"
        kind = kind_of_number(argument)
        if kind is not None:
            there = next(known, None)
            argument = _number(where, mode, argument, kind, name) if there is None else there
        if any_order and isinstance(argument, Global):
            mode = reproducible(mode, argument.dtype)
        result.append(_checked(where, name, mode, domain.set, argument))
        _check_reach(where, domain.box, result[-1])
    check_aliases(kernel, domain, result)
    return tuple(result)


def _number(where: str, mode: type[Mode], value: object, kind: str, name: str) -> PlainNumber:
    if mode is not Read:
        raise KernelError(
            f"{where}: a number can only be Read, and this is {mode.shown}; pass a Field or an ml.Global"
        )
    return PlainNumber(value, kind, name)


def _wrap(argument: object) -> str:
    """How plain values become arguments."""
    if isinstance(argument, int):
        return f" {shown(argument)}, which 64 bits do not hold"
    if isinstance(argument, np.generic):
        return ", a number of a type that kernels do not know; convert it with int(), float() or np.float64()"
    return "; an array goes in as set.field(name, data=array)" if isinstance(argument, np.ndarray) else ""


def _checked(where: str, name: str, mode: type[Mode], on: Set, argument: Argument) -> Operand:
    if isinstance(argument, Global):
        if mode.control and on.total != 1:
            raise KernelError(
                f"{where}: a Global can be {mode.shown} only in a loop over a set of one element, and {on.name} has"
                f" {on.total}; use Sum, Min or Max here, or set it in a loop over ml.Set(1)"
            )
        if not (mode.globals or mode.control):
            raise KernelError(f"{where}: a Global cannot be {mode.shown}; use Read, Sum, Min or Max")
        return Operand(argument, mode, name=name)
    arg = argument.direct if isinstance(argument, Field) else argument
    if not isinstance(arg, Arg):
        got = type(argument).__name__ + _wrap(argument)
        raise MeshError(f"{where}: expected a Field, field[map], Global or number, got {got}")
    if arg.map is not None and not isinstance(arg.map, Map):
        raise MeshError(f"{where}: {arg} is seen through a map of varying arity, which only kernels over sets take")
    if not mode.fields:
        raise KernelError(f"{where}: a Field cannot be {mode.shown}; use Inc")
    return Operand(arg.field, mode, _reach(where, on, arg), name)


def _reach(where: str, on: Set, arg: Arg) -> AccessPattern:
    """How a field is reached from the elements of a set; those of a part of a set reach what the whole does."""
    if arg.map is None and arg.field.set is not on:
        members = on.members_of(arg.field.set) if isinstance(on, Subset) and arg.offsets is None else None
        if members is not None:
            return AccessPattern(members, as_member=True)
        raise MeshError(
            f"{where}: field {arg.field.name} lives on {arg.field.set.name}, but the loop runs over {on.name};"
            f" pass {arg.field.name}[map] with a map from {on.name} to {arg.field.set.name}"
        )
    if arg.map is not None and arg.map.source is not on:
        if isinstance(on, Subset) and on.members_of(arg.map.source) is not None:
            return AccessPattern(on.restricted(arg.map), slots=arg.slots)
        raise MeshError(
            f"{where}: map {arg.map.name} starts at {arg.map.source.name}, but the loop runs over {on.name}"
        )
    if arg.map is None and arg.offsets is None:
        return DIRECTLY
    return AccessPattern(arg.map, arg.offsets, arg.slots, arg.as_member)


def _check_reach(where: str, box: Box | None, operand: Operand) -> None:
    """What is seen at offsets must be stored, or lie around the end of a periodic axis; and it is only read."""
    if box is None or operand.is_global:
        return
    name, mode, offsets = operand.storage.name, operand.mode, operand.pattern.offsets
    if operand.pattern.map is not None:
        raise MeshError(f"{where}: a loop over a box takes fields of its grid, got {name} through a map")
    if offsets is None:
        return
    if mode.writes:
        raise KernelError(
            f"{where}: {name} is {mode.shown} at offsets, but a loop over a grid writes at its own point only;"
            f" pass {name} without offsets, or read at the offsets and write another field"
        )
    grid = box.grid
    for offset in offsets.offsets:
        for a, step in enumerate(offset):
            if not box.reaches_out(a, step) or (grid.wraps[a] and abs(step) <= grid.shape[a]):
                continue
            points = grid.shape[a]
            around = f"has only {points} points, and goes around once; {step % points} there is the same point"
            ends = (f"ends there and has {grid.ghosts[a]} ghost layers; loop over grid.interior({abs(step)}) or a"
                    " smaller box, or give the grid ghosts")  # fmt: skip
            raise MeshError(
                f"{where}: offset {index_text(offset)} of {name} leads out of grid {grid.name} from {box}: axis"
                f" {AXES[a]} {around if grid.wraps[a] else ends}"
            )


def check_aliases(kernel: str, domain: Domain, operands: Sequence[Operand]) -> None:
    """What is written may appear once only: otherwise the result would depend on the order of execution.

    The exceptions are a field of a grid that is read at offsets outside of the box where it is written, and a field
    that is written at the elements of a part of its set, and read through a map that leads to none of them.
    """
    seen: dict[Field | Global, list[Operand]] = {}
    for one in operands:
        for before in seen.setdefault(one.storage, []):
            if (one.mode.writes or before.mode.writes) and not _apart(domain, one, before):
                raise KernelError(
                    f"kernel {kernel}: {one.storage.name} is passed as {before.name} and as {one.name}, and one of"
                    " them is written; pass it once, as ReadWrite, or use a second field"
                )
        seen[one.storage].append(one)


def check_memory(
    what: str, used: Iterable[Field | Global], written: Iterable[Field | Global], error: type[UserError] = KernelError
) -> None:
    """Fields of which one is written lie in memory of their own: otherwise what a loop reads would depend on the order
    in which elements are done, and a program would change the order of loops that depend on each other. Fields share
    memory where they ``wrap`` one array, or where one was given another's storage."""
    found = sharing_memory(used, set(written))
    if found is not None:
        one, other = sorted(s.name for s in found)
        raise error(
            f"{what}: {one} and {other} lie in the same memory, and one of them is written; pass one field for both, or"
            " a copy() of one"
        )


def _apart(domain: Domain, one: Operand, other: Operand) -> bool:
    """Of two operands for one field: is one the element itself, and the other never an element of the loop?"""
    box = domain.box
    if box is None:
        return _read_outside(one, other) or _read_outside(other, one)
    offsets = [o.pattern.offsets for o in (one, other) if o.pattern.offsets is not None]
    origin = (0,) * box.grid.rank
    return len(offsets) == 1 and all(box.touched((origin, o)) == 2 * box.size for o in offsets[0].offsets)


def _read_outside(written: Operand, read: Operand) -> bool:
    """Is the one at an element of a part of a set, and the other only read, through a map, at what is not in it?"""
    members, way = written.pattern.map, read.pattern.map
    if members is None or way is None or not written.pattern.as_member or read.pattern.as_member or read.mode.writes:
        return False
    inside = np.zeros(members.target.total, bool)
    inside[members.positions] = True
    return not inside[way.positions].any()


def spec_box(box: Box, operands: Sequence[Operand], wish: Schedule, target: Target) -> SpecBox:
    """What generated code depends on: where offsets lead around the end of the grid, and how lines lie in memory."""
    offsets: list[Index] = [o for one in operands if one.pattern.offsets for o in one.pattern.offsets.offsets]
    wraps = tuple(any(box.reaches_out(a, o[a]) for o in offsets) for a in range(box.grid.rank))
    grain = next(g for g in (4, 2, 1) if box.grid.places[-1] % g == 0)
    own = wish.strategy in (*AUTOMATIC, serving(POINTS).name)  # another strategy's variant means nothing here
    variant = wish.variant if own else "plain"
    return SpecBox(wraps, box.shape, grain, variant, target.gpu.points if target.is_simt else None)
