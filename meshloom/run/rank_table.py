"""What the ranks of a run did, side by side: how many elements each has, how long it was busy and waited, and what it
sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshloom.errors import one_line
from meshloom.operation.program import Program
from meshloom.process.ranks import MessageCount, MessageCounts
from meshloom.records import dataclass

#: Sets with a column, the largest first: behind them come parts of boundaries and the like.
_MOST_SETS = 4
_NOTHING = MessageCount()


@dataclass(frozen=True)
class OwnedElements:
    """How many elements of a set each rank owns; copies of other ranks' are not counted."""

    name: str
    of_ranks: tuple[int, ...]


@dataclass(frozen=True)
class MessageRow:
    """An exchange, or a reduction of Globals: how often each rank made it, messages and bytes that all ranks sent, and
    seconds that a rank waited, the longest and the mean of all ranks."""

    name: str
    calls: int
    messages: int
    bytes: int
    waited: float
    mean_waited: float


@dataclass(frozen=True)
class RankTable:
    """Of so many iterations. By rank: ``elements`` of sets that loops visit, ``seconds`` of the iterations, how many of
    them it ``waited`` for messages, ``messages`` and ``bytes`` that it sent. ``rows``: what was sent, all ranks
    together."""

    iterations: int
    elements: tuple[OwnedElements, ...]
    seconds: tuple[float, ...]
    waited: tuple[float, ...]
    messages: tuple[int, ...]
    bytes: tuple[int, ...]
    rows: tuple[MessageRow, ...]

    @property
    def busy(self) -> tuple[float, ...]:
        """Seconds in which a rank did not wait."""
        return tuple(all_of - waited for all_of, waited in zip(self.seconds, self.waited, strict=True))

    @classmethod
    def from_json(cls, found: Any) -> RankTable:
        """What ``asdict`` made of one; KeyError, TypeError or ValueError where it is something else."""
        table = cls(
            int(found["iterations"]),
            tuple(OwnedElements(str(one["name"]), _integers(one["of_ranks"])) for one in found["elements"]),
            tuple(map(float, found["seconds"])),
            tuple(map(float, found["waited"])),
            _integers(found["messages"]),
            _integers(found["bytes"]),
            tuple(MessageRow(str(one["name"]), int(one["calls"]), int(one["messages"]), int(one["bytes"]),
                             float(one["waited"]), float(one["mean_waited"])) for one in found["rows"]),
        )  # fmt: skip
        columns = (table.waited, table.messages, table.bytes, *(one.of_ranks for one in table.elements))
        if not table.seconds or any(len(one) != len(table.seconds) for one in columns):
            raise ValueError("columns of other lengths than there are ranks")
        return table


def _integers(numbers: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(int, numbers))


# ----- made of what ranks tell ----------------------------------------------------------------------------------------
def owned_elements(program: Program) -> list[tuple[str, int, int]]:
    """Of the sets that its loops visit: name, elements, and how many of them this rank owns."""
    loops = [one.domain for one in program.loops if not one.domain.all_memory]
    sets = dict.fromkeys(found for one in loops if (found := one.set) is not None)
    return [(one_line(one.name), one.size, len(one.mine)) for one in sets]


def side_by_side(
    iterations: int, seconds: Sequence[float], sent: Sequence[MessageCounts],
    owned: Sequence[Sequence[tuple[str, int, int]]],
) -> RankTable:  # fmt: skip
    """From what every rank tells, in the order of ranks: see ``RankTable`` and ``owned_elements``."""
    in_all = [added(one) for one in sent]
    names = dict.fromkeys(name for one in sent for name in one)
    elements = [(same[0][1], OwnedElements(same[0][0], tuple(own for *_, own in same)))
                for same in zip(*owned, strict=True)]  # fmt: skip
    return RankTable(
        iterations,
        # what lives on every rank is nobody's share
        tuple(one for size, one in sorted(elements, key=lambda each: -each[0]) if sum(one.of_ranks) == size),
        tuple(seconds),
        tuple(one.waited for one in in_all),
        tuple(one.messages for one in in_all),
        tuple(one.bytes for one in in_all),
        tuple(_message_row(name, [one.get(name, _NOTHING) for one in sent]) for name in names),
    )


