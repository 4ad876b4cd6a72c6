"""What a person gives to a run of a program besides its arguments, and gets: what is kept of every replay, and when to
end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from meshloom.backend.base import Replayed
from meshloom.errors import ProgramError, interrupted, shown
from meshloom.mesh.core import Field, Global
from meshloom.mesh.globals import Condition
from meshloom.native import machine

MOST_INLINED = 100_000  # operations that a program takes from one inside it
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


def check_condition(name: str, until: Any) -> None:
    """ProgramError for what is no condition."""
    if not isinstance(until, Condition):
        raise ProgramError(
            f"program {name}: until takes a condition, which is a Global itself compared with a number, as in"
            f" residual < 1e-6; got {shown(until)}"
        )


def check_inside(name: str, record: Any, operations: int = 0) -> None:
    """ProgramError where a program inside another one is to keep something, or would become too many operations."""
    if tuple(record):
        raise ProgramError(
            f"program {name} runs inside another one, where nothing can be kept; give record= to the outer one"
        )
    if operations > MOST_INLINED:
        raise ProgramError(
            f"program {name} inside another one would become {operations:,} operations, at most {MOST_INLINED:,};"
            " run the outer one more often"
        )


def check_decides(name: str, until: Condition | None, written: Iterable[Field | Global]) -> None:
    """ProgramError where no Global of a condition is among what a program writes: it would never change."""
    if until is not None and not any(one is known for one in written for known in until.globals):
        raise ProgramError(
            f"program {name}: it never sets {' or '.join(one.name for one in until.globals)}, so {until} would stay as"
            " it is; repeat until something that its loops set, or run it n times"
        )


def whole_history(name: str, done: Replayed, times: int) -> np.ndarray:
    """The history of replays of a program; KeyboardInterrupt where Ctrl-C came."""
    if done.stopped:
        history = done.history
        where = f"after {len(history)} of {times} replays; fields are as the last one left them"
        raise interrupted(f"program {name}: stopped {where}", replays=len(history), history=history)
    return done.history
