"""Layouts on a GPU: what each strategy makes of them, and which one a field should have when several loops use it.

Gathers like rows that lie together (a thread reads one in 16-byte pieces); atomics like components apart (the threads
of a warp then hit different lines). Rows longer than a piece of a cache line are better apart wherever a warp takes
whole rows of many elements: together, each of its loads touches as many lines as there are threads. In groups of 32
elements both is so: components of neighbours side by side, a row in one place. A field has one layout, so the loops
that use it vote, each with its time.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.records import dataclass
from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.target import Target

LAYOUTS = ("aos", "aosoa32", "soa")  # in a draw the first wins


@dataclass(frozen=True)
class Vote:
    """Of a loop by some strategy that takes so many seconds, for a field with rows of so many bytes. ``in_parts``:
    targets visit elements, and take of their rows what is theirs."""

    strategy: str
    seconds: float
    row_bytes: int
    in_parts: bool = False

    def times(self, target: Target) -> dict[str, float]:
        """Times over the better layout, of each."""
        return {layout: target.gpu.layout_times(self.strategy, self.row_bytes, self.in_parts)[layout]
                for layout in LAYOUTS}  # fmt: skip


def ranked_layouts(votes: Iterable[Vote], target: Target) -> tuple[Candidate[str], ...]:
    """The layouts on a GPU by the sum over votes."""
    listed = [(vote, vote.times(target)) for vote in votes]

    def offered(layout: str) -> Candidate[str]:
        parts: dict[str, float] = {}
        for vote, times in listed:
            parts[vote.strategy] = parts.get(vote.strategy, 0.0) + times[layout] * vote.seconds
        return Candidate(layout, parts, {vote.strategy: times[layout] for vote, times in listed})

    return rank(map(offered, LAYOUTS))
