"""``ml.debug(nan=True)``: the first loop that makes a value which is not finite says so, with element and inputs; so
does one that looks something up outside of a table.

While it is on, every loop is run by itself, those of a recorded program included, and what it writes is kept from
before and looked at behind it: slow, and exact. While it is off nobody asks for it but one look at a name. Where a
value breaks down, what the loop has written is as before it, so that ``loop.inspect`` shows how it came about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from meshloom.errors import RunError, one_line, yes_or_no
from meshloom.kernel.model import Output
from meshloom.mesh.core import Field, Global
from meshloom.mesh.location import location_of
from meshloom.operation.inspection import LoopValues, cause_of, check_has_elements, line_of, numbered
from meshloom.operation.operation import Operation
from meshloom.recording import refuse_in_program

Storage = Field | Global


class debug:
    """A switch: on from here, or for the block of a ``with``.

    ``nan=True``: RunError at the first value that a loop makes NaN or infinite, and before a loop that would look
    something up at an index which its table does not have; ``nan=False``: as ever.
    """

    def __init__(self, *, nan: bool = True):
        refuse_in_program("ml.debug", "call it before")
        wanted = yes_or_no("ml.debug: nan", nan)
        self._before = Operation.watched
        Operation.watched = watched if wanted else None

    def __enter__(self) -> debug:
        return self

    def __exit__(self, *error: object) -> None:
        Operation.watched = self._before

    def __repr__(self) -> str:
        return f"ml.debug(nan={Operation.watched is not None})"


def watched(loop: Operation, execute: Callable[[], None]) -> None:
    """Execute a loop; RunError where it makes something that is not finite, with its fields as before."""
    _check_indices(loop)
    before = {one: (one.storage, one.storage.copy()) for one in loop.written}
    values = {one: numbered(one) for one in loop.written}
    execute()
    broken = [one for one in loop.written if one.dtype.kind == "f" and _not_finite(loop, one, numbered(one)).any()]
    if not broken:
        return
    after = {one: numbered(one) for one in broken}
    results = [(storage, storage.copy()) for storage, _ in before.values()]
    _put(before.values())
    found = _element_at_fault(loop)
    if found is None and not any(_new(loop, one, values[one], after[one]).any() for one in broken):
        _put(results)  # it was so before, and the loop has nothing to do with it
        return
    raise RunError(one_line(_message(loop, broken[0], values, after, found)))


def _check_indices(loop: Operation) -> None:
    """RunError where the loop would look something up outside of its table, which loops take for the nearest end."""
    try:
        check_has_elements(loop)
    except ValueError:
        return
    values = LoopValues(loop)
    found = values.first_outside()
    if found is None:
        return
    element, node, number = found
    size, table = node.value
    where = f"; {node.where[0]}:{node.where[1]}: {line_of(node.where)}" if node.where else ""
    entries = "1 entry" if size == 1 else f"{size} entries"
    place = values.at(element).where
    raise RunError(f"loop {loop.name}: index {number} is outside {table}, which has {entries}, at {place}{where}")


def _put(values: Iterable[tuple[Any, Any]]) -> None:
    for storage, copy in values:
        storage[...] = copy


def _not_finite(loop: Operation, one: Storage, now: np.ndarray) -> np.ndarray:
    """What is wrong among values (elements, components); a minimum starts from infinity (a maximum from the negative
    one), and padding is nobody's."""
    combines = {o.mode.combine for o in loop.operands if o.storage is one and o.mode.writes}
    starts = {"minimum": np.inf, "maximum": -np.inf}
    bad = ~np.isfinite(now) & ~np.isin(now, [starts[name] for name in combines & starts.keys()])
    if isinstance(one, Field):
        bad[one.set.padding] = False
    return bad


def _new(loop: Operation, one: Storage, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """What the loop has broken: not what was so before."""
    return _not_finite(loop, one, after) & np.isfinite(before)


def _element_at_fault(loop: Operation) -> tuple[LoopValues, int, Output] | None:
    """The first element that gives something that is not finite, by formulas as written and values from before."""
    try:
        check_has_elements(loop)
    except ValueError:
        return None
    values = LoopValues(loop)
    found = values.first_not_finite()
    return None if found is None else (values, *found)


def _message(
    loop: Operation, one: Storage, before: Mapping[Storage, np.ndarray], after: Mapping[Storage, np.ndarray],
    found: tuple[LoopValues, int, Output] | None,
) -> str:  # fmt: skip
    """One line: loop, field, element, place, the line of the kernel, and what it has read there."""
    if found is None:
        bad = _new(loop, one, before[one], after[one])
        return f"loop {loop.name}: {one.name} becomes {_where(one, bad, after[one])}"
    values, element, output = found
    known, operand = values.computed(element), loop.operands[output.param]
    inspected = values.at(element)
    made, target = known[output.value], operand.storage.name
    cause = cause_of(output.value, known)
    where = f"; {cause.where[0]}:{cause.where[1]}: {line_of(cause.where)}" if cause is not None and cause.where else ""
    read = ", ".join(map(str, inspected.inputs.values()))
    came = "" if cause is not None else ", which came in"
    reads = f"; it reads {read}{came}" if read else ""
    return f"loop {loop.name}: {target} becomes {_word(made)} at {inspected.where}{where}{reads}"


def _where(one: Storage, bad: np.ndarray, values: np.ndarray) -> str:
    if isinstance(one, Global):
        return _word(values[bad][0])
    row = int(np.flatnonzero(bad.any(axis=1))[0])
    return f"{_word(values[row][bad[row]][0])} at {location_of(one.set, row)}"


def _word(value: Any) -> str:
    return "NaN" if np.isnan(value) else "infinite"
