"""Nests of line loops on a GPU: the factors of a thread's segment. Most segments of a line have the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.schedule.lines.gpu_names import CHUNK, CORE, J0, OVERLAP, SLOT
from meshloom.schedule.lines.spec import LinePointCode, LineSpec
from meshloom.schedule.lines.terms import any_of, chained
from meshloom.schedule.nest.code import Scratch
from meshloom.schedule.nest.nodes import (
    BOOL,
    INT,
    Expr,
    For,
    Name,
    PointerTo,
    Statement,
    Store,
    Thread,
    Threads,
    call,
    let,
    value,
    variable,
)

EDGE = Name("edge")  # is the thread's segment unlike the others?
_FACTORS, _KIND, _ENTRY = Name("factors"), Name("kind"), Name("s")
_SPECIALS, _SPECIAL, _WHICH = Name("specials"), Name("special"), Name("which")
_STEADY_LOW, _STEADY_HIGH = Name("steady_low"), Name("steady_high")
_TABLES = ("lower", "inverse", "upper")


@dataclass(frozen=True)
class SegmentFactors:
    """Where segments unlike the others are few, all their factors are kept in shared memory."""

    spec: LineSpec
    code: LinePointCode

    @property
    def _kept(self) -> bool:
        return self.spec.form.special

    @property
    def _per_operator(self) -> int:
        return len(_TABLES) * self.spec.form.points

    def room(self) -> tuple[Scratch, ...]:
        count = len(self.spec.distinct) * self._per_operator
        return (Scratch(self.spec.ctype, _FACTORS.name, count * _SPECIALS),) if self._kept else ()

    def loaded(self) -> list[Statement]:
        """All of them to shared memory."""
        if not self._kept:
            return []
        count = len(self.spec.distinct) * self._per_operator
        copy = Store(_FACTORS[_ENTRY], _SPECIAL[_ENTRY])
        return [For(_ENTRY.name, Thread(), _SPECIALS * count, (copy,), step=Threads(), bare=True)]

    def segment(self) -> list[Statement]:
        """Is the thread's segment unlike the others, and where are its factors?"""
        if not self._kept:
            m = self.spec.form.points
            outside = (J0 < _STEADY_LOW, J0 + m > _STEADY_HIGH)
            return [let("edge", any_of(outside), BOOL)]
        count, operators = self._per_operator, len(self.spec.distinct)
        first = _FACTORS + call("ml_max", _KIND - 1, 0) * (operators * count)
        kept = PointerTo(self.spec.ctype, fixed=True)
        pointers = (variable(f"own{k}", first + k * count, kept) for k in range(operators))
        return [let("kind", _WHICH[CHUNK * CORE + SLOT], INT), let("edge", _KIND.differs(0), BOOL), *pointers]

    def at(self, table: str, k: int, i: Expr) -> Expr:
        """Of point i of a segment that is not like the others; ``table``: lower, inverse or upper."""
        m = self.spec.form.points
        if not self._kept:
            return self.code.table(k, table)[chained(J0 + OVERLAP * m, i)]
        return Name(f"own{k}")[chained(value(_TABLES.index(table) * m), i)]

    def pivots(self) -> list[Statement]:
        """The inverse pivots of all other segments."""
        operators = range(len(self.spec.distinct))
        return [let(pivot(k).name, self.code.table(k, "steady")[0], self.spec.ctype) for k in operators]


def pivot(k: int) -> Name:
    """The inverse pivot of an operator far from the ends, scaled."""
    return Name(f"pivot{k}")
