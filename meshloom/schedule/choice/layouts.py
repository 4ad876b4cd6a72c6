"""Layouts on a GPU: what each strategy makes of them, and which one a field should have when several loops use it.

Gathers like rows that lie together (a thread reads one in 16-byte pieces); atomics like components apart (the threads
of a warp then hit different lines). A field has one layout, so the loops that use it vote, each with its time.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.target import Target

LAYOUTS = ("aos", "soa")  # in a draw the first wins


def best_layout(votes: Iterable[tuple[str, float]], target: Target) -> tuple[str, dict[str, float]]:
    """The layout with the least sum over (strategy, seconds) on a GPU, and the sums."""
    listed, times = list(votes), target.gpu.layout_times
    sums = {layout: sum(seconds * times(name)[layout] for name, seconds in listed) for layout in LAYOUTS}
    return min(LAYOUTS, key=sums.__getitem__), sums
