"""The limit of a loop: what a machine could not do faster, whatever the schedule, and what of it binds.

Every datum has to move once, and every operation has to be executed once. Both may happen at the same time, so that the
limit is the longest of the parts: bytes at the speed of copying; arithmetic, of the kind and type that takes longest by
what the machine does of it at most, as units of several kinds work side by side; updates by atomics, where a schedule
has them. The figures of a machine are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshloom.native.peaks import ARITHMETIC_KINDS
from meshloom.records import dataclass

ATOMIC = "atomic update"
DEVICE_KINDS = (*ARITHMETIC_KINDS, ATOMIC)
BYTES, ARITHMETIC, ATOMICS = "bytes", "arithmetic", "atomics"

#: How many of a kind and a type (of ``DEVICE_KINDS`` and ``TYPES``) a machine does per second, measured when somebody
#: first asks; None of what is not measured there.
Rate = Callable[[str, str], float | None]


def unmeasured(kind: str, dtype: str) -> float | None:
    """The rate of a machine whose operations nobody measures."""
    return None


@dataclass(frozen=True)
class Peaks:
    """What a machine does at most, per second: ``copy`` bytes read and written, and operations."""

    copy: float
    rate: Rate = unmeasured


@dataclass(frozen=True)
class Roofline:
    """Seconds that each part takes at least. ``most``: the kind of arithmetic that takes longest. ``total``: where the
    parts do not happen at the same time."""

    parts: Mapping[str, float]
    most: str = ""
    total: float | None = None

    @property
    def seconds(self) -> float:
        return max(self.parts.values(), default=0.0) if self.total is None else self.total

    @property
    def binds(self) -> str:
        """The part that takes longest, by name."""
        return max(self.parts, key=lambda name: self.parts[name], default="")

    @property
    def words(self) -> str:
        """The same, with what takes most of it."""
        return f"{self.binds} ({self.most})" if self.binds == ARITHMETIC and self.most else self.binds


def in_turn(limits: Sequence[Roofline]) -> Roofline:
    """Of operations that run one after the other: seconds by what binds each."""
    parts: dict[str, float] = {}
    for one in limits:
        parts[one.words] = parts.get(one.words, 0.0) + one.seconds
    return Roofline(parts, total=sum(parts.values()))


def limit_of(moved: float, operations: Mapping[tuple[str, str], float], peaks: Peaks) -> Roofline:
    """Of something that moves so many bytes and has these operations; what was not measured does not count."""
    taken = {one: count / rate for one, count in operations.items() if count and (rate := peaks.rate(*one))}
    arithmetic = {one: seconds for one, seconds in taken.items() if one[0] in ARITHMETIC_KINDS}
    longest = max(arithmetic, key=lambda one: arithmetic[one], default=None)
    parts = {BYTES: moved / peaks.copy, ARITHMETIC: arithmetic[longest] if longest else 0.0,
             ATOMICS: sum(seconds for (kind, _), seconds in taken.items() if kind == ATOMIC)}  # fmt: skip
    known = {name: seconds for name, seconds in parts.items() if seconds or name == BYTES}
    return Roofline(known, longest[0] if longest else "")
