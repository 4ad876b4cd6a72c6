"""Layouts on a GPU: what each strategy makes of them, and which one a field should have when several loops use it.

Gathers like rows that lie together (a thread reads one in 16-byte pieces); atomics like components apart (the threads
of a warp then hit different lines). A field has one layout, so the loops that use it vote, each with its time.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Time of a loop relative to its better layout, from ``bench.race`` (airfoil residual, double, Hilbert order; ``strip``
#: from ``bench.locality``, order as given).
PREFERENCE: dict[str, dict[str, float]] = {
    "direct": {"aos": 1.0, "soa": 1.0},
    "atomic": {"aos": 2.2, "soa": 1.0},
    "warp_atomic": {"aos": 2.2, "soa": 1.0},
    "strip": {"aos": 1.58, "soa": 1.0},
    "color": {"aos": 1.02, "soa": 1.0},
    "block_color": {"aos": 1.0, "soa": 1.28},
    "block_atomic": {"aos": 1.0, "soa": 1.17},
    "staged": {"aos": 1.0, "soa": 1.07},
    "owner": {"aos": 1.0, "soa": 1.1},
    "tile": {"aos": 1.0, "soa": 1.25},
}
LAYOUTS = ("aos", "soa")  # in a draw the first wins


def best_layout(votes: Iterable[tuple[str, float]]) -> tuple[str, dict[str, float]]:
    """The layout with the least sum over (strategy, seconds), and the sums."""
    listed = list(votes)
    sums = {layout: sum(seconds * PREFERENCE[name][layout] for name, seconds in listed) for layout in LAYOUTS}
    return min(LAYOUTS, key=sums.__getitem__), sums
