"""Values merged into others, as the access modes say it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from meshloom.kernel.access import identity
from meshloom.kernel.expr import C_TYPES
from meshloom.records import dataclass
from meshloom.schedule.nest.nodes import Accumulate, Expr, Number, Statement, Store, call

_CHOOSING = {"minimum": "ml_min", "maximum": "ml_max"}


def combined(combine: str, old: Expr, new: Expr, dtype: np.dtype) -> Expr:
    """A new value merged into an old one; just the new one without a combining mode."""
    if not combine:
        return new
    if combine in _CHOOSING:
        return call(_CHOOSING[combine], old, new)
    return call("ml_wrapped_add", old, new, of_types=(C_TYPES[dtype],)) if dtype.kind == "i" else old + new


def negated(value: Expr, dtype: np.dtype) -> Expr:
    """The value with the other sign; the smallest integer has none, and wraps around."""
    return call("ml_wrapped_neg", value, of_types=(C_TYPES[dtype],)) if dtype.kind == "i" else -value


def nothing(combine: str, dtype: np.dtype) -> Number:
    """The value that changes no other one when it is merged into it."""
    return Number(identity(combine, dtype), dtype)


@dataclass(frozen=True)
class Reduction:
    """How the values that elements give to a Global become one. A thread or block collects its own in a share, of type
    ``ctype``, in memory so many numbers of a type (``stored``); shares are merged, and the last one with what was there
    before. Here a share is a number like all others. ``operator``: of OpenMP, by which lanes of a vectorised loop are
    merged.
    """

    combine: str
    dtype: np.dtype
    unroll: ClassVar[int] = 16  # shares that a thread of a GPU loads before it merges the first of them
    any_order: ClassVar[bool] = False  # have shares the same bits in whatever order they are merged?

    @property
    def ctype(self) -> str:
        return C_TYPES[self.dtype]

    @property
    def stored(self) -> tuple[np.dtype, int]:
        return self.dtype, 1

    @property
    def operator(self) -> str:
        return "+" if self.combine == "add" and self.dtype.kind == "f" else f"ml_{self.combine}"

    @property
    def start(self) -> Expr:
        """The share of nobody."""
        return nothing(self.combine, self.dtype)

    def added(self, share: Expr, value: Expr) -> Statement:
        """A value of an element put into a share."""
        return Accumulate(share, self.combine, value, self.dtype)

    def merged(self, share: Expr, other: Expr) -> Statement:
        """Another share put into a share."""
        return self.added(share, other)

    def total(self, before: Expr, share: Expr) -> Expr:
        """What the Global becomes. An extreme that is zero is 0.0: whether -0.0 is taken for one hangs on the order."""
        total = combined(self.combine, before, share, self.dtype)
        return total + Number(0.0, self.dtype) if self.combine in _CHOOSING and self.dtype.kind == "f" else total

    def finished(self, to: Expr, comp: int, before: Expr | None, share: Expr) -> Statement:
        """The last share into a component of the Global; ``before``: in place of what is there."""
        return Store(to[comp], self.total(to[comp] if before is None else before, share))
