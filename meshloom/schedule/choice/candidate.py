"""Candidates: what a choice is made from, each with the time it would take, what that is made of, and what it rests on.

Every choice is the first of ``rank``: of what is allowed, what takes the least time by the cost model. Where nothing
predicts a time (what a thread of a GPU takes, how lines are cut up) candidates are offered the best first, by what was
measured, and the first that can be had is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

from meshloom.errors import one_line
from meshloom.markup import Explanation
from meshloom.records import dataclass
from meshloom.schedule.choice.cost import OVERLAPPING, combined

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate(Generic[T]):
    """One of them: ``what``, a schedule, a layout, a tile and so on.

    ``parts``: seconds by name, which ``cost.combined`` makes one; none where nothing predicts them. ``facts``: figures
    and words that they rest on. ``declined``: why it cannot be done. ``forbidden``: why it must not be taken though it
    can: sums would be rounded otherwise, or another one was asked for. ``ranked_by``: the seconds that count, where
    those of ``parts`` must not decide: on a CPU these know the threads in use, and a choice must not.
    """

    what: T
    parts: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    declined: str | None = None
    forbidden: str | None = None
    ranked_by: float | None = None

    @property
    def seconds(self) -> float:
        """Predicted, of all parts; 0 where nothing is."""
        return combined(self.parts)

    @property
    def weight(self) -> float:
        """The seconds that it is ranked by."""
        return self.seconds if self.ranked_by is None else self.ranked_by

    @property
    def allowed(self) -> bool:
        """May it be taken?"""
        return self.declined is None and self.forbidden is None

    def __str__(self) -> str:
        return f"{self.what}: {self.said}"

    @property
    def said(self) -> str:
        """All but ``what``, in words."""
        of_one = "" if self.ranked_by is None else f" (of one core {1e3 * self.ranked_by:.4g} ms counts)"
        time = f"{1e3 * self.seconds:.4g} ms{of_one} = {self._made_of()}" if self.parts else ""
        forbidden = self.forbidden and f"not taken: {self.forbidden}"
        refused = self.declined and f"declined: {self.declined}"
        return "; ".join(filter(None, [time, self._others(), refused or forbidden]))

    def _made_of(self) -> str:
        """The parts that take any time, in milliseconds, as they are combined, each with its figure."""
        said = {name: f"{name} {1e3 * took:.3g}{self._figure(name)}" for name, took in self.parts.items() if took}
        overlap = [said.pop(name) for name in OVERLAPPING if name in said]
        longest = [f"max({', '.join(overlap)})"] if len(overlap) > 1 else overlap
        return " + ".join([*longest, *said.values()])

    def _figure(self, name: str) -> str:
        return f" ({_shown(self.facts[name])})" if name in self.facts else ""

    def _others(self) -> str:
        """Facts that are no part of the time."""
        return ", ".join(f"{name} {_shown(value)}" for name, value in self.facts.items() if not self.parts.get(name))


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def rank(offered: Iterable[Candidate[T]]) -> tuple[Candidate[T], ...]:
    """The one to take first: those that are allowed by the least time, then those that are forbidden, then those that
    cannot be done. Of equals the one that was offered first."""
    return tuple(sorted(offered, key=lambda one: (one.declined is not None, one.forbidden is not None, one.weight)))


class Candidates(dict[str, tuple[Candidate[Any], ...]]):
    """Those of a loop by what is chosen, such as "strategy", each ranked: the first is in force. Prints as a table."""

    def __str__(self) -> str:
        return "\n".join(line for name, ranked in self.items() for line in _table(name, ranked))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return Explanation(self)._repr_html_()


def _table(name: str, ranked: Sequence[Candidate[Any]]) -> list[str]:
    rows = [(f"{one.what}", one.said) for one in ranked]
    width = max(len(what) for what, _ in rows)
    return [name, *(one_line(f"  {what:<{width}}  {said}" if said else f"  {what}") for what, said in rows)]
