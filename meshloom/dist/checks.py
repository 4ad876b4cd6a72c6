"""What is checked of ranks where the environment asks for it, and costs time.

``MESHLOOM_CHECK_RANKS=1``: before every collective, do all ranks that take part in it make the same call? Exchange
lists go through the verifier. ``MESHLOOM_POISON_HALOS=1``: copies of other ranks' values that are no longer theirs are
NaN, so that an exchange that is missing shows.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from meshloom.errors import UserError, shown
from meshloom.mesh.core import Field
from meshloom.mesh.values import as_bytes

CALLS, HALOS, WAITS = "MESHLOOM_CHECK_RANKS", "MESHLOOM_POISON_HALOS", "MESHLOOM_LONG_WAIT"
SECONDS = 60.0  # that ranks wait for each other, unless said; likewise before one tells that it waits
SAME_CALLS = "all ranks must make the same calls in the same order"
ASK_FOR_CALLS = f"{SAME_CALLS} ({CALLS}=1 names them)"


class CollectiveCall(NamedTuple):
    """What a rank is about to do: ``does``, such as "gathers field u", at the user's line ``where``; with the rank that
    is told so it exchanges ``sent`` and ``expected`` bytes."""

    does: str
    where: str
    sent: int = 0
    expected: int = 0

    def __str__(self) -> str:
        return f"{self.does} at {self.where}" if self.where else self.does


def asked_to_check(environment: Mapping[str, str] = os.environ) -> str:
    """What this process is told of checks."""
    return environment.get(CALLS, "").strip()


def seconds_to_wait(said: str) -> float:
    """How long ranks wait for others before a collective, as one was told; 0 where nothing is checked. UserError for
    what is no number of seconds."""
    seconds = _seconds(CALLS, said or "0", "0 checks nothing, 1 checks calls, and a larger number is how many seconds"
                       " ranks wait for each other")  # fmt: skip
    return SECONDS if 0.0 < seconds <= 1.0 else seconds


def seconds_till_told(environment: Mapping[str, str] = os.environ) -> float:
    """How long a rank waits for others before it says so, where nothing is checked; 0: it never does."""
    return _seconds(WAITS, environment.get(WAITS, "").strip() or f"{SECONDS:g}", "0 says nothing, and another number"
                    " is after how many seconds a rank says that it waits for others")  # fmt: skip


def _seconds(name: str, said: str, means: str) -> float:
    """What a variable of that name says. UserError for what is no number of seconds."""
    try:
        seconds = float(said)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < math.inf:
        raise UserError(f"{name} must be 0 or more, got {shown(said)}: {means}")
    return seconds


def difference(one: int, call: CollectiveCall, other: int, their: CollectiveCall) -> str:
    """What is wrong with the calls of two ranks, in the same words on both; '' where they are the same."""
    if one > other:
        return difference(other, their, one, call)
    if call.does != their.does:
        return f"rank {one} {call}, and rank {other} {their}: {SAME_CALLS}"
    for sender, sent, receiver, expected in ((one, call.sent, other, their.expected),
                                             (other, their.sent, one, call.expected)):  # fmt: skip
        if sent != expected:
            return f"rank {sender} {call.does}: it sends {sent} bytes to rank {receiver}, which expects {expected}"
    return ""


def wrong_length(receiver: int, does: str, sender: int, came: int | None, expected: int) -> str:
    """What is wrong where another rank sends so many bytes; None: more than are expected."""
    got = "more" if came is None else f"{came} bytes"
    return f"rank {receiver} {does}: it gets {got} from rank {sender}, and expects {expected} bytes: {ASK_FOR_CALLS}"


def absence(one: int, call: CollectiveCall, missing: Sequence[int], seconds: float) -> str:
    """That ranks have not come."""
    others = " and ".join(f"rank {other}" for other in missing)
    are = "is" if len(missing) == 1 else "are"
    return (f"rank {one} {call}, and {others} {are} not there after {seconds:g} s: {SAME_CALLS}"
            f" ({CALLS}=600 waits for ten minutes)")  # fmt: skip


def poisons_halos() -> bool:
    """Is that asked for?"""
    return os.environ.get(HALOS, "") not in ("", "0")


def poison(field: Field, old: np.ndarray) -> None:
    """Make rows of a field NaN, or the largest integer."""
    rows = field.unpacked()
    rows[old] = np.nan if field.dtype.kind == "f" else np.iinfo(field.dtype).max
    field.repack(rows)


def digest(values: np.ndarray) -> str:
    """By which ranks compare values without sending them, to the last bit: -0.0 is not 0.0."""
    bits = as_bytes(values)
    if not bits.any():  # as most fields are at first: to look takes less time than to hash
        return "zero"
    return hashlib.sha256(bits.data).hexdigest()[:16]