def _message_row(name: str, of_ranks: Sequence[MessageCount]) -> MessageRow:
    waited = [one.waited for one in of_ranks]
    return MessageRow(one_line(name), max(one.calls for one in of_ranks), sum(one.messages for one in of_ranks),
                      sum(one.bytes for one in of_ranks), max(waited), mean(waited))  # fmt: skip


def added(counts: Mapping[str, MessageCount]) -> MessageCount:
    """All that was sent."""
    found = _NOTHING
    for one in counts.values():
        found = found.plus(one)
    return found


def between(before: MessageCounts, now: MessageCounts) -> dict[str, MessageCount]:
    """What was sent between two moments."""
    found = {name: one.minus(before.get(name, _NOTHING)) for name, one in now.items()}
    return {name: one for name, one in found.items() if one.calls}


def joined(one: MessageCounts, other: MessageCounts) -> dict[str, MessageCount]:
    """What was sent at one time and at another."""
    return {name: one.get(name, _NOTHING).plus(other.get(name, _NOTHING)) for name in {**one, **other}}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def balance(values: Sequence[float]) -> float:
    """The largest over the mean, 1 where all are alike."""
    return max(values) / mean(values) if any(values) else 1.0


# ----- in words -------------------------------------------------------------------------------------------------------
MESSAGE_HEADINGS = ("messages", "calls/step", "messages/step", "kB/step", "MB in all", "waited s", "mean")
EXPLAINED = (
    "An element counts for the rank that owns it. A rank is busy where it does not wait for messages; the largest over"
    " the mean says how well the work is shared out. Calls are those of one rank; messages and bytes are what all ranks"
    " sent, of a reduction what each puts in; waited is the rank that waited longest, next to the mean of all."
)


def rank_headings(table: RankTable) -> tuple[str, ...]:
    return ("rank", *(one.name for one in table.elements[:_MOST_SETS]), "busy s", "waited s", "messages", "MB sent")


def rank_rows(table: RankTable) -> list[tuple[str, ...]]:
    """Below ``rank_headings``: the largest over the mean and the mean of all ranks, and then each of them."""
    counts = [one.of_ranks for one in table.elements[:_MOST_SETS]]
    times, sent = (table.busy, table.waited), (table.messages, [size / 1e6 for size in table.bytes])
    columns: list[Sequence[float]] = [*counts, *times, *sent]
    texts = [*(["{:,.0f}"] * len(counts)), "{:.3f}", "{:.3f}", "{:,.0f}", "{:.4g}"]
    every = zip(*columns, strict=True)
    return [
        ("largest/mean", *(f"{balance(one):.3f}" for one in columns)),
        ("mean", *(text.format(mean(one)) for text, one in zip(texts, columns, strict=True))),
        *((str(rank), *(text.format(value) for text, value in zip(texts, row, strict=True)))
          for rank, row in enumerate(every)),
    ]  # fmt: skip


def message_rows(table: RankTable) -> list[tuple[str, ...]]:
    """Below ``MESSAGE_HEADINGS``: who waited longest first, and all together."""
    rows = sorted(table.rows, key=lambda row: -row.waited)
    together = MessageRow("in all", sum(row.calls for row in rows), sum(table.messages), sum(table.bytes),
                          max(table.waited), mean(table.waited))  # fmt: skip
    steps = max(table.iterations, 1)
    return [
        (row.name, f"{row.calls / steps:.4g}", f"{row.messages / steps:.4g}", f"{row.bytes / steps / 1e3:.4g}",
         f"{row.bytes / 1e6:.4g}", f"{row.waited:.3f}", f"{row.mean_waited:.3f}")
        for row in (*rows, together)
    ]  # fmt: skip
