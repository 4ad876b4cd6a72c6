"""What a person gives to a run of a program besides its arguments: what is kept of every replay, and when to end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshloom.errors import ProgramError
from meshloom.mesh.core import Field, Global
from meshloom.mesh.globals import Condition
from meshloom.native import machine

MOST_MEMORY = 0.5  # of the machine's, for the history of globals


def checked_record(name: str, record: Any, times: int) -> tuple[Global, ...]:
    """The globals to keep after every replay: ProgramError for anything else, and where memory cannot hold them."""
    if isinstance(record, Global):
        raise ProgramError(f"program {name}: record takes a tuple of Globals, as in record=(total,), got a single one")
    if isinstance(record, Field) or not isinstance(record, Iterable):
        raise ProgramError(f"program {name}: record takes a tuple of Globals, got a single {type(record).__name__}")
    try:
        kept = tuple(record)
    except TypeError:  # an array without axes, and others that only look as if there was something in them
        raise ProgramError(f"program {name}: record takes a tuple of Globals, got {type(record).__name__}") from None
    for one in kept:
        if not isinstance(one, Global):
            what = f"field {one.name}" if isinstance(one, Field) else f"{type(one).__name__}"
            raise ProgramError(
                f"program {name}: record takes Globals, got {what}; what a field tells is reduced to a Global by Sum,"
                " Min or Max"
            )
    needed, memory = 8 * times * sum(one.dim for one in kept), machine.memory()
    if needed > MOST_MEMORY * memory:
        raise ProgramError(
            f"program {name}: {times:,} replays with {len(kept)} recorded globals need {needed / 2**30:.3g} GiB of"
            f" {memory / 2**30:.3g}; run fewer at a time"
        )
    return kept


def check_decides(name: str, until: Condition | None, written: Iterable[Field | Global]) -> None:
    """ProgramError where no Global of a condition is among what a program writes: it would never change."""
    if until is not None and not any(one is known for one in written for known in until.globals):
        raise ProgramError(
            f"program {name}: it never sets {' or '.join(one.name for one in until.globals)}, so {until} would stay as"
            " it is; repeat until something that its loops set, or run it n times"
        )
