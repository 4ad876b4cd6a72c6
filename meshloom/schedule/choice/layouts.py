"""Layouts on a GPU: what each strategy makes of them, and which one a field should have when several loops use it.

Gathers like rows that lie together (a thread reads one in 16-byte pieces); atomics like components apart (the threads
of a warp then hit different lines). A field has one layout, so the loops that use it vote, each with its time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from meshloom.schedule.choice.candidate import Candidate, rank
from meshloom.target import Target

LAYOUTS = ("aos", "soa")  # in a draw the first wins


def ranked_layouts(votes: Iterable[tuple[str, float]], target: Target) -> tuple[Candidate[str], ...]:
    """The layouts on a GPU by the sum over (strategy, seconds)."""
    listed, times = list(votes), target.gpu.layout_times

    def offered(layout: str) -> Candidate[str]:
        facts = {name: times(name)[layout] for name, _ in listed}
        parts = {name: facts[name] * math.fsum(took for one, took in listed if one == name) for name in facts}
        return Candidate(layout, parts, facts)

    return rank(map(offered, LAYOUTS))
