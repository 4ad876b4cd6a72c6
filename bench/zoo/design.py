"""What is run: every schedule of every loop at one size, and of the other sizes, orders and precisions a design in
which every two of loop and mesh, order, precision and size meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import meshloom as ml
from bench.covering import covering
from bench.race import BLOCKS, PRECISIONS
from bench.race_loop import Choices
from bench.zoo.loops import LOOPS
from bench.zoo.scene import ORDERS

LAYOUTS = ("aos", "soa", "aosoa8", "aosoa32")
SIZE = 2_000_000  # cells or links where every schedule is run
SHARES = (0.05, 1.0, 5.0)  # of that: 0.1 to 10 million
CHOSEN = ("auto", "fastest")


#: What is run where every schedule is: every block, each strategy's own alone, or nothing but what is chosen.
KINDS = ("all", "own", "none")


def blocks_of(backend: str, which: str) -> tuple[int | None, ...]:
    """The blocks of one of ``KINDS``; None is a strategy's own."""
    return {"all": BLOCKS if backend == "cuda" else (None,), "own": (None,), "none": ()}[which]


@dataclass(frozen=True)
class Setting:
    """A loop on one mesh. ``complete``: by every schedule there is?"""

    loop: str
    family: str
    order: str
    precision: str
    size: int
    complete: bool

    @property
    def key(self) -> str:
        return " ".join(map(str, (self.loop, self.family, self.order, self.precision, self.size)))

    def columns(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "complete"}

    def layouts(self) -> tuple[str | None, ...]:
        """None: as fields lie by themselves."""
        return (None, *LAYOUTS) if self.complete else (None, LAYOUTS[-1])

    def wishes(self, blocks: Sequence[int | None], layout: str | None) -> list[ml.Schedule]:
        """What is chosen is asked of fields as they lie by themselves, as a user has it; the rest is named."""
        if layout is None:
            return [ml.Schedule(name) for name in CHOSEN]
        tried = tuple(blocks) if self.complete else (None,)
        return [*Choices((self.precision,), (layout,), ml.strategies(), tried, (0,)).wishes()]


def settings(loops: Sequence[str], size: int, shares: Sequence[float] = SHARES) -> Iterator[Setting]:
    """All of them, the whole products first."""
    places = [(name, family) for name in loops for family in LOOPS[name].families]
    first = [Setting(*place, "good", PRECISIONS[0], size, True) for place in places]
    yield from first
    orders, sizes = tuple(ORDERS), [round(size * share) for share in shares]
    axes: tuple[Sequence[Any], ...] = (places, orders, PRECISIONS, sizes)
    have = {one.key for one in first}
    for place, order, precision, count in sorted(covering(tuple(map(len, axes)), frozenset())):
        one = Setting(*places[place], orders[order], PRECISIONS[precision], sizes[count], False)
        if one.key not in have:
            yield one
